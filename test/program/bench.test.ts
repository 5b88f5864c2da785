/** What the bench decides and writes, without any load: verdicts, scales, the report, the questions to the peers. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { requestsOf } from '../../bench/case.js';
import { CASES, findCase } from '../../bench/cases.js';
import type { CaseResult } from '../../bench/measure.js';
import type { OpenCurve } from '../../bench/open.js';
import { readOptions } from '../../bench/options.js';
import { isSameData } from '../../bench/peers/answers.js';
import { connectDirectus } from '../../bench/peers/directus.js';
import { questionOf as askPostGraphile, cursorBefore } from '../../bench/peers/postgraphile.js';
import { questionOf as askPostgrest } from '../../bench/peers/postgrest.js';
import { drawFigure } from '../../bench/report/figure.js';
import { times, timesAtMost } from '../../bench/report/format.js';
import { writeHtml } from '../../bench/report/html.js';
import { writeMarkdown } from '../../bench/report/markdown.js';
import { makeScale } from '../../bench/report/plot.js';
import type { Documents } from '../../bench/results.js';
import { judgeMemory, judgeRatio, judgeTail } from '../../bench/verdict.js';

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
  statements: { requests: 100, statements: 25, perRequest: 0.25, nodes: 100, perNode: 0.25 },
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

t.test('the plot of the README has the cases of which something is asked', async (t) => {
  const text = writeMarkdown(DOCUMENTS);
  const svg = drawFigure(text.replace(/^\| flat .*\n/m, '| free | 32 | 10 | 10 | 1.00 × |  |\n'));
  t.match(svg, />by key</);
  t.notMatch(svg, />free</);
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

t.test('Directus may still be starting when the bench asks for it', async (t) => {
  const statuses = [503, 200];
  const server = createServer((request, response) => {
    const isKnown = request.headers.authorization === 'Bearer known';
    response.statusCode = isKnown ? (statuses.shift() ?? 200) : 401;
    response.end(JSON.stringify({ data: { version: '12.4.1' } }));
  });
  t.teardown(() => server.close());
  const port = await listen(0);
  await new Promise((resolve) => server.close(resolve));
  const options = {
    databaseUrl: '',
    poolSize: 1,
    postgraphile: undefined,
    postgrest: undefined,
    postgrestUrl: undefined,
    directusUrl: `http://127.0.0.1:${port}/`,
    signal: AbortSignal.timeout(8_000),
  };
  const connected = connectDirectus({ ...options, directusToken: 'known' });
  await listen(port);
  t.match(await connected, { id: 'directus', version: '12.4.1' });
  t.strictSame(statuses, [], 'it was asked again after it said that it is not ready');
  await t.rejects(connectDirectus({ ...options, directusToken: 'other' }), { message: /answers with status 401/ });

  function listen(at: number): Promise<number> {
    return new Promise((resolve) => {
      server.listen(at, '127.0.0.1', () => resolve((server.address() as AddressInfo).port));
    });
  }
});

t.test('options', async (t) => {
  t.match(readOptions([]), { command: 'cases', connections: 32, rounds: 3, growth: true });
  t.match(readOptions(['soak']), { command: 'soak', connections: 256, minutes: 5 });
  t.match(readOptions(['--only', 'key']), { growth: false, report: undefined });
  const some = readOptions(['--only', 'start,composite']);
  t.strictSame([some.cases.map(({ id }) => id), [...some.extras]], [['composite'], ['start']]);
  t.equal(readOptions([]).extras.has('open'), true);
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
function curve(by: OpenCurve['by'], more: number): OpenCurve {
  const points = [0.25, 0.9].map((load) => ({
    load,
    rate: 1_000 * load,
    requestsPerSecond: 1_000 * load,
    requests: 4_000,
    errors: 0,
    latency: { p50: 1 + more, p90: 2 + more, p99: 3 + more, 'p99.9': 4 + more },
    lateness: { p50: 0, p90: 0, p99: 0.5, 'p99.9': 1 },
  }));
  return { by, highest: 1_000, points };
}

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
    noise: {
      begin: { requestsPerSecond: 20_000, p99: 3, statementsPerSecond: 30_000 },
      end: { requestsPerSecond: 22_000, p99: 3, statementsPerSecond: 30_000 },
    },
    open: {
      connections: 32,
      seconds: 4,
      kinds: [{ id: 'key', title: 'by key', curves: [curve('service', 0), curve('postgraphile', 5)] }],
    },
    start: { times: 3, ready: 700, firstAnswer: 720, memory: 100 },
    classes: [
      {
        title: 'a value that ten rows have',
        connections: 3,
        requestsPerSecond: 1_000,
        p50: 3,
        p99: 9,
        latency: 3,
        planned: 2,
      },
    ],
    bulk: [
      {
        id: 'import',
        title: 'import of CSV',
        rows: 100_000,
        service: 50_000,
        statement: 150_000,
        as: 'COPY',
        ratio: 1 / 3,
        target: 0.25,
        memory: 150,
      },
    ],
  },
  beside: null,
  soak: null,
  live: null,
  servers: null,
};

t.test('live queries have plots beside the longest time that is allowed', async (t) => {
  const point = { statementsPerChange: 1, p50: 5, p99: 300, max: 400, serviceShare: 0.5, clientShare: 0.2, answers: 9 };
  const points = [1, 10].map((rate) => ({ ...point, rate }));
  const cases = [{ title: 'an <item> each', memory: 4_096, points }];
  const spent = 60;
  const reads = {
    beside: { perSecond: 990, spent },
    alone: { perSecond: 1_001, spent },
  };
  const { machine, version, revision, tools, settings } = DOCUMENTS.cases;
  const live = {
    machine,
    version,
    revision,
    tools,
    settings,
    subscribers: 10_000,
    seconds: 3,
    connectionMemory: 2_048,
    cases,
    reads,
  };
  const html = writeHtml({ ...DOCUMENTS, live });
  t.match(html, /an &lt;item> each|an &lt;item&gt; each/);
  t.match(html, /10 changes a second: p99 300/);
  t.match(html, /class="limit"/);
  t.match(writeMarkdown({ ...DOCUMENTS, live }), /300 +\| +400 +\| +1\.00/);
});

t.test('the report compares the two servers', async (t) => {
  const servers = {
    uws: { requestsPerSecond: 10_000, p50: 1, p99: 2, processor: 0.05 },
    node: { requestsPerSecond: 5_000, p50: 2, p99: 4, processor: null },
  };
  const text = writeMarkdown({ ...DOCUMENTS, servers: { ...DOCUMENTS.cases, cases: [{ title: 'by key', servers }] } });
  t.match(text, /## Servers: uWebSockets and node:http\n\nLateral 0\.1\.0/);
  t.match(text, /\| by key +\| +10,000 +\| +5,000 +\| +0\.50 × +\| +2\.00 +\| +4\.00 +\| +50\.0 +\| +\|/);
});

t.test('the report says what was met, and stands alone', async (t) => {
  const html = writeHtml(DOCUMENTS);
  t.match(html, /3 of 6 targets met/);
  t.match(html, /Latency at constant rates/);
  t.match(html, /Skewed values.*a value that ten rows have/s);
  t.match(html, /1\.10 × apart/);
  t.match(html, /0\.25<\/td>/, 'statements per request');
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
  t.match(text, /## Targets: 3 of 6 met/);
  t.match(text, /\| import of CSV \| 100,000 \| 50,000 \| COPY \| 150,000 \| 0\.33 × \| 0\.25 \| 150 \|/);
  t.match(text, /\| by key \| PostGraphile \| 90 % \| 900 \| 6\.00 \|/);
  t.match(text, /\| by key \| 32 \| 9,500 \| 10,000 \| 0\.95 × \| 0\.9 \| met \|/);
  t.match(text, /\| nested \|.*\*\*missed\*\*/);
  t.match(text, /PostgREST was not available/);
  t.notMatch(text, /NaN|undefined|Infinity/);
  const widths = text.split('\n').filter((line) => line.startsWith('| case') || line.startsWith('| by key | 32'));
  t.equal(new Set(widths.map((line) => line.split(' | ').length)).size, 1, 'rows are as wide as their head');
});
