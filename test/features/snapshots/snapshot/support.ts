/** What the tests of snapshots share: services on databases of their own, and what a change could leave behind. */
import { readFile } from 'node:fs/promises';
import type { Test } from 'tap';
import type { Service } from '../../../../src/app/start.js';
import { packagePath } from '../../../../src/base/package-files.js';
import {
  type Answer,
  createDatabase,
  databaseUrl,
  get,
  request,
  startTestService,
  type TestServer,
  withSql,
} from '../../../support/service.js';

export type Entry = Record<string, unknown>;

export interface Snapshot extends Entry {
  collections: Entry[];
  fields: Entry[];
  relations: Entry[];
}

/** A field or relation that has both parts. */
export interface Editable extends Entry {
  meta: Entry;
  schema: Entry;
}

/** The script of the demo model. */
export const demoScript = await readFile(packagePath('sql', 'server', 'demo.sql'), 'utf8');

/** The service on a database of its own, with the given script run after its tables were made. */
export async function openService(server: TestServer, name: string, script = ''): Promise<Service> {
  const url = await createDatabase(server, name);
  const service = await startTestService({ databaseUrl: url });
  if (script !== '') await withSql(url, (sql) => sql.unsafe(script).simple());
  return service;
}

export async function post(service: Service, path: string, body: unknown): Promise<Answer> {
  return request(service, 'POST', path, {
    headers: { 'content-type': 'application/json' },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
}

export async function snapshotOf(service: Service): Promise<Snapshot> {
  return ((await get(service, '/schema/snapshot')).json as { data: Snapshot }).data;
}

/** Compares, then applies what differs. */
export async function move(t: Test, snapshot: Snapshot, target: Service): Promise<void> {
  const difference = await post(target, '/schema/diff', snapshot);
  t.equal(difference.status, 200, difference.text.slice(0, 200));
  const applied = await post(target, '/schema/apply', (difference.json as { data: unknown }).data);
  t.equal(applied.status, 204, applied.text.slice(0, 300));
}

export function differenceOf({ json }: Answer): { hash: string; diff: Snapshot } {
  return (json as { data: { hash: string; diff: Snapshot } }).data;
}

/** Everything that a change of the schema could leave behind. */
export async function stateOf(server: TestServer, name: string): Promise<unknown> {
  const rows = await withSql(databaseUrl(server, name), async (sql) => [
    ...(await sql`select * from service_collections order by collection`),
    ...(await sql`select * from service_fields order by id`),
    ...(await sql`select * from service_relations order by id`),
    ...(await sql`select relname from pg_class where relnamespace = 'public'::regnamespace order by relname`),
    ...(await sql`select version from service_schema`),
  ]);
  return [...rows, ...(await describeCatalog(server, name))];
}

/** Columns with everything that is said of them, constraints and comments, without the names of constraints. */
export async function describeCatalog(server: TestServer, name: string): Promise<string[]> {
  const rows = await withSql(
    databaseUrl(server, name),
    (sql) => sql`
    select format('%s.%s %s %s default=%s generated=%s comment=%s', class.relname, attribute.attname,
      format_type(attribute.atttypid, attribute.atttypmod), attribute.attnotnull,
      case when attribute.attidentity <> '' or pg_get_expr(initial.adbin, initial.adrelid) like 'nextval%' then 'sequence'
        else regexp_replace(pg_get_expr(initial.adbin, initial.adrelid), '::(smallint|integer)$', '') end,
      attribute.attgenerated, col_description(class.oid, attribute.attnum)) as fact
    from pg_class class
    join pg_attribute attribute on attribute.attrelid = class.oid and attribute.attnum > 0 and not attribute.attisdropped
    left join pg_attrdef initial on initial.adrelid = class.oid and initial.adnum = attribute.attnum
    where class.relnamespace = 'public'::regnamespace and class.relkind = 'r' and class.relname not like 'service%'
    union all
    select format('%s %s', class.relname, pg_get_constraintdef(rule.oid))
    from pg_constraint rule join pg_class class on class.oid = rule.conrelid
    where class.relnamespace = 'public'::regnamespace and class.relname not like 'service%' and rule.contype in ('p', 'u', 'f')
    union all
    select format('%s %s', class.relname, regexp_replace(pg_get_indexdef(index.indexrelid), '^.* ON', ''))
    from pg_index index join pg_class class on class.oid = index.indrelid
    where class.relnamespace = 'public'::regnamespace and class.relname not like 'service%'
    union all
    select format('%s %s', class.relname, obj_description(class.oid, 'pg_class'))
    from pg_class class where class.relnamespace = 'public'::regnamespace and class.relkind = 'r' and class.relname not like 'service%'
    order by fact`,
  );
  return rows.map((row) => String(row['fact']));
}
