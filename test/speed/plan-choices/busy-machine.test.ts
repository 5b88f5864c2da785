/**
 * A busy machine must not change plans: the same mixed load on a skewed column, alone and next to processes that use all processors.
 * BUSY_RUNS sets how many services are started next to them (20 for the figure in the documents).
 */
import { type ChildProcess, spawn } from 'node:child_process';
import t from 'tap';
import type { Service } from '../../../src/app/start.js';
import { Connection } from '../../support/protocol-client.js';
import { createDatabase, startDatabase, startTestService, withSql } from '../../support/service.js';

const RUNS = Number(process.env['BUSY_RUNS'] ?? 3);
const BUSY_PROCESSES = 3;
const CLIENTS = 32;
const WARM_UP_MS = 3_000;
const MEASURED_MS = 4_000;
/** The part of its rate alone that the load must reach. */
const MIN_SHARE = 0.25;
const PAGE = '/items/events?sort=-at&filter[kind][_eq]=';

t.setTimeout(60_000 * (RUNS + 3));
const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'busy');
await withSql(databaseUrl, (sql) =>
  sql
    .unsafe(`
      create table events (id int primary key, kind text not null, at timestamptz not null);
      insert into events
        select n, case when n % 100000 = 7 then 'rare' when n % 2 = 0 then 'a' else 'b' end, timestamptz '2026-01-01' + make_interval(secs => n * 37 % 1000000)
        from generate_series(1, 1000000) n;
      create index on events (kind);
      create index on events (at);
      analyze events;`)
    .simple(),
);

/** Nine of ten requests ask for a value that half of the rows have, the others for one that ten rows have. */
async function rateOf(service: Service): Promise<number> {
  const start = performance.now();
  let answered = 0;
  await Promise.all(
    Array.from({ length: CLIENTS }, async (_, client) => {
      const connection = new Connection(service);
      for (let turn = client; performance.now() - start < WARM_UP_MS + MEASURED_MS; turn++) {
        const { status, body } = await connection.request('GET', PAGE + (turn % 10 === 0 ? 'rare' : 'a'));
        if (status !== 200) throw new Error(body);
        if (performance.now() - start > WARM_UP_MS) answered++;
      }
      connection.close();
    }),
  );
  return (1_000 * answered) / MEASURED_MS;
}

async function measure(): Promise<number> {
  const service = await startTestService({ databaseUrl, WORKERS: '1' });
  try {
    return await rateOf(service);
  } finally {
    await service.stop();
  }
}

function startBusyProcesses(): ChildProcess[] {
  return Array.from({ length: BUSY_PROCESSES }, () =>
    spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }),
  );
}

t.test('skewed reads next to busy processes', async (t) => {
  const alone = await measure();
  const busy = startBusyProcesses();
  t.teardown(() => busy.forEach((child) => void child.kill('SIGKILL')));
  for (let run = 1; run <= RUNS; run++) {
    const rate = await measure();
    const text = `run ${run}: ${rate.toFixed()} requests/s, alone ${alone.toFixed()}`;
    t.ok(rate >= MIN_SHARE * alone, text);
    t.comment(text);
  }
});
