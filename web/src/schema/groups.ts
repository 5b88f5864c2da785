/**
 * The layout of a large diagram. Layers of hundreds of collections take seconds to compute, and their lines are too dense to follow. So
 * related collections share a frame of about a dozen: each joins the most specific collection that it refers to (a line of an order joins
 * the order, not the user who wrote it).
 */

export interface Link {
  readonly from: string;
  readonly to: string;
}

export interface Group {
  /** The name of the collection that the others lead to. */
  readonly name: string;
  readonly members: readonly string[];
}

export interface Frame {
  readonly name: string;
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

interface Sizes {
  readonly width: number;
  readonly height: number;
  readonly gap: number;
}

const SMALLEST = 8;
const TITLE = 62;
const PAD = 18;
const BETWEEN = 44;

export function groupCollections(names: readonly string[], links: readonly Link[]): Group[] {
  const referring = new Map<string, number>();
  const targets = new Map<string, Set<string>>();
  for (const { from, to } of links) {
    if (from === to) continue;
    const known = targets.get(from) ?? new Set();
    if (!known.has(to)) referring.set(to, (referring.get(to) ?? 0) + 1);
    targets.set(from, known.add(to));
  }
  const children = new Map<string, string[]>();
  const above = new Map<string, string>();
  for (const name of names) {
    const ordered = [...(targets.get(name) ?? [])].sort(
      (one, other) => (referring.get(one) ?? 0) - (referring.get(other) ?? 0) || (one < other ? -1 : 1),
    );
    const parent = ordered.find((each) => !leadsTo(above, each, name));
    if (parent === undefined) continue;
    above.set(name, parent);
    children.set(parent, [...(children.get(parent) ?? []), name]);
  }
  const groups: Group[] = [];
  /** The collection and those below it that have no separate group. */
  const gather = (name: string): string[] => {
    const members = [name, ...(children.get(name) ?? []).flatMap(gather)];
    if (members.length < SMALLEST) return members;
    groups.push({ name, members });
    return [];
  };
  const small: string[] = [];
  for (const name of names) {
    if (above.has(name)) continue;
    const rest = gather(name);
    if (rest.length > 1) groups.push({ name, members: rest });
    else small.push(...rest);
  }
  if (small.length > 0) groups.push({ name: 'Others', members: small });
  return groups;
}

/** Whether a path up from `name` leads to `wanted`: otherwise a circle of references would have no top. */
function leadsTo(above: ReadonlyMap<string, string>, name: string, wanted: string): boolean {
  for (let at: string | undefined = name; at !== undefined; at = above.get(at)) if (at === wanted) return true;
  return false;
}

/** Arranges frames in rows with about the proportions of a screen, and the members in each frame. */
export function placeGroups(
  groups: readonly Group[],
  { width, height, gap }: Sizes,
): { readonly frames: readonly Frame[]; readonly places: ReadonlyMap<string, { x: number; y: number }> } {
  const shapes = groups.map(({ name, members }) => {
    const columns = Math.max(1, Math.round(Math.sqrt((members.length * (height + gap) * 1.4) / (width + gap))));
    const rows = Math.ceil(members.length / columns);
    return {
      name,
      members,
      columns,
      width: columns * (width + gap) - gap + 2 * PAD,
      height: rows * (height + gap) - gap + TITLE + PAD,
    };
  });
  const area = shapes.reduce((sum, shape) => sum + (shape.width + BETWEEN) * (shape.height + BETWEEN), 0);
  const widest = Math.max(...shapes.map((shape) => shape.width), Math.sqrt(area * 1.7));
  shapes.sort((one, other) => other.height - one.height);
  const frames: Frame[] = [];
  const places = new Map<string, { x: number; y: number }>();
  let [x, y, tallest] = [0, 0, 0];
  for (const shape of shapes) {
    if (x > 0 && x + shape.width > widest) {
      y += tallest + BETWEEN;
      [x, tallest] = [0, 0];
    }
    frames.push({ name: shape.name, x, y, width: shape.width, height: shape.height });
    shape.members.forEach((member, at) => {
      const [column, row] = [at % shape.columns, Math.floor(at / shape.columns)];
      places.set(member, { x: x + PAD + column * (width + gap), y: y + TITLE + row * (height + gap) });
    });
    x += shape.width + BETWEEN;
    tallest = Math.max(tallest, shape.height);
  }
  return { frames, places };
}
