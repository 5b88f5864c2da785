/**
 * Cases of plain writes: of one row and of 1,000 rows, with and without the activity log, by 32 clients and by 8. Each is compared with SQL
 * written by hand for the same effect. The tables are those of own-tables.ts: the names of tables with the activity log end in `_recorded`.
 */
import type { BenchRequest, Case } from './case.js';
import { DRAFTS, NOTES, RECORDED, STOCK } from './own-tables.js';

/** A write in one of its two tables, without the numbers of clients. */
interface FlatWrite extends Pick<Case, 'method' | 'requests' | 'plain' | 'prepare'> {
  readonly id: string;
  readonly title: string;
}

const VARIANTS = 1_000;
const MANY = 1_000;

const NOTE = `'{"id":' || id || ',"name":' || to_json(name) || ',"views":' || views || '}'`;
const ITEM = `'{"id":' || id || ',"code":' || to_json(code) || ',"views":' || views || '}'`;

export function flatWriteCases(): readonly Case[] {
  return [flatCreate, flatUpdate, flatDelete, flatUpsert, flatCreateMany, flatImport].flatMap((write) => [
    ...byClients(write(''), { target: 1, targetOf8: 0.5 }),
    ...byClients(write(RECORDED), { target: 0.8, targetOf8: 0.5 }),
  ]);
}

/** Only creates and changes of one row have targets. */
function byClients(
  { id, title, ...write }: FlatWrite,
  { target, targetOf8 }: { readonly target: number; readonly targetOf8: number },
): readonly Case[] {
  const isJudged = /^flat-(create|update)(-recorded)?$/.test(id);
  return [
    { id, title, ...write, ...(isJudged ? { target } : {}) },
    {
      id: `${id}-8`,
      title: `${title}, 8 connections`,
      ...write,
      ...(isJudged ? { target: targetOf8 } : {}),
      connections: 8,
      clients: [8],
    },
  ];
}

/** The name and the title of a case, from its table: `flat-create-recorded` and `create of one row, with the activity log`. */
function named(id: string, title: string, suffix: string): Pick<FlatWrite, 'id' | 'title'> {
  if (suffix === '') return { id, title };
  return { id: `${id}-recorded`, title: `${title}, with the activity log` };
}

function flatCreate(suffix: string): FlatWrite {
  const table = `bench_notes${suffix}`;
  const insert = `insert into ${table} (name) values ($1::varchar)`;
  return {
    ...named('flat-create', 'create of one row', suffix),
    method: 'POST',
    requests: [{ path: `/items/${table}`, body: '{"name":"t"}' }],
    plain: { text: oneRow(insert, NOTE, suffix && recordOf(table, `'create'`, 'w.data')), parameters: [['t']] },
  };
}

function flatUpdate(suffix: string): FlatWrite {
  const table = `bench_notes${suffix}`;
  const update = `update ${table} set views = $2::int where id = $1::int`;
  return {
    ...named('flat-update', 'change of one row', suffix),
    method: 'PATCH',
    requests: vary((index) => ({
      path: `/items/${table}/${spread(index, NOTES)}`,
      body: JSON.stringify({ views: index }),
    })),
    plain: {
      text: oneRow(update, NOTE, suffix && recordOf(table, `'update'`, `json_build_object('views', views)`)),
      parameters: vary((index) => [String(spread(index, NOTES)), String(index)]),
    },
  };
}

/** Each request deletes another row. Both sides find all rows again in each measurement, and fail if they have deleted all of them. */
function flatDelete(suffix: string): FlatWrite {
  const table = `bench_drafts${suffix}`;
  const next = `${table}_next`;
  const steps = [
    `w as (delete from ${table} where id = (select nextval('${next}')) returning id)`,
    ...(suffix === '' ? [] : [activityOf(table, `'delete'`)]),
  ];
  return {
    ...named('flat-delete', 'deletion of one row', suffix),
    method: 'DELETE',
    requests: Array.from({ length: DRAFTS }, (_, index) => ({ path: `/items/${table}/${index + 1}` })),
    plain: { text: `with ${steps.join(', ')} select 1 / count(*) from w`, parameters: [] },
    prepare: `truncate ${table};
      insert into ${table} (id, name) select n, 'Draft ' || n from generate_series(1, ${DRAFTS}) as n;
      select setval('${next}', 1, false);
      analyze ${table}`,
  };
}

/** The rows exist, so each request changes one. */
function flatUpsert(suffix: string): FlatWrite {
  const table = `bench_stock${suffix}`;
  const insert = `insert into ${table} (code, views) values ($1::varchar, $2::int)
    on conflict (code) do update set views = excluded.views`;
  const code = (index: number): string => `code ${spread(index, STOCK)}`;
  return {
    ...named('flat-upsert', 'upsert of one row', suffix),
    method: 'POST',
    requests: vary((index) => ({
      path: `/items/${table}?on_conflict=code`,
      body: JSON.stringify({ code: code(index), views: index }),
    })),
    plain: {
      text: oneRow(
        insert,
        ITEM,
        suffix && recordOf(table, `'update'`, `json_build_object('code', code, 'views', views)`),
      ),
      parameters: vary((index) => [code(index), String(index)]),
    },
  };
}

function flatCreateMany(suffix: string): FlatWrite {
  const table = `bench_notes${suffix}`;
  const { steps, parameters } = manyRows(table, suffix);
  return {
    ...named('flat-create-many', 'create of 1,000 rows of three columns', suffix),
    method: 'POST',
    requests: [{ path: `/items/${table}`, body: JSON.stringify(newNotes()) }],
    plain: { text: `with ${steps} select '{"data":[' || string_agg(${NOTE}, ',') || ']}' from w`, parameters },
  };
}

function flatImport(suffix: string): FlatWrite {
  const table = `bench_notes${suffix}`;
  const { steps, parameters } = manyRows(table, suffix);
  return {
    ...named('flat-import', 'import of a file of 1,000 rows', suffix),
    method: 'POST',
    requests: [{ path: `/utils/import/${table}`, body: JSON.stringify(newNotes()) }],
    plain: { text: `with ${steps} select count(*) from w`, parameters },
  };
}

/** The written row as a response. With the log, one row of activity and one of revisions. */
function oneRow(write: string, row: string, log: string): string {
  if (log === '') return `${write} returning '{"data":' || ${row} || '}'`;
  return `with w as (${write} returning *, (${row})::json as data), ${log}
    select '{"data":' || data || '}' from w`;
}

function manyRows(
  table: string,
  suffix: string,
): { readonly steps: string; readonly parameters: readonly (readonly string[])[] } {
  const notes = newNotes();
  const insert = `w as (insert into ${table} (name, views)
    select * from unnest($1::varchar[], $2::int[]) returning *${suffix === '' ? '' : `, (${NOTE})::json as data`})`;
  return {
    steps: suffix === '' ? insert : `${insert}, ${recordOf(table, `'create'`, 'w.data')}`,
    parameters: [
      [`{${notes.map(({ name }) => `"${name}"`).join(',')}}`, `{${notes.map(({ views }) => views).join(',')}}`],
    ],
  };
}

function activityOf(table: string, action: string): string {
  return `a as (insert into service_activity (action, collection, item) select ${action}, '${table}', id::text from w
    returning id, item)`;
}

function recordOf(table: string, action: string, delta: string): string {
  return `${activityOf(table, action)},
    r as (insert into service_revisions (activity, collection, item, data, delta)
      select a.id, '${table}', a.item, w.data, ${delta} from a join w on w.id::text = a.item)`;
}

function newNotes(): readonly { readonly name: string; readonly views: number }[] {
  return Array.from({ length: MANY }, (_, index) => ({ name: `Note ${index}`, views: index }));
}

function vary<Value extends BenchRequest | readonly string[]>(of: (index: number) => Value): readonly Value[] {
  return Array.from({ length: VARIANTS }, (_, index) => of(index));
}

/** Rows that are close in time are far apart in the table. */
function spread(index: number, rows: number): number {
  return 1 + ((index * 61_803) % rows);
}
