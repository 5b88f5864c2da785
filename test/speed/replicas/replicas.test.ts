/**
 * Reads on replicas: two instances over a primary, a standby that follows at once, and one that replays ten seconds late. To let a
 * standby be behind for certain, its replay is paused.
 */
import { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import type { Service } from '../../../src/app/start.js';
import { childrenOf } from '../../../src/features/embedded/processes.js';
import { POSITION, parsePosition } from '../../../src/server/postgres/pools/sessions.js';
import { balance } from '../../support/balancer.js';
import { caughtUp, pidOf, startPrimary, startStandby } from '../../support/cluster.js';
import { Network } from '../../support/network-proxy.js';
import {
  type Answer,
  createLibrary,
  databaseUrl,
  get,
  type RequestOptions,
  request,
  runProgram,
  startTestService,
  type TestServer,
  waitFor,
  withSql,
} from '../../support/service.js';
import { cookieOf, login, makeUser, SECRET } from '../../support/users.js';

const NAME = 'replicated';
/** `npm run test:replicas` makes very many of them. */
const PAIRS = Number(process.env['REPLICA_PAIRS'] ?? 200);
/** As many write and read at the same time. */
const WRITERS = 32;
t.setTimeout(170_000 + PAIRS * 120);
const settings = { shared_preload_libraries: 'pg_stat_statements' };
const primary = await startPrimary({ settings });
const url = await createLibrary(primary, NAME);
await withSql(url, (sql) => sql`create extension pg_stat_statements`);
const [prompt, late] = await Promise.all([
  startStandby(primary, { name: 'prompt', settings }),
  startStandby(primary, { name: 'late', settings: { ...settings, recovery_min_apply_delay: '10s' } }),
]);
const common = {
  databaseUrl: url,
  DATABASE_REPLICA_URLS: [prompt, late].map((standby) => databaseUrl(standby, NAME)).join(),
  SECRET,
};
// One of them bears with any replica, the other with those that are nearly there.
const [patient, strict] = await Promise.all([
  startTestService({ ...common, REPLICA_MAX_LAG: '1h' }),
  startTestService({ ...common, REPLICA_MAX_LAG: '700ms', REPLICA_WAIT: '200ms' }),
]);

const JSON_HEADER = { 'content-type': 'application/json' };
let titles = 0;

/** Gives an article a new title. */
async function write(service: { readonly url: string }, options: RequestOptions = {}): Promise<[string, Answer]> {
  const title = `title ${++titles}`;
  const headers = { ...JSON_HEADER, ...options.headers };
  const answer = await request(service, 'PATCH', '/items/articles/1', {
    ...options,
    headers,
    body: JSON.stringify({ title }),
  });
  t.equal(answer.status, 200);
  return [title, answer];
}

async function titleOf(
  service: { readonly url: string },
  headers: RequestOptions['headers'] = {},
  token?: null,
): Promise<unknown> {
  const path = '/items/articles/1?fields=title';
  const answer = await get(service, path, { headers, ...(token === null ? { token } : {}) });
  return (answer.json as { readonly data?: { readonly title: string } }).data?.title ?? answer.text;
}

const replay = (server: TestServer, verb: 'pause' | 'resume'): Promise<unknown> =>
  withSql(server.url, (sql) =>
    verb === 'pause' ? sql`select pg_wal_replay_pause()` : sql`select pg_wal_replay_resume()`,
  );

async function checkOf(server: TestServer): Promise<{ readonly status: string; readonly output?: string } | undefined> {
  const { json } = await get(strict, '/server/health');
  const { checks } = json as { readonly checks: Readonly<Record<string, readonly { readonly status: string }[]>> };
  return checks[`replica:${new URL(server.url).host}`]?.[0];
}

const isReady = async (server: TestServer): Promise<boolean> => (await checkOf(server))?.status === 'ok';

const eventual = { prefer: 'consistency=eventual' };

t.test('a caller sees its own writes, also while the replicas do not have them', async (t) => {
  await titleOf(patient);
  await caughtUp(primary, prompt);
  await replay(prompt, 'pause');
  const former = await titleOf(patient, { prefer: 'consistency=strong' });
  const [title, answer] = await write(patient);
  const position = String(answer.headers['lateral-position']);
  t.match(position, /^[0-9a-z]{1,10}-1$/, 'with the timeline, also where there is one host');
  t.equal(await titleOf(patient, eventual), former, 'the replicas do not have it');
  t.equal(await titleOf(patient), title, 'the caller sees it on the instance that has written it');
  t.equal(await titleOf(strict, { 'lateral-position': position }), title, 'and on another with the position');
  t.equal(
    await titleOf(patient, { ...eventual, 'lateral-position': position }),
    title,
    'which is a promise of its own',
  );
  t.equal(await titleOf(patient, { prefer: 'consistency=strong' }), title, 'everybody sees it on the primary');
  const query = { query: '{ articles_by_id(id: 1) { title } }' };
  const send = (headers: Readonly<Record<string, string>>): Promise<Answer> =>
    request(patient, 'POST', '/graphql', {
      headers: { ...JSON_HEADER, ...headers },
      body: JSON.stringify(query),
    });
  t.match((await send({})).json, { data: { articles_by_id: { title } } }, 'GraphQL as well');
  const stale = await send(eventual);
  t.match(stale.json, { data: { articles_by_id: { title: former } } });
  t.equal(stale.headers['preference-applied'], 'consistency=eventual');
  await replay(prompt, 'resume');
  await caughtUp(primary, prompt);
  await waitFor(async () => (await titleOf(patient, eventual)) === title, 15_000);
});

t.test('the position is behind a transaction that did not wait for the disk', async (t) => {
  await withSql(url, (sql) =>
    sql
      .unsafe(`
        create sequence hurried;
        create function hurry() returns trigger language plpgsql as $$ begin
          perform set_config('synchronous_commit', 'off', true);
          perform setval('hurried', (pg_current_wal_insert_lsn() - '0/0')::bigint);
          return null;
        end $$;
        create trigger hurry after update on articles for each row execute function hurry()`)
      .simple(),
  );
  for (let round = 0; round < 5; round++) {
    const [, answer] = await write(patient);
    const [position = ''] = String(answer.headers['lateral-position']).split('-');
    const [row] = await withSql(url, (sql) => sql`select last_value from hurried`);
    t.ok(Number.parseInt(position, 36) > Number(row?.['last_value']), 'it is beyond what the transaction has written');
  }
  await withSql(url, (sql) => sql.unsafe('drop function hurry cascade; drop sequence hurried').simple());
});

t.test('a standby reaches the position without another write, also at the end of a page', async (t) => {
  const { position } = await withSql(primary.url, async (sql) => {
    const offset = async (): Promise<number> =>
      Number((await sql`select (pg_current_wal_insert_lsn() - '0/0') % 8192 as bytes`)[0]?.['bytes']);
    // A message has 55 bytes beside its text. Behind the last one of a page PostgreSQL names the place behind the next header.
    for (let at = await offset(); at !== 24; at = await offset()) {
      const length = 8192 - at > 400 ? 8192 - at - 55 : 400;
      await sql`select pg_logical_emit_message(false, 'x', repeat('x', ${length}))`;
    }
    const [row] = await sql.unsafe(POSITION);
    return parsePosition(Buffer.from(String(row?.['position'])));
  });
  const replayed = (): Promise<number> =>
    withSql(prompt.url, async (sql) =>
      Number((await sql`select pg_last_wal_replay_lsn() - '0/0' as bytes`)[0]?.['bytes']),
    );
  await waitFor(async () => (await replayed()) >= position, 5_000);
  t.equal(position % 8192, 0);
});

t.test('a session carries its position to every instance', async (t) => {
  const { email } = await withSql(url, (sql) => makeUser(sql, 'reader'));
  const session = cookieOf(await login(patient, email, { mode: 'session' }));
  t.match(session, /^service_session_token=/);
  await replay(prompt, 'pause');
  const origin = { origin: patient.url, 'sec-fetch-site': 'same-origin' };
  const [title, answer] = await write(patient, { token: null, headers: { cookie: session, ...origin } });
  const position = cookieOf(answer);
  t.match(position, /^service_session_token_position=[0-9a-z]+-1$/);
  t.equal(await titleOf(strict, { cookie: `${session}; ${position}` }, null), title);
  const earlier = { cookie: `${session}; ${position}`, 'lateral-position': '1' };
  t.equal(await titleOf(strict, earlier, null), title, 'an earlier header takes nothing away');
  await replay(prompt, 'resume');
});

t.test('a replica that is behind gets no reads until it has caught up', async (t) => {
  await replay(prompt, 'resume');
  await waitFor(() => isReady(prompt), 5_000);
  await replay(prompt, 'pause');
  await write(patient);
  await waitFor(async () => /too far behind/.test((await checkOf(prompt))?.output ?? ''), 5_000);
  const [title] = await write(patient);
  t.equal(await titleOf(strict, eventual), title, 'with none left the primary serves');
  await replay(prompt, 'resume');
  await waitFor(() => isReady(prompt), 5_000);
});

t.test('a write whose outcome is unknown may have been committed: the next read sees it', async (t) => {
  const network = await new Network(url).open();
  const service = await startTestService({
    ...common,
    databaseUrl: network.url,
    DATABASE_REPLICA_URLS: databaseUrl(prompt, NAME),
    REPLICA_MAX_LAG: '1h',
  });
  await caughtUp(primary, prompt);
  await replay(prompt, 'pause');
  const title = `title ${++titles}`;
  const headers = { ...JSON_HEADER, 'idempotency-key': title.replace(' ', '-') };
  network.unanswered = /commit/;
  const body = JSON.stringify({ title });
  const answer = await request(service, 'PATCH', '/items/articles/1', { headers, body });
  network.unanswered = null;
  t.match(answer, { status: 503, json: { errors: [{ extensions: { outcome: 'unknown' } }] } });
  t.not(await titleOf(service, eventual), title, 'the replica does not have it');
  t.equal(await titleOf(service), title);
  t.match(await request(service, 'PATCH', '/items/articles/1', { headers, body }), { status: 200 });
  await replay(prompt, 'resume');
});

t.test('an address that leads to several servers gets no reads', async (t) => {
  const address = await balance(databaseUrl(prompt, NAME), databaseUrl(late, NAME));
  const service = await startTestService({ ...common, DATABASE_REPLICA_URLS: address, REPLICA_MAX_LAG: '1h' });
  const outputOf = async (): Promise<string> => {
    const { json } = await get(service, '/server/health');
    const { checks } = json as { readonly checks: Readonly<Record<string, readonly { readonly output?: string }[]>> };
    return checks[`replica:${new URL(address).host}`]?.[0]?.output ?? '';
  };
  for (let round = 0; round < 3; round++) {
    const [title] = await write(service);
    await caughtUp(primary, prompt);
    const titles = await Promise.all(Array.from({ length: 20 }, () => titleOf(service)));
    t.strictSame([...new Set(titles)], [title], 'nobody is answered by the one that was not measured');
  }
  await waitFor(async () => /more than one server/.test(await outputOf()), 5_000);
  const doctor = await runProgram(['doctor'], { DATABASE_URL: url, DATABASE_REPLICA_URLS: address });
  t.match(doctor.output, /leads to more than one server/);
});

t.test('a change of the schema is served at once', async (t) => {
  await replay(prompt, 'pause');
  const body = JSON.stringify({ field: 'subtitle', type: 'string' });
  const made = await request(patient, 'POST', '/fields/articles', { headers: JSON_HEADER, body });
  t.equal(made.status, 200);
  for (const service of [patient, strict])
    await waitFor(async () => {
      const { status } = await get(service, '/items/articles/1?fields=subtitle', { headers: eventual });
      return status === 200;
    }, 2_000);
  await replay(prompt, 'resume');
});

/** A connection that was idle may be closed while it is used: what was sent on it may be sent again. */
function again(send: () => Promise<Answer>): Promise<Answer> {
  return send().catch((error: { readonly code?: string }) => {
    if (error.code !== 'ECONNRESET') throw error;
    return send();
  });
}

/** Who writes and reads: by token, or in the session of a browser. Each is somebody else, so that none sees by what another has written. */
interface Writer {
  readonly path: string;
  readonly options: RequestOptions;
}

async function makeWriter(number: number, agent: Agent): Promise<Writer> {
  const { email, token } = await withSql(url, (sql) => makeUser(sql, `writer${number}`));
  const body = '{"title":"pairs"}';
  const made = await request(patient, 'POST', '/items/articles', { headers: JSON_HEADER, body });
  const path = `/items/articles/${(made.json as { readonly data: { readonly id: number } }).data.id}`;
  if (number % 2 === 0) return { path, options: { token, agent } };
  const entered = await login(patient, email, { mode: 'session' });
  if (entered.status !== 200) throw new Error(entered.text);
  const cookie = cookieOf(entered);
  return { path, options: { token: null, agent, headers: { cookie, 'sec-fetch-site': 'same-origin' } } };
}

/** Statements of this kind that a server has executed, and the reads in them: each read of a batch is answered by a row. */
async function executed(server: TestServer, column: string): Promise<readonly [statements: number, reads: number]> {
  const text = `select coalesce(sum(calls), 0)::int as calls, coalesce(sum(rows), 0)::int as rows
    from pg_stat_statements where query ~ $1 and query !~* '\\mupdate\\M'`;
  const ask = (): Promise<Record<string, unknown>[]> =>
    withSql(databaseUrl(server, NAME), (sql) => sql.unsafe(text, [`"${column}"`]));
  // A standby cancels what stands in the way of replaying.
  const [row] = await ask().catch(ask).catch(ask);
  return [Number(row?.['calls']), Number(row?.['rows'])];
}

t.test('pairs of a write and a read over two instances', { timeout: 90_000 + PAIRS * 100 }, async (t) => {
  await waitFor(() => isReady(prompt), 5_000);
  const agent = new Agent({ keepAlive: true });
  t.teardown(() => agent.destroy());
  const writers: Writer[] = [];
  // One after the other: guesses are slowed down.
  for (let number = 0; number < WRITERS; number++) writers.push(await makeWriter(number, agent));
  const begun = performance.now();
  let pairs = 0;
  const stale = { remembered: 0, brought: 0 };
  /** The instances take turns: the one that wrote promises by its memory, the other by the position, in a header or in a cookie. */
  const work = async ({ path, options }: Writer): Promise<void> => {
    const ask = (service: Service, headers: RequestOptions['headers'] = {}): Promise<number> =>
      again(() =>
        get(service, `${path}?fields=views`, { ...options, headers: { ...options.headers, ...headers } }),
      ).then(({ json }) => (json as { readonly data?: { readonly views: number } }).data?.views ?? -1);
    for (let turn = 1; pairs < PAIRS; turn++) {
      pairs++;
      const [writer, reader] = turn % 2 === 0 ? [patient, strict] : [strict, patient];
      const headers = { ...JSON_HEADER, origin: writer.url, ...options.headers };
      const body = JSON.stringify({ views: turn });
      const written = await again(() => request(writer, 'PATCH', path, { ...options, headers, body }));
      if (written.status !== 200) throw new Error(written.text);
      const cookie = options.headers?.['cookie'];
      const position: RequestOptions['headers'] = cookie
        ? { cookie: `${cookie}; ${cookieOf(written)}` }
        : { 'lateral-position': String(written.headers['lateral-position']) };
      const [remembered, brought] = await Promise.all([ask(writer), ask(reader, position)]);
      if (remembered !== turn) stale.remembered++;
      if (brought !== turn) stale.brought++;
    }
  };
  await Promise.all(writers.map(work));
  t.strictSame(stale, { remembered: 0, brought: 0 });
  const seconds = Math.round((performance.now() - begun) / 1_000);
  const { text } = await get(patient, '/server/metrics');
  const reads = text.match(/^lateral_server_reads_total.*$/gm)?.join(', ');
  t.comment(`${pairs} writes, each read on two instances, in ${seconds} s; one instance has sent: ${reads}`);
});

t.test('reads are executed on the standbys', { timeout: 90_000 + PAIRS * 20 }, async (t) => {
  await waitFor(() => isReady(prompt), 5_000);
  const agent = new Agent({ keepAlive: true });
  t.teardown(() => agent.destroy());
  const counts = (): Promise<(readonly [number, number])[]> =>
    Promise.all([primary, prompt, late].map((server) => executed(server, 'rating')));
  const before = await counts();
  let sent = 0;
  /** With a write now and then: what was written lately keeps no reader of `eventual` away from the standbys. */
  const work = async (_: unknown, reader: number): Promise<void> => {
    const service = reader % 2 === 0 ? patient : strict;
    while (sent < PAIRS) {
      const read = sent++;
      const path = `/items/articles/${1 + (read % 8)}?fields=rating`;
      const { status, text } = await again(() => get(service, path, { agent, headers: eventual }));
      if (status !== 200) throw new Error(text);
      const options = { agent, headers: JSON_HEADER, body: `{"views":${read}}` };
      if (read % 10 === 0) await again(() => request(service, 'PATCH', '/items/articles/1?fields=id', options));
    }
  };
  await Promise.all(Array.from({ length: WRITERS }, work));
  const difference = (await counts()).map(([statements, reads], index) => {
    const [statementsBefore, readsBefore] = before[index] ?? [0, 0];
    return { statements: statements - statementsBefore, reads: reads - readsBefore };
  });
  const [onPrimary, onPrompt, onLate] = difference.map(({ reads }) => reads) as [number, number, number];
  const all = onPrimary + onPrompt + onLate;
  // PostgreSQL does not count a statement that it cancels after the row has left.
  t.ok(all >= 0.999 * sent, 'the servers have counted nearly all of them');
  t.ok(onPrompt + onLate >= 0.8 * all, 'four of five are executed on standbys');
  t.comment(`of ${sent} reads the primary, the standby and the late one have executed ${JSON.stringify(difference)}`);
  const { text } = await get(patient, '/server/metrics');
  t.match(text, new RegExp(`lateral_server_reads_total{server="${new URL(prompt.url).host}"} [1-9]`));
  t.match(text, new RegExp(`lateral_replica_ready{server="${new URL(prompt.url).host}"} 1`));
  const doctor = await runProgram(['doctor'], {
    DATABASE_URL: url,
    DATABASE_REPLICA_URLS: common.DATABASE_REPLICA_URLS,
  });
  t.match(doctor.output, new RegExp(`${new URL(prompt.url).host} is a standby`));
});

t.test('bad preferences and positions are refused', async (t) => {
  for (const headers of [{ prefer: 'consistency=best' }, { 'lateral-position': '0/16B3748' }]) {
    const answer = await get(patient, '/items/articles/1', { headers });
    t.equal(answer.status, 400);
    t.match(answer.json, { errors: [{ extensions: { code: 'INVALID_QUERY' } }] });
  }
  const write = { headers: { ...JSON_HEADER, prefer: 'consistency=best' }, body: '{"title":"x"}' };
  t.equal((await request(patient, 'PATCH', '/items/articles/1', write)).status, 400);
});

t.test('a replica that falls silent is left, and its reads are answered', async (t) => {
  await waitFor(() => isReady(prompt), 5_000);
  const pid = await pidOf(prompt);
  const processes = [...childrenOf(pid), pid];
  for (const each of processes) process.kill(each, 'SIGSTOP');
  try {
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, read) => get(strict, `/items/articles/${1 + (read % 8)}`, { headers: eventual })),
    );
    t.same([...new Set(answers.map(({ status }) => status))], [200]);
    await waitFor(async () => /does not answer/.test((await checkOf(prompt))?.output ?? ''), 5_000);
  } finally {
    for (const each of processes) process.kill(each, 'SIGCONT');
  }
  await waitFor(() => isReady(prompt), 10_000);
});

t.test('the same of one that was behind before: reads on their way are answered', async (t) => {
  await withSql(
    url,
    (sql) => sql`
      create function dawdle(seconds double precision) returns integer language sql stable
        as 'select 7 from pg_sleep(seconds)'`,
  );
  const dawdle = (seconds: number): Promise<Answer> =>
    get(strict, `/rpc/dawdle?seconds=${seconds}`, { headers: eventual });
  await request(patient, 'POST', '/functions', { headers: JSON_HEADER, body: '{"name":"dawdle"}' });
  await waitFor(async () => (await dawdle(0)).status === 200, 10_000);
  await caughtUp(primary, prompt);
  await waitFor(() => isReady(prompt), 5_000);
  const pid = await pidOf(prompt);
  const processes = [...childrenOf(pid), pid];
  const reading = dawdle(3);
  await replay(prompt, 'pause');
  await write(patient);
  await waitFor(async () => /too far behind/.test((await checkOf(prompt))?.output ?? ''), 5_000);
  for (const each of processes) process.kill(each, 'SIGSTOP');
  try {
    const answer = await Promise.race([reading, sleep(10_000, null, { ref: false })]);
    t.match(answer, { status: 200, json: { data: 7 } }, 'by the primary');
  } finally {
    for (const each of processes) process.kill(each, 'SIGCONT');
  }
  await replay(prompt, 'resume');
  await waitFor(() => isReady(prompt), 10_000);
});
