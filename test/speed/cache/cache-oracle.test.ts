/**
 * Reads from memory are never older than promised, whatever is written beside them (test/support/cache-oracle.ts).
 *
 *   CACHE_READS, CACHE_USERS, CACHE_SHAPES, CACHE_SEED (a number, or random)
 */
import t from 'tap';
import { ReadCache } from '../../../src/speed/cache/read-cache.js';
import { CacheOracle } from '../../support/cache-oracle.js';
import { CacheWriter, readBeside, summaryOf } from '../../support/cache-writers.js';
import { createLibrary, startDatabase, startTestService, type TestOptions } from '../../support/service.js';
import { passTime } from '../../support/time.js';

const READS = Number(process.env['CACHE_READS'] ?? 1_200);
const USERS = Number(process.env['CACHE_USERS'] ?? 12);
const SHAPES = Number(process.env['CACHE_SHAPES'] ?? 300);
const given = process.env['CACHE_SEED'] ?? '35';
const SEED = given === 'random' ? Math.floor(Math.random() * 2_000_000_000) : Number(given);
const MAX_LAG = Number(process.env['CACHE_MAX_LAG'] ?? 500);

t.setTimeout(300_000 + READS * 25);
t.comment(`CACHE_SEED=${SEED} CACHE_READS=${READS} CACHE_USERS=${USERS} CACHE_SHAPES=${SHAPES}`);
const server = await startDatabase({ settings: { wal_level: 'logical' } });

interface Opened {
  readonly oracle: CacheOracle;
  readonly restart: () => Promise<void>;
}

async function openOracle(name: string, options: Partial<TestOptions> = {}): Promise<Opened> {
  const databaseUrl = await createLibrary(server, name);
  const start = (): ReturnType<typeof startTestService> =>
    startTestService({
      databaseUrl,
      LIVE: 'logical',
      WORKERS: '1',
      READ_CACHE_SIZE: '16mb',
      // All callers learn what comes from memory.
      SERVER_TIMING: 'true',
      READ_CACHE_MAX_LAG: `${MAX_LAG}ms`,
      ...options,
    });
  const settings = { seed: SEED, users: USERS, shapes: SHAPES, maxLag: MAX_LAG };
  const oracle = new CacheOracle(databaseUrl, [await start()], settings);
  t.teardown(() => oracle.sql.end({ timeout: 1 }));
  await oracle.open();
  const restart = async (): Promise<void> => {
    await oracle.service.stop();
    oracle.services.splice(0, 1, await start());
  };
  return { oracle, restart };
}

/** Some reads beside writes, while rights, the schema and connections change, then some while the service is restarted. */
async function readDisturbed({ oracle, restart }: Opened, reads: number): Promise<void> {
  const half = oracle.reads + reads / 2;
  const writer = new CacheWriter(oracle);
  const disturb = async (): Promise<void> => {
    for (let next = oracle.reads; next < half; next += 100) {
      while (oracle.reads < next) await passTime(5, 'faults come now and then');
      await writer.disturb().catch(() => {});
    }
  };
  await Promise.all([readBeside(oracle, reads / 2, 40), disturb()]);
  await Promise.all([readBeside(oracle, reads / 2, 40), restart()]);
}

for (const LIVE of ['logical', 'triggers'] as const)
  t.test(`with ${LIVE}, no answer is older than promised, and none shows what is foreign`, async (t) => {
    const opened = await openOracle(`oracle_${LIVE}`, { LIVE });
    const { oracle } = opened;
    const reads = LIVE === 'logical' ? READS : Math.max(1_000, READS / 4);
    const rounds = Math.min(10, Math.ceil(reads / 8_000));
    let rate = 0;
    for (let round = 0; round < rounds; round++) {
      const share = reads / rounds;
      // Each user has answers of their own: with more users, more of them are to be read again after a write.
      rate += (await readBeside(oracle, share * 0.6, 20 * Math.max(12, USERS))) / rounds;
      await oracle.compare(40);
      await readBeside(oracle, share * 0.2, 10);
      await oracle.compare(40);
      await readDisturbed(opened, share * 0.2);
      await oracle.compare(40);
      t.comment(summaryOf(oracle));
    }
    // Few reads come twice in a small run on a busy machine.
    t.ok(rate > (reads > 10_000 ? 0.5 : 0.2), `${(100 * rate).toFixed(1)} % from memory while few write`);
    t.ok(oracle.comparedHits > 10, 'answers from memory were compared');
    t.strictSame(oracle.violations, [], `${oracle.violated} violations`);
  });

t.test('the oracle notices a table whose changes are ignored', async (t) => {
  const { committed, arriving } = ReadCache.prototype;
  ReadCache.prototype.committed = function (commit) {
    const changes = commit.changes.filter(({ table }) => table.name !== 'people');
    return committed.call(this, { ...commit, changes });
  };
  ReadCache.prototype.arriving = function (xid, tables) {
    const others = [...tables].filter(({ name }) => name !== 'people');
    return arriving.call(this, xid, others);
  };
  t.teardown(() => {
    Object.assign(ReadCache.prototype, { committed, arriving });
  });
  const { oracle } = await openOracle('broken');
  // Which answers are in memory depends on the machine.
  for (let round = 0; round < 20 && oracle.violated === 0; round++) {
    await readBeside(oracle, 500, 250);
    await oracle.sql`update people set level = (level + 1) % 6`;
    await oracle.compare(60);
  }
  t.comment(summaryOf(oracle));
  t.ok(oracle.violated > 0, `${oracle.violated} violations, such as ${oracle.violations[0]}`);
});
