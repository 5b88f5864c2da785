/**
 * What an operator should know about a database before it is served, section by section: facts of the catalogs in, findings out.
 * A problem costs somebody something (a request that fails, a table that cannot be reached, a list that reads the whole table); a note
 * may be as it should be.
 */

import type { OtherSchema } from '../base/observe.js';
import type { Config } from '../config/config.js';
import type { MetadataRow } from '../mirror/catalog-document.js';
import { holdsTable, type Model } from '../mirror/model.js';
import type { Omission } from '../schema/snapshot/snapshot.js';
import { suggestRelations } from '../schema/suggest/suggest.js';
import { indexStatement, type Unindexed } from '../schema/suggest/suggested-relations.js';
import { quoteIdentifier } from '../sql/fragment.js';
import { diagnoseFunctions, type FunctionRights } from './diagnose-functions.js';
import { count, type Detail, type Finding, finding, literalText } from './findings.js';
import { diagnoseSnapshots } from './snapshot-findings.js';

/** What sql/doctor.sql answers. */
export interface Facts {
  readonly version: string;
  readonly database: string;
  readonly role: string;
  readonly superuser: boolean;
  readonly standby: boolean;
  readonly settings: Readonly<Record<string, string>>;
  readonly role_limit: number | null;
  readonly database_limit: number | null;
  /** Of other clients. */
  readonly connections: number;
  /** Whether an event trigger notifies of changes. */
  readonly watched: boolean;
  readonly extensions: Readonly<Record<string, string>>;
  readonly available: readonly string[];
  readonly schemas: readonly { readonly schema: string; readonly usage: boolean; readonly create: boolean }[];
  readonly tables: readonly TableRights[];
  readonly functions: readonly FunctionRights[];
}

interface TableRights {
  readonly schema: string;
  readonly table: string;
  readonly view: boolean;
  /** As PostgreSQL estimates; null where it does not know. */
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

export interface Examined {
  readonly config: Config;
  readonly facts: Facts;
  readonly model: Model;
  /** Rows of service_functions. */
  readonly declared: readonly MetadataRow[];
  /** Whether the service's own tables are there. */
  readonly installed: boolean;
  readonly unindexed: readonly Unindexed[];
  readonly others: readonly OtherSchema[];
  readonly omissions: readonly Omission[];
}

export function diagnose(examined: Examined): readonly Finding[] {
  return [
    ...connection(examined),
    ...schemas(examined),
    ...collections(examined),
    ...rights(examined),
    ...relations(examined),
    ...diagnoseFunctions(examined),
    ...diagnoseSnapshots(examined),
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

function schemas({ facts, model, installed, others }: Examined): Finding[] {
  const findings = [finding('Schemas', 'ok', `served: ${model.schemas.join(', ')}`)];
  const closed = facts.schemas.filter(({ usage }) => !usage).map(({ schema }) => schema);
  if (closed.length > 0)
    findings.push(
      finding(
        'Schemas',
        'problem',
        'the role lacks usage on them: every request fails',
        closed.map((schema) => ({
          name: schema,
          message: 'usage is not granted',
          fix: `grant usage on schema ${quoteIdentifier(schema)} to ${quoteIdentifier(facts.role)};`,
        })),
      ),
    );
  if (others.length > 0) {
    const list = others.map(({ schema, tables }) => `${schema} (${tables})`).join(', ');
    const allSchemas = [...model.schemas, ...others.map(({ schema }) => schema)].join(',');
    findings.push(
      finding(
        'Schemas',
        'note',
        `schemas with tables that are not served: ${list}; DATABASE_SCHEMAS=${allSchemas} serves them`,
      ),
    );
  }
  if (installed) findings.push(finding('Schemas', 'ok', `the service's own tables are in ${model.system}`));
  else findings.push(notInstalled(facts, model));
  return findings;
}

function notInstalled(facts: Facts, model: Model): Finding {
  const first = facts.schemas.find(({ schema }) => schema === model.schema);
  if (first?.create)
    return finding('Schemas', 'note', "the service's own tables do not exist: the first start creates them");
  const fix = `grant create on schema ${quoteIdentifier(model.schema)} to ${quoteIdentifier(facts.role)};`;
  return finding('Schemas', 'problem', "the service's own tables do not exist, and the role may not create them", [
    { name: model.schema, message: 'create is not granted', fix },
  ]);
}

function collections(examined: Examined): Finding[] {
  const { facts, model } = examined;
  const served = [...model.collections.values()].flatMap(({ name, system }) => (system ? [] : [name])).sort();
  const findings: Finding[] = [];
  if (served.length === 0) findings.push(finding('Collections', 'problem', 'there is nothing to serve'));
  else findings.push(finding('Collections', 'ok', `${served.length} served: ${served.join(', ')}`));
  const refused = [...model.refused].map(([name, reason]): Refusal => ({ name, reason }));
  const [collisions, others] = split(refused, ({ reason }) => reason.startsWith('would be called'));
  const [views, rest] = split(others, ({ reason }) => /\bkey\b/.test(reason));
  findings.push(...keys(examined, views));
  if (collisions.length > 0)
    findings.push(
      finding(
        'Names',
        'problem',
        `${count(collisions.length, 'table is', 'tables are')} not served because the name is taken`,
        collisions.map((each) => {
          const fix = nameLine(each.name, facts, model);
          return fix === undefined ? refusalDetail(each) : { ...refusalDetail(each), fix };
        }),
      ),
    );
  else findings.push(finding('Names', 'ok', 'no two tables have the same name'));
  if (rest.length > 0)
    findings.push(finding('Collections', 'note', 'not served for other reasons', rest.map(refusalDetail)));
  return findings;
}

interface Refusal {
  readonly name: string;
  readonly reason: string;
}

function refusalDetail({ name, reason }: Refusal): Detail {
  return { name, message: `it ${reason}` };
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
    const values = [first.name, column ?? ''].map(literalText).join(', ');
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
  const values = [`${table.schema}_${table.table}_table`, table.schema, table.table].map(literalText).join(', ');
  return `insert into ${metadataTable(model)} (collection, "schema", "table") values (${values});`;
}

function metadataTable({ system }: Model): string {
  return `${quoteIdentifier(system)}.service_collections`;
}

function rights({ facts, model }: Examined): Finding[] {
  const role = quoteIdentifier(facts.role);
  const findings: Finding[] = [];
  const served = facts.tables.filter(({ schema, table }) => holdsTable(model, schema, table));
  const tables = served.filter(({ view }) => !view);
  const readsOnly = tables.length > 0 && tables.every(({ missing }) => WRITES.every((each) => missing.includes(each)));
  if (readsOnly)
    findings.push(finding('Privileges', 'note', 'the role cannot write to any table: the API is read-only'));
  const details = served.flatMap((each): Detail[] => {
    const missing = each.missing.filter((right) => !readsOnly || right === 'select');
    const name = `${quoteIdentifier(each.schema)}.${quoteIdentifier(each.table)}`;
    const grants = missing.length === 0 ? [] : [`grant ${missing.join(', ')} on ${name} to ${role};`];
    const sequences = readsOnly || missing.includes('insert') ? [] : each.sequences;
    for (const sequence of sequences) grants.push(`grant usage on sequence ${sequence} to ${role};`);
    if (grants.length === 0) return [];
    const lacks = [...missing, ...sequences.map((sequence) => `usage of ${sequence}`)];
    return [{ name: `${each.schema}.${each.table}`, message: `missing: ${lacks.join(', ')}`, fix: grants.join(' ') }];
  });
  if (details.length > 0)
    findings.push(
      finding(
        'Privileges',
        'problem',
        `${count(details.length, 'table lacks', 'tables lack')} privileges of ${facts.role}`,
        details,
      ),
    );
  const partial = partialRights(served, facts.role);
  if (partial) findings.push(partial);
  else if (!readsOnly && details.length === 0)
    findings.push(finding('Privileges', 'ok', `${facts.role} may read and write every table`));
  const secured = served.filter(({ row_security }) => row_security).map(({ schema, table }) => `${schema}.${table}`);
  if (secured.length > 0)
    findings.push(finding('Privileges', 'note', `row-level security applies to ${facts.role}: ${secured.join(', ')}`));
  const bypassed = served
    .filter(({ row_security, has_policies }) => has_policies && !row_security)
    .map(({ schema, table }) => `${schema}.${table}`);
  if (bypassed.length > 0)
    findings.push(
      finding(
        'Privileges',
        'note',
        `${facts.role} bypasses row-level security, as a superuser, an owner or by BYPASSRLS: ${bypassed.join(', ')}`,
      ),
    );
  return findings;
}

/** A grant on the whole table would open columns that somebody has left out on purpose. */
function partialRights(tables: readonly TableRights[], role: string): Finding | null {
  const details = tables
    .filter(({ partial }) => partial.length > 0)
    .map(({ schema, table, partial }): Detail => {
      const rights = partial.map(({ privilege, columns }) => `${privilege}: ${columns.join(', ')}`);
      return { name: `${schema}.${table}`, message: rights.join('; ') };
    });
  if (details.length === 0) return null;
  const message = `${role} has privileges on some columns of ${count(details.length, 'table', 'tables')} only: the API leaves out the others`;
  return finding('Privileges', 'note', message, details);
}

const WRITES = ['insert', 'update', 'delete'];

function relations(examined: Examined): Finding[] {
  return [...indexes(examined), ...lists(examined.model)];
}

/** A database that was made without the service has references, and nothing that says what their lists are called. */
function lists(model: Model): Finding[] {
  const { length } = suggestRelations(model);
  if (length === 0) return [];
  const message = `${count(length, 'list or object', 'lists and objects')} of related items can be added; lateral relations suggest shows them, --apply adds them`;
  return [finding('Relations', 'note', message)];
}

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
      fix: indexStatement(each),
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

/** What an extension is good for here. */
const USES: Readonly<Record<string, string>> = {
  pg_trgm: 'indexes for _contains, search and similarity',
  postgis: 'geometry fields and filters',
  pg_stat_statements: 'which statements cost most',
};

function extensions({ facts }: Examined): Finding[] {
  const installed = Object.entries(facts.extensions).map(([name, version]) => `${name} ${version}`);
  const findings = [finding('Extensions', 'ok', `installed: ${installed.join(', ')}`)];
  const useful = facts.available.filter((name) => Object.hasOwn(USES, name));
  if (useful.length > 0)
    findings.push(
      finding(
        'Extensions',
        'note',
        'available and useful here',
        useful.map((name) => ({ name, message: USES[name] ?? '', fix: `create extension ${name};` })),
      ),
    );
  return findings;
}

/** Beside the pools: for the service's own statements, the catalog and notifications. */
const OWN_CONNECTIONS = 6;

function settings({ config, facts, installed }: Examined): Finding[] {
  const { settings: values } = facts;
  const section = 'Settings';
  const findings: Finding[] = [];
  const limit = config.DATABASE_STATEMENT_TIMEOUT;
  findings.push(
    limit === 0
      ? finding(section, 'note', 'statement_timeout is off (DATABASE_STATEMENT_TIMEOUT=0): a statement may run forever')
      : finding(section, 'ok', `statement_timeout ${limit / 1_000}s, set by DATABASE_STATEMENT_TIMEOUT`),
  );
  const needed = connectionsOf(config);
  const reserved = ['superuser_reserved_connections', 'reserved_connections'].map((name) => Number(values[name] ?? 0));
  const free =
    Number(values['max_connections']) - (facts.superuser ? 0 : reserved.reduce((sum, each) => sum + each, 0));
  const most = Math.min(free, facts.role_limit ?? free, facts.database_limit ?? free);
  const figures = `the service opens up to ${needed} of ${most} connections (max_connections ${values['max_connections']})`;
  if (needed > most)
    findings.push(
      finding(
        section,
        'problem',
        `${figures}: lower DATABASE_POOL_SIZE and DATABASE_WRITE_POOL_SIZE, or raise the limit`,
      ),
    );
  else if (needed + facts.connections > most)
    findings.push(finding(section, 'note', `${figures}, and other clients have ${facts.connections} now`));
  else findings.push(finding(section, 'ok', figures));
  findings.push(finding(section, 'ok', `wal_level ${values['wal_level']}`));
  if (values['server_encoding'] !== 'UTF8')
    findings.push(
      finding(section, 'note', `server_encoding ${values['server_encoding']}: characters outside of it are refused`),
    );
  if (facts.watched) findings.push(finding(section, 'ok', 'an event trigger reports schema changes'));
  else if (facts.superuser && !installed)
    findings.push(finding(section, 'ok', 'the first start creates an event trigger that reports schema changes'));
  else
    findings.push(
      finding(
        section,
        'note',
        `schema changes are found by polling every ${config.SCHEMA_POLL_INTERVAL / 1_000}s: an event trigger needs a superuser`,
      ),
    );
  return findings;
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
