/** Statements of the last five minutes, as `/server/shapes` lists them, and short names for them. */

export interface Shape {
  readonly id: string;
  readonly digest: string;
  readonly text: string;
  readonly plan: string;
  readonly calls: number;
  readonly statements: number;
  readonly failed: number;
  readonly hits: number;
  readonly total: number;
  readonly mean: number;
  readonly p99: number;
  readonly rows: number | null;
  readonly budget: number | null;
  readonly exceeded: boolean;
}

/** A name for each statement. Different statements have different names. */
export function summaries(shapes: readonly Shape[]): string[] {
  const names = shapes.map(({ text }) => summary(text));
  const digests = new Map<string, Set<string>>();
  for (const [at, name] of names.entries())
    digests.set(name, (digests.get(name) ?? new Set()).add(shapes[at]?.digest ?? ''));
  return names.map((name, at) =>
    (digests.get(name)?.size ?? 0) > 1 ? `${name} · ${shapes[at]?.digest.slice(0, 6)}` : name,
  );
}

/** The action, the tables, the compared columns and the order of a statement, because its text is long. */
function summary(text: string): string {
  const tables = [
    ...text.matchAll(/\b(?:from|join|into|update|only) (?:lateral )?("(?:[^"]|"")*"(?:\."(?:[^"]|"")*")?)/g),
  ];
  const names = [...new Set(tables.map(([, name = '']) => name.replaceAll('"', '').replace(/^public\./, '')))];
  const verb = /\b(insert into|update|delete from)\b/.exec(text)?.[1]?.split(' ')[0] ?? 'select';
  const compared = columnsOf(text, /"%t\d+"\."((?:[^"%]|"")+)" (?:operator\(|is |= any)/g);
  const sorted = columnsOf(text, /order by "%[tp]\d+"\."((?:[^"%]|"")+)"/g);
  return [
    `${verb} ${shortened(names.filter((name) => !name.includes('%')))}`,
    ...(compared.length > 0 ? [`where ${shortened(compared)}`] : []),
    ...(sorted.length > 0 ? [`order by ${shortened(sorted)}`] : []),
  ].join(' ');
}

function columnsOf(text: string, pattern: RegExp): string[] {
  return [...new Set([...text.matchAll(pattern)].map(([, name = '']) => name.replaceAll('""', '"')))];
}

function shortened(names: readonly string[]): string {
  return `${names.slice(0, 4).join(', ')}${names.length > 4 ? ', …' : ''}`;
}
