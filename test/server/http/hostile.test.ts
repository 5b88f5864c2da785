/**
 * Hostile input: thousands of damaged requests over real HTTP. Whatever arrives is answered in time, never with a 5xx,
 * with at most one statement, and changes nothing. A fixed seed makes every run the same; HOSTILE_SEED and HOSTILE_RUNS
 * make longer hunts.
 */
import { once } from 'node:events';
import { Agent, type IncomingMessage, request as openRequest } from 'node:http';
import t from 'tap';
import {
  ADMIN_TOKEN,
  createLibrary,
  get,
  KNOWS_CALLERS,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';
import { StatementCounter } from '../../support/statement-counter.js';
import { damageBody, damageUrl, type Random, randomFrom } from '../../support/wal-damage.js';

const RUNS = Number(process.env['HOSTILE_RUNS'] ?? 400);
const SEED = Number(process.env['HOSTILE_SEED'] ?? 20_240_229);
const TOGETHER = 20;
const JSON_HEADERS = { 'content-type': 'application/json' };
/** Milliseconds a request may take. */
const PATIENCE = 2_000;

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'hostile');
await withSql(databaseUrl, (sql) =>
  sql
    .unsafe(`
      create table "constructor" (id serial primary key, "__proto__" text, "toString" text, "hasOwnProperty" integer);
      insert into "constructor" ("__proto__", "toString", "hasOwnProperty") values ('a', 'b', 1), ('c', 'd', 2);
      create table "qu""o'te" (id serial primary key, "co""lumn'" text, "ünï%20" text, "a,b" text, "f(x)" text, "$1" text);
      insert into "qu""o'te" ("co""lumn'") values ('x');
      create table kinds (
        id uuid primary key default gen_random_uuid(), big bigint, small smallint, price numeric, ratio real, yes boolean,
        day date, moment timestamptz, local timestamp, hour time, raw bytea, pair int4range, list integer[], doc jsonb,
        net inet, word char(3), span interval, owner integer references authors (id)
      );
      insert into kinds (big, price, moment, day) values (9007199254740993, 'NaN', 'infinity', '0044-03-15 BC');`)
    .simple(),
);
const counter = await StatementCounter.of(server, 'hostile');
/** One thread: each has to learn once who asks, which would count as a statement. */
const service = await startTestService({ databaseUrl, WORKERS: '1', ...KNOWS_CALLERS });
const agent = new Agent({ keepAlive: true, maxSockets: TOGETHER });
t.teardown(() => agent.destroy());

interface Attempt {
  readonly method: 'GET' | 'SEARCH';
  readonly path: string;
  readonly body: string | null;
}

interface Outcome {
  readonly status: number;
  readonly milliseconds: number;
}

t.test(`${RUNS} damaged requests, seed ${SEED}`, { timeout: 150_000 + 60 * RUNS }, async (t) => {
  const random = randomFrom(SEED);
  const untouched = await contents();
  await send({ method: 'GET', path: '/items/tags', body: null });
  const statuses = new Map<number, number>();
  let bad = 0;
  for (let done = 0; done < RUNS && bad < 40; done += TOGETHER) {
    const attempts = Array.from({ length: TOGETHER }, () => attemptFrom(random));
    const before = await splitsSoFar();
    const { answer: outcomes, counts } = await counter.count(() => Promise.all(attempts.map(send)));
    for (const [position, { status, milliseconds }] of outcomes.entries()) {
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      const attempt = attempts[position] as Attempt;
      if (status < 200 || status >= 500) t.fail(`answered ${status}: ${describe(attempt)}`, { bad: ++bad });
      if (milliseconds > PATIENCE) t.fail(`took ${milliseconds} ms: ${describe(attempt)}`, { bad: ++bad });
    }
    // Statements that fail are not counted, so each counted one has to belong to an answer: a list, an item, or none found.
    const answered = outcomes.filter(
      ({ status }, position) => status === 200 || mayMiss(status, attempts[position]),
    ).length;
    // The driver asks for the types once per new connection, whatever the request.
    const said = counts.filter(({ query }) => !query.includes('typarray'));
    const calls = said.reduce((sum, count) => sum + count.calls, 0);
    if (calls <= answered) continue;
    // What a busy machine holds up for too long is asked once more.
    const splits = (await splitsSoFar()) - before;
    if (!(calls <= answered + TOGETHER * splits)) {
      bad++;
      t.fail(`${calls} statements for ${answered} answers`, { said, attempts: attempts.map(describe) });
    }
  }
  t.equal(bad, 0, 'none was answered wrongly, late or with a second statement');
  for (const status of [200, 400, 403, 404]) t.ok((statuses.get(status) ?? 0) > RUNS / 200, `some were ${status}`);
  t.comment([...statuses].map(([status, count]) => `${status}: ${count}`).join(', '));
  t.strictSame(await contents(), untouched, 'the data is what it was');
  t.match(await send({ method: 'GET', path: '/items/articles/1', body: null }), { status: 200 }, 'and is still served');
});

t.test('values that their type reads as a name or a language', async (t) => {
  await withSql(databaseUrl, (sql) =>
    sql.unsafe(`create table readers (
      id serial primary key, list integer[], words tsvector, search tsquery, path jsonpath, class regclass, kind regtype,
      routine regproc, call regprocedure, role regrole, schema regnamespace, config regconfig, operator regoper)`),
  );
  t.teardown(() => withSql(databaseUrl, (sql) => sql.unsafe('drop table readers')));
  await waitFor(async () => (await get(service, '/items/readers')).status === 200, 10_000);
  const wrong: Readonly<Record<string, readonly string[]>> = {
    words: ['a:b:c:', "'a"],
    search: ['a &', '('],
    path: ['1x', '$.', '$['],
    class: ['nope', 'no.nope', 'a.b.c.d', '"', ''],
    kind: ['nope', 'no.nope', 'integer(', '1x'],
    routine: ['nope', 'lower', 'no.nope'],
    call: ['nope', 'nope(integer)', 'lower(nope)'],
    role: ['nope', 'a.b'],
    schema: ['nope', 'a.b'],
    config: ['nope', 'no.nope'],
    operator: ['nope', '+', 'no.+'],
  };
  for (const [name, values] of Object.entries(wrong)) {
    for (const value of values) {
      const body = JSON.stringify({ [name]: value });
      const made = await request(service, 'POST', '/items/readers', { headers: JSON_HEADERS, body });
      t.match(made.json, { errors: [{ extensions: { code: 'INVALID_PAYLOAD' } }] }, `POST ${body}`);
      const found = await get(service, `/items/readers?filter[${name}][_eq]=${encodeURIComponent(value)}`);
      t.match(found.json, { errors: [{ extensions: { code: 'INVALID_QUERY' } }] }, `filter ${body}`);
    }
  }
  for (const operator of ['_in', '_nin']) {
    const found = await get(service, `/items/readers?filter[list][${operator}]=1,2`);
    t.match(found.json, { errors: [{ extensions: { code: 'INVALID_QUERY' } }] }, operator);
  }
  const body = JSON.stringify({ class: 'readers', words: 'a:1', path: '$.a', list: [1] });
  t.equal((await request(service, 'POST', '/items/readers', { headers: JSON_HEADERS, body })).status, 200);
  const found = await get(service, '/items/readers?filter[class][_eq]=readers&filter[list][_eq]={1}&fields=class');
  t.strictSame(found.json, { data: [{ class: 'readers' }] }, 'what can be read is');
});

function attemptFrom(random: Random): Attempt {
  if (random.below(3) > 0) return { method: 'GET', path: damageUrl(random), body: null };
  const { path, body } = damageBody(random);
  return { method: 'SEARCH', path, body };
}

/** A single read that finds nothing has asked the database. */
function mayMiss(status: number, attempt: Attempt | undefined): boolean {
  return status === 403 && attempt?.method === 'GET' && /^\/items\/[^/?]+\/[^/?]/i.test(attempt.path);
}

function describe({ method, path, body }: Attempt): string {
  return `${method} ${JSON.stringify(path.slice(0, 1_500))} ${body === null ? '' : body.slice(0, 1_500)}`;
}

/** A status of 0 says that there was no answer. */
async function send({ method, path, body }: Attempt): Promise<Outcome> {
  const { hostname, port } = new URL(service.url);
  const start = performance.now();
  const headers: Record<string, string> = { authorization: `Bearer ${ADMIN_TOKEN}` };
  if (body !== null) headers['content-type'] = 'application/json';
  try {
    const outgoing = openRequest({ hostname, port, method, path, headers, agent });
    // A socket that breaks after the answer was read would otherwise end the test.
    outgoing.on('error', () => {});
    const timer = setTimeout(() => outgoing.destroy(new Error('too slow')), PATIENCE * 2);
    try {
      outgoing.end(body ?? undefined);
      const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
      for await (const _ of incoming);
      return { status: incoming.statusCode ?? 0, milliseconds: performance.now() - start };
    } finally {
      clearTimeout(timer);
    }
  } catch {
    return { status: 0, milliseconds: performance.now() - start };
  }
}

/** Batches whose reads were sent again one by one. */
async function splitsSoFar(): Promise<number> {
  const { text } = await get(service, '/server/metrics');
  return Number(/^lateral_read_batch_splits_total (\d+)$/m.exec(text)?.[1]);
}

/** A fingerprint of every table. */
async function contents(): Promise<unknown> {
  return withSql(databaseUrl, async (sql) => {
    const tables = await sql`select tablename from pg_tables where schemaname = 'public' order by tablename`;
    const found: unknown[] = [];
    for (const { tablename } of tables) {
      const [row] =
        await sql`select md5(coalesce(string_agg(t::text, '|' order by t::text), '')) from ${sql(tablename)} t`;
      found.push([tablename, row?.['md5']]);
    }
    return found;
  });
}
