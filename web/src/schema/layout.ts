/**
 * The layout of a diagram: a library for layered graphs places collections with relations, and the others are in rows below. A large
 * diagram has frames.
 */
import { Graph, layout } from '@dagrejs/dagre';
import type { Collection, Field, Model } from '../model';
import { type Frame, groupCollections, type Link, placeGroups } from './groups';

export interface Box {
  readonly collection: Collection;
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  /** The fields that its box lists. */
  readonly fields: readonly Field[];
}

export interface Edge {
  readonly id: string;
  readonly from: string;
  readonly to: string;
  readonly path: string;
}

export interface Diagram {
  readonly boxes: readonly Box[];
  readonly edges: readonly Edge[];
  /** Around related collections, in a large diagram. */
  readonly frames: readonly Frame[];
  readonly width: number;
  readonly height: number;
}

const WIDTH = 200;
const HEAD = 30;
const LINE = 19;
const MOST_FIELDS = 9;
/** Above this many collections, boxes show only names. */
const MOST_DETAILED = 40;
/** Above this many collections, the diagram has frames. */
const MOST_LAYERED = 80;

export function neighbours(model: Model, name: string): Set<string> {
  const found = new Set([name]);
  for (const collection of model.values()) {
    for (const to of targetsOf(collection)) {
      if (collection.name === name) found.add(to);
      if (to === name) found.add(collection.name);
    }
  }
  return found;
}

function targetsOf(collection: Collection): string[] {
  return [...collection.fields.values()].flatMap(leadsTo);
}

function leadsTo({ relation }: Field): readonly string[] {
  if (relation?.kind === 'one') return relation.by === null ? [relation.to] : [];
  return relation?.kind === 'any' ? relation.among : [];
}

export function makeDiagram(collections: readonly Collection[]): Diagram {
  const names = new Set(collections.map(({ name }) => name));
  const links = collections.flatMap((collection) =>
    [...collection.fields.values()].flatMap((field) =>
      leadsTo(field)
        .filter((to) => names.has(to))
        .map((to) => ({ from: collection.name, field: field.name, to })),
    ),
  );
  return collections.length > MOST_LAYERED ? inFrames(collections, links) : inLayers(collections, links);
}

interface FieldLink extends Link {
  readonly field: string;
}

function inFrames(collections: readonly Collection[], links: readonly FieldLink[]): Diagram {
  const groups = groupCollections(
    collections.map(({ name }) => name),
    links,
  );
  const { frames, places } = placeGroups(groups, { width: WIDTH, height: HEAD, gap: 14 });
  const boxes = collections.map((collection): Box => {
    const { x, y } = places.get(collection.name) ?? { x: 0, y: 0 };
    return { collection, x, y, width: WIDTH, height: HEAD, fields: [] };
  });
  const edges = links.flatMap(({ from, field, to }): Edge[] => {
    const [start, end] = [places.get(from), places.get(to)];
    if (from === to || !start || !end) return [];
    return [{ id: JSON.stringify([from, field, to]), from, to, path: curve(start, end) }];
  });
  return {
    boxes,
    edges,
    frames,
    width: Math.max(...frames.map(({ x, width }) => x + width)),
    height: Math.max(...frames.map(({ y, height }) => y + height)),
  };
}

/** From one side of a box to the nearer side of the other. */
function curve(
  from: { readonly x: number; readonly y: number },
  to: { readonly x: number; readonly y: number },
): string {
  const isRight = to.x > from.x;
  const [x1, x2] = [from.x + (isRight ? WIDTH : 0), to.x + (isRight || to.x === from.x ? 0 : WIDTH)];
  const [y1, y2] = [from.y + HEAD / 2, to.y + HEAD / 2];
  const bend = Math.max(30, Math.abs(x2 - x1) / 2) * (isRight ? 1 : -1);
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${to.x === from.x ? x2 + bend : x2 - bend} ${y2} ${x2} ${y2}`;
}

function inLayers(collections: readonly Collection[], links: readonly FieldLink[]): Diagram {
  const isDetailed = collections.length <= MOST_DETAILED;
  const linked = new Set(links.flatMap(({ from, to }) => (from === to ? [] : [from, to])));
  const sizes = new Map(
    collections.map((collection) => {
      const fields = isDetailed ? listed(collection) : [];
      const rest = isDetailed && collection.fields.size > fields.length ? 1 : 0;
      return [collection.name, { fields, height: HEAD + (fields.length + rest) * LINE + (isDetailed ? 8 : 0) }];
    }),
  );
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: 'LR', nodesep: 24, ranksep: 70 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const name of linked) graph.setNode(name, { width: WIDTH, height: sizes.get(name)?.height ?? HEAD });
  for (const { from, field, to } of links) if (from !== to) graph.setEdge(from, to, {}, field);
  if (linked.size > 0) layout(graph);
  const boxes: Box[] = [];
  let [right, bottom] = [0, 0];
  for (const collection of collections) {
    if (!linked.has(collection.name)) continue;
    const { x, y } = graph.node(collection.name) as { x: number; y: number };
    const { height, fields } = sizes.get(collection.name) ?? { height: HEAD, fields: [] };
    boxes.push({ collection, x: x - WIDTH / 2, y: y - height / 2, width: WIDTH, height, fields });
    right = Math.max(right, x + WIDTH / 2);
    bottom = Math.max(bottom, y + height / 2);
  }
  // Lines also turn outside the boxes, and must not cross the boxes below.
  for (const edge of linked.size > 0 ? graph.edges() : []) {
    const { points = [] } = graph.edge(edge) as { points?: { x: number; y: number }[] };
    for (const { x, y } of points) [right, bottom] = [Math.max(right, x), Math.max(bottom, y)];
  }
  const alone = collections.filter(({ name }) => !linked.has(name));
  const perRow = Math.max(4, Math.floor(Math.max(right, 1_100) / (WIDTH + 24)));
  let y = bottom === 0 ? 0 : bottom + 48;
  for (let at = 0; at < alone.length; at += perRow) {
    const row = alone.slice(at, at + perRow);
    row.forEach((collection, index) => {
      const { height, fields } = sizes.get(collection.name) ?? { height: HEAD, fields: [] };
      boxes.push({ collection, x: index * (WIDTH + 24), y, width: WIDTH, height, fields });
      right = Math.max(right, index * (WIDTH + 24) + WIDTH);
    });
    const tallest = Math.max(...row.map(({ name }) => sizes.get(name)?.height ?? HEAD));
    bottom = y + tallest;
    y = bottom + 24;
  }
  const placed = new Map(boxes.map((box) => [box.collection.name, box]));
  const columns = [...new Set(boxes.filter((box) => linked.has(box.collection.name)).map(({ x }) => x))];
  const edges = links.flatMap(({ from, field, to }): Edge[] => {
    if (from === to) return [];
    const [start, end] = [placed.get(from), placed.get(to)];
    if (!start || !end) return [];
    const { points = [] } = graph.edge({ v: from, w: to, name: field }) as { points?: Point[] };
    const path = routeOf({ start, end, row: rowOf(start, field), passed: points.slice(1, -1), columns });
    return [{ id: JSON.stringify([from, field, to]), from, to, path }];
  });
  return { boxes, edges, frames: [], width: right, height: bottom };
}

interface Point {
  readonly x: number;
  readonly y: number;
}

/** The height at which a line leaves a box: at the field that refers, or at the name if the box does not list it. */
function rowOf({ y, fields }: Box, field: string): number {
  const at = fields.findIndex(({ name }) => name === field);
  return y + (at === -1 ? HEAD / 2 : HEAD + 10 + at * LINE);
}

interface Route {
  readonly start: Box;
  readonly end: Box;
  readonly row: number;
  /** Where the library leads the line past the boxes of other layers. */
  readonly passed: readonly Point[];
  /** The left sides of the layers. */
  readonly columns: readonly number[];
}

/**
 * From the side of one box to the side of the other. The line passes other layers straight, between their boxes, and bends only in the gaps
 * between layers, so that no part of it is behind a box. It ends in an arrow at the referenced collection.
 */
function routeOf({ start, end, row, passed, columns }: Route): string {
  const sign = start.x < end.x ? 1 : -1;
  const sideOf = (left: number, isAfter: boolean): number => (isAfter === sign > 0 ? left + WIDTH + 6 : left - 6);
  const points: Point[] = [{ x: start.x + (sign > 0 ? WIDTH : 0), y: row }];
  for (const { x, y } of passed) {
    const column = columns.find((left) => x > left && x < left + WIDTH);
    if (column !== undefined) points.push({ x: sideOf(column, false), y }, { x: sideOf(column, true), y });
  }
  const tip = { x: end.x + (sign > 0 ? 0 : WIDTH), y: end.y + HEAD / 2 };
  points.push(tip);
  const [first = tip, ...rest] = points;
  let path = `M${first.x} ${first.y}`;
  let from = first;
  for (const to of rest) {
    const middle = (from.x + to.x) / 2;
    path += from.y === to.y ? `H${to.x}` : `C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`;
    from = to;
  }
  return `${path}m${-7 * sign} -4l${7 * sign} 4l${-7 * sign} 4`;
}

/** The key, then references, then other fields while there is room. */
function listed({ fields }: Collection): Field[] {
  const all = [...fields.values()].filter((field) => field.column);
  const rank = (field: Field): number => (field.isKey ? 0 : field.relation ? 1 : 2);
  return all.sort((one, other) => rank(one) - rank(other)).slice(0, MOST_FIELDS);
}
