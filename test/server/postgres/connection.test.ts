/**
 * The protocol as we speak it, against a real PostgreSQL: messages cut anywhere, connections lost at any moment, statements
 * that the server has forgotten, TLS, several hosts, sockets in the file system.
 */
import { execFile } from 'node:child_process';
import { chown, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { SlotStream } from '../../../src/features/change-stream/slot-stream.js';
import { Database, type DatabaseOptions } from '../../../src/server/postgres/pools/database.js';
import type { Connection } from '../../../src/server/postgres/wire/connection.js';
import { Network } from '../../support/network-proxy.js';
import {
  createLibrary,
  get,
  makeFolder,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';

t.setTimeout(110_000);
const server = await startDatabase();
const libraryUrl = await createLibrary(server, 'wire');

async function openDatabase(url: string, connections = 1, given: Partial<DatabaseOptions> = {}): Promise<Database> {
  const database = await Database.open({
    ...given,
    url,
    schema: 'public',
    connections,
    sessions: 2,
    streams: 1,
    imports: 1,
    waitTimeout: 5_000,
    statementTimeout: 20_000,
    connectTimeout: 5_000,
  });
  t.teardown(() => database.close());
  return database;
}

async function openWire(url = libraryUrl): Promise<Connection> {
  return (await openDatabase(url)).readConnections[0] as Connection;
}

interface Question {
  readonly text: string;
  readonly parameters?: readonly (string | null)[];
  readonly prepare?: boolean;
}

type Rows = readonly (readonly [number: number, cell: string | null])[];

/** What is sent together; each is told to have ended once. */
function ask(wire: Connection, ...questions: readonly Question[]): Promise<Rows[]> {
  return new Promise((resolve, reject) => {
    let ended = 0;
    const all: [number, string | null][][] = questions.map(() => []);
    wire.run(
      ...questions.map(({ text, parameters = [], prepare = true }, position) => ({
        text,
        parameters,
        prepare,
        columns: null,
        row: (number: number, cell: Buffer | null) =>
          all[position]?.push([number, cell === null ? null : cell.toString()]),
        end: (error: Error | null) => {
          if (++ended > questions.length) throw new Error('ended twice');
          if (error) reject(error);
          else if (ended === questions.length) resolve(all);
        },
      })),
    );
  });
}

async function askCell(wire: Connection, text: string, ...parameters: (string | null)[]): Promise<string | null> {
  const [rows] = await ask(wire, { text, parameters });
  return rows?.[0]?.[1] ?? null;
}

function codeOf(result: PromiseSettledResult<unknown>): string {
  return result.status === 'fulfilled' ? 'fine' : String((result.reason as { code?: string }).code);
}

const REPEAT = 'select repeat($1, $2::int)';

t.test('cells of all sizes, and messages cut anywhere', async (t) => {
  const proxy = await new Network(libraryUrl).open();
  const wire = await openWire(proxy.url);
  const around = [5, 32_768, 65_536].flatMap((size) => Array.from({ length: 24 }, (_, n) => size - 20 + n));
  const sizes = [...around.filter((size) => size >= 0), 131_072, 1_048_577, 5_000_000];
  const answers = await Promise.all(sizes.map((size) => askCell(wire, REPEAT, 'x', String(size))));
  for (const [position, answer] of answers.entries()) t.equal(answer, 'x'.repeat(sizes[position] as number));
  for (const cut of [1, 2, 3, 4, 5, 6, 7, 11, 13]) {
    proxy.cut = cut;
    const [first, second, many] = await Promise.all([
      askCell(wire, REPEAT, 'é€😀', '20'),
      ask(wire, { text: 'select $1', parameters: ['one'] }, { text: 'select null::text' }, { text: "select ''" }),
      ask(wire, { text: 'select n, n::text from generate_series(1, 12) n' }),
    ]);
    t.equal(first, 'é€😀'.repeat(20));
    t.strictSame(second, [[[0, 'one']], [[0, null]], [[0, '']]]);
    t.strictSame(many[0]?.at(-1), [12, '12']);
  }
  proxy.cut = 1_009;
  t.equal((await askCell(wire, REPEAT, 'yz', '100000'))?.length, 200_000);
  proxy.cut = 0;
  const [rows] = await ask(wire, { text: 'select n, n::text from generate_series(1, 20000) n' });
  t.strictSame([rows?.length, rows?.at(-1)], [20_000, [20_000, '20000']]);
});

/** Asks for rows and looks at their cells when the promises that were settled meanwhile are heard: how many there were, and how many had changed. */
async function holdLent(wire: Connection, rows: number, size: number): Promise<{ heard: number; changed: number }> {
  let lent: { readonly cell: Buffer; readonly copy: Buffer }[] = [];
  const found = { heard: 0, changed: 0 };
  const look = (): void => {
    found.heard += lent.length;
    found.changed += lent.filter(({ cell, copy }) => !cell.equals(copy)).length;
    lent = [];
  };
  await new Promise<void>((resolve, reject) => {
    wire.run({
      columns: 2,
      text: 'select n, repeat(chr(97 + n % 26), $1::int + n % 50) from generate_series(1, $2::int) n',
      parameters: [String(size), String(rows)],
      prepare: true,
      row: (_, cell) => {
        if (lent.length === 0) void Promise.resolve().then(look);
        if (cell) lent.push({ cell, copy: Buffer.from(cell) });
      },
      end: (error) => (error ? reject(error) : resolve()),
    });
  });
  look();
  return found;
}

t.test('borrowed bytes stay as they are until the promises that were settled meanwhile have been heard', async (t) => {
  const proxy = await new Network(libraryUrl).open();
  const wire = await openWire(proxy.url);
  // Rows shorter than a piece and longer, so that many arrive in two: at the end of one piece and at the beginning of the next.
  for (const [cut, rows, size] of [
    [100, 2_000, 60],
    [1_009, 500, 900],
    [4_096, 400, 3_000],
    [0, 300, 30_000],
    [0, 100, 60_000],
  ] as const) {
    proxy.cut = cut;
    const found = await holdLent(wire, rows, size);
    t.strictSame(found, { heard: rows, changed: 0 }, `${rows} rows of ${size} bytes in pieces of ${cut}`);
  }
});

t.test('messages that the server sends unasked, in part before a statement and in part behind it', async (t) => {
  const proxy = await new Network(libraryUrl).open();
  const other = await openWire();
  t.equal(await askCell(other, 'select 1'), '1');
  const { sessions } = await openDatabase(proxy.url);
  await sessions.use(async (session) => {
    const together = async (text: string): Promise<string> =>
      String((await session.runPipelined([{ text, parameters: [], prepare: true }]))[0]);
    t.equal(await together('select 1'), '1');
    const fields = 'SNOTICE\0VNOTICE\0C00000\0Mlook\0\0';
    const notice = Buffer.concat([Buffer.from('N\0\0\0\0', 'latin1'), Buffer.from(fields)]);
    notice.writeUInt32BE(notice.length - 1, 1);
    for (const at of [1, 4, 5, 12, notice.length]) {
      proxy.say(notice.subarray(0, at));
      // When this is answered, the piece has arrived.
      await askCell(other, 'select 1');
      const asked = together('select 2');
      proxy.say(notice.subarray(at));
      t.equal(await asked, '2', `cut at ${at}`);
      t.equal(String(await session.cell('select 3', [])), '3', 'the driver on the same connection');
    }
  });
});

t.test('texts of all kinds', async (t) => {
  const wire = await openWire();
  for (const text of ['', 'plain', 'ÿ', 'naïve', '漢字', '😀', '\'\\"{},', 'x'.repeat(100_000), 'é'.repeat(70_000)])
    t.equal(await askCell(wire, 'select $1::text', text), text);
  t.equal(await askCell(wire, 'select $1::text', '\ud800x'), '\ufffdx');
  t.equal(await askCell(wire, 'select $1::text', null), null);
  await t.rejects(askCell(wire, 'select $1::text', 'a\0b'), { code: '22021' });
  t.equal(await askCell(wire, 'select $1::text', 'next'), 'next');
});

t.test('more values than the protocol can count fail alone', async (t) => {
  const wire = await openWire();
  t.equal(await askCell(wire, 'select 1'), '1');
  const parameters = Array.from({ length: 65_536 }, () => 'x');
  const settled = await Promise.allSettled([
    askCell(wire, 'select 2'),
    ask(wire, { text: 'select $1::text', parameters }),
    askCell(wire, 'select 3'),
  ]);
  t.strictSame(settled.map(codeOf), ['fine', '54000', 'fine']);
  t.equal(await askCell(wire, 'select 4'), '4');
});

t.test('a request with more values than a statement takes is refused', async (t) => {
  const service = await startTestService({ databaseUrl: libraryUrl, MAX_PAYLOAD_SIZE: '20mb' });
  const conditions = Array.from({ length: 66_000 }, (_, n) => ({ id: { _eq: n } }));
  const body = JSON.stringify({ query: { filter: { _or: conditions }, fields: ['id'] } });
  const { status } = await request(service, 'SEARCH', '/items/articles', {
    body,
    headers: { 'content-type': 'application/json' },
  });
  t.equal(status, 400);
  t.equal((await get(service, '/items/articles/1?fields=id')).status, 200, 'and the service lives');
});

t.test('more statements than a connection keeps, two of them on their way at a time', async (t) => {
  const wire = await openWire();
  for (const turn of [1, 2]) {
    const numbers = Array.from({ length: 450 }, (_, n) => n);
    const answers = await Promise.all(numbers.map((n) => askCell(wire, `select ${n} + $1::int`, String(turn))));
    t.strictSame(
      answers,
      numbers.map((n) => String(n + turn)),
    );
  }
  t.ok(Number(await askCell(wire, 'select count(*) from pg_prepared_statements')) <= 201);
  // What is to be forgotten is said also where the statement before it fails.
  for (let n = 0; n < 20; n++) {
    const failing = ask(
      wire,
      { text: 'select 1 / $1::int', parameters: ['0'] },
      { text: `select ${n} - $1::int`, parameters: ['1'] },
    );
    await t.rejects(failing, { code: '22012' });
  }
  t.ok(Number(await askCell(wire, 'select count(*) from pg_prepared_statements')) <= 202);
});

t.test('statements that the server has forgotten or that were planned for what is no more', async (t) => {
  const wire = await openWire();
  await withSql(libraryUrl, (sql) => sql`create table shifting (id int, value text)`);
  const read: Question = { text: 'select id, value from shifting where id = $1', parameters: ['1'] };
  await withSql(libraryUrl, (sql) => sql`insert into shifting values (1, '7')`);
  const both = async (): Promise<unknown> => Promise.all([ask(wire, read), ask(wire, read), ask(wire, read, read)]);
  const expected = [[[[1, '7']]], [[[1, '7']]], [[[1, '7']], [[1, '7']]]];
  t.strictSame(await both(), expected);
  for (const type of ['int using value::int', 'text', 'bigint using value::bigint']) {
    await withSql(libraryUrl, (sql) => sql.unsafe(`alter table shifting alter value type ${type}`));
    t.strictSame(await both(), expected, type);
  }
  for (const text of ['deallocate all', 'discard all']) {
    await ask(wire, { text, prepare: false });
    t.strictSame(await both(), expected, text);
  }
  await withSql(libraryUrl, (sql) => sql`drop table shifting`);
  t.strictSame((await Promise.allSettled([ask(wire, read), ask(wire, read)])).map(codeOf), ['42P01', '42P01']);
  t.equal(await askCell(wire, 'select 1'), '1');
});

t.test('a statement that fails is kept, one that is not understood is not', async (t) => {
  const wire = await openWire();
  const divide = 'select (6 / $1::int)::text';
  t.equal(await askCell(wire, divide, '2'), '3');
  await t.rejects(askCell(wire, divide, '0'), { code: '22012' });
  t.equal(await askCell(wire, divide, '3'), '2');
  await t.rejects(askCell(wire, 'select nope', ...[]), { code: '42703' });
  await t.rejects(askCell(wire, 'select nope', ...[]), { code: '42703' });
  const kept = `select string_agg(concat(statement, ': ', custom_plans + generic_plans), '; ')
    from pg_prepared_statements where statement ~ 'nope|6 /' and statement !~ 'pg_prepared'`;
  // What fails while it is planned has no plan to be counted.
  t.equal(await askCell(wire, kept), `${divide}: 2`);
});

t.test('a statement behind one that failed is introduced again, and nothing runs twice', async (t) => {
  const wire = await openWire();
  await withSql(libraryUrl, (sql) => sql`create sequence turns`);
  const take = (divisor: string) =>
    ask(
      wire,
      { text: `select nextval('turns')::text where 6 / $1::int > 0`, parameters: [divisor], prepare: true },
      { text: `select 'behind'`, prepare: true },
    );
  await t.rejects(take('0'));
  t.strictSame(await take('2'), [[[0, '1']], [[0, 'behind']]]);
  t.strictSame(await take('3'), [[[0, '2']], [[0, 'behind']]]);
});

t.test('a backend that is killed with none, one, two and three statements on their way', async (t) => {
  const wire = await openWire();
  for (let count = 0; count <= 3; count++) {
    const backend = String(await askCell(wire, 'select pg_backend_pid()'));
    const answers = Array.from({ length: count }, () => askCell(wire, 'select pg_sleep(60)::text'));
    const settled = Promise.allSettled(answers);
    await withSql(libraryUrl, async (sql) => {
      if (count > 0)
        await waitFor(async () => {
          const [row] = await sql`select wait_event from pg_stat_activity where pid = ${backend}`;
          return row?.['wait_event'] === 'PgSleep';
        }, 10_000);
      await sql`select pg_terminate_backend(${backend})`;
    });
    for (const result of await settled) t.match(codeOf(result), /^(57P01|CONNECTION_CLOSED|ECONNRESET)$/);
    const isBack = async (): Promise<boolean> => (await askCell(wire, 'select 1').catch(() => null)) === '1';
    await waitFor(isBack, 10_000);
    t.not(await askCell(wire, 'select pg_backend_pid()'), backend);
  }
});

t.test('memory for an answer is given back when the connection is lost in the middle of it', async (t) => {
  const proxy = await new Network(libraryUrl).open();
  const size = 4_000_000;
  const { sessions, readConnections, responseMemory } = await openDatabase(proxy.url, 1, {
    largestAnswer: size,
    answerMemory: size,
  });
  const isTaken = (): boolean => {
    const taken = responseMemory.take(size) !== null;
    if (!taken) responseMemory.release(size);
    return taken;
  };
  const [wire] = readConnections as [Connection];
  const sent: Readonly<Record<string, () => Promise<unknown>>> = {
    'a session': () => sessions.use((session) => session.cell(REPEAT, ['x', String(size - 1_000)])),
    'a connection for reads': () => askCell(wire, REPEAT, 'x', String(size - 1_000)),
  };
  for (const [name, ask] of Object.entries(sent)) {
    proxy.cut = 1_009;
    const settled = Promise.allSettled([ask()]);
    await waitFor(async () => isTaken(), 10_000);
    proxy.breakAll();
    t.equal((await settled)[0]?.status, 'rejected', name);
    t.notOk(isTaken(), name);
  }
});

t.test('the error of one statement is not that of those behind it when the connection breaks', async (t) => {
  const proxy = await new Network(libraryUrl).open();
  const wire = await openWire(proxy.url);
  t.equal(await askCell(wire, 'select 1'), '1');
  const settled = await Promise.allSettled([
    ask(wire, { text: 'select 1 / $1::int', parameters: ['0'] }),
    askCell(wire, 'select pg_terminate_backend(pg_backend_pid())'),
    askCell(wire, 'select 2'),
  ]);
  t.strictSame(codeOf(settled[0] as PromiseSettledResult<unknown>), '22012');
  for (const result of settled.slice(1)) t.match(codeOf(result), /^(57P01|CONNECTION_CLOSED|ECONNRESET)$/);
});

t.test('a database out of reach: everybody is told so, and served when it is back', async (t) => {
  const proxy = await new Network(libraryUrl).open();
  // A pooler keeps what it cannot pass on for five seconds: requests that wait for a connection meanwhile wait for several of them.
  const limits = { DATABASE_CONNECT_TIMEOUT: '1s', DATABASE_WAIT_TIMEOUT: '5s' };
  const service = await startTestService({ databaseUrl: proxy.url, ...limits });
  const read = (n: number): ReturnType<typeof get> => get(service, `/items/articles/${(n % 3) + 1}?fields=id,title`);
  const write = (): ReturnType<typeof get> =>
    request(service, 'POST', '/items/tags', {
      body: JSON.stringify({ name: `tag ${Math.random()}` }),
      headers: { 'content-type': 'application/json' },
    });
  t.equal((await read(1)).status, 200);
  t.equal((await write()).status, 200);
  const storms: Readonly<Record<string, () => Promise<void> | void>> = {
    'nobody listens': () => proxy.close(),
    'it hangs up': () => {
      proxy.weather = 'hangs up';
      proxy.breakAll();
    },
    'it is silent': () => {
      proxy.weather = 'silent';
      proxy.breakAll();
    },
  };
  for (const [name, begin] of Object.entries(storms)) {
    await begin();
    const visits = proxy.visits;
    for (let turn = 0; turn < 2; turn++) {
      const answers = await Promise.all([...Array.from({ length: 8 }, (_, n) => read(n)), write()]);
      t.strictSame([...new Set(answers.map(({ status }) => status))], [503], name);
    }
    t.ok(proxy.visits - visits < 200, `${proxy.visits - visits} attempts`);
    proxy.weather = 'fair';
    if (name === 'nobody listens') await proxy.open();
    proxy.breakAll();
    await waitFor(async () => (await read(1)).status === 200 && (await write()).status === 200, 15_000);
    const answers = await Promise.all(Array.from({ length: 8 }, (_, n) => read(n)));
    t.strictSame([...new Set(answers.map(({ status }) => status))], [200], `after: ${name}`);
  }
});

/** A port that nobody listens on. */
async function findDeadPort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => probe.once('listening', resolve));
  const { port } = probe.address() as { port: number };
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

t.test('a log connection that opens after its stream was stopped is closed', async (t) => {
  const network = await new Network(libraryUrl).open();
  const database = await openDatabase(libraryUrl, 1, { directUrl: network.url });
  await waitFor(async () => network.clients === 0, 5_000);
  const { visits } = network;
  // The network holds back the first answer: the stream is stopped while it opens.
  let isHeld = false;
  network.onClientData = (_, client) => {
    if (!isHeld) client.cork();
    isHeld = true;
  };
  const handler = { wanted: () => null, begin: () => {}, change: () => {}, commit: () => {} };
  let lost = 0;
  const stream = new SlotStream(database, handler, { advanced: () => {}, lost: () => lost++ });
  const created = t.rejects(stream.create(5_000));
  await waitFor(async () => isHeld, 5_000);
  await stream.stop();
  await created;
  t.equal(network.visits, visits + 1, 'it does not try once more');
  await waitFor(async () => network.clients === 0, 5_000).catch(() => t.fail('it is still open'));
  const hasNone = async (): Promise<boolean> =>
    (await withSql(libraryUrl, (sql) => sql`select from pg_stat_activity where backend_type = 'walsender'`)).length ===
    0;
  await waitFor(hasNone, 5_000).catch(() => t.fail('a process of the server is left'));
  t.equal(lost, 1);
});

t.test('several hosts, some of them down', async (t) => {
  const proxy = await new Network(libraryUrl).open();
  const dead = await findDeadPort();
  for (const hosts of [
    [dead, proxy.port],
    [proxy.port, dead],
    [dead, dead, proxy.port],
  ]) {
    const url = proxy.url.replace(/127\.0\.0\.1:\d+/, hosts.map((port) => `127.0.0.1:${port}`).join(','));
    const database = await openDatabase(url, 3);
    for (const wire of database.readConnections) t.equal(await askCell(wire, 'select 1'), '1');
  }
  const url = proxy.url.replace(/127\.0\.0\.1:\d+/, `127.0.0.1:${dead},127.0.0.1:${proxy.port}`);
  const { readConnections } = await openDatabase(url, 2);
  const all = (): Promise<PromiseSettledResult<unknown>[]> =>
    Promise.allSettled(readConnections.map((connection) => askCell(connection, 'select 1')));
  t.strictSame((await all()).map(codeOf), ['fine', 'fine']);
  await proxy.close();
  await waitFor(async () => (await all()).every((each) => codeOf(each) === 'CONNECTION_FAILED'), 10_000);
  await proxy.open();
  await waitFor(async () => (await all()).every((each) => codeOf(each) === 'fine'), 10_000);
});

t.test('a socket in the file system', async (t) => {
  const folder = await makeFolder();
  const { username, password, pathname } = new URL(libraryUrl);
  await new Network(libraryUrl).open(folder);
  const environment = { PGHOST: folder, PGUSER: username, PGPASSWORD: password };
  const before = { ...process.env };
  Object.assign(process.env, environment);
  t.teardown(() => {
    process.env = before;
  });
  const wire = await openWire(`postgres://${pathname}`);
  t.equal(await askCell(wire, 'select 1'), '1');
});

t.test('TLS', async (t) => {
  const plain = await openDatabase(`${libraryUrl}?sslmode=prefer`);
  const [preferring] = plain.readConnections as [Connection];
  t.equal(await askCell(preferring, 'select ssl from pg_stat_ssl where pid = pg_backend_pid()'), 'f');
  const sleeping = Promise.allSettled([askCell(preferring, 'select pg_sleep(60)::text as kept_waiting')]);
  await withSql(libraryUrl, (sql) =>
    waitFor(async () => {
      const found =
        await sql`select pg_terminate_backend(pid) from pg_stat_activity where query ~ 'kept_waiting' and pid <> pg_backend_pid()`;
      return found.length > 0;
    }, 10_000),
  );
  t.match(codeOf((await sleeping)[0] as PromiseSettledResult<unknown>), /^(57P01|CONNECTION_CLOSED|ECONNRESET)$/);
  await t.rejects(openDatabase(`${libraryUrl}?sslmode=require`), /cannot use the database/);
  await enableTls();
  for (const mode of ['require', 'prefer']) {
    const { readConnections, sessions } = await openDatabase(`${libraryUrl}?sslmode=${mode}`, 2);
    for (const wire of readConnections) {
      t.equal(await askCell(wire, 'select ssl from pg_stat_ssl where pid = pg_backend_pid()'), 't', mode);
      const sizes = ['0', '1', '40000', '70000', '3000000'];
      const answers = await Promise.all(sizes.map((size) => askCell(wire, REPEAT, 'x', size)));
      t.strictSame(
        answers.map((answer) => String(answer?.length)),
        sizes,
      );
      t.strictSame(await holdLent(wire, 2_000, 700), { heard: 2_000, changed: 0 });
      t.strictSame(await holdLent(wire, 100, 40_000), { heard: 100, changed: 0 });
    }
    await sessions.use(async (session) => {
      t.equal(String(await session.cell('select 1', [])), '1');
      t.strictSame(await session.runPipelined([{ text: 'select 2', parameters: [], prepare: true }]), [
        Buffer.from('2'),
      ]);
      t.equal(String(await session.cell('select 3', [])), '3');
    });
    const [wire] = readConnections as [Connection];
    await t.rejects(askCell(wire, 'select pg_terminate_backend(pg_backend_pid())'));
    t.equal(await askCell(wire, 'select 4'), '4', 'a new connection');
  }
  await t.rejects(openDatabase(`${libraryUrl}?sslmode=verify-full`), /self-signed/);
  const service = await startTestService({ databaseUrl: `${libraryUrl}?sslmode=require` });
  t.equal((await get(service, '/items/articles/1?fields=id')).status, 200);
});

/** The server's own account must own the key. */
async function enableTls(): Promise<void> {
  const folder = await makeFolder();
  const [key, certificate] = [join(folder, 'server.key'), join(folder, 'server.crt')];
  const words = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=localhost'];
  await promisify(execFile)('openssl', [...words, '-keyout', key, '-out', certificate]);
  await withSql(server.url, async (sql) => {
    const [row] = await sql`select current_setting('data_directory') as directory`;
    const { uid, gid } = await stat(row?.['directory']);
    for (const file of [key, certificate]) await chown(file, uid, gid);
    await sql.unsafe(`alter system set ssl_key_file = '${key}'`);
    await sql.unsafe(`alter system set ssl_cert_file = '${certificate}'`);
    await sql.unsafe('alter system set ssl = on');
    await sql`select pg_reload_conf()`;
  });
  await waitFor(() => withSql(libraryUrl, async (sql) => (await sql`show ssl`)[0]?.['ssl'] === 'on'), 10_000);
}
