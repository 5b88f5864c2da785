/** The results as a table in the terminal. */
import type { Comparison } from './against.js';
import type { CaseResult } from './measure.js';
import { PEERS, type PeerId } from './peers/peer.js';
import { figure, percent, times } from './report/format.js';
import { describeClients, describeCount } from './report/summary.js';
import { median } from './statistics.js';
import { judgeRatio, judgeTail, type Side } from './verdict.js';

export function caseTable(results: readonly CaseResult[], peers: readonly PeerId[]): string {
  const head = [
    'case',
    'conn.',
    'requests/s',
    'ceiling/s',
    'ratio',
    'target',
    'p50 ms',
    'p99 ms',
    'MB/s',
    'st/req',
    'errors',
  ];
  const rows = results.map((result) => {
    const { title, connections, service, ceiling, ratio, beside, failure } = result;
    if (service === null) return [title, `failed: ${failure}`];
    const judged = judgeRatio(result);
    const tail = judgeTail(result);
    const tools = ceiling === null || ceiling.tool === 'pgbench' ? '' : `ceiling by the ${ceiling.tool}`;
    const notes = [
      ceiling === null ? '' : `pgbench ${describeClients(result)}`,
      beside === null ? '' : `${times(beside.ratio)} of ${beside.as}`,
      tail === null || tail.isMet ? '' : 'p99 over 4 × p50',
      tools,
      failure ?? '',
    ];
    return [
      title,
      String(connections),
      figure(service.requestsPerSecond),
      ceiling === null ? '' : figure(ceiling.statementsPerSecond),
      ratio === null ? '' : times(ratio),
      judged === null ? '' : `${judged.wanted} ${judged.isMet ? 'met' : 'MISSED'}`,
      service.p50.toFixed(2),
      service.p99.toFixed(2),
      (service.bytesPerSecond / 1e6).toFixed(1),
      describeCount(result.statements)[0],
      String(service.errors),
      ...peers.map((id) => {
        const rate = result.peers[id]?.load?.requestsPerSecond;
        return rate === undefined ? '' : figure(rate);
      }),
      notes.filter(Boolean).join('; '),
    ];
  });
  return align([[...head, ...peers.map((id) => `${PEERS[id]}/s`), ''], ...rows]);
}

/** Both revisions as ratios of one ceiling, with the CPU time of the service and of PostgreSQL per request. */
export function comparisonTable(comparisons: readonly Comparison[]): string {
  const head = ['case', 'conn.', 'now/s', 'before/s', 'change', 'CPU µs', 'before', 'change', 'ceiling/s', 'ratio', ''];
  const rows = comparisons.map((each) => {
    const { title, connections, rounds, ceiling, change, hasFallen, failure } = each;
    if (change === null) return [title, `not compared: ${failure}`];
    const spent = (side: Side): string =>
      change.processor === null ? '' : figure(1_000 * median(rounds.map((round) => round[side].processor ?? 0)));
    return [
      title,
      String(connections),
      figure(change.now),
      figure(change.before),
      percent(change.rate),
      spent('now'),
      spent('before'),
      change.processor === null ? '' : percent(change.processor),
      ceiling === null ? '' : figure(ceiling.statementsPerSecond),
      ceiling === null ? '' : times(change.now / ceiling.statementsPerSecond),
      failure ?? `${hasFallen ? 'FALLEN: ' : ''}${change.note}`,
    ];
  });
  return align([head, ...rows]);
}

function align(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.filter((row) => row.length > 2).map((row) => (row[column] ?? '').length)),
  );
  const isText = (column: number): boolean => column === 0 || column === widths.length - 1;
  return rows
    .map((row) =>
      row
        .map((cell, column) => (isText(column) ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0)))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
