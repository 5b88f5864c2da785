/** The report as Markdown, for readers in a terminal or on a forge. */
import { TITLES } from '../beside.js';
import type { Growth } from '../growth.js';
import type { Live } from '../live.js';
import type { CaseResult } from '../measure.js';
import { PEERS, type PeerId } from '../peers/peer.js';
import type { Documents, Origin } from '../results.js';
import type { ServersResult } from '../servers.js';
import type { Soak } from '../soak.js';
import { judgeRatio, judgeTail } from '../verdict.js';
import { figure, times, timesAtMost } from './format.js';
import { describeLive, LIVE_HEAD, liveRows } from './live.js';
import { OPEN_HEAD, openRows } from './open.js';
import {
  BULK_HEAD,
  bulkRows,
  CLASSES_HEAD,
  CLASSES_WORDS,
  classRows,
  comparePeers,
  describeClients,
  describeCount,
  describeMachine,
  describeNoise,
  describeSettings,
  describeStart,
  listTargets,
} from './summary.js';

export function writeMarkdown(documents: Documents): string {
  const { cases, beside, soak, live, servers } = documents;
  const targets = listTargets(documents);
  const met = targets.filter((target) => target.isMet).length;
  const sections = [
    '# Bench report',
    `Lateral ${cases.version}, revision ${cases.revision}. Written by \`npm run bench\`; \`report.html\` has the plots.`,
    `- Machine: ${describeMachine(cases)}\n- Settings: ${describeSettings(documents)}\n- Noise: ${describeNoise(documents)}`,
    'The ceiling is `pgbench` with the SQL that the service compiled, in the same rounds. It runs with 8 and with 32 clients, and the better of the two counts.',
    `## Targets: ${met} of ${targets.length} met`,
    writeTable(
      ['', 'target', 'measured', 'required', ''],
      targets.map(({ title, found, wanted, note, isMet }) => [
        isMet ? 'met' : '**missed**',
        title,
        found,
        wanted,
        note,
      ]),
    ),
    '## Cases',
    writeTable([...CASE_HEAD, ...Object.values(PEERS).map((title) => `${title}/s`)], cases.cases.map(writeCase)),
    [describePeers(documents), ...comparePeers(documents)].join(' '),
    'PostgreSQL counts the statements: per request (below 1 if waiting reads share one), and per node. A node is an object of the response at any level.',
  ];
  if (cases.open !== null) {
    sections.push(
      '## Latency at constant rates',
      `A schedule says when a request is due, independent of the responses, and latency begins then. The highest rate is that of the same client with ${cases.open.connections} connections that send the next request at once; ${cases.open.seconds} s at each rate. "Client late" is the 99th percentile of the client's own delay, in milliseconds. The latencies include it.`,
      writeTable(OPEN_HEAD, openRows(cases.open)),
    );
  }
  if (cases.classes.length > 0) {
    sections.push('## Skewed values', CLASSES_WORDS, writeTable(CLASSES_HEAD, classRows(documents)));
  }
  if (cases.bulk.length > 0) {
    sections.push('## Many rows in one request', writeTable(BULK_HEAD, bulkRows(documents)));
  }
  if (cases.start !== null) sections.push('## Cold start', describeStart(documents));
  if (cases.growth !== null) sections.push(...growthSections(cases.growth));
  if (beside !== null) {
    sections.push(
      `## During a long query (${beside.connections} connections)`,
      writeTable(
        ['', 'requests/s', 'p50 ms', 'p99 ms'],
        (['alone', 'waiting', 'computing'] as const).map((mode) => {
          const { requestsPerSecond, p50, p99 } = beside.results[mode];
          return [TITLES[mode], figure(requestsPerSecond), p50.toFixed(2), p99.toFixed(2)];
        }),
      ),
    );
  }
  if (soak !== null) sections.push(soakText(soak));
  if (live !== null) sections.push(liveText(live));
  if (servers !== null) sections.push(serversText(servers));
  return `${sections.join('\n\n')}\n`;
}

function growthSections(growth: Growth): readonly string[] {
  return [
    '## How cost grows',
    ...(['rows', 'depth', 'connections'] as const).map((name) =>
      writeTable(
        [name, 'requests/s', 'ceiling/s', 'ratio', 'p50 ms', 'p99 ms'],
        growth[name].map(({ size, requestsPerSecond, ceilingPerSecond, p50, p99 }) => [
          figure0(size),
          figure(requestsPerSecond),
          figure(ceilingPerSecond),
          times(requestsPerSecond / ceilingPerSecond),
          p50.toFixed(2),
          p99.toFixed(2),
        ]),
      ),
    ),
    writeTable(
      ['collections', 'mirror ms', 'start ms', 'first read ms', 'by key/s', 'memory MiB'],
      growth.collections.map(({ size, mirror, start, firstRead, requestsPerSecond, memory }) => [
        figure0(size),
        figure(mirror),
        figure(start),
        figure(firstRead),
        figure(requestsPerSecond),
        figure(memory),
      ]),
    ),
  ];
}

function soakText({ connections, minutes, samples, idle, warm }: Soak): string {
  const table = writeTable(
    ['', 'MiB'],
    [
      ['before any request', idle.toFixed(0)],
      ['after the warm-up', warm.toFixed(0)],
      ...Array.from({ length: minutes }, (_, index) => [
        `after ${index + 1} min`,
        (samples[(index + 1) * 60 - 1] ?? 0).toFixed(0),
      ]),
    ],
  );
  return `## Memory under mixed load (${connections} connections)\n\n${table}`;
}

export function liveText(live: Origin & Live): string {
  return ['## Live queries', describeLive(live), writeTable(LIVE_HEAD, liveRows(live))].join('\n\n');
}

export function serversText({ cases, ...origin }: Origin & ServersResult): string {
  const table = writeTable(
    ['case', 'uWebSockets/s', 'node:http/s', 'ratio', 'uws p99 ms', 'node p99 ms', 'uws CPU µs', 'node CPU µs'],
    cases.map(({ title, servers: { uws, node } }) => [
      title,
      ...[uws, node].map((each) => figure(each.requestsPerSecond)),
      times(node.requestsPerSecond / uws.requestsPerSecond),
      ...[uws, node].map((each) => figure(each.p99)),
      ...[uws, node].map((each) => (each.processor === null ? '' : figure(1_000 * each.processor))),
    ]),
  );
  const about = `Lateral ${origin.version}, revision ${origin.revision}, on ${describeMachine(origin)}. CPU is the processor time of the service for each request.`;
  return ['## Servers: uWebSockets and node:http', about, table].join('\n\n');
}

const CASE_HEAD = [
  'case',
  'connections',
  'requests/s',
  'ceiling/s',
  'ratio',
  'required',
  '',
  'p50 ms',
  'p99 ms',
  'p99/p50',
  'MB/s',
  'statements/request',
  'statements/node',
  'pgbench/s',
];

function writeCase(result: CaseResult): readonly string[] {
  const { title, connections, service, ceiling, ratio, beside, failure } = result;
  if (service === null) return [title, String(connections), `failed: ${failure}`];
  const judged = judgeRatio(result);
  const tail = judgeTail(result);
  return [
    title,
    String(connections),
    figure(service.requestsPerSecond),
    ceiling === null ? '' : figure(ceiling.statementsPerSecond),
    [ratio === null ? '' : times(ratio), beside === null ? '' : `${times(beside.ratio)} of ${beside.as}`]
      .filter(Boolean)
      .join(', '),
    judged === null ? '' : String(judged.wanted),
    failure ?? (judged === null ? '' : judged.isMet ? 'met' : '**missed**'),
    service.p50.toFixed(2),
    service.p99.toFixed(2),
    `${timesAtMost(service.p99 / service.p50)}${tail === null || tail.isMet ? '' : ' **missed**'}`,
    (service.bytesPerSecond / 1e6).toFixed(1),
    ...describeCount(result.statements),
    describeClients(result),
    ...(Object.keys(PEERS) as PeerId[]).map((id) => {
      const rate = result.peers[id]?.load?.requestsPerSecond;
      return rate === undefined ? '' : figure(rate);
    }),
  ];
}

/** The reason why a column or a cell is empty. */
export function describePeers({ cases: { peers } }: Documents): string {
  const words = (Object.entries(PEERS) as [PeerId, string][]).map(([id, title]) => {
    const version = peers[id];
    return version === undefined ? `${title} was not available` : `${title} ${version}`.trim();
  });
  return `Peers, with the same requests to the same database: ${words.join('; ')}. An empty cell means that the peer has no equivalent request.`;
}

function writeTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${head.map((_, index) => (cells[index] ?? '').replaceAll('|', '\\|')).join(' | ')} |`;
  const rule = head.map((_, index) => (isNumeric(rows, index) ? '---:' : '---'));
  return [line(head), `|${rule.join('|')}|`, ...rows.map(line)].join('\n');
}

function isNumeric(rows: readonly (readonly string[])[], column: number): boolean {
  const cells = rows.map((row) => row[column] ?? '').filter((cell) => cell !== '');
  return cells.length > 0 && cells.every((cell) => /^[\d.,]+( ×)?/.test(cell));
}

function figure0(value: number): string {
  return value.toLocaleString('en');
}
