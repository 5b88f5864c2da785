/** Reports of `lateral replay` and `lateral capacity`, as JSON or as a page: only their texts are taken from the file. */

export interface Report {
  readonly title: string;
  readonly notes: readonly { readonly text: string; readonly kind: 'good' | 'bad' | 'plain' }[];
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

type Json = Readonly<Record<string, unknown>>;

export function readReport(text: string): Report {
  if (/^\s*</.test(text)) return readPage(text);
  const json = parse(text);
  if (Array.isArray(json['steps'])) return capacityReport(json);
  if (Array.isArray(json['replayed'])) return replayReport(json);
  throw new Error('This file is not a report of lateral replay or lateral capacity.');
}

function parse(text: string): Json {
  try {
    const json: unknown = JSON.parse(text);
    if (typeof json === 'object' && json !== null) return json as Json;
  } catch {
    // Reported below.
  }
  throw new Error('This file is not a report of lateral replay or lateral capacity.');
}

const PERCENTILES = ['p50', 'p90', 'p99', 'p99.9'];

function replayReport(json: Json): Report {
  const targets = listOf(json['targets']).map(String);
  const all = objectsIn(json['replayed']);
  const limits = (Array.isArray(json['limits']) ? json['limits'] : []).flatMap(objectsIn);
  const shapes = objectsIn(json['shapes']);
  const row = (title: string, figures: Json, recorded: Json): string[] => [
    title,
    shown(figures['requests']),
    shown(figures['rate']),
    ...PERCENTILES.map((name) => shown(figures[name])),
    shown(recorded['p50']),
    shown(recorded['p99']),
    shown(figures['errors']),
    shown(figures['different_status']),
  ];
  const recorded = objectIn(json['recorded']);
  return {
    title: `Replay of ${targets.join(' compared with ')}`,
    notes: [
      ...(json['interrupted'] === true ? [{ text: 'The replay was interrupted', kind: 'bad' as const }] : []),
      ...limits.map(({ limit, value, ok }) => ({
        text: `${String(limit)}: ${ok === true ? 'kept' : 'missed'} (${shown(value)})`,
        kind: ok === true ? ('good' as const) : ('bad' as const),
      })),
      { text: 'Times are in milliseconds and begin when the request was due.', kind: 'plain' },
    ],
    head: ['Shape', 'Requests', 'Per second', ...PERCENTILES, 'Recorded p50', 'Recorded p99', 'Errors', 'Other status'],
    rows: [
      ...all.map((figures, at) =>
        row(all.length > 1 ? `all requests · ${targets[at]}` : 'all requests', figures, recorded),
      ),
      ...shapes.flatMap(({ title, replayed, recorded: before }) =>
        objectsIn(replayed).map((figures, at) =>
          row(all.length > 1 ? `${String(title)} · ${targets[at]}` : String(title), figures, objectIn(before)),
        ),
      ),
    ],
  };
}

function capacityReport(json: Json): Report {
  const rate = Number(json['rate']);
  const recommended = objectsIn(json['recommended']);
  return {
    title:
      rate > 0
        ? `Capacity: ${json['at_least'] === true ? 'at least ' : ''}${shown(rate)} requests per second`
        : 'Capacity',
    notes: [
      ...(rate > 0 ? [] : [{ text: 'No rate keeps the limits', kind: 'bad' as const }]),
      ...(json['interrupted'] === true ? [{ text: 'The search was interrupted', kind: 'bad' as const }] : []),
      { text: `Exhausted first: ${String(json['exhausted'])} (${String(json['reason'])})`, kind: 'plain' },
      {
        text: `Requests per processor-second of the service: ${shown(json['requests_per_processor_second'])}`,
        kind: 'plain',
      },
      ...recommended.map(({ name, value, reason }) => ({
        text: `${String(name)} ${shown(value)}: ${String(reason)}`,
        kind: 'plain' as const,
      })),
    ],
    head: ['Rate', 'Limits', 'Requests', 'Reached', ...PERCENTILES, 'Errors'],
    rows: objectsIn(json['steps']).map((step) => [
      shown(step['rate']),
      step['ok'] === true ? 'kept' : 'missed',
      shown(step['requests']),
      shown(step['reached']),
      ...PERCENTILES.map((name) => shown(step[name])),
      shown(step['errors']),
    ]),
  };
}

/** A page of `--html`. The parser runs no scripts and loads nothing. */
function readPage(text: string): Report {
  const page = new DOMParser().parseFromString(withoutAttributes(text), 'text/html');
  const table = page.querySelector('table');
  if (!table || !/^Replay/.test(page.title)) throw new Error('This page is not a report of lateral replay.');
  const cells = (row: Element): string[] => [...row.querySelectorAll('th, td')].map((cell) => textOf(cell));
  const [head = [], ...rows] = [...table.querySelectorAll('tr')].map(cells);
  // The column of bars has no text.
  const kept = head.map((name) => name !== '');
  const pick = (row: readonly string[]): string[] => row.filter((_, at) => kept[at] !== false);
  return {
    title: page.title,
    notes: [...page.querySelectorAll('p, li')].slice(1).flatMap((each) => {
      const kind = each.className === 'good' || each.className === 'bad' ? each.className : 'plain';
      return textOf(each) === '' ? [] : [{ text: textOf(each), kind } as const];
    }),
    head: pick(head),
    rows: rows.map(pick),
  };
}

/** Tags without styles and event handlers: the browser would report that its policy blocks them. */
function withoutAttributes(text: string): string {
  return text
    .replace(/<style[^>]*>.*?<\/style>/gis, '')
    .replace(/<([a-z][a-z0-9]*)((?:"[^"]*"|'[^']*'|[^'">])*)>/gi, (_, tag: string, attributes: string) => {
      const kind = /class="(good|bad)"/.exec(attributes)?.[1];
      return kind === undefined ? `<${tag}>` : `<${tag} class="${kind}">`;
    });
}

function textOf(element: Element): string {
  return element.textContent?.trim() ?? '';
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function objectsIn(value: unknown): Json[] {
  return listOf(value).map(objectIn);
}

function objectIn(value: unknown): Json {
  return typeof value === 'object' && value !== null ? (value as Json) : {};
}

function shown(value: unknown): string {
  if (typeof value !== 'number') return value === undefined || value === null ? '–' : String(value);
  return value.toLocaleString('en', { maximumFractionDigits: value < 10 ? 2 : value < 100 ? 1 : 0 });
}
