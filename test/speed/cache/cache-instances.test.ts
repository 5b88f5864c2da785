/**
 * Reads from memory with several threads, and with two instances whose callers send `Lateral-Position` to the other one: a caller always
 * sees their own writes (test/support/cache-oracle.ts).
 *
 *   CACHE_READS, CACHE_SEED
 */
import t from 'tap';
import { ReadCache } from '../../../src/speed/cache/read-cache.js';
import { CacheOracle } from '../../support/cache-oracle.js';
import { readBeside, summaryOf } from '../../support/cache-writers.js';
import { createLibrary, startDatabase, startTestService, type TestOptions } from '../../support/service.js';

const READS = Number(process.env['CACHE_READS'] ?? 4_000);
const SEED = Number(process.env['CACHE_SEED'] ?? 35);
const MAX_LAG = 1_000;

t.setTimeout(300_000 + READS * 25);
const server = await startDatabase({ settings: { wal_level: 'logical', max_connections: '300' } });

async function openOracle(name: string, instances: number, options: Partial<TestOptions>): Promise<CacheOracle> {
  const databaseUrl = await createLibrary(server, name);
  // All callers learn what comes from memory.
  const cached = { READ_CACHE_SIZE: '16mb', READ_CACHE_MAX_LAG: `${MAX_LAG}ms`, SERVER_TIMING: 'true' };
  const given = { databaseUrl, ...cached, ...options };
  const services = [];
  for (let instance = 0; instance < instances; instance++) services.push(await startTestService(given));
  const oracle = new CacheOracle(databaseUrl, services, { seed: SEED, users: 12, shapes: 120, maxLag: MAX_LAG });
  t.teardown(() => oracle.sql.end({ timeout: 1 }));
  await oracle.open();
  return oracle;
}

const PLACES = [
  { name: 'threads', about: 'two threads', instances: 1, options: { LIVE: 'logical', WORKERS: '2' } },
  { name: 'instances', about: 'two instances', instances: 2, options: { LIVE: 'logical', WORKERS: '1' } },
  { name: 'triggers', about: 'two instances with triggers', instances: 2, options: { LIVE: 'triggers', WORKERS: '1' } },
] as const;

for (const { name, about, instances, options } of PLACES)
  t.test(`with ${about}, callers see their own writes`, async (t) => {
    const oracle = await openOracle(name, instances, options);
    const rate = await readBeside(oracle, READS * 0.4, 100);
    await oracle.compare(40);
    await readBeside(oracle, READS * 0.4, 10);
    await oracle.compare(40);
    await readBeside(oracle, READS * 0.2, 3);
    await oracle.compare(40);
    t.comment(summaryOf(oracle));
    t.ok(rate > 0.05, `${(100 * rate).toFixed(1)} % from memory while few write`);
    t.ok(oracle.comparedHits > 5, 'answers from memory were compared');
    t.strictSame(oracle.violations, [], `${oracle.violated} violations`);
  });

t.test('the oracle notices own writes that the other instance learns late', async (t) => {
  const { committed, serves, servesUser } = ReadCache.prototype;
  ReadCache.prototype.committed = function (commit) {
    setTimeout(() => committed.call(this, commit), MAX_LAG / 3);
  };
  ReadCache.prototype.serves = function (caller, from) {
    return serves.call(this, caller, from);
  };
  ReadCache.prototype.servesUser = function (user, _seen, now) {
    return servesUser.call(this, user, { position: 0, timeline: 0 }, now);
  };
  t.teardown(() => {
    Object.assign(ReadCache.prototype, { committed, serves, servesUser });
  });
  const oracle = await openOracle('late', 2, { LIVE: 'logical', WORKERS: '1' });
  for (let round = 0; round < 10 && oracle.violated === 0; round++) await readBeside(oracle, 1_000, 20);
  t.comment(summaryOf(oracle));
  t.ok(oracle.violated > 0, `${oracle.violated} violations, such as ${oracle.violations[0]}`);
});
