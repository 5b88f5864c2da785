/** The arithmetic of the bench, and its client that keeps a constant rate: what tells a slower revision from a noisy machine. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { chooseCeiling, higherOf } from '../../bench/measure.js';
import { spreadOf } from '../../bench/noise.js';
import { runOpenLoop, Schedule } from '../../bench/open-loop.js';
import { countNodes } from '../../bench/statement-count.js';
import { median } from '../../bench/statistics.js';
import { comparisonTable } from '../../bench/table.js';
import { judgeChange, type Round } from '../../bench/verdict.js';
import { percentilesOf } from '../../src/features/traffic/percentiles.js';

/** Rates and processor times of both revisions in each round: now, before. */
function rounds(...turns: readonly (readonly [number, number, number?, number?])[]): readonly Round[] {
  return turns.map(([now, before, nowSpent, beforeSpent]) => ({
    now: { requestsPerSecond: now, processor: nowSpent ?? null },
    before: { requestsPerSecond: before, processor: beforeSpent ?? null },
  }));
}

t.test('without processor times a revision falls by more than a tenth of the rate', async (t) => {
  t.equal(judgeChange(rounds([91, 100])).hasFallen, false);
  t.equal(judgeChange(rounds([90, 100])).hasFallen, false);
  t.equal(judgeChange(rounds([89.9, 100])).hasFallen, true);
  t.equal(judgeChange(rounds([50, 100], [95, 90])).hasFallen, false, 'the best of each counts');
  t.equal(judgeChange(rounds([200, 100])).hasFallen, false);
  t.equal(judgeChange(rounds([0, 0])).hasFallen, true, 'what cannot be compared is no success');
  t.equal(judgeChange([]).hasFallen, true);
});

t.test(
  'with processor times a lower rate counts when requests cost more, or when it is lower again and again',
  async (t) => {
    t.match(judgeChange(rounds([80, 100, 1.2, 1])), { hasFallen: true, note: 'slower, and more CPU time' });
    t.match(judgeChange(rounds([80, 100, 1, 1], [80, 100, 1.04, 1], [80, 100, 9, 1])), {
      hasFallen: false,
      isLower: true,
      processor: 1.04,
      note: 'noise: 3 of 3 rounds lower, same CPU time',
    });
    const low = [80, 100, 1, 1] as const;
    const level = [85, 86, 1, 1] as const;
    t.match(judgeChange(rounds(low, low, low, low, low, low)), { hasFallen: true });
    t.match(judgeChange(rounds(low, low, low, low, low, level)), { hasFallen: true }, 'five of six');
    t.match(judgeChange(rounds(low, low, low, low, level, level)), { hasFallen: false }, 'four of six are noise');
    t.match(judgeChange(rounds([99, 100, 1.2, 1])), { hasFallen: false, note: 'more CPU time alone' });
    t.match(judgeChange(rounds([80, 100, 1, 1], [80, 100])), { processor: null, hasFallen: true }, 'some are missing');
  },
);

t.test('the median', async (t) => {
  t.equal(median([3, 1, 2]), 2);
  t.equal(median([4, 1, 3, 2]), 2.5);
});

t.test('percentiles', async (t) => {
  const thousand = Array.from({ length: 1_000 }, (_, index) => 1_000 - index);
  t.strictSame(percentilesOf(thousand), { p50: 500, p90: 900, p99: 990, 'p99.9': 999 });
  t.strictSame(percentilesOf([7]), { p50: 7, p90: 7, p99: 7, 'p99.9': 7 });
  t.strictSame(percentilesOf([]), { p50: 0, p90: 0, p99: 0, 'p99.9': 0 });
});

t.test('a schedule says when requests are due, whatever became of those before', async (t) => {
  const schedule = new Schedule(1_000, 0.01, 200);
  t.equal(schedule.peek(5_000), 1_000);
  schedule.take();
  t.equal(schedule.peek(5_000), 1_005);
  schedule.take();
  t.equal(schedule.peek(5_000), null, 'two of 200 a second in ten milliseconds');
  t.equal(new Schedule(1_000, 1, null).peek(1_400), 1_400, 'without a rate one is always due');
  t.equal(new Schedule(1_000, 1, null).peek(2_000), null);
});

t.test('at a constant rate, what a standstill of the server delays is counted', async (t) => {
  const server = createServer((_request, response) => {
    setTimeout(() => response.end('{}'), Math.max(0, standstill - performance.now()));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  const base = { url: `http://127.0.0.1:${port}`, method: 'GET', headers: {}, requests: [{ path: '/' }] };
  const run = (rate: number | null) =>
    runOpenLoop({ ...base, connections: 2, seconds: 1, rate }, new AbortController().signal);
  let standstill = 0;
  setTimeout(() => {
    standstill = performance.now() + 400;
  }, 500);
  const { requests, errors, latency } = await run(200);
  t.equal(requests, 200);
  t.equal(errors, 0);
  t.ok(latency.p90 > 150, `p90 ${latency.p90} ms: of two connections that wait for each answer two requests were slow`);
  standstill = 0;
  t.ok((await run(null)).requests > 20, 'the highest rate');
});

t.test('the objects of an answer', async (t) => {
  t.equal(
    countNodes([
      { id: 1, author: { id: 2 }, tags: [{ id: 3 }, { id: 4 }] },
      { id: 5, author: null, tags: [] },
    ]),
    5,
  );
  t.equal(countNodes(null), 0);
});

t.test('the noise of the machine', async (t) => {
  const sample = (requestsPerSecond: number) => ({ requestsPerSecond, p99: 1, statementsPerSecond: 10 });
  t.equal(spreadOf({ begin: sample(100), end: sample(125) }, 'requestsPerSecond'), 1.25);
  t.equal(spreadOf({ begin: sample(125), end: sample(100) }, 'requestsPerSecond'), 1.25);
});

t.test('the ceiling is the better of two numbers of clients', async (t) => {
  const ceiling = (statementsPerSecond: number) => ({ statementsPerSecond, tool: 'pgbench' }) as const;
  t.strictSame(
    chooseCeiling(
      new Map([
        [8, ceiling(50)],
        [32, ceiling(36)],
      ]),
    ),
    {
      connections: 8,
      statementsPerSecond: 50,
      tool: 'pgbench',
      tried: [
        { connections: 8, statementsPerSecond: 50 },
        { connections: 32, statementsPerSecond: 36 },
      ],
    },
  );
  t.equal(chooseCeiling(new Map()), null);
  t.equal(higherOf(ceiling(3), ceiling(2)).statementsPerSecond, 3);
});

t.test('the two revisions as a table', async (t) => {
  const measured = rounds([80, 100, 0.2, 0.1]);
  const base = { id: 'key', title: 'by key', connections: 32, ceiling: null, failure: null };
  const text = comparisonTable([
    { ...base, rounds: measured, change: judgeChange(measured), hasFallen: true },
    { ...base, rounds: [], change: null, hasFallen: false, failure: 'not in the other revision: status 404' },
  ]);
  t.match(text, /by key +32 +80\.0 +100 +-20\.0 % +200 +100 +\+100\.0 % +FALLEN: slower, and more CPU time/);
  t.match(text, /not compared: not in the other revision/);
});
