/** Tables for writes whose effect is known beforehand: every type, every way of making keys, every special flag. */
import type { Sql } from '../../../support/service.js';

export async function createTables(sql: Sql): Promise<void> {
  await sql`create type mood as enum ('sad', 'glad')`;
  await sql`create domain positive as integer check (value > 0)`;
  await sql`create table kinds (
    id serial primary key, small smallint, whole integer, big bigint, price numeric(20, 5), exact numeric,
    ratio double precision, yes boolean, day date, wall timestamp, moment timestamptz, clock time, doc json, docb jsonb,
    words text, short varchar(5), plain text, token uuid, bytes bytea, numbers integer[], names text[], ratios double precision[], singles real[], mood mood,
    above positive, total integer generated always as (whole * 2) stored)`;
  await sql`create table always (id integer generated always as identity primary key, label text)`;
  await sql`create table counted (id serial primary key, label text)`;
  await sql`create table guarded (id serial primary key, secret text default 'hidden', note text, size integer check (size < 10))`;
  await sql`create table named (id serial primary key, name text, short varchar(9))`;
  await sql`create unique index on named (lower(name))`;
  await sql`create unique index on named (lower(short))`;
  await sql`insert into named (name, short) values ('ada', 'ada')`;
  await sql`create table keyed (id uuid primary key default gen_random_uuid(), label text, extra text)`;
  await sql`create table stamped (
    id uuid primary key, label text, made timestamptz, maker uuid, changed timestamptz, changer uuid, code uuid, secret text)`;
  await sql`create table marks (id serial primary key, label text, of uuid references stamped)`;
  await sql`create table settings (id serial primary key, label text, theme text default 'light')`;
  await sql`create table nodes (id serial primary key, label text, parent integer references nodes)`;
  await sql`insert into service_collections (collection, singleton) values ('settings', true), ('nodes', false)`;
  await sql`insert into service_fields (collection, field, special) values
    ('kinds', 'words', 'cast-csv'), ('stamped', 'id', 'uuid'), ('stamped', 'made', 'date-created'), ('stamped', 'maker', 'user-created'),
    ('stamped', 'changed', 'date-updated'), ('stamped', 'changer', 'user-updated'), ('stamped', 'code', 'uuid'), ('stamped', 'secret', 'hash')`;
  await sql`insert into service_relations (many_collection, many_field, one_collection, one_field) values ('nodes', 'parent', 'nodes', 'children'), ('marks', 'of', 'stamped', 'marks')`;
}

/** What is written, and what the answer shows where that differs. */
export const ROUND_TRIPS: readonly (readonly [string, unknown, unknown?])[] = [
  ['small', -32_768],
  ['whole', 1_073_741_823],
  ['whole', '12', 12],
  ['big', '9223372036854775807'],
  ['big', '-9007199254740993'],
  ['big', 42, '42'],
  ['price', '123456789012345.12345'],
  ['price', 0.1, '0.10000'],
  ['exact', '123456789012345678901234567890.123456789012345678901234567890'],
  ['ratio', 0.1],
  ['ratio', 1e300],
  ['ratio', -2.5],
  ['yes', true],
  ['yes', false],
  ['day', '2024-02-29'],
  ['day', '0001-01-01'],
  ['wall', '2024-03-31T02:30:00'],
  ['wall', '1970-01-01T00:00:00'],
  ['moment', '2024-03-31T02:30:00.123Z'],
  ['moment', '2024-01-01T00:00:00+02:00', '2023-12-31T22:00:00.000Z'],
  ['clock', '23:59:59'],
  ['clock', '08:15', '08:15:00'],
  ...['doc', 'docb'].flatMap((name) =>
    [
      { a: { b: [1, null, 'x'] } },
      [],
      {},
      'a string',
      '{"a":1}',
      '',
      12.5,
      true,
      false,
      [[['deep']]],
      { secret: 'kept as it is' },
      { secret: 5 },
    ].map((value) => [name, value] as const),
  ),
  ['words', ['a', 'b']],
  ['words', 'a,b', ['a', 'b']],
  ['words', []],
  ['short', '漢字✓ab'],
  ['plain', ''],
  ['plain', "'; drop table kinds; --"],
  ['plain', '{"a":1}'],
  ['plain', 12, '12'],
  ['plain', true, 'true'],
  ['token', '0badcafe-0000-4000-8000-00000000000f'],
  ['bytes', 'AAECAwT/'],
  ['bytes', ''],
  ['numbers', [1, 2, null]],
  ['numbers', []],
  ['names', ['a,b', '"q"', '{x}', '']],
  ['mood', 'glad'],
  ['above', 5],
  ...['small', 'big', 'price', 'day', 'moment', 'doc', 'words', 'token', 'bytes', 'numbers', 'mood', 'above'].map(
    (name) => [name, null] as const,
  ),
];

/** Values that do not fit, each of which has to be refused by the name of its field. */
export const MISFITS: readonly (readonly [string, unknown])[] = [
  ...['small', 'whole', 'big', 'price', 'ratio', 'above'].flatMap((name) =>
    ['abc', '', {}, [], true, [1]].map((value) => [name, value] as const),
  ),
  ['small', 32_768],
  ['whole', 2_147_483_648],
  ['whole', 1.5],
  ['big', '9223372036854775808'],
  ['big', 2 ** 63],
  ['price', '1e20'],
  ['ratios', [1, '1e400']],
  ['singles', [['1e39']]],
  ['price', 'not a number'],
  ['above', -1],
  ['yes', 'maybe'],
  ['yes', 2],
  ['yes', {}],
  ['day', '2023-02-29'],
  ['day', 'tomorrow'],
  ['day', 5],
  ['wall', '2024-13-01T00:00:00'],
  ['moment', '2024-01-01T25:00:00Z'],
  ['moment', {}],
  ['clock', '25:00:00'],
  ['clock', '24:30:00'],
  ['words', [{}]],
  ['words', {}],
  ['short', 'abcdef'],
  ['plain', {}],
  ['plain', ['a']],
  ['plain', 'nul\0byte'],
  ['plain', 'half of a pair \ud800'],
  ['token', 'no-uuid'],
  ['token', 5],
  ['bytes', 'not base64!'],
  ['bytes', 5],
  ['numbers', 'x'],
  ['numbers', ['a']],
  ['numbers', { a: 1 }],
  ['mood', 'angry'],
  ['mood', 5],
  ['docb', 'nul\0byte'],
];

export function nest(levels: number, open: string, inner: string, close: string): string {
  return open.repeat(levels) + inner + close.repeat(levels);
}

/** Bodies of which nothing may be written to nodes. */
export const HOSTILE_BODIES: readonly string[] = [
  ...[
    '__proto__',
    'constructor',
    'prototype',
    'toString',
    'hasOwnProperty',
    'valueOf',
    'then',
    '',
    ' ',
    '%',
    '$',
    '\\u0000',
    '\\ud800',
    '漢',
  ].flatMap((name) => [
    `{"${name}":1}`,
    `{"children":[{"${name}":{}}]}`,
    `{"parent":{"${name}":{"id":1}}}`,
    `{"children":{"${name}":[]}}`,
  ]),
  ...['null', '5', '"x"', 'true', '[null]', '[5]', '[[]]', '[[{}]]', ''],
  ...[
    '5',
    '"x"',
    'true',
    '[null]',
    '[true]',
    '[[1]]',
    '[{"id":{}}]',
    '[{"id":[1]}]',
    '[{"id":true}]',
    '{"create":null}',
    '{"create":[null]}',
    '{"update":[1]}',
    '{"update":[{}]}',
    '{"delete":[{}]}',
    '{"delete":[null]}',
  ].map((value) => `{"label":"half","children":${value}}`),
  ...['[]', 'true', '[1]', '1.5', '"x"', '{"id":{}}', '{"id":true}', '1e400', '99999999999999999999'].map(
    (value) => `{"label":"half","parent":${value}}`,
  ),
  '{"id":null,"parent":{"id":null,"parent":-1}}',
  '{"label":"half","label":{}}',
  nest(50_000, '{"parent":', 'null', '}'),
  nest(50_000, '{"children":[', '', ']}'),
  nest(100_000, '[', '', ']'),
  `{"label":${nest(100_000, '[', '', ']')}}`,
];

/** Selections that do not say which items are meant. */
export const HOSTILE_SELECTIONS: readonly (readonly [string, string])[] = [
  ['PATCH', '{"keys":[1],"query":{},"data":{}}'],
  ['PATCH', '{"keys":[1]}'],
  ['PATCH', '{"keys":{},"data":{}}'],
  ['PATCH', '{"keys":[null],"data":{}}'],
  ['PATCH', '{"keys":[1],"data":[]}'],
  ['PATCH', '{"keys":[1],"data":{},"more":1}'],
  ['PATCH', '{"query":{"filter":{"nothing":1}},"data":{}}'],
  ['PATCH', '{"query":5,"data":{}}'],
  ['PATCH', '[{"label":"x"}]'],
  ['PATCH', '[5]'],
  ['DELETE', '{}'],
  ['DELETE', '5'],
  ['DELETE', '[{}]'],
  ['DELETE', '[null]'],
  ['DELETE', '{"query":{"limit":"x"}}'],
];
