/** Boards and their charts, as the API stores them: dashboards and panels. */
import { call, systemCollection } from '../api';
import { listOf, objectOf, type QueryJson } from '../query/query';
import { me, viewAs } from '../state';
import type { ChartKind } from './chart-data';

export interface BoardEntry {
  readonly id: string;
  readonly name: string;
  readonly note: string | null;
  readonly count: number;
}

export interface Board {
  readonly id: string;
  readonly name: string;
  readonly note: string | null;
  readonly panels: readonly Panel[];
}

/** The query of a chart, and how it is drawn. */
export interface Drawn {
  readonly title: string;
  readonly kind: ChartKind;
  readonly collection: string;
  readonly query: QueryJson;
  readonly live: boolean;
  /** Columns of twelve. */
  readonly width: number;
  /** Rows of the board. */
  readonly height: number;
}

export interface Panel extends Drawn {
  readonly id: string;
  /** The type of a panel that other programs made and that cannot be drawn here. */
  readonly unknown: string | null;
}

interface PanelRow {
  readonly id: string;
  readonly name: string | null;
  readonly type: string;
  readonly position_x: number;
  readonly position_y: number;
  readonly width: number;
  readonly height: number;
  readonly options: unknown;
}

export const COLUMNS = 12;
export const WIDTHS = [
  [3, 'a quarter'],
  [4, 'a third'],
  [6, 'a half'],
  [8, 'two thirds'],
  [12, 'the whole row'],
] as const;
export const HEIGHTS = [
  [4, 'low'],
  [6, 'medium'],
  [9, 'high'],
  [12, 'very high'],
] as const;

/** The names that Directus has for them. */
const TYPES: Readonly<Record<ChartKind, string>> = { bar: 'bar-chart', line: 'line-chart', number: 'metric' };

const PANEL_FIELDS = ['id', 'name', 'type', 'position_x', 'position_y', 'width', 'height', 'options'];

export async function listBoards(): Promise<BoardEntry[]> {
  const query = { fields: ['id', 'name', 'note', 'panels.id'], sort: ['name'], limit: -1 };
  const { data } = await call<{ id: string; name: string; note: string | null; panels?: readonly unknown[] }[]>(
    'SEARCH',
    '/dashboards',
    { body: { query } },
  );
  return data.map(({ id, name, note, panels }) => ({ id, name, note, count: panels?.length ?? 0 }));
}

export async function loadBoard(id: string): Promise<Board> {
  const fields = ['id', 'name', 'note', ...PANEL_FIELDS.map((name) => `panels.${name}`)];
  const deep = { panels: { _limit: -1, _sort: ['position_y', 'position_x'] } };
  const path = `/dashboards/${encodeURIComponent(id)}?fields=${fields.join()}&deep=${encodeURIComponent(JSON.stringify(deep))}`;
  const { data } = await call<{ id: string; name: string; note: string | null; panels: PanelRow[] }>('GET', path);
  return { ...data, panels: data.panels.map(panelOf) };
}

function panelOf({ id, name, type, width, height, options }: PanelRow): Panel {
  const given = objectOf(options);
  const kind = (Object.keys(TYPES) as ChartKind[]).find((each) => TYPES[each] === type) ?? null;
  const collection = typeof given['collection'] === 'string' ? given['collection'] : '';
  return {
    id,
    title: name ?? collection,
    kind: kind ?? 'number',
    collection,
    query: 'query' in given ? objectOf(given['query']) : metricQuery(given),
    live: given['live'] === true,
    width: Math.max(2, Math.min(COLUMNS, width)),
    height: Math.max(2, Math.min(24, height)),
    unknown: kind === null || collection === '' ? type : null,
  };
}

/** A metric as Directus stores it: a function of a field. */
function metricQuery(options: QueryJson): QueryJson {
  const [name] = listOf(options['function']);
  const [field = '*'] = listOf(options['field']);
  const filter = objectOf(options['filter']);
  return {
    aggregate: { [name ?? 'count']: [field] },
    ...(Object.keys(filter).length > 0 ? { filter } : {}),
  };
}

function rowOf({ title, kind, collection, query, live, width, height }: Drawn) {
  return {
    name: title,
    type: TYPES[kind],
    show_header: true,
    width,
    height,
    options: { collection, query, live },
  };
}

export async function createBoard(name: string, note: string): Promise<string> {
  const { data } = await call<{ id: string }>('POST', '/dashboards?fields=id', {
    body: { name, note: note === '' ? null : note },
  });
  return data.id;
}

export async function renameBoard(id: string, name: string, note: string): Promise<void> {
  await call('PATCH', `/dashboards/${id}?fields=id`, { body: { name, note: note === '' ? null : note } });
}

export async function deleteBoard(id: string): Promise<void> {
  await call('DELETE', `/dashboards/${id}`);
}

/** Adds a chart below the others. */
export async function addPanel(board: string, drawn: Drawn): Promise<void> {
  const { panels } = await loadBoard(board);
  const place = placesOf([...panels, drawn]).at(-1);
  await call('POST', '/panels?fields=id', { body: { dashboard: board, ...rowOf(drawn), ...place } });
}

export async function changePanel(id: string, drawn: Drawn): Promise<void> {
  await call('PATCH', `/panels/${id}?fields=id`, { body: rowOf(drawn) });
}

export async function deletePanel(id: string): Promise<void> {
  await call('DELETE', `/panels/${id}`);
}

/** Stores the order and the sizes. Charts that others added meanwhile stay. */
export async function arrange(panels: readonly Panel[]): Promise<void> {
  const places = placesOf(panels);
  const body = panels.map(({ id, width, height }, at) => ({ id, width, height, ...places[at] }));
  await call('PATCH', '/panels?fields=id', { body });
}

/** Charts follow each other in rows of twelve columns. A row is as high as its highest chart. */
function placesOf(panels: readonly Pick<Drawn, 'width' | 'height'>[]) {
  let [x, y, high] = [0, 0, 0];
  return panels.map(({ width, height }) => {
    if (x + width > COLUMNS) [x, y, high] = [0, y + high, 0];
    const place = { position_x: x + 1, position_y: y + 1 };
    x += width;
    high = Math.max(high, height);
    return place;
  });
}

type Allowed = Readonly<Record<string, Readonly<Record<string, { readonly access: string }>>>>;

/** Whether the caller may change boards. The service checks each change again. */
export async function mayChangeBoards(): Promise<boolean> {
  if (!me.value || viewAs.value) return false;
  if (me.value.administrator) return true;
  const { data } = await call<Allowed>('GET', '/permissions/me');
  const rights = data[systemCollection('panels')];
  return (rights?.['create']?.access ?? 'none') !== 'none';
}
