/** What the bench decides and writes, without any load: verdicts, scales, the report, the questions to the peers. */
import t from 'tap';
import { CASES, findCase, requestsOf } from '../../bench/cases.js';
import { type CaseResult, chooseCeiling, higherOf } from '../../bench/measure.js';
import { readOptions } from '../../bench/options.js';
import { isSameData } from '../../bench/peers/answers.js';
import { questionOf as askPostGraphile, cursorBefore } from '../../bench/peers/postgraphile.js';
import { questionOf as askPostgrest } from '../../bench/peers/postgrest.js';
import { times, timesAtMost } from '../../bench/report/format.js';
import { writeHtml } from '../../bench/report/html.js';
import { writeMarkdown } from '../../bench/report/markdown.js';
import { makeScale } from '../../bench/report/plot.js';
import type { Documents } from '../../bench/results.js';
import { comparisonTable } from '../../bench/table.js';
import { judgeChange, judgeMemory, judgeRatio, judgeTail, median, type Round } from '../../bench/verdict.js';

const LOAD = {
  requestsPerSecond: 9_500,
  p50: 2,
  p99: 8,
  errors: 0,
  bytesPerSecond: 4e6,
  seconds: 5,
  tool: 'wrk',
} as const;

const RESULT: CaseResult = {
  id: 'key',
  title: 'by key',
  connections: 32,
  service: LOAD,
  ceiling: { statementsPerSecond: 10_000, tool: 'pgbench', connections: 32, tried: [] },
  ratio: 0.95,
  beside: null,
  target: 0.9,
  peers: {},
  request: 'GET /items/articles/1?fields=<id>',
  sql: 'select 1 where 1 < 2',
  failure: null,
};

t.test('a target is met by what reaches it, and missed by errors', async (t) => {
  t.match(judgeRatio(RESULT), { isMet: true });
  t.match(judgeRatio({ ...RESULT, ratio: 0.9 }), { isMet: true });
  t.match(judgeRatio({ ...RESULT, ratio: 0.899 }), { isMet: false });
  t.match(judgeRatio({ ...RESULT, failure: '3 errors under load' }), { isMet: false });
  t.match(judgeRatio({ ...RESULT, service: null, ratio: null }), { isMet: false, found: 0 });
  t.match(judgeRatio({ ...RESULT, beside: { as: 'REST', requestsPerSecond: 1, ratio: 0.5 } }), {
    found: 0.5,
    isMet: false,
  });
  t.equal(judgeRatio({ ...RESULT, target: null }), null);
});

t.test('the slowest hundredth counts at 32 connections', async (t) => {
  t.match(judgeTail(RESULT), { found: 4, isMet: true });
  t.match(judgeTail({ ...RESULT, service: { ...LOAD, p99: 8.1 } }), { isMet: false });
  t.equal(judgeTail({ ...RESULT, connections: 128 }), null);
});

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
    t.match(judgeChange(rounds([80, 100, 1.2, 1])), { hasFallen: true, note: 'slower, and more processor time' });
    t.match(judgeChange(rounds([80, 100, 1, 1], [80, 100, 1.04, 1], [80, 100, 9, 1])), {
      hasFallen: false,
      isLower: true,
      processor: 1.04,
      note: 'noise: 3 of 3 rounds lower, same processor time',
    });
    const low = [80, 100, 1, 1] as const;
    const level = [85, 86, 1, 1] as const;
    t.match(judgeChange(rounds(low, low, low, low, low, low)), { hasFallen: true });
    t.match(judgeChange(rounds(low, low, low, low, low, level)), { hasFallen: true }, 'five of six');
    t.match(judgeChange(rounds(low, low, low, low, level, level)), { hasFallen: false }, 'four of six are noise');
    t.match(judgeChange(rounds([99, 100, 1.2, 1])), { hasFallen: false, note: 'more processor time alone' });
    t.match(judgeChange(rounds([80, 100, 1, 1], [80, 100])), { processor: null, hasFallen: true }, 'some are missing');
  },
);

t.test('the median', async (t) => {
  t.equal(median([3, 1, 2]), 2);
  t.equal(median([4, 1, 3, 2]), 2.5);
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
  t.match(text, /by key +32 +80\.0 +100 +-20\.0 % +200 +100 +\+100\.0 % +FALLEN: slower, and more processor time/);
  t.match(text, /not compared: not in the other revision/);
});

t.test('memory is small and flat', async (t) => {
  const level = Array.from({ length: 300 }, (_, second) => (second < 60 ? 100 + second : 160 + (second % 7)));
  t.match(judgeMemory(level), { end: 166, isSmall: true, isFlat: true, isMet: true });
  const growing = level.map((memory, second) => memory + second / 10);
  t.match(judgeMemory(growing), { isSmall: true, isFlat: false, isMet: false });
  t.match(judgeMemory(level.map((memory) => memory + 40)), { isSmall: false, isFlat: true, isMet: false });
});

t.test('numbers are not rounded over a limit', async (t) => {
  t.equal(times(0.9999), '0.99 ×');
  t.equal(times(1), '1.00 ×');
  t.equal(timesAtMost(4.001), '4.01 ×');
  t.equal(timesAtMost(4), '4.00 ×');
});

t.test('scales', async (t) => {
  const log = makeScale([3, 40_000], 'log', true);
  t.strictSame(log.ticks, [1, 10, 100, 1_000, 10_000, 100_000]);
  t.equal(log.place(1), 0);
  t.equal(log.place(100_000), 1);
  const linear = makeScale([120, 170, 200], 'linear', true);
  t.strictSame(linear.ticks, [0, 50, 100, 150, 200]);
  t.equal(linear.place(100), 0.5);
  t.equal(makeScale([7], 'log', false).place(7), 0, 'one value has a place too');
});

t.test('answers of peers are compared by their data', async (t) => {
  const ours = { data: [{ id: 1, title: 'One', author: { id: 3, name: 'Mara' } }] };
  const theirs = {
    data: { allArticles: { nodes: [{ rowId: 1, title: 'One', authorByAuthor: { rowId: 3, name: 'Mara' } }] } },
  };
  t.ok(isSameData(ours, theirs));
  t.notOk(isSameData(ours, { data: [{ title: 'One', author: null }] }));
  t.notOk(isSameData(ours, { data: [...ours.data, ...ours.data] }), 'more rows');
  t.notOk(isSameData({ data: [] }, { data: [] }), 'nothing is not the same');
});

t.test('each peer is asked the same in its own language', async (t) => {
  const cursor = Buffer.from('["d4f62aa369",1]').toString('base64');
  t.equal(Buffer.from(cursorBefore(cursor, 500), 'base64').toString(), '["d4f62aa369",499]');
  for (const each of CASES) {
    for (const question of [askPostGraphile(each, cursor), askPostgrest(each)]) {
      if (question === null) continue;
      t.equal(requestsOf(question).length, requestsOf(each).length, `${each.id}: as many requests`);
    }
  }
  const key = findCase('key');
  t.equal(
    key && requestsOf(askPostgrest(key) ?? key)[0]?.path,
    '/articles?select=id,title,status,views,published_at,author&id=eq.1',
  );
});

t.test('options', async (t) => {
  t.match(readOptions([]), { command: 'cases', connections: 32, rounds: 3, growth: true });
  t.match(readOptions(['soak']), { command: 'soak', connections: 256, minutes: 5 });
  t.match(readOptions(['--only', 'key']), { growth: false, report: undefined });
  t.match(readOptions(['--no-growth', '--set', 'READ_BATCHING=false']), {
    growth: false,
    settings: { READ_BATCHING: 'false' },
  });
  const refused = new Map([
    ['walk', /unknown command "walk"/],
    ['--only nothing', /no case "nothing"/],
    ['--rounds 0', /--rounds must be a whole number from 1/],
    ['--set NOTHING=1', /not NAME=VALUE of an option/],
    ['--unknown', /Unknown option '--unknown'/],
  ]);
  for (const [words, message] of refused) t.throws(() => readOptions(words.split(' ')), { message }, words);
});

const point = { requestsPerSecond: 900, ceilingPerSecond: 1_000, p50: 3, p99: 9 };
const DOCUMENTS: Documents = {
  cases: {
    version: '0.1.0',
    revision: 'abc1234',
    machine: {
      platform: 'linux',
      architecture: 'x64',
      processor: 'Processor <1>',
      cores: 2,
      memory: 8 * 2 ** 30,
      node: 'v20.19.0',
      postgresql: '18.4',
    },
    tools: { wrk: '4.1.0', pgbench: null },
    settings: { READ_BATCHING: 'false' },
    measuring: { seconds: 5, warmUp: 2, rounds: 3, connections: 32, poolSize: 8 },
    peers: { postgraphile: '5.1.5' },
    cases: [
      { ...RESULT, peers: { postgraphile: { load: { ...LOAD, requestsPerSecond: 950 }, reason: null } } },
      { ...RESULT, id: 'nested', title: 'nested', ratio: 0.5, service: { ...LOAD, p99: 80 } },
      { ...RESULT, id: 'flat', title: 'flat', service: null, ceiling: null, ratio: null, failure: 'it broke' },
    ],
    growth: {
      rows: [1, 25].map((size) => ({ size, ...point })),
      depth: [0, 1].map((size) => ({ size, ...point })),
      connections: [1, 32].map((size) => ({ size, ...point })),
      collections: [10].map((size) => ({
        size,
        mirror: 30,
        start: 700,
        firstRead: 8,
        requestsPerSecond: 900,
        memory: 90,
      })),
    },
  },
  beside: null,
  soak: null,
};

t.test('the report says what was met, and stands alone', async (t) => {
  const html = writeHtml(DOCUMENTS);
  t.match(html, /1 of 4 targets met/);
  t.match(html, /Processor &lt;1&gt;/);
  t.match(html, /select 1 where 1 &lt; 2/);
  t.match(html, /failed: it broke/);
  t.match(html, /10\.00 × to 10\.00 × as many requests per second/);
  t.notMatch(html, /https?:|<script|<link|NaN|undefined|Infinity/);
  const opened = [...html.matchAll(/<(div|svg|g|table|details|span|dl)\b[^>]*?(?<!\/)>/g)].map(([, name]) => name);
  const closed = [...html.matchAll(/<\/(div|svg|g|table|details|span|dl)>/g)].map(([, name]) => name);
  t.strictSame(opened.toSorted(), closed.toSorted(), 'every element is closed');
});

t.test('the same in Markdown', async (t) => {
  const text = writeMarkdown(DOCUMENTS);
  t.match(text, /## Targets: 1 of 4 met/);
  t.match(text, /\| by key \| 32 \| 9,500 \| 10,000 \| 0\.95 × \| 0\.9 \| met \|/);
  t.match(text, /\| nested \|.*\*\*missed\*\*/);
  t.match(text, /PostgREST was not there: its column is empty/);
  t.notMatch(text, /NaN|undefined|Infinity/);
  const widths = text.split('\n').filter((line) => line.startsWith('| case') || line.startsWith('| by key |'));
  t.equal(new Set(widths.map((line) => line.split(' | ').length)).size, 1, 'rows are as wide as their head');
});
