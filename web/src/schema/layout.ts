/** Where the collections of a diagram stand: those with relations by a library for layered graphs, the others in rows below. */
import { Graph, layout } from '@dagrejs/dagre';
import type { Collection, Field, Model } from '../model';

export interface Box {
  readonly collection: Collection;
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  /** Those that are listed in it. */
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
  readonly width: number;
  readonly height: number;
}

const WIDTH = 200;
const HEAD = 30;
const LINE = 19;
const MOST_FIELDS = 9;
/** Above this many only names are shown. */
const MOST_DETAILED = 40;

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
  return [...collection.fields.values()].flatMap(({ relation }) =>
    relation?.kind === 'one' ? [relation.to] : relation?.kind === 'any' ? relation.among : [],
  );
}

export function makeDiagram(collections: readonly Collection[]): Diagram {
  const isDetailed = collections.length <= MOST_DETAILED;
  const names = new Set(collections.map(({ name }) => name));
  const links = collections.flatMap((collection) =>
    [...collection.fields.values()].flatMap((field) => {
      const to =
        field.relation?.kind === 'one'
          ? [field.relation.to]
          : field.relation?.kind === 'any'
            ? field.relation.among
            : [];
      return to
        .filter((each) => names.has(each))
        .map((each) => ({ from: collection.name, field: field.name, to: each }));
    }),
  );
  const linked = new Set(links.flatMap(({ from, to }) => (from === to ? [] : [from, to])));
  const sizes = new Map(
    collections.map((collection) => {
      const fields = isDetailed ? listed(collection) : [];
      const rest = isDetailed && collection.fields.size > fields.length ? 1 : 0;
      return [collection.name, { fields, height: HEAD + (fields.length + rest) * LINE + (isDetailed ? 8 : 0) }];
    }),
  );
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: 'LR', nodesep: 24, ranksep: 70, ...(linked.size > 120 ? { ranker: 'longest-path' } : {}) });
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
  const edges = links.flatMap(({ from, field, to }): Edge[] => {
    if (from === to) return [];
    const { points = [] } = graph.edge({ v: from, w: to, name: field }) as { points?: { x: number; y: number }[] };
    return [{ id: JSON.stringify([from, field, to]), from, to, path: pathOf(points) }];
  });
  return { boxes, edges, width: right, height: bottom };
}

/** The key, then what leads elsewhere, then the rest as far as there is room. */
function listed({ fields }: Collection): Field[] {
  const all = [...fields.values()].filter((field) => field.column);
  const rank = (field: Field): number => (field.isKey ? 0 : field.relation ? 1 : 2);
  return all.sort((one, other) => rank(one) - rank(other)).slice(0, MOST_FIELDS);
}

function pathOf(points: readonly { readonly x: number; readonly y: number }[]): string {
  const [first, ...rest] = points;
  if (!first) return '';
  return `M${first.x} ${first.y}${rest.map(({ x, y }) => `L${x} ${y}`).join('')}`;
}
