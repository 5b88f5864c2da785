/** A chart of aggregates as SVG: bars, lines or numbers. The same values are available as a table. */
import type { JSX, RefObject } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import './boards.css';
import { type ChartData, type ChartKind, type Series, shownValue, ticksOf } from './chart-data';

interface ChartProps {
  readonly title: string;
  readonly kind: ChartKind;
  readonly data: ChartData;
}

export function Chart({ title, kind, data }: ChartProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const size = useSize(box);
  const isEmpty = data.series.every(({ values }) => values.length === 0);
  return (
    <div class="board-chart" ref={box}>
      {isEmpty ? (
        <p class="quiet">No values.</p>
      ) : kind === 'number' ? (
        <Numbers data={data} />
      ) : (
        size && <Drawing title={title} kind={kind} data={data} size={size} />
      )}
      {kind !== 'number' && data.series.length > 1 && <Legend series={data.series} />}
    </div>
  );
}

interface Size {
  readonly width: number;
  readonly height: number;
}

function useSize(box: RefObject<HTMLDivElement | null>): Size | null {
  const [size, setSize] = useState<Size | null>(null);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = (): void => setSize({ width: element.clientWidth, height: element.clientHeight });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return size;
}

function Numbers({ data }: { readonly data: ChartData }): JSX.Element {
  return (
    <dl class="board-numbers">
      {data.series.flatMap(({ label, values }) =>
        values.slice(0, 12).map((value, at) => (
          <div key={`${label} ${at}`}>
            <dd class={typeof value === 'string' ? 'text' : ''}>{shownValue(value)}</dd>
            <dt>{[data.labels[at], label].filter(Boolean).join(' · ')}</dt>
          </div>
        )),
      )}
    </dl>
  );
}

const LEGEND_HEIGHT = 22;

function Drawing(props: ChartProps & { readonly size: Size }): JSX.Element {
  const { title, kind, data, size } = props;
  const height = Math.max(60, size.height - (data.series.length > 1 ? LEGEND_HEIGHT : 0));
  const shape = { data, width: Math.max(120, size.width), height };
  return (
    <svg class="board-drawing" role="img" aria-label={summary(title, data)} width={shape.width} height={height}>
      {kind === 'bar' ? <Bars {...shape} /> : <Lines {...shape} />}
    </svg>
  );
}

function summary(title: string, { labels, series }: ChartData): string {
  const values = labels
    .slice(0, 8)
    .map((label, at) => `${label}: ${series.map(({ values: all }) => shownValue(all[at] ?? null)).join(', ')}`);
  return `${title}. ${values.join('; ')}${labels.length > 8 ? ` and ${labels.length - 8} more` : ''}`;
}

interface ShapeProps extends Size {
  readonly data: ChartData;
}

const ROW = 24;
const CHARACTER = 6.6;

function Bars({ data, width, height }: ShapeProps): JSX.Element {
  const { labels, series } = data;
  const fitting = Math.max(1, Math.floor((height - (labels.length * ROW > height ? 18 : 0)) / ROW));
  const shown = labels.slice(0, fitting);
  const numbers = series.flatMap(({ values }) => values.slice(0, fitting).map(numeric));
  const high = Math.max(0, ...numbers);
  const low = Math.min(0, ...numbers);
  const longest = Math.max(1, ...shown.map(({ length }) => length));
  const left = Math.min(longest * CHARACTER + 10, width * 0.4);
  const right = Math.max(...numbers.map((value) => shownValue(value).length)) * CHARACTER + 10;
  const room = Math.max(20, width - left - right);
  const x = (value: number): number => left + ((value - low) / (high - low || 1)) * room;
  const row = Math.min(44, (height - (labels.length > shown.length ? 18 : 0)) / shown.length);
  const thick = Math.max(2, (row - 8) / series.length);
  return (
    <>
      {shown.map((label, at) => (
        <g key={label}>
          <title>{`${label}: ${series.map((each) => shownValue(each.values[at] ?? null)).join(', ')}`}</title>
          <text class="label" x={left - 8} y={at * row + row / 2} text-anchor="end">
            {cut(label, left - 10)}
          </text>
          {series.map(({ label: name, values }, of) => {
            const value = values[at];
            if (typeof value !== 'number') return null;
            const y = at * row + 4 + of * thick;
            return (
              <g key={name}>
                <rect
                  class={`series-${of % 6}`}
                  x={Math.min(x(0), x(value))}
                  y={y}
                  width={Math.max(1, Math.abs(x(value) - x(0)))}
                  height={thick - 1}
                  rx={2}
                />
                {thick > 9 && (
                  <text class="value" x={Math.max(x(0), x(value)) + 6} y={y + thick / 2}>
                    {shownValue(value)}
                  </text>
                )}
              </g>
            );
          })}
        </g>
      ))}
      {labels.length > shown.length && (
        <text class="label" x={left} y={height - 8}>
          {labels.length - shown.length} more
        </text>
      )}
    </>
  );
}

const BOTTOM = 22;
const TOP = 10;

function Lines({ data, width, height }: ShapeProps): JSX.Element {
  const { labels, series } = data;
  const numbers = series.flatMap(({ values }) => values.map(numeric));
  const ticks = ticksOf(numbers, Math.max(2, Math.floor(height / 50)));
  const [low = 0, high = 1] = [ticks[0], ticks.at(-1)];
  const left = Math.max(...ticks.map((tick) => shownValue(tick).length)) * CHARACTER + 10;
  const room = Math.max(20, width - left - 14);
  const x = (at: number): number => left + (labels.length < 2 ? room / 2 : (at / (labels.length - 1)) * room);
  const y = (value: number): number => TOP + (1 - (value - low) / (high - low || 1)) * (height - TOP - BOTTOM);
  const longest = Math.max(1, ...labels.map(({ length }) => Math.min(length, 12)));
  const every = Math.max(1, Math.ceil((labels.length * (longest * CHARACTER + 14)) / room));
  return (
    <>
      {ticks.map((tick) => (
        <g key={tick}>
          <line class="grid" x1={left} x2={width - 6} y1={y(tick)} y2={y(tick)} />
          <text class="label" x={left - 6} y={y(tick)} text-anchor="end">
            {shownValue(tick)}
          </text>
        </g>
      ))}
      {labels.map((label, at) =>
        at % every === 0 ? (
          <text
            key={label}
            class="label"
            x={x(at)}
            y={height - 8}
            text-anchor={at === 0 ? 'start' : at === labels.length - 1 ? 'end' : 'middle'}
          >
            {cut(label, 12 * CHARACTER)}
          </text>
        ) : null,
      )}
      {series.map(({ label, values }, of) => (
        <g key={label} class={`series-${of % 6}`}>
          <path class="line" d={pathOf(values, x, y)} />
          {values.length <= 60 &&
            values.map((value, at) =>
              typeof value === 'number' ? (
                <circle key={at} cx={x(at)} cy={y(value)} r={3}>
                  <title>{`${labels[at]}: ${shownValue(value)}`}</title>
                </circle>
              ) : null,
            )}
        </g>
      ))}
    </>
  );
}

/** Groups without a value interrupt the line. */
function pathOf(values: Series['values'], x: (at: number) => number, y: (value: number) => number): string {
  let isBroken = true;
  return values
    .map((value, at) => {
      if (typeof value !== 'number') {
        isBroken = true;
        return '';
      }
      const step = `${isBroken ? 'M' : 'L'}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      isBroken = false;
      return step;
    })
    .join('');
}

function numeric(value: number | string | null): number {
  return typeof value === 'number' ? value : 0;
}

function cut(text: string, room: number): string {
  const most = Math.max(2, Math.floor(room / CHARACTER));
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function Legend({ series }: { readonly series: readonly Series[] }): JSX.Element {
  return (
    <ul class="board-legend">
      {series.map(({ label }, of) => (
        <li key={label} class={`series-${of % 6}`}>
          {label}
        </li>
      ))}
    </ul>
  );
}

export function ValuesTable({ title, data }: { readonly title: string; readonly data: ChartData }): JSX.Element {
  return (
    <div class="result-table board-values" tabIndex={0} role="region" aria-label={`Values of ${title}`}>
      <table>
        <thead>
          <tr>
            <th scope="col">group</th>
            {data.series.map(({ label }) => (
              <th key={label} scope="col" class="number">
                {label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {data.labels.map((label, at) => (
            <tr key={at}>
              <th scope="row">{label === '' ? 'all' : label}</th>
              {data.series.map(({ label: name, values }) => (
                <td key={name} class="number">
                  {shownValue(values[at] ?? null)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
