/**
 * A primary that is lost under load, and a synchronous standby that is promoted: two instances follow without a restart, no write
 * that was acknowledged is lost, and none is done twice. FAILOVER_ROUNDS=20 loses it in each of the ways in turn.
 */
import { execFile } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { type Service, startService } from '../../../src/app/start.js';
import { type Event, withPlainError } from '../../../src/base/observe.js';
import { pidOf, promote, startPrimary, startStandby } from '../../support/cluster.js';
import {
  ADMIN_TOKEN,
  createLibrary,
  get,
  request,
  type TestServer,
  waitFor,
  ways,
  withSql,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';
import { makeUser } from '../../support/users.js';

const WAYS = ['SIGSTOP', 'SIGKILL', 'immediate'] as const;
const ROUNDS = Number(process.env['FAILOVER_ROUNDS'] ?? 1);
/** Requests at the same time, of each kind. */
const WRITERS = 4;
const READERS = 4;

if (ROUNDS > 1) t.setTimeout(ROUNDS * 60_000);

/** Both servers as one address. */
function severalHosts(first: string, second: string): string {
  const [one, other] = [new URL(first), new URL(second)];
  return first.replace(one.host, `${other.host},${one.host}`);
}

async function start(url: string, said: Event[]): Promise<Service> {
  const given = { PORT: '0', LOG_LEVEL: 'silent', ADMIN_TOKEN, SECRET: 'shared-by-both-instances', ...ways() };
  const config = readConfig({ ...given, DATABASE_URL: url, SHUTDOWN_TIMEOUT: '1s' });
  const service = await startService(
    config,
    (event) => said.push(withPlainError(event)),
    () => {},
  );
  t.teardown(() => service.stop());
  return service;
}

/** All processes of a server: its own and those of its sessions. */
async function processesOf(server: TestServer): Promise<number[]> {
  const pid = await pidOf(server);
  const { stdout } = await promisify(execFile)('ps', ['-o', 'pid=', '--ppid', String(pid)]);
  return [pid, ...stdout.split('\n').flatMap((line) => (line.trim() === '' ? [] : [Number(line)]))];
}

/** Answers how to send a signal to what is left of it. */
async function lose(server: TestServer, way: (typeof WAYS)[number]): Promise<(name: NodeJS.Signals) => void> {
  const processes = await processesOf(server);
  const signal = (name: NodeJS.Signals): void => {
    for (const pid of processes)
      try {
        process.kill(pid, name);
      } catch {
        // It has ended.
      }
  };
  if (way === 'SIGSTOP') signal('SIGSTOP');
  // What `pg_ctl stop -m immediate` sends, and what a machine that loses its power does not.
  else process.kill(processes[0] ?? 0, way === 'SIGKILL' ? 'SIGKILL' : 'SIGQUIT');
  return signal;
}

/** What clients saw: writers repeat a write with its key until it is acknowledged. */
class Load {
  readonly acknowledged: string[] = [];
  readonly statuses: Record<string, number> = {};
  unknown = 0;
  /** By the clock of `performance`. */
  lastFailure = 0;
  slowest = 0;
  readonly withoutRetryAfter: string[] = [];
  #going = true;
  readonly #running: Promise<void>[];

  constructor(services: readonly Service[], round: number) {
    const serviceOf = (position: number): Service => services[position % services.length] as Service;
    this.#running = [
      ...Array.from({ length: WRITERS }, (_, position) => this.#write(serviceOf(position), `${round}-${position}`)),
      ...Array.from({ length: READERS }, (_, position) => this.#read(serviceOf(position))),
    ];
  }

  async stop(): Promise<void> {
    this.#going = false;
    await Promise.all(this.#running);
  }

  async #write(service: Service, name: string): Promise<void> {
    for (let number = 0; this.#going; number++) {
      const tag = `tag-${name}-${number}`;
      const headers = { 'content-type': 'application/json', 'idempotency-key': tag };
      const body = JSON.stringify({ name: tag });
      for (;;) {
        const status = await this.#ask('write', () => request(service, 'POST', '/items/tags', { headers, body }));
        if (status !== 503) break;
        await sleep(50);
      }
      this.acknowledged.push(tag);
    }
  }

  async #read(service: Service): Promise<void> {
    while (this.#going) if ((await this.#ask('read', () => get(service, '/items/articles/1'))) !== 200) await sleep(50);
  }

  async #ask(kind: string, send: () => ReturnType<typeof get>): Promise<number> {
    const start = performance.now();
    const answer = await send();
    this.slowest = Math.max(this.slowest, performance.now() - start);
    const outcome = `${kind} ${answer.status}`;
    this.statuses[outcome] = (this.statuses[outcome] ?? 0) + 1;
    if (answer.status !== 200) {
      this.lastFailure = performance.now();
      if (answer.text.includes('"outcome":"unknown"')) this.unknown++;
      if (answer.headers['retry-after'] === undefined) this.withoutRetryAfter.push(answer.text);
    }
    return answer.status;
  }
}

for (let round = 0; round < ROUNDS; round++) {
  const way = WAYS[round % WAYS.length] as (typeof WAYS)[number];
  t.test(`round ${round + 1}: the primary is lost by ${way}`, async (t) => {
    const primary = await startPrimary();
    const url = await createLibrary(primary, 'failover');
    const user = await withSql(url, (sql) => makeUser(sql, 'eve'));
    const standby = await startStandby(primary, { name: 'second' });
    await withSql(primary.url, async (sql) => {
      await sql`alter system set synchronous_standby_names = 'second'`;
      await sql`select pg_reload_conf()`;
    });
    const standbyUrl = new URL(url);
    standbyUrl.host = new URL(standby.url).host;
    const said: Event[] = [];
    const hosts = severalHosts(url, standbyUrl.href);
    const services = [await start(hosts, said), await start(hosts, [])];
    const [one, two] = services as [Service, Service];
    t.match(await get(two, '/users/me', { token: user.token }), { status: 200 });

    const load = new Load(services, round);
    await waitFor(async () => load.acknowledged.length > 20, 10_000);
    const signal = await lose(primary, way);
    t.teardown(() => signal('SIGKILL'));
    await passTime(300, 'the primary is gone for a while');
    await promote(standby);
    const promoted = performance.now();
    // On a busy machine the first primary may have been lost for a moment, and found again, before.
    const isFound = (event: Event): boolean => event.kind === 'primary-found' && event.host === standbyUrl.host;
    await waitFor(async () => said.some(isFound), 6_000);
    const again = load.acknowledged.length;
    await waitFor(async () => load.acknowledged.length > again + 20, 10_000);
    await load.stop();
    t.comment(
      `${load.acknowledged.length} acknowledged, ${load.unknown} of unknown outcome, ${JSON.stringify(load.statuses)}, slowest ${Math.round(load.slowest)} ms, last failure ${Math.round(load.lastFailure - promoted)} ms after the promotion`,
    );
    t.ok(load.acknowledged.length > again, 'writes went on');
    t.ok(load.lastFailure - promoted < 5_000, 'less than 5 s of failures after the promotion');
    t.strictSame(
      Object.keys(load.statuses).filter((outcome) => !/ (200|503)$/.test(outcome)),
      [],
    );
    t.strictSame(load.withoutRetryAfter, [], 'each 503 says when to come back');
    const rows = await withSql(
      standbyUrl.href,
      (sql) =>
        sql<{ name: string; count: number }[]>`select name, count(*)::int from tags where name like 'tag-%' group by 1`,
    );
    const counts = new Map(rows.map(({ name, count }) => [name, count]));
    t.strictSame(
      load.acknowledged.filter((tag) => counts.get(tag) !== 1),
      [],
      'what was acknowledged is there once',
    );
    t.strictSame(
      [...counts].filter(([, count]) => count !== 1),
      [],
      'nothing is there twice',
    );
    const patched = await request(one, 'PATCH', `/users/${user.id}`, {
      headers: { 'content-type': 'application/json' },
      body: '{"status":"suspended"}',
    });
    t.equal(patched.status, 200, patched.text);
    const refused = async (): Promise<boolean> => (await get(two, '/users/me', { token: user.token })).status !== 200;
    t.ok((await waitFor(refused, 5_000)) < 1_000, 'the other instance hears of a user who is suspended');
    const found = said.filter(({ kind }) => kind === 'primary-found');
    t.ok(found.slice(-1).every(isFound), 'the standby is the primary that was found last');
    if (way === 'SIGSTOP') {
      // The former primary comes back and does not know that it is one no more: it is not believed.
      signal('SIGCONT');
      const third = await start(hosts, []);
      for (const service of [one, third]) {
        const body = '{"name":"split brain"}';
        await request(service, 'POST', '/items/tags', { headers: { 'content-type': 'application/json' }, body });
      }
      const [written] = await withSql(
        standbyUrl.href,
        (sql) => sql`select count(*)::int as count from tags where name = 'split brain'`,
      );
      t.equal(written?.['count'], 2);
      await third.stop();
    }
    await Promise.all(services.map((service) => service.stop()));
    signal('SIGKILL');
    await standby.stop();
  });
}
