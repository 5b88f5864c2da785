/**
 * Plots as SVG whose horizontal positions are percentages: they follow the width of the page, while lines and letters keep their size.
 * Labels are HTML next to the SVG.
 */
import { escapeText, short } from './format.js';

export interface Series {
  readonly name: string;
  /** The name of a CSS variable: --service, --ceiling, ... */
  readonly color: string;
  readonly points: readonly { readonly x: number; readonly y: number; readonly title: string }[];
}

export interface Axes {
  readonly x: 'linear' | 'log';
  readonly y: 'linear' | 'log';
  readonly xLabel: string;
  readonly yLabel: string;
  /** Custom ticks instead of the x of all points. */
  readonly xTicks?: readonly { readonly at: number; readonly label: string }[];
  /** A line that must not be crossed. */
  readonly limit?: { readonly y: number; readonly label: string };
  /** Lines without a mark at each point. */
  readonly plain?: true;
}

const HEIGHT = 190;

export function linePlot(series: readonly Series[], axes: Axes): string {
  const points = series.flatMap((each) => each.points);
  const xs = [...new Set(points.map((point) => point.x))].sort((one, other) => one - other);
  const xScale = makeScale(xs, axes.x, false);
  const yScale = makeScale([...points.map((point) => point.y), ...(axes.limit ? [axes.limit.y] : [])], axes.y, true);
  const yPlace = (value: number): number => HEIGHT * (1 - yScale.place(value));
  const left = (value: number): string => `${(xScale.place(value) * 100).toFixed(2)}%`;
  const top = (value: number): string => yPlace(value).toFixed(1);
  const grid = yScale.ticks.map((tick) => `<line class="grid" x1="0" x2="100%" y1="${top(tick)}" y2="${top(tick)}"/>`);
  const drawn = series.map(({ color, points: own }) => {
    const lines = own.slice(1).map((point, index) => {
      const from = own[index] ?? point;
      return `<line x1="${left(from.x)}" y1="${top(from.y)}" x2="${left(point.x)}" y2="${top(point.y)}"/>`;
    });
    const marks = own.map(
      ({ x, y, title }) => `<circle cx="${left(x)}" cy="${top(y)}" r="4"><title>${escapeText(title)}</title></circle>`,
    );
    return `<g class="series" style="--color:var(--${color})">${lines.join('')}${axes.plain ? '' : marks.join('')}</g>`;
  });
  const limit = axes.limit
    ? [
        `<line class="limit" x1="0" x2="100%" y1="${top(axes.limit.y)}" y2="${top(axes.limit.y)}"/>`,
        `<text class="limit" x="100%" y="${(yPlace(axes.limit.y) - 6).toFixed(1)}">${escapeText(axes.limit.label)}</text>`,
      ]
    : [];
  const xTicks = axes.xTicks ?? xs.map((x) => ({ at: x, label: short(x) }));
  const yLabels = yScale.ticks.map((tick) => `<span style="top:${top(tick)}px">${short(tick)}</span>`);
  const xLabels = xTicks.map(({ at, label }) => `<span style="left:${left(at)}">${escapeText(label)}</span>`);
  return `<div class="plot">
<div class="unit">${escapeText(axes.yLabel)}</div>
<div class="y" style="height:${HEIGHT}px">${yLabels.join('')}</div>
<svg class="area" height="${HEIGHT}" role="img" aria-label="${escapeText(`${axes.yLabel} by ${axes.xLabel}`)}">${[...grid, ...drawn, ...limit].join('')}</svg>
<div class="x">${xLabels.join('')}</div>
<div class="x-label">${escapeText(axes.xLabel)}</div>
</div>`;
}

export interface Mark {
  readonly name: string;
  readonly color: string;
  readonly value: number;
  /** Draws a line from the value to here. */
  readonly until?: number;
  readonly title: string;
}

/** A row per case and a mark per contender, on one scale. */
export function dotRows(rows: readonly { readonly label: string; readonly marks: readonly Mark[] }[]): string {
  const values = rows.flatMap((row) => row.marks.flatMap((mark) => [mark.value, mark.until ?? mark.value]));
  const scale = makeScale(values, 'log', true);
  const left = (value: number): string => `${(scale.place(value) * 100).toFixed(2)}%`;
  const grid = scale.ticks.map((tick) => `<line class="grid" x1="${left(tick)}" x2="${left(tick)}" y1="0" y2="100%"/>`);
  const body = rows.map(({ label, marks }) => {
    const height = 12 + 12 * Math.max(1, marks.some((mark) => mark.until !== undefined) ? marks.length : 1);
    const described = marks.map((mark) => `${mark.name} ${mark.title}`).join('; ');
    const drawn = marks.map((mark, index) => {
      const y = mark.until === undefined ? height / 2 : 12 + 12 * index;
      const title = `<title>${escapeText(`${mark.name}: ${mark.title}`)}</title>`;
      const style = `style="--color:var(--${mark.color})"`;
      if (mark.until === undefined) {
        return `<circle ${style} class="mark ${mark.color}" cx="${left(mark.value)}" cy="${y}" r="5.5">${title}</circle>`;
      }
      const place = `y1="${y}" y2="${y}" x1="${left(mark.value)}" x2="${left(mark.until)}"`;
      return `<g ${style} class="range">${title}<line ${place}/><circle cx="${left(mark.value)}" cy="${y}" r="4.5"/><circle class="end" cx="${left(mark.until)}" cy="${y}" r="3.5"/></g>`;
    });
    return `<div class="label">${escapeText(label)}</div><svg class="row" height="${height}" role="img" aria-label="${escapeText(described)}">${grid.join('')}${drawn.join('')}</svg>`;
  });
  const ticks = scale.ticks.map((tick) => `<span style="left:${left(tick)}">${short(tick)}</span>`);
  return `<div class="rows">${body.join('\n')}<div class="label"></div><div class="x">${ticks.join('')}</div></div>`;
}

export interface Bar {
  readonly label: string;
  readonly value: number;
  readonly text: string;
  readonly target: number | null;
  readonly isMet: boolean | null;
}

/** Shares of the ceiling; the line at 1 is the ceiling itself. */
export function barRows(bars: readonly Bar[]): string {
  const most = Math.max(1.25, ...bars.map((bar) => bar.value * 1.12));
  const left = (value: number): string => `${((value / most) * 100).toFixed(2)}%`;
  const body = bars.map(({ label, value, text, target, isMet }) => {
    const mark =
      target === null
        ? ''
        : `<line class="target" x1="${left(target)}" x2="${left(target)}" y1="3" y2="23"><title>asked for: ${target} ×</title></line>`;
    const kind = isMet === null ? 'free' : isMet ? 'met' : 'missed';
    // Moves behind the mark if that is further right.
    const end = left(Math.max(value, target ?? 0));
    return `<div class="label">${escapeText(label)}</div><svg class="row" height="26" role="img" aria-label="${escapeText(text)}"><line class="one" x1="${left(1)}" x2="${left(1)}" y1="0" y2="26"/><rect class="bar ${kind}" x="0" y="6" height="14" rx="2" width="${left(value)}"/>${mark}<text class="value" x="${end}" dx="6" y="17.5">${escapeText(text)}</text></svg>`;
  });
  return `<div class="rows">${body.join('\n')}<div class="label"></div><div class="x"><span style="left:0">0</span><span style="left:${left(0.5)}">0.5</span><span style="left:${left(1)}">1 = ceiling</span></div></div>`;
}

export interface Scale {
  readonly ticks: readonly number[];
  /** From 0 to 1. */
  place(value: number): number;
}

/** `round` widens it to ticks that are round numbers; a linear scale then begins at zero. */
export function makeScale(values: readonly number[], kind: 'linear' | 'log', round: boolean): Scale {
  const usable = values.filter((value) => Number.isFinite(value) && (kind === 'linear' || value > 0));
  const least = Math.min(...usable);
  const most = Math.max(...usable);
  const ticks = round ? (kind === 'log' ? logTicks(least, most) : linearTicks(most)) : [...usable];
  const from = round ? (ticks[0] ?? least) : least;
  const to = round ? (ticks.at(-1) ?? most) : most;
  const measure = kind === 'log' ? Math.log10 : (value: number): number => value;
  const width = measure(to) - measure(from) || 1;
  const place = (value: number): number =>
    value > 0 || kind === 'linear' ? (measure(value) - measure(from)) / width : 0;
  return { ticks, place };
}

/** Powers of ten, with their multiples by 2 and 5 if there are few. */
function logTicks(least: number, most: number): readonly number[] {
  const isNarrow = most / least < 200;
  const steps = isNarrow ? [1, 2, 5] : [1];
  const all: number[] = [];
  for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(most)); power++) {
    for (const step of steps) all.push(Number(`${step}e${power}`));
  }
  const first = all.findLastIndex((tick) => tick <= least);
  const last = all.findIndex((tick) => tick >= most);
  return all.slice(Math.max(0, first), last < 0 ? undefined : last + 1);
}

function linearTicks(most: number): readonly number[] {
  const rough = most / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((each) => each * power >= rough) ?? 10) * power;
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, index) => index * step);
}
