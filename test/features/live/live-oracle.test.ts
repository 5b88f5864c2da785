/**
 * Random subscriptions and random writes, policies that change and streams that are killed: at rest everybody has what a fresh read
 * answers; see `LiveOracle`. `npm run test:live` does more of it.
 */
import t from 'tap';
import { LiveOracle } from '../../support/live-oracle.js';
import { createLibrary, startDatabase, startTestService } from '../../support/service.js';

const SUBSCRIPTIONS = Number(process.env['LIVE_SUBSCRIPTIONS'] ?? 48);
const WRITES = Number(process.env['LIVE_WRITES'] ?? 150);
t.setTimeout(1_000_000);

/** `triggers`: triggers report changes, and the log cannot be read. */
const MODE = process.env['LIVE_MODE'] ?? 'auto';
const server = await startDatabase(MODE === 'triggers' ? { settings: { wal_level: 'replica' } } : { own: true });
const url = await createLibrary(server, 'live_oracle');
const service = await startTestService({ databaseUrl: url, LIVE: MODE, LIVE_MAX_WAL: '16mb' });
const oracle = new LiveOracle(url, [service], { seed: Number(process.env['LIVE_SEED'] ?? 21) });

await t.test('at rest every subscriber has what a fresh read answers', async (t) => {
  await oracle.open(SUBSCRIPTIONS);
  await oracle.write(WRITES);
  await oracle.settle(t);
  await oracle.revoke(t);
});
