/** Live queries under changes: the time from commit to subscriber by the rate of changes, and all numbers. */
import { describeReads, kilobytes, type Live, MOST_LAG } from '../live.js';
import type { Origin } from '../results.js';
import { escapeText, figure, milliseconds } from './format.js';
import { type Axes, linePlot, type Series } from './plot.js';
import { describeMachine } from './summary.js';

const AXES: Axes = {
  x: 'log',
  y: 'log',
  xLabel: 'changes a second',
  yLabel: 'ms from commit to subscriber',
  limit: { y: MOST_LAG, label: `${MOST_LAG} ms` },
};

export function writeLive({ cases }: Live): string {
  const panels = cases.map(({ title, points }) => {
    const series: readonly Series[] = (['p50', 'p99'] as const).map((name) => ({
      name,
      color: name === 'p50' ? 'service' : 'tail',
      points: points.map(({ rate, [name]: lag }) => ({
        x: rate,
        y: Math.max(lag, 1),
        title: `${rate} changes a second: ${name} ${milliseconds(lag)}`,
      })),
    }));
    const legend = series.map(({ name, color }) => `<span style="--color:var(--${color})">${name}</span>`);
    return `<div class="panel"><h3>${escapeText(title)}</h3><div class="legend">${legend.join('')}</div>${linePlot(series, AXES)}</div>`;
  });
  return `<div class="panels">${panels.join('\n')}</div>`;
}

/** Live queries are measured separately, so they may be of another revision or machine than the rest. */
export function describeLive(live: Origin & Live): string {
  const { subscribers, seconds, reads, connectionMemory, revision } = live;
  return (
    `Revision ${revision}; ${describeMachine(live)}. ` +
    `${figure(subscribers)} subscribers with server-sent events, each on its own connection, or on shared WebSockets; ${seconds} s at each rate. ` +
    `An open connection takes ${kilobytes(connectionMemory)} kB. Each change that reaches a connection counts. In one run, ${describeReads(reads)}.`
  );
}

export const LIVE_HEAD = [
  'subscribers read',
  'changes/s',
  'p50 ms',
  'p99 ms',
  'max ms',
  'statements/change',
  'answers',
  'service',
  'clients',
  'kB each',
];

export function liveRows({ cases }: Live): readonly (readonly string[])[] {
  return cases.flatMap(({ title, memory, points }) =>
    points.map((point) => [
      title,
      figure(point.rate),
      figure(point.p50),
      figure(point.p99),
      figure(point.max),
      point.statementsPerChange.toFixed(2),
      figure(point.answers),
      shareOf(point.serviceShare),
      shareOf(point.clientShare),
      kilobytes(memory),
    ]),
  );
}

function shareOf(processor: number): string {
  return `${(processor * 100).toFixed(0)} %`;
}
