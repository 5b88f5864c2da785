/**
 * Facts of the catalogs become findings for an operator, section by section. A problem has a cost: a request that fails, a table
 * that cannot be reached, a list that reads the whole table. A note may be intended.
 */

import type { OtherSchema } from '../../base/observe.js';
import type { MetadataRow } from '../../compiler/model/catalog-document.js';
import { namesArgument } from '../../compiler/model/functions.js';
import { holdsTable, type Model, type Overload, type ServedFunction } from '../../compiler/model/model.js';
import { quoteIdentifier, quoteLiteral } from '../../compiler/sql/fragment.js';
import type { Config } from '../../server/config/config.js';
import {
  type CheckStatus,
  count,
  type Detail,
  type DiagnosisContext,
  type Finding,
  finding,
  listed,
} from '../../server/feature/finding.js';
import type { Leftovers } from '../../server/postgres/catalog/leftovers.js';
import type { MissingGrant } from '../../server/postgres/catalog/missing-grants.js';
import { candidateStatement, referenceCandidate } from '../../server/schema/index-statement.js';
import type { Unindexed } from '../../server/schema/unindexed.js';

/** The result of sql/features/doctor/doctor.sql. */
export interface Facts {
  readonly version: string;
  readonly database: string;
  readonly role: string;
  readonly superuser: boolean;
  readonly standby: boolean;
  readonly settings: Readonly<Record<string, string>>;
  readonly role_limit: number | null;
  readonly database_limit: number | null;
  /** The connections of other clients. */
  readonly connections: number;
  /** Whether an event trigger notifies of changes. */
  readonly watched: boolean;
  readonly extensions: Readonly<Record<string, string>>;
  readonly available: readonly string[];
  readonly schemas: readonly { readonly schema: string; readonly usage: boolean }[];
  readonly tables: readonly TableRights[];
  readonly functions: readonly FunctionRights[];
  /** Functions that set something for the session; `called`: volatile, and no trigger. */
  readonly session_setters: readonly { readonly name: string; readonly called: boolean }[];
  /** Policies of all tables with row-level security. */
  readonly policies: readonly PolicyFacts[];
  /** Views with `security_invoker`, and the tables and views that they read. */
  readonly invoker_views: readonly { readonly relation: number; readonly reads: readonly number[] }[];
}

export interface PolicyFacts {
  readonly name: string;
  /** With its schema, quoted. */
  readonly table: string;
  /** The oid of the table. */
  readonly relation: number;
  /** Whether row-level security of the table binds the login of the service. */
  readonly binds: boolean;
  /** The oids of its roles, with 0 for all. */
  readonly roles: readonly number[];
  /** Tables and views that its subqueries read to show rows; none if it does not apply to reads. */
  readonly shows: readonly number[];
  /** Tables and views that its subqueries read. */
  readonly reads: readonly number[];
  readonly settings: readonly SettingFacts[];
}

/** A setting that a policy reads. */
export interface SettingFacts {
  readonly name: string;
  /** The function of the policy that reads it, or null if the policy does. */
  readonly function: string | null;
  /** Whether PostgreSQL raises an error if it is not set. */
  readonly required: boolean;
  /** Whether new sessions of the login have it, or a function of the database sets it. */
  readonly set: boolean;
}

interface TableRights {
  readonly schema: string;
  readonly table: string;
  readonly view: boolean;
  /** As PostgreSQL estimates, or null if it does not know. */
  readonly rows: number | null;
  /** The first one. */
  readonly column: string | null;
  readonly indexed: readonly string[];
  readonly missing: readonly string[];
  /** Privileges that the role has on some columns, not on the table. */
  readonly partial: readonly { readonly privilege: string; readonly columns: readonly string[] }[];
  readonly sequences: readonly string[];
  /** Whether row-level security applies to the role; `has_policies`: whether it is switched on at all. */
  readonly row_security: boolean;
  readonly has_policies: boolean;
}

/** The rights of a function that callers may call. */
interface FunctionRights {
  readonly schema: string;
  readonly name: string;
  /** As `alter function` takes them. */
  readonly arguments: string;
  readonly execute: boolean;
  /** Whether it is volatile although its body contains no write. */
  readonly idle: boolean;
}

export interface Examined extends DiagnosisContext {
  readonly facts: Facts;
  readonly unindexed: readonly Unindexed[];
  readonly others: readonly OtherSchema[];
  readonly leftovers: Leftovers;
  /** The privilege that the first start would lack, or null. */
  readonly missingGrant: MissingGrant | null;
}

export function findingsOf(examined: Examined): readonly Finding[] {
  return [
    ...connection(examined),
    ...schemas(examined),
    ...collections(examined),
    // Statements run with the roles of callers, which have a part of their own.
    ...(examined.config.DATABASE_CALLER === 'role' ? [] : rights(examined)),
    ...indexes(examined),
    ...functions(examined),
    ...extensions(examined),
    ...settings(examined),
  ];
}

function connection({ facts }: Examined): Finding[] {
  const role = `role ${facts.role}${facts.superuser ? ' (superuser)' : ''}`;
  const findings = [finding('Connection', 'ok', `PostgreSQL ${facts.version}, database ${facts.database}, ${role}`)];
  if (facts.standby) findings.push(finding('Connection', 'problem', 'the server is a standby: every write fails'));
  return findings;
}

function schemas(examined: Examined): Finding[] {
  const { facts, model, installed, others, leftovers } = examined;
  const closed = facts.schemas.filter(({ usage }) => !usage);
  const list = others.map(({ schema, tables }) => `${schema} (${tables})`).join(', ');
  const allSchemas = [...model.schemas, ...others.map(({ schema }) => schema)].join(',');
  const unserved = `schemas with tables that are not served: ${list}; DATABASE_SCHEMAS=${allSchemas} serves them`;
  return [
    finding('Schemas', 'ok', `served: ${model.schemas.join(', ')}`),
    ...listed(
      'Schemas',
      'problem',
      'the role lacks usage on them: every request fails',
      closed.map(({ schema }) => ({
        name: schema,
        message: 'usage is not granted',
        fix: `grant usage on schema ${quoteIdentifier(schema)} to ${quoteIdentifier(facts.role)};`,
      })),
    ),
    ...(others.length === 0 ? [] : [finding('Schemas', 'note', unserved)]),
    ...left(leftovers),
    installed ? finding('Schemas', 'ok', `the service's own tables are in ${model.system}`) : notInstalled(examined),
  ];
}

/** Tables of features that the service does not have, and triggers that write to them. */
function left({ tables, triggers }: Leftovers): Finding[] {
  const fixes = triggers.map(({ table, name }) => ({
    name: table,
    message: `has the trigger ${name}`,
    fix: `drop trigger ${quoteIdentifier(name)} on ${table};`,
  }));
  const message = `tables of features that this service does not have stay hidden: ${tables.join(', ')}`;
  return [
    ...(tables.length === 0 ? [] : [finding('Schemas', 'note', message)]),
    ...listed('Schemas', 'problem', 'triggers use tables of features that this service does not have', fixes),
  ];
}

function notInstalled({ missingGrant, config, model }: Examined): Finding {
  if (missingGrant === null)
    return finding('Schemas', 'note', "the service's own tables do not exist: the first start creates them");
  return finding('Schemas', 'problem', "the service's own tables do not exist, and the role may not create them", [
    { name: config.SYSTEM_SCHEMA ?? model.schema, ...missingGrant },
  ]);
}

function collections(examined: Examined): Finding[] {
  const { facts, model } = examined;
  const served = [...model.collections.values()].flatMap(({ name, system }) => (system ? [] : [name])).sort();
  const refused = [...model.refused].map(([name, reason]): Refusal => ({ name, reason }));
  const [collisions, others] = split(refused, ({ reason }) => reason.startsWith('would be called'));
  const [views, rest] = split(others, ({ reason }) => /\bkey\b/.test(reason));
  const taken = `${count(collisions.length, 'table is', 'tables are')} not served because the name is taken`;
  const namingDetail = (each: Refusal): Detail => {
    const fix = nameLine(each.name, facts, model);
    return fix === undefined ? refusalDetail(each) : { ...refusalDetail(each), fix };
  };
  return [
    served.length === 0
      ? finding('Collections', 'problem', 'there is nothing to serve')
      : finding('Collections', 'ok', `${served.length} served: ${served.join(', ')}`),
    ...keys(examined, views),
    collisions.length === 0
      ? finding('Names', 'ok', 'no two tables have the same name')
      : finding('Names', 'problem', taken, collisions.map(namingDetail)),
    ...listed('Collections', 'note', 'not served for other reasons', byReason(rest)),
  ];
}

interface Refusal {
  readonly name: string;
  readonly reason: string;
}

function refusalDetail({ name, reason }: Refusal): Detail {
  return { name, message: `it ${reason}` };
}

/** An installation of Directus has dozens of tables that are not served for one reason: that is one line. */
function byReason(refused: readonly Refusal[]): Detail[] {
  const reasons = new Map<string, Refusal[]>();
  for (const each of refused) reasons.set(each.reason, [...(reasons.get(each.reason) ?? []), each]);
  return [...reasons].flatMap(([reason, same]) => {
    const [first] = same;
    if (!first || same.length === 1) return same.map(refusalDetail);
    return [{ name: `${same.length} tables`, message: `each ${reason} (${first.name} and others)` }];
  });
}

/** `refused` are views that need a declared key to be served. The operator knows which columns identify a row. */
function keys({ facts, model, installed }: Examined, refused: readonly Refusal[]): Finding[] {
  const keyless = [...model.collections.values()].filter(({ key, system }) => key.length === 0 && !system);
  const [views, tables] = split(keyless, ({ kind }) => kind === 'view');
  const found: Finding[] = [];
  const [first] = [...tables, ...views];
  if (first) {
    const has = count(keyless.length, 'table or view has', 'tables and views have');
    const named = Object.entries({ Tables: tables, Views: views }).filter(([, list]) => list.length > 0);
    const names = named.map(([kind, list]) => `${kind}: ${list.map(({ name }) => name).join(', ')}`).join('. ');
    const column = facts.tables.find(({ schema, table }) => schema === first.schema && table === first.table)?.column;
    const values = [first.name, column ?? ''].map(quoteLiteral).join(', ');
    const fix = `insert into ${metadataTable(model)} (collection, primary_key) values (${values});`;
    const message = `for example, if ${column} identifies a row${installed ? '' : ' (after the first start)'}:`;
    found.push(
      finding('Keys', 'note', `${has} no key: items can be listed, but not named or written. ${names}`, [
        { name: first.name, message, fix },
      ]),
    );
  }
  if (refused.length > 0) {
    const are = count(refused.length, 'view is', 'views are');
    found.push(finding('Keys', 'note', `${are} not served`, refused.map(refusalDetail)));
  }
  return found.length > 0 ? found : [finding('Keys', 'ok', 'every table and view has a key')];
}

function nameLine(refused: string, { tables }: Facts, model: Model): string | undefined {
  const table = tables.find(({ schema, table }) => `${schema}.${table}` === refused);
  if (!table) return undefined;
  const values = [`${table.schema}_${table.table}_table`, table.schema, table.table].map(quoteLiteral).join(', ');
  return `insert into ${metadataTable(model)} (collection, "schema", "table") values (${values});`;
}

function metadataTable({ system }: Model): string {
  return `${quoteIdentifier(system)}.service_collections`;
}

function rights({ facts, model }: Examined): Finding[] {
  const served = facts.tables.filter(({ schema, table }) => holdsTable(model, schema, table));
  const tables = served.filter(({ view }) => !view);
  const readsOnly = tables.length > 0 && tables.every(({ missing }) => WRITES.every((each) => missing.includes(each)));
  const details = served.flatMap((each) => missingRights(each, facts.role, readsOnly));
  const partial = partialRights(served, facts.role);
  const namesOf = (some: readonly TableRights[]): string =>
    some.map(({ schema, table }) => `${schema}.${table}`).join(', ');
  const [secured, others] = split(served, ({ row_security }) => row_security);
  const bypassed = others.filter(({ has_policies }) => has_policies);
  const note = (message: string): Finding => finding('Privileges', 'note', message);
  return [
    ...(readsOnly ? [note('the role cannot write to any table: the API is read-only')] : []),
    ...listed(
      'Privileges',
      'problem',
      `${count(details.length, 'table lacks', 'tables lack')} privileges of ${facts.role}`,
      details,
    ),
    ...partial,
    ...(readsOnly || details.length + partial.length > 0
      ? []
      : [finding('Privileges', 'ok', `${facts.role} may read and write every table`)]),
    ...(secured.length === 0 ? [] : [note(`row-level security applies to ${facts.role}: ${namesOf(secured)}`)]),
    ...(bypassed.length === 0
      ? []
      : [
          note(
            `${facts.role} bypasses row-level security, as a superuser, an owner or by BYPASSRLS: ${namesOf(bypassed)}`,
          ),
        ]),
  ];
}

function missingRights({ schema, table, ...rights }: TableRights, role: string, readsOnly: boolean): Detail[] {
  const missing = rights.missing.filter((right) => !readsOnly || right === 'select');
  const sequences = readsOnly || missing.includes('insert') ? [] : rights.sequences;
  const lacks = [...missing, ...sequences.map((sequence) => `usage of ${sequence}`)];
  if (lacks.length === 0) return [];
  const name = `${quoteIdentifier(schema)}.${quoteIdentifier(table)}`;
  const grants = [
    ...(missing.length === 0 ? [] : [`grant ${missing.join(', ')} on ${name}`]),
    ...sequences.map((sequence) => `grant usage on sequence ${sequence}`),
  ];
  const fix = grants.map((grant) => `${grant} to ${quoteIdentifier(role)};`).join(' ');
  return [{ name: `${schema}.${table}`, message: `missing: ${lacks.join(', ')}`, fix }];
}

/** A grant on the whole table would open columns that somebody has left out on purpose. */
function partialRights(tables: readonly TableRights[], role: string): Finding[] {
  const details = tables
    .filter(({ partial }) => partial.length > 0)
    .map(({ schema, table, partial }): Detail => {
      const rights = partial.map(({ privilege, columns }) => `${privilege}: ${columns.join(', ')}`);
      return { name: `${schema}.${table}`, message: rights.join('; ') };
    });
  const message = `${role} has privileges on some columns of ${count(details.length, 'table', 'tables')} only: the API leaves out the others`;
  return listed('Privileges', 'note', message, details);
}

const WRITES = ['insert', 'update', 'delete'];

function indexes({ facts, model, unindexed: constraints }: Examined): Finding[] {
  const unindexed = [...constraints, ...declaredUnindexed(model, facts)];
  if (unindexed.length === 0) return [finding('Relations', 'ok', 'every reference has an index')];
  const rowsOf = ({ schema, table }: Unindexed): number =>
    facts.tables.find((each) => each.schema === schema && each.table === table)?.rows ?? 0;
  // The largest tables first: there the lack costs most.
  const details = unindexed
    .toSorted((one, other) => rowsOf(other) - rowsOf(one))
    .map((each) => ({
      name: `${each.schema}.${each.table}`,
      message: `${each.columns.join(', ')}${rowsOf(each) > 0 ? ` (${rowsOf(each).toLocaleString('en')} rows)` : ''}`,
      fix: candidateStatement(referenceCandidate(each)),
    }));
  const message = `${count(unindexed.length, 'reference has', 'references have')} no index: lists and deletions read the whole table`;
  return [finding('Relations', 'problem', message, details)];
}

/** Relations that the metadata alone knows: no foreign key stands for them. */
function declaredUnindexed({ collections }: Model, { tables }: Facts): Unindexed[] {
  return [...collections.values()].flatMap(({ fields, kind, schema, table, system }) => {
    const indexed = tables.find((each) => each.schema === schema && each.table === table)?.indexed ?? [];
    return [...fields.values()].flatMap(({ column, relation }) => {
      const isDeclared = relation?.kind === 'many-to-one' && column?.foreign_keys.length === 0;
      if (!column || !isDeclared || system || kind === 'view' || indexed.includes(column.name)) return [];
      return [{ schema, table, columns: [column.name], partitioned: kind === 'partitioned' }];
    });
  });
}

/** Functions that are declared to be callable, and fields that are computed by one. */
function functions({ model, declared, facts }: Examined): Finding[] {
  const served = [...model.functions.values()];
  const missing = [...model.refusedFunctions].map(([name, reason]) => ({ name, message: `it ${reason}` }));
  const denied = facts.functions.filter(({ execute }) => !execute).map((each) => grantLine(each, facts.role));
  const several = served.flatMap((each) => ambiguous(each, model));
  return [
    ...(served.length === 0
      ? []
      : [finding('Functions', 'ok', `${served.length} callable: ${served.map(shown).join(', ')}`)]),
    ...listed(
      'Functions',
      'problem',
      `${count(missing.length, 'row', 'rows')} of service_functions cannot be called`,
      missing,
    ),
    ...listed(
      'Functions',
      'problem',
      `${facts.role} may not execute ${count(denied.length, 'function', 'functions')}`,
      denied,
    ),
    ...listed(
      'Functions',
      'problem',
      `${count(several.length, 'function has', 'functions have')} overloads that differ only in the types of their arguments, so calls are ambiguous; choose one, for example`,
      several,
    ),
    ...listed(
      'Functions',
      'note',
      'arguments in service_functions that the function does not have',
      declared.flatMap((row) => stray(row, model.functions.get(String(row['name'])))),
    ),
    ...listed(
      'Functions',
      'note',
      'volatile (the default), so GET and GraphQL queries cannot call them; if they only read, declare them stable',
      facts.functions.filter((each) => each.idle).map(stableLine),
    ),
    ...sessionSetters(facts),
    ...computedFields(model),
  ];
}

function sessionSetters({ session_setters: setters }: Facts): readonly Finding[] {
  const details = (isCalled: boolean): readonly Detail[] =>
    setters.filter(({ called }) => called === isCalled).map(({ name }) => ({ name, message: '' }));
  const advice = 'use set_config(name, value, true) or SET LOCAL';
  return [
    ...listed(
      'Functions',
      'problem',
      `not volatile or a trigger, but set something for the session, which stays for other callers; ${advice}`,
      details(false),
    ),
    ...listed(
      'Functions',
      'note',
      `set something for the session: it is reset after a call by /rpc or GraphQL, but stays for other callers if a trigger, policy, view or default calls the function; ${advice}`,
      details(true),
    ),
  ];
}

function shown({ name, overloads }: ServedFunction): string {
  return overloads.every(({ volatile }) => volatile) ? `${name} (POST)` : name;
}

function signature({ schema, name, arguments: list }: FunctionRights): string {
  return `${quoteIdentifier(schema)}.${quoteIdentifier(name)}(${list})`;
}

function grantLine(each: FunctionRights, role: string): Detail {
  return {
    name: `${each.schema}.${each.name}`,
    message: 'execute is not granted',
    fix: `grant execute on function ${signature(each)} to ${quoteIdentifier(role)};`,
  };
}

function stableLine(each: FunctionRights): Detail {
  return {
    name: `${each.schema}.${each.name}`,
    message: 'its body contains no write',
    fix: `alter function ${signature(each)} stable;`,
  };
}

/** The example is the first of the forms with the same argument names. */
function ambiguous({ name, overloads }: ServedFunction, { system }: Model): Detail[] {
  const named = (overload: Overload): string => JSON.stringify(overload.arguments.map((each) => each.name).sort());
  const twin = overloads.find(
    (one, position) => overloads.findIndex((other) => named(other) === named(one)) < position,
  );
  const first = twin && overloads.find((other) => named(other) === named(twin));
  if (!first) return [];
  const types = JSON.stringify(first.arguments.map((each) => `${each.name} ${each.field.column?.data_type ?? ''}`));
  const fix = `update ${quoteIdentifier(system)}.service_functions set arguments = ${quoteLiteral(types)} where name = ${quoteLiteral(name)};`;
  return [{ name, message: `takes ${first.arguments.map((each) => each.name).join(', ')} in several types`, fix }];
}

function stray(row: MetadataRow, served: ServedFunction | undefined): Detail[] {
  const known = served?.overloads.flatMap((overload) => overload.arguments) ?? [];
  const declaredArguments = Array.isArray(row['arguments']) ? row['arguments'].map(String) : [];
  if (!served) return [];
  return declaredArguments
    .filter((entry) => !known.some(({ name }) => namesArgument(entry, name)))
    .map((entry) => ({ name: served.name, message: `has no argument "${entry}"` }));
}

function computedFields({ collections }: Model): Finding[] {
  const fields = [...collections.values()].flatMap((collection) => [...collection.fields.values()]);
  const broken = fields
    .filter((field) => field.special.includes('computed') && field.column === null)
    .map(({ collection, name }) => ({
      name: `${collection}.${name}`,
      message:
        'there is no stable or immutable function that takes a row of its table, or the function returns table rows',
    }));
  const message = `${count(broken.length, 'computed field has', 'computed fields have')} no value`;
  return listed('Fields', 'problem', message, broken);
}

/** The uses of extensions here. */
const USES: Readonly<Record<string, string>> = {
  pg_trgm: 'indexes for _contains, search and similarity',
  postgis: 'geometry fields and filters',
  pg_stat_statements: 'which statements cost most',
};

function extensions({ facts }: Examined): Finding[] {
  const installed = Object.entries(facts.extensions).map(([name, version]) => `${name} ${version}`);
  const useful = facts.available
    .filter((name) => Object.hasOwn(USES, name))
    .map((name) => ({ name, message: USES[name] ?? '', fix: `create extension ${name};` }));
  return [
    finding('Extensions', 'ok', `installed: ${installed.join(', ')}`),
    ...listed('Extensions', 'note', 'available and useful here', useful),
  ];
}

/** In addition to the pools: for the service's own statements, the catalog and notifications. */
const OWN_CONNECTIONS = 6;

function settings({ config, facts, installed }: Examined): Finding[] {
  const { server_encoding: encoding, wal_level: level } = facts.settings;
  const say = (status: CheckStatus, message: string): Finding => finding('Settings', status, message);
  const limit = config.DATABASE_STATEMENT_TIMEOUT;
  const polling = `schema changes are found by polling every ${config.SCHEMA_POLL_INTERVAL / 1_000}s: an event trigger needs a superuser`;
  return [
    limit === 0
      ? say('note', 'statement_timeout is off (DATABASE_STATEMENT_TIMEOUT=0): a statement may run forever')
      : say('ok', `statement_timeout ${limit / 1_000}s, set by DATABASE_STATEMENT_TIMEOUT`),
    finding('Settings', ...connectionFigures(config, facts)),
    say('ok', `wal_level ${level}`),
    ...(encoding === 'UTF8' ? [] : [say('note', `server_encoding ${encoding}: characters outside of it are refused`)]),
    facts.watched
      ? say('ok', 'an event trigger reports schema changes')
      : facts.superuser && !installed
        ? say('ok', 'the first start creates an event trigger that reports schema changes')
        : say('note', polling),
  ];
}

function connectionFigures(config: Config, facts: Facts): [CheckStatus, string] {
  const { settings: values } = facts;
  const needed = connectionsOf(config);
  const reserved = ['superuser_reserved_connections', 'reserved_connections'].map((name) => Number(values[name] ?? 0));
  const free =
    Number(values['max_connections']) - (facts.superuser ? 0 : reserved.reduce((sum, each) => sum + each, 0));
  const most = Math.min(free, facts.role_limit ?? free, facts.database_limit ?? free);
  const figures = `the service opens up to ${needed} of ${most} connections (max_connections ${values['max_connections']})`;
  if (needed > most)
    return ['problem', `${figures}: lower DATABASE_POOL_SIZE and DATABASE_WRITE_POOL_SIZE, or raise the limit`];
  if (needed + facts.connections > most) return ['note', `${figures}, and other clients have ${facts.connections} now`];
  return ['ok', figures];
}

function connectionsOf(config: Config): number {
  const { DATABASE_POOL_SIZE, DATABASE_WRITE_POOL_SIZE, DATABASE_STREAM_POOL_SIZE, IMPORT_MAX_CONCURRENCY, WORKERS } =
    config;
  const pools = [DATABASE_POOL_SIZE, DATABASE_WRITE_POOL_SIZE, DATABASE_STREAM_POOL_SIZE, IMPORT_MAX_CONCURRENCY];
  if (WORKERS === 1) return pools.reduce((sum, each) => sum + each, OWN_CONNECTIONS);
  // Every thread has at least one of each kind, and the main thread five for itself.
  return pools.reduce((sum, each) => sum + Math.max(each, WORKERS), 5 + OWN_CONNECTIONS * (WORKERS + 1));
}

function split<Entry>(entries: readonly Entry[], test: (entry: Entry) => boolean): [Entry[], Entry[]] {
  return [entries.filter(test), entries.filter((entry) => !test(entry))];
}
