/**
 * Reads from memory are never older than promised, whatever is written beside them (test/support/cache-oracle.ts).
 *
 *   CACHE_READS, CACHE_USERS, CACHE_SHAPES, CACHE_SEED (a number, or random)
 */
import t, { type Test } from 'tap';
import { ReadCache } from '../../src/engine/cache/read-cache.js';
import { CacheOracle } from '../support/cache-oracle.js';
import { CacheWriter } from '../support/cache-writers.js';
import { createLibrary, startDatabase, startTestService, type TestOptions } from '../support/service.js';

const READS = Number(process.env['CACHE_READS'] ?? 4_000);
const USERS = Number(process.env['CACHE_USERS'] ?? 12);
const SHAPES = Number(process.env['CACHE_SHAPES'] ?? 300);
const given = process.env['CACHE_SEED'] ?? '35';
const SEED = given === 'random' ? Math.floor(Math.random() * 2_000_000_000) : Number(given);
const MAX_LAG = Number(process.env['CACHE_MAX_LAG'] ?? 500);
const READERS = 8;

t.setTimeout(120_000 + READS * 4);
t.comment(`CACHE_SEED=${SEED} CACHE_READS=${READS} CACHE_USERS=${USERS} CACHE_SHAPES=${SHAPES}`);
const server = await startDatabase({ settings: { wal_level: 'logical' } });

async function openOracle(name: string, options: Partial<TestOptions> = {}): Promise<CacheOracle> {
  const databaseUrl = await createLibrary(server, name);
  const given: TestOptions = {
    databaseUrl,
    LIVE: 'logical',
    WORKERS: '1',
    READ_CACHE_SIZE: '16mb',
    READ_CACHE_MAX_LAG: `${MAX_LAG}ms`,
    RATE_LIMITER_ENABLED: 'false',
    ...options,
  };
  const service = await startTestService(given);
  const settings = { seed: SEED, users: USERS, shapes: SHAPES, maxLag: MAX_LAG };
  const oracle = new CacheOracle(databaseUrl, service, settings);
  t.teardown(() => oracle.sql.end({ timeout: 1 }));
  await oracle.open();
  return oracle;
}

/** So many reads, with writers beside them. Returns the part that was answered from memory. */
async function readBeside(oracle: CacheOracle, reads: number, writers: number, pause: number): Promise<number> {
  const { reads: before, hits } = oracle;
  const isOver = (): boolean => oracle.reads - before >= reads;
  const writer = new CacheWriter(oracle);
  await Promise.all([
    ...Array.from({ length: READERS }, () => oracle.reader(isOver)),
    ...Array.from({ length: writers }, () => writer.run(isOver, pause)),
  ]);
  return (oracle.hits - hits) / (oracle.reads - before);
}

function report(t: Test, oracle: CacheOracle): void {
  const { reads, hits, compared, comparedHits, failures, journal } = oracle;
  t.comment(
    `${reads} reads, ${((100 * hits) / reads).toFixed(1)} % from memory; ${journal.stamps} rows written; ${compared} compared at rest, ${comparedHits} of them from memory; other answers: ${JSON.stringify([...failures])}`,
  );
}

t.test('no answer is older than promised, and none shows what is foreign', async (t) => {
  const oracle = await openOracle('oracle');
  for (let round = 0; round < 2; round++) {
    const rate = await readBeside(oracle, READS / 4, 1, 60);
    t.comment(`read mostly: ${(100 * rate).toFixed(1)} % from memory`);
    await oracle.compare(60);
    await readBeside(oracle, READS / 4, 4, 5);
    await oracle.compare(60);
  }
  report(t, oracle);
  t.strictSame(oracle.violations, [], `${oracle.violated} violations`);
});

t.test('the oracle notices a table whose changes are ignored', async (t) => {
  const { committed } = ReadCache.prototype;
  ReadCache.prototype.committed = function (commit) {
    const changes = commit.changes.filter(({ table }) => table.name !== 'people');
    return committed.call(this, { ...commit, changes });
  };
  t.teardown(() => {
    ReadCache.prototype.committed = committed;
  });
  const oracle = await openOracle('broken');
  await readBeside(oracle, 1_000, 1, 60);
  await oracle.compare(60);
  report(t, oracle);
  t.ok(oracle.violated > 0, `${oracle.violated} violations, such as ${oracle.violations[0]}`);
});
