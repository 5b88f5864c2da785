/** A line chart over time, with its latest values as text. */
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { isDark } from '../state';

export interface Line {
  readonly label: string;
  readonly values: readonly (number | null)[];
  /** The name of a colour of the theme. */
  readonly colour: string;
}

interface ChartProps {
  readonly title: string;
  readonly unit: string;
  /** Seconds. */
  readonly times: readonly number[];
  readonly lines: readonly Line[];
}

const HEIGHT = 120;
const LEAST_SECONDS = 60;

export function Chart({ title, unit, times, lines }: ChartProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const dark = isDark.value;
  /** Replicas can appear and disappear. */
  const labels = lines.map(({ label }) => label).join();
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    // A canvas needs the computed colour, which only a property of type colour provides.
    const colour = (name: string): string => {
      element.style.color = `var(--${name})`;
      return getComputedStyle(element).color;
    };
    const axis = {
      stroke: colour('quiet'),
      grid: { stroke: colour('line'), width: 1 },
      ticks: { show: false },
      font: '11px system-ui',
    };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        scales: {
          y: { range: (_, __, high) => [0, Math.max(1, (high ?? 1) * 1.15)] },
        },
        axes: [
          { ...axis, space: 90, size: 26, values: (_, splits) => splits.map(clock) },
          { ...axis, size: 44, space: 30 },
        ],
        series: [
          {},
          ...lines.map((line) => ({
            stroke: colour(line.colour),
            width: 1.5,
            points: { show: false },
            spanGaps: true,
          })),
        ],
      },
      [[], ...lines.map(() => [])],
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [dark, labels]);
  useEffect(() => {
    plot.current?.setData([[...times], ...lines.map(({ values }) => [...values])], false);
    plot.current?.setScale('x', spanOf(times));
  }, [times, dark, labels]);
  const latest = lines.map(({ label, values }) => `${label} ${show(values.at(-1))}`).join(', ');
  return (
    <figure class="chart" aria-label={`${title}: ${latest} ${unit}`}>
      <figcaption>
        <h2>{title}</h2>
        {lines.map(({ label, values, colour }) => (
          <span key={label} class={`series ${colour}`}>
            {label} <strong>{show(values.at(-1))}</strong>
          </span>
        ))}
        <small>{unit}</small>
      </figcaption>
      <div ref={box} aria-hidden="true" />
    </figure>
  );
}

/** At least a minute: for a single reading, uPlot would show years. */
function spanOf(times: readonly number[]): { readonly min: number; readonly max: number } {
  const max = times.at(-1) ?? LEAST_SECONDS;
  return { min: Math.min(times[0] ?? 0, max - LEAST_SECONDS), max };
}

function clock(seconds: number): string {
  return new Date(seconds * 1_000).toLocaleTimeString('en-GB');
}

function show(value: number | null | undefined): string {
  if (value === null || value === undefined) return '–';
  if (Number.isInteger(value) || value >= 100) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}
