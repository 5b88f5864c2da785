/** The plots of how cost grows, and of memory over time. */
import type { Growth, Point } from '../growth.js';
import type { Documents } from '../results.js';
import { MOST_MEMORY } from '../verdict.js';
import { escapeText, figure, milliseconds, times } from './format.js';
import { type Axes, linePlot, type Series } from './plot.js';

export function writeGrowth({ rows, depth, connections, collections }: Growth): string {
  const size = (value: number): string => value.toLocaleString('en');
  const start: readonly Series[] = [
    { name: 'cold start', color: 'service', of: 'start' as const },
    { name: 'structure', color: 'postgraphile', of: 'mirror' as const },
    { name: 'first read', color: 'postgrest', of: 'firstRead' as const },
  ].map(({ name, color, of }) => ({
    name,
    color,
    points: collections.map((point) => ({
      x: point.size,
      y: point[of],
      title: `${size(point.size)} collections: ${name} ${milliseconds(point[of])}`,
    })),
  }));
  const reads: Series = {
    name: 'Lateral',
    color: 'service',
    points: collections.map((point) => ({
      x: point.size,
      y: point.requestsPerSecond,
      title: `${size(point.size)} collections: ${figure(point.requestsPerSecond)} requests/s, ${figure(point.memory)} MiB`,
    })),
  };
  const panels = [
    plotPoints('Rows of a response', rows, { x: 'log', y: 'log', xLabel: 'rows, flat', yLabel: 'requests/s' }),
    plotPoints('Depth of nesting', depth, {
      x: 'linear',
      y: 'log',
      xLabel: 'levels below 25 rows',
      yLabel: 'requests/s',
    }),
    plotPoints('Clients', connections, { x: 'log', y: 'linear', xLabel: 'connections, by key', yLabel: 'requests/s' }),
    plotTail('Latency by clients', connections),
    plot('Collections: start', start, { x: 'log', y: 'log', xLabel: 'collections', yLabel: 'ms' }),
    plot('Collections: reads by key', [reads], {
      x: 'log',
      y: 'linear',
      xLabel: 'collections',
      yLabel: 'requests/s',
    }),
  ];
  return `<div class="panels">${panels.join('\n')}</div>`;
}

export function writeMemory(soak: Documents['soak']): string {
  if (soak === null) return '';
  const points = soak.samples.map((memory, index) => ({ x: index + 1, y: memory, title: '' }));
  const axes: Axes = {
    x: 'linear',
    y: 'linear',
    xLabel: `minutes of mixed load over ${soak.connections} connections: by key, nested, filter, GraphQL, updates`,
    yLabel: 'memory of the service, MiB',
    xTicks: Array.from({ length: soak.minutes }, (_, index) => ({ at: (index + 1) * 60, label: String(index + 1) })),
    limit: { y: MOST_MEMORY, label: `at most ${MOST_MEMORY} MiB` },
    plain: true,
  };
  return `<div class="panel"><h3>Memory under mixed load</h3>${linePlot([{ name: 'memory', color: 'service', points }], axes)}</div>`;
}

function plotPoints(title: string, points: readonly Point[], axes: Axes): string {
  const series: readonly Series[] = [
    {
      name: 'ceiling',
      color: 'ceiling',
      points: points.map(({ size, ceilingPerSecond }) => ({
        x: size,
        y: ceilingPerSecond,
        title: `${size}: PostgreSQL alone ${figure(ceilingPerSecond)}/s`,
      })),
    },
    {
      name: 'Lateral',
      color: 'service',
      points: points.map(({ size, requestsPerSecond, ceilingPerSecond }) => ({
        x: size,
        y: requestsPerSecond,
        title: `${size}: ${figure(requestsPerSecond)}/s, ${times(requestsPerSecond / ceilingPerSecond)} the ceiling`,
      })),
    },
  ];
  return plot(title, series, axes);
}

function plotTail(title: string, points: readonly Point[]): string {
  const of = (name: 'p50' | 'p99', color: string): Series => ({
    name,
    color,
    points: points.map((point) => ({
      x: point.size,
      y: point[name],
      title: `${point.size}: ${name} ${milliseconds(point[name])}`,
    })),
  });
  const axes: Axes = { x: 'log', y: 'log', xLabel: 'connections, by key', yLabel: 'ms' };
  return plot(title, [of('p50', 'service'), of('p99', 'directus')], axes);
}

function plot(title: string, series: readonly Series[], axes: Axes): string {
  const legend = series.map(({ name, color }) => `<span style="--color:var(--${color})">${escapeText(name)}</span>`);
  return `<div class="panel"><h3>${escapeText(title)}</h3><div class="legend">${legend.join('')}</div>${linePlot(series, axes)}</div>`;
}
