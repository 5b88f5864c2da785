/**
 * A caller with forty connections that send long transactions without a pause: the transactions of another caller on other rows take less
 * than three times as long as without them. Both are measured in one run. `WRITERS_POOL` sets the number of connections.
 */
import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import t from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import { makeCaller } from '../../support/callers.js';
import { ATTACKS, type Attack, WIDE_COLUMNS } from '../../support/sender.js';
import { ADMIN_TOKEN, connectSql, createLibrary, startDatabase, waitFor } from '../../support/service.js';
import type { SteadyWrites } from '../../support/steady-writer.js';
import { passTime } from '../../support/time.js';

const POOLS = (process.env['WRITERS_POOL'] ?? '8,16').split(',');
const CONNECTIONS = 40;
const SECONDS = 6;
const MOST_TIMES = 3;

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'busy_writers');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql
  .unsafe(`
    create table stock (id integer primary key, amount integer);
    create table notes (id integer primary key, amount integer);
    create table wide (id integer primary key, ${Array.from({ length: WIDE_COLUMNS }, (_, n) => `c${n} text`).join(', ')});
    insert into stock select n, 0 from generate_series(1, 6) n;
    insert into notes select n, 0 from generate_series(1, 6) n;
    insert into wide select n from generate_series(1, 6) n;`)
  .simple();
const granted = (collection: string) => (['read', 'update'] as const).map((action) => ({ collection, action }));
const busy = await makeCaller(sql, 'busy', [{ permissions: [...granted('stock'), ...granted('wide')] }]);
const other = await makeCaller(sql, 'other', [{ permissions: granted('notes') }]);

const program = (name: string): string => packagePath('dist', 'test', 'support', `${name}.js`);

/** Starts the service as a program in a session of its own: Linux divides processors among sessions. */
async function launch(pool: string): Promise<{ readonly url: string; readonly stop: () => Promise<void> }> {
  const env = {
    PATH: process.env['PATH'],
    PORT: '0',
    LOG_LEVEL: 'info',
    DATABASE_URL: databaseUrl,
    DATABASE_WRITE_POOL_SIZE: pool,
    ADMIN_TOKEN,
  };
  const child = spawn(process.execPath, [packagePath('dist', 'src', 'main.js')], {
    env,
    stdio: ['ignore', 'ignore', 'pipe'],
    detached: true,
  });
  t.teardown(() => child.kill('SIGKILL'));
  let output = '';
  child.stderr.on('data', (piece: Buffer) => {
    output = (output + piece.toString()).slice(-10_000);
  });
  const url = (): string | undefined => /http:\/\/[\d.]+:\d+/.exec(output)?.[0];
  await waitFor(async () => url() !== undefined && /listening/.test(output), 60_000);
  const stop = async (): Promise<void> => {
    child.kill('SIGKILL');
    await once(child, 'close');
  };
  return { url: url() as string, stop };
}

/** Milliseconds of each of the other caller's transactions, sorted. */
async function measure(url: string, seconds: number): Promise<number[]> {
  const writer = fork(program('steady-writer'), [url, other.token, String(seconds)], { detached: true });
  t.teardown(() => writer.kill('SIGKILL'));
  const [{ taken, failed }] = (await once(writer, 'message')) as [SteadyWrites];
  if (failed.length > 0) throw new Error(`the other caller got ${failed.join(', ')}`);
  return taken.sort((one, another) => one - another);
}

/** Starts the attack. Resolves with the function that ends it, which returns the number of answers by status. */
async function attack(url: string, kind: Attack): Promise<() => Promise<Readonly<Record<string, number>>>> {
  const attacker = fork(program('busy-writer'), [url, busy.token, String(CONNECTIONS), kind], { detached: true });
  t.teardown(() => attacker.kill('SIGKILL'));
  await passTime(2_000, 'the attack fills the queue');
  return async () => {
    attacker.send('stop');
    const [counted] = (await once(attacker, 'message')) as [Record<string, number>];
    return counted;
  };
}

const median = (sorted: readonly number[]): number => sorted[sorted.length >> 1] ?? Number.POSITIVE_INFINITY;

for (const pool of POOLS)
  for (const kind of ATTACKS)
    t.test(`${kind}, ${pool} connections for writes`, { timeout: 120_000 }, async (t) => {
      const { url, stop } = await launch(pool);
      await measure(url, 1);
      const alone = median(await measure(url, 3));
      const end = await attack(url, kind);
      const taken = await measure(url, SECONDS);
      const beside = median(taken);
      const counted = await end();
      const ratio = (beside / alone).toFixed(1);
      const figures = `p50 ${beside.toFixed(1)} ms of ${taken.length}, alone ${alone.toFixed(1)} ms: ${ratio} times`;
      t.ok(beside < MOST_TIMES * alone, `${figures}; the busy caller got ${JSON.stringify(counted)}`);
      await stop();
    });
