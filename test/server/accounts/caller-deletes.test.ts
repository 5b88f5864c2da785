/**
 * Deletes under row-level security. PostgreSQL lets a caller lock a row only if it may update it, and a caller who may delete a row need not
 * be allowed to.
 */
import type { TransactionSql } from 'postgres';
import t from 'tap';
import type { Service } from '../../../src/app/start.js';
import { inForce, type MadeCaller, makeCaller, type Permission } from '../../support/callers.js';
import {
  type Answer,
  connectSql,
  createDatabase,
  databaseUrl,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

const ACTIONS = ['read', 'create', 'update', 'delete'] as const;
const ALL: readonly Permission[] = ['marks', 'tags'].flatMap((collection) =>
  ACTIONS.map((action) => ({ collection, action })),
);
const RULED: readonly Permission[] = ALL.map((each) =>
  each.action === 'delete' ? { ...each, permissions: { kind: { _neq: 'kept' } } } : each,
);

const server = await startDatabase({ own: true });
const sql = connectSql(await createDatabase(server, 'deletes'));
t.teardown(() => sql.end());
await sql.unsafe(`
  create role app login password 'app' noinherit;
  create role member;
  grant member to app;
  create schema own authorization app;
  grant usage on schema own to member;
  create function uid() returns uuid language sql stable
    as $$ select nullif(nullif(current_setting('request.jwt.claims', true), '')::json ->> 'sub', '')::uuid $$;
  create table marks (id integer primary key, owner uuid, kind text);
  alter table marks enable row level security;
  create policy readable on marks for select using (true);
  create policy own_gone on marks for delete using (owner = (select uid()));
  create table tags (id integer primary key, kind text);
  grant select, delete on marks, tags to member;
  grant select, insert, update, delete on marks, tags to app`);

async function launch(mode: string): Promise<Service> {
  const at = databaseUrl(server, 'deletes', { user: 'app', password: 'app' });
  return startTestService({ databaseUrl: at, WORKERS: '1', SYSTEM_SCHEMA: 'own', DATABASE_CALLER: mode });
}

const services = { claims: await launch('claims'), role: await launch('role') };
await sql`set search_path to own, public`;
const ann = await makeCaller(sql, 'ann', [{ permissions: ALL }]);
const bob = await makeCaller(sql, 'bob', [{ permissions: RULED }]);
await sql`update service_roles set database_role = 'member' where name in ('ann', 'bob')`;
for (const service of Object.values(services))
  for (const caller of [ann, bob]) await inForce(service, caller, '/items/marks');

function remove(to: Service, { token }: MadeCaller, path: string, query?: unknown, headers = {}): Promise<Answer> {
  if (query === undefined) return request(to, 'DELETE', path, { token, headers });
  const body = JSON.stringify(query);
  // Node sends the length of a body only with other methods.
  const length = { 'content-type': 'application/json', 'content-length': String(body.length) };
  return request(to, 'DELETE', path, { token, body, headers: { ...headers, ...length } });
}

function removeInTransaction(to: Service, { token }: MadeCaller, body: unknown): Promise<Answer> {
  const operations = [{ method: 'DELETE', path: '/items/marks', body }];
  const headers = { 'content-type': 'application/json' };
  return request(to, 'POST', '/transactions', { token, headers, body: JSON.stringify({ operations }) });
}

/** Commits the change when the request waits for it. */
async function whileChanged(
  change: (other: TransactionSql) => Promise<unknown>,
  send: () => Promise<Answer>,
): Promise<Answer | undefined> {
  let answer: Promise<Answer> | undefined;
  await sql.begin(async (other) => {
    await change(other);
    answer = send();
    await waitFor(async () => {
      await other`select pg_stat_clear_snapshot()`;
      const waiting = await other`
        select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
      return waiting.length > 0;
    }, 5_000);
  });
  return answer;
}

async function fill(): Promise<void> {
  await sql`truncate marks, tags`;
  await sql`
    insert into marks select n, case when n % 2 = 0 then ${ann.user}::uuid else ${bob.user}::uuid end,
      case when n > 6 then 'kept' else 'old' end from generate_series(1, 8) n`;
  await sql`insert into tags select n, 'old' from generate_series(1, 3) n`;
}

const left = async (): Promise<number[]> =>
  (await sql<{ id: number }[]>`select id from marks order by id`).map(({ id }) => id);

for (const [mode, service] of Object.entries(services)) {
  t.test(`${mode}: a query deletes what the policies let the caller delete`, async (t) => {
    await fill();
    const query = { filter: { id: { _lte: 5 } } };
    t.equal((await remove(service, ann, '/items/marks', { query })).status, 204);
    t.strictSame(await left(), [1, 3, 5, 6, 7, 8]);
    t.equal((await remove(service, bob, '/items/marks', { query: { limit: -1 } })).status, 204);
    t.strictSame(await left(), [6, 7, 8], 'and the rules of its permissions');
    const logged = await sql`select item from service_activity where collection = 'marks' and "user" = ${ann.user}`;
    t.strictSame(logged.map(({ item }) => item as string).toSorted(), ['2', '4'], 'the log has the deleted rows');
    await sql`truncate service_activity cascade`;
  });

  t.test(`${mode}: keys, rules and entity tags need no policy for updates`, async (t) => {
    await fill();
    t.equal((await remove(service, ann, '/items/marks', [2, 3])).status, 403, 'a row of another');
    t.equal((await remove(service, bob, '/items/marks/7')).status, 403, 'a row that the rule keeps');
    t.strictSame(await left(), [1, 2, 3, 4, 5, 6, 7, 8]);
    t.equal((await remove(service, bob, '/items/marks', [1, 3])).status, 204);
    const { headers } = await get(service, '/items/marks/4', { token: ann.token });
    const tag = String(headers['etag']);
    await sql`update marks set kind = 'new' where id = 4`;
    t.equal((await remove(service, ann, '/items/marks/4', undefined, { 'if-match': tag })).status, 412);
    const next = String((await get(service, '/items/marks/4', { token: ann.token })).headers['etag']);
    t.equal((await remove(service, ann, '/items/marks/4', undefined, { 'if-match': next })).status, 204);
    t.strictSame(await left(), [2, 5, 6, 7, 8]);
    await sql`truncate service_activity cascade`;
  });

  t.test(`${mode}: a row that changes meanwhile is compared again`, async (t) => {
    const old = { query: { filter: { kind: { _eq: 'old' } } } };
    const ways = {
      alone: (by: MadeCaller) => remove(service, by, '/items/marks', old),
      'in a transaction': (by: MadeCaller) => removeInTransaction(service, by, old),
    };
    for (const [way, removeOld] of Object.entries(ways)) {
      await fill();
      const answer = await whileChanged(
        (other) => other`update public.marks set kind = case id when 2 then 'new' else kind end where id <= 4`,
        () => removeOld(ann),
      );
      t.match(answer, { status: way === 'alone' ? 204 : 200 }, way);
      t.strictSame(await left(), [1, 2, 3, 5, 7, 8], `${way}: the row that still matches is deleted`);
      await fill();
      await whileChanged(
        (other) => other`update public.marks set kind = 'kept' where id = 3`,
        () => removeOld(bob),
      );
      t.strictSame(await left(), [2, 3, 4, 6, 7, 8], `${way}: with a rule`);
    }
    const logged = await sql`select item from service_activity where collection = 'marks' and "user" = ${ann.user}`;
    t.strictSame(
      logged.map(({ item }) => item as string).toSorted(),
      ['4', '4', '6', '6'],
      'the log has the deleted rows',
    );
    await sql`truncate service_activity cascade`;
  });

  t.test(`${mode}: a transaction deletes what a query selects and a trigger keeps what it keeps`, async (t) => {
    await fill();
    await sql.unsafe(`
      alter table public.marks add column hidden boolean;
      create function public.hide() returns trigger language plpgsql security definer as $$ begin
        begin update public.marks set hidden = true where id = old.id; exception when division_by_zero then null; end;
        return null; end $$;
      create trigger hide before delete on public.marks for each row when (old.id = 3) execute function public.hide();
      create policy hidden on public.marks for update using (true)`);
    await request(service, 'POST', '/utils/cache/clear');
    const answer = await removeInTransaction(service, bob, { query: { limit: -1 } });
    t.match(answer, { status: 200 });
    t.strictSame(await left(), [2, 3, 4, 6, 7, 8]);
    await sql.unsafe(`
      drop policy hidden on public.marks; drop trigger hide on public.marks; drop function public.hide;
      alter table public.marks drop column hidden`);
    await request(service, 'POST', '/utils/cache/clear');
    await sql`truncate service_activity cascade`;
  });
}

t.test('role: a query deletes without the privilege to update', async (t) => {
  await fill();
  const answer = await remove(services.role, ann, '/items/tags', { query: { filter: { id: { _gt: 1 } } } });
  t.equal(answer.status, 204);
  t.strictSame(
    [...(await sql`select id from tags`)].map(({ id }) => id as number),
    [1],
  );
});
