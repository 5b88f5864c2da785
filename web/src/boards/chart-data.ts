/** The values of a chart, from the answer of a query with aggregates. */
import { listOf, objectOf, type QueryJson } from '../query/query';

export type ChartKind = 'bar' | 'line' | 'number';

export interface Series {
  readonly label: string;
  /** Text for values that are no numbers, such as the last date. */
  readonly values: readonly (number | string | null)[];
}

export interface ChartData {
  /** One for each group of rows. */
  readonly labels: readonly string[];
  readonly series: readonly Series[];
}

type Row = Readonly<Record<string, unknown>>;

interface Measure {
  readonly label: string;
  readonly pick: (row: Row) => number | string | null;
}

/** Whether the answer of a query can be drawn. */
export function isChartable(json: QueryJson): boolean {
  return Object.keys(objectOf(json['aggregate'])).length > 0;
}

export function chartData(rows: readonly Row[], json: QueryJson): ChartData {
  const measures = measuresOf(json);
  const groups = listOf(json['groupBy']).map(outputName);
  const [first, second, third] = groups;
  const [measure] = measures;
  // The second group becomes the series, except parts of a date: year and month are one label.
  const isPivot = second !== undefined && third === undefined && measures.length === 1 && !isMoment(json);
  if (isPivot && measure && first !== undefined) return pivot(rows, first, second, measure);
  return {
    labels: rows.map((row) => {
      const parts = groups.map((name) => textOf(row[name]));
      // As in a date: months and days have two digits, so that labels have one width.
      return isMoment(json)
        ? parts.map((part, at) => (at === 0 ? part : part.padStart(2, '0'))).join('-')
        : parts.join(' · ');
    }),
    series: measures.map(({ label, pick }) => ({ label, values: rows.map(pick) })),
  };
}

const MOST_SERIES = 6;

function pivot(rows: readonly Row[], first: string, second: string, { pick }: Measure): ChartData {
  const labels = [...new Set(rows.map((row) => textOf(row[first])))];
  const names = [...new Set(rows.map((row) => textOf(row[second])))].slice(0, MOST_SERIES);
  const values = new Map(rows.map((row) => [JSON.stringify([textOf(row[first]), textOf(row[second])]), pick(row)]));
  return {
    labels,
    series: names.map((name) => ({
      label: name,
      values: labels.map((label) => values.get(JSON.stringify([label, name])) ?? null),
    })),
  };
}

const MOMENT_PART = /^(?:year|month|week|day|weekday|hour|minute|second)\((.+)\)$/;

/** Whether the groups are parts of dates only. */
function isMoment(json: QueryJson): boolean {
  const groups = listOf(json['groupBy']);
  return groups.length > 0 && groups.every((group) => MOMENT_PART.test(group));
}

/** `year(at)` is `at_year` in the answer. */
function outputName(group: string): string {
  const [, name = '', field = ''] = /^(\w+)\((.+)\)$/.exec(group) ?? [];
  return name === '' ? group : `${field.split('.').at(-1)}_${name}`;
}

function measuresOf(json: QueryJson): Measure[] {
  return Object.entries(objectOf(json['aggregate'])).flatMap(([name, fields]) =>
    listOf(fields).map((field) => ({
      label: field === '*' ? name : `${name} of ${field}`,
      pick: (row) => numberIn(row[name], field),
    })),
  );
}

/** The answer has `count: 3` for `*` alone, otherwise `count: {id: 3}`. */
function numberIn(answer: unknown, field: string): number | string | null {
  const value: unknown = typeof answer === 'object' && answer !== null ? (answer as Row)[field] : answer;
  if (value === null || value === undefined) return null;
  if (typeof value === 'number') return value;
  const text = String(value);
  return text.trim() !== '' && Number.isFinite(Number(text)) ? Number(text) : text;
}

function textOf(value: unknown): string {
  if (value === null || value === undefined) return 'none';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** As many digits as a reader needs. */
export function shownValue(value: number | string | null): string {
  if (value === null) return '–';
  // A time as the grid of Data shows it.
  if (typeof value === 'string') return value.replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)\.000/, '$1 $2');
  return value.toLocaleString('en', { maximumFractionDigits: Math.abs(value) < 100 ? 2 : 0 });
}

/** Round steps from 0, or from below it, to the highest value. */
export function ticksOf(values: readonly number[], most: number): number[] {
  const high = Math.max(0, ...values);
  const low = Math.min(0, ...values);
  const wanted = (high - low || 1) / Math.max(1, most);
  const raw = values.every(Number.isInteger) ? Math.max(1, wanted) : wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 2.5, 5, 10].find((each) => each * power >= raw) ?? 10);
  const first = Math.floor(low / step);
  const last = Math.max(first + 1, Math.ceil(high / step));
  return Array.from({ length: last - first + 1 }, (_, at) => (first + at) * step);
}
