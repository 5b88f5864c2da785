/**
 * 3,000 tables: whatever describes, compares or changes all of them at once answers, and others have their turn meanwhile. Takes a minute, so
 * that `npm run test:load` runs it.
 */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { type IncomingMessage, request as openRequest } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { getIntrospectionQuery } from 'graphql';
import t, { type Test } from 'tap';
import { writeYamlInSlices } from '../../../src/base/yaml.js';
import { ADMIN_TOKEN, createDatabase, startDatabase, startTestService, withSql } from '../../support/service.js';

const TABLES = 3_000;
const TABLES_PER_STATEMENT = 100;
/**
 * Milliseconds of processors in which a ping waits. The service keeps the event loop for about 100, and the client in the same process for as
 * long; the rest is for noise. A busy machine lets both wait longer, without using processors.
 */
const LONGEST_WAIT = 500;
/** Milliseconds, whatever the machine does. */
const LONGEST_IN_ALL = 5_000;
const PING_INTERVAL = 50;

const server = await startDatabase({ settings: { max_locks_per_transaction: '4096' } });
const url = await createDatabase(server, 'many');
await withSql(url, async (sql) => {
  for (let first = 0; first < TABLES; first += TABLES_PER_STATEMENT)
    await sql.unsafe(`do $$ begin
      for number in ${first}..${first + TABLES_PER_STATEMENT - 1} loop
        execute format('create table t%s (
          id serial primary key,
          name text not null default ''x'',
          price numeric(10, 2) default 0,
          made timestamptz default now(),
          note text default lower(''N%s''),
          tags text[] default ''{}'',
          owner int %s,
          loud varchar(20) generated always as (upper(name)) stored)',
          number, number, case when number > 0 then format('references t%s', number / 10) else '' end);
        execute format('create index on t%s (owner, name)', number);
      end loop;
    end $$`);
});
let service = await startTestService({ databaseUrl: url, WORKERS: '1' });

t.test('a snapshot', async (t) => {
  const text = await beside(t, 'GET', '/schema/snapshot', 200);
  t.equal(JSON.parse(text).data.collections.length, TABLES);
  await beside(t, 'GET', '/schema/snapshot?export=yaml', 200);
});

t.test('a difference in each table, and its application', async (t) => {
  const { data } = JSON.parse(await send('GET', '/schema/snapshot').then(({ text }) => text));
  await beside(t, 'POST', '/schema/diff', 204, JSON.stringify(data));
  for (const field of data.fields) if (field.field === 'price') field.schema.comment = 'In francs';
  const difference = await beside(t, 'POST', '/schema/diff', 200, JSON.stringify(data));
  t.equal(JSON.parse(difference).data.diff.fields.length, TABLES);
  await beside(t, 'POST', '/schema/apply', 204, JSON.stringify(JSON.parse(difference).data));
  await beside(t, 'POST', '/schema/diff', 204, JSON.stringify(data));
});

t.test('a snapshot and a difference in YAML', async (t) => {
  const snapshot = await send('GET', '/schema/snapshot?export=yaml').then(({ text }) => text);
  t.ok(snapshot.length > 8_000_000, `the snapshot has ${snapshot.length} characters`);
  await beside(t, 'POST', '/schema/diff', 204, snapshot, 'application/yaml');
  const changed = snapshot.replaceAll('comment: In francs', 'comment: In florins');
  const difference = await beside(t, 'POST', '/schema/diff', 200, changed, 'application/yaml');
  const { data } = JSON.parse(difference);
  t.equal(data.diff.fields.length, TABLES);
  await beside(t, 'POST', '/schema/apply', 204, await writeYamlInSlices(data), 'application/yaml');
  await beside(t, 'POST', '/schema/diff', 204, changed, 'application/yaml');
});

t.test('suggested relations', async (t) => {
  const text = await beside(t, 'GET', '/schema/suggestions', 200);
  t.equal(JSON.parse(text).data.relations.length, TABLES - 1);
});

t.test('OpenAPI and the schemas of GraphQL', async (t) => {
  const document = await beside(t, 'GET', '/server/specs/oas', 200);
  t.ok(JSON.parse(document).paths[`/items/t${TABLES - 1}/{key}`]);
  t.equal(await beside(t, 'GET', '/server/specs/oas', 200), document);
  const schema = await beside(t, 'GET', '/server/specs/graphql/items', 200);
  t.match(schema, `type t${TABLES - 1} {`);
  await beside(t, 'GET', '/server/specs/graphql/system', 200);
});

t.test('introspection', async (t) => {
  const text = await beside(t, 'POST', '/graphql', 200, JSON.stringify({ query: getIntrospectionQuery() }));
  t.ok(text.includes(`"t${TABLES - 1}"`));
});

t.test('a change of the schema with several threads', async (t) => {
  await service.stop();
  service = await startTestService({ databaseUrl: url, WORKERS: '2' });
  const field = { field: 'extra', type: 'string', schema: { default_value: 'new' } };
  await beside(t, 'POST', '/fields/t1', 200, JSON.stringify(field));
  await send('POST', '/items/t1', JSON.stringify({}));
  const answers = await Promise.all(Array.from({ length: 10 }, () => send('GET', '/items/t1?fields=extra')));
  for (const { text } of answers) t.equal(text, '{"data":[{"extra":"new"}]}', 'each thread has the new model');
});

/** The processor time of the thread with the event loop, where Linux tells it; otherwise of all threads. */
function usedMs(): number {
  try {
    return Number(readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'utf8').split(' ')[0]) / 1_000_000;
  } catch {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1_000;
  }
}

/** The text of an answer, with pings while it is awaited. The body may be followed by its type. */
async function beside(t: Test, method: string, path: string, status: number, ...body: string[]): Promise<string> {
  let isOver = false;
  let [longest, longestInAll] = [0, 0];
  const pings: Promise<void>[] = [];
  const ping = async (due: number, usedBefore: number): Promise<void> => {
    await send('GET', '/server/ping');
    const waited = performance.now() - due;
    longest = Math.max(longest, Math.min(waited, usedMs() - usedBefore));
    longestInAll = Math.max(longestInAll, waited);
  };
  const pinging = (async () => {
    for (let due = performance.now(); !isOver; due += PING_INTERVAL) {
      const used = usedMs();
      await sleep(Math.max(due - performance.now(), 0));
      pings.push(ping(due, used));
    }
  })();
  const answer = await receive(method, path, ...body);
  isOver = true;
  await pinging;
  await Promise.all(pings);
  // Only now: to put 70 MB together would keep the pings of this process waiting too.
  const text = Buffer.concat(answer.pieces).toString();
  t.equal(answer.status, status, `${method} ${path} answers ${status}: ${answer.status < 300 ? '' : text}`);
  const wait = `${Math.round(longestInAll)} ms, and ${Math.round(longest)} ms of processors`;
  t.ok(longest < LONGEST_WAIT && longestInAll < LONGEST_IN_ALL, `a ping while ${method} ${path} runs waits ${wait}`);
  return text;
}

async function send(method: string, path: string, ...body: string[]): Promise<{ status: number; text: string }> {
  const { status, pieces } = await receive(method, path, ...body);
  return { status, text: Buffer.concat(pieces).toString() };
}

async function receive(
  method: string,
  path: string,
  body = '',
  type = 'application/json',
): Promise<{ status: number; pieces: readonly Buffer[] }> {
  const { hostname, port } = new URL(service.url);
  const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, ...(body && { 'content-type': type }) };
  const outgoing = openRequest({ hostname, port, method, path, headers, agent: false });
  outgoing.end(body);
  const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
  const pieces: Buffer[] = [];
  for await (const piece of incoming) pieces.push(piece);
  return { status: incoming.statusCode ?? 0, pieces };
}
