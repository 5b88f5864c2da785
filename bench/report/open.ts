/** Latency at constant rates: a plot for each kind of read, and all numbers below. */

import { SHARES } from '../../src/features/traffic/percentiles.js';
import type { Open, OpenCurve } from '../open.js';
import { PEERS, type PeerId } from '../peers/peer.js';
import { escapeText, figure, milliseconds } from './format.js';
import { type Axes, linePlot, type Series } from './plot.js';

const NAMES = Object.keys(SHARES) as readonly (keyof typeof SHARES)[];

/** Three percentiles of the service, and p99 of a peer: more lines would be indistinguishable. */
const DRAWN = [
  ['p50', 'service'],
  ['p99', 'tail'],
  ['p99.9', 'extreme'],
] as const;

export function writeOpen({ kinds }: Open): string {
  const panels = kinds.map(({ title, curves }) => {
    const series = curves.flatMap((curve) => seriesOf(curve));
    const legend = series.map(({ name, color }) => `<span style="--color:var(--${color})">${escapeText(name)}</span>`);
    const axes: Axes = {
      x: 'linear',
      y: 'log',
      xLabel: 'of the highest rate',
      yLabel: 'ms since a request was due',
      xTicks: (curves[0]?.points ?? []).map(({ load }) => ({ at: load, label: percentOf(load) })),
    };
    return `<div class="panel"><h3>${escapeText(title)}</h3><div class="legend">${legend.join('')}</div>${linePlot(series, axes)}</div>`;
  });
  return `<div class="panels">${panels.join('\n')}</div>`;
}

function seriesOf({ by, points }: OpenCurve): readonly Series[] {
  const drawn = by === 'service' ? DRAWN : ([['p99', by]] as const);
  return drawn.map(([name, color]) => ({
    name: by === 'service' ? name : `${PEERS[by]}, ${name}`,
    color,
    points: points.map(({ load, rate, latency }) => ({
      x: load,
      y: latency[name],
      title: `${percentOf(load)} (${figure(rate)}/s): ${name} ${milliseconds(latency[name])}`,
    })),
  }));
}

export const OPEN_HEAD = ['read', 'by', 'load', 'requests/s', ...NAMES.map((name) => `${name} ms`), 'client late', ''];

/** A row per rate. */
export function openRows({ kinds }: Open): readonly (readonly string[])[] {
  return kinds.flatMap(({ title, curves }) =>
    curves.flatMap(({ by, points }) =>
      points.map(({ load, rate, latency, lateness, errors }) => [
        title,
        nameOf(by),
        percentOf(load),
        figure(rate),
        ...NAMES.map((name) => figure(latency[name])),
        figure(lateness.p99),
        errors === 0 ? '' : `${errors} errors`,
      ]),
    ),
  );
}

function nameOf(by: 'service' | PeerId): string {
  return by === 'service' ? 'Lateral' : PEERS[by];
}

function percentOf(load: number): string {
  return `${(load * 100).toFixed(0)} %`;
}
