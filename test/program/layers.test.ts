/**
 * The order of the folders. Imports point only downward and never in a circle, and each foreign library is known to one folder
 * alone: what a reader may assume about a file follows from where it lies. The Explorer and the bench have no order of folders,
 * but no circles either.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join, posix } from 'node:path';
import t from 'tap';
import typescript from 'typescript-api';
import { packagePath } from '../../src/base/package-files.js';

/** From the top down; rooms in one row may not know each other. */
const ORDER: readonly (readonly string[])[] = [
  ['main', 'index'],
  ['commands'],
  ['twin'],
  ['service'],
  ['api'],
  ['live'],
  ['http'],
  ['traffic'],
  ['engine'],
  ['schema', 'accounts', 'batching', 'adopt', 'storage'],
  ['postgres'],
  ['compile'],
  ['access'],
  ['plan'],
  ['graphql'],
  ['request'],
  ['mirror'],
  ['sql'],
];
/** Every room may import these; `config` imports `base`. */
const LEAVES: readonly string[] = ['config', 'base'];
/** Stands beside the others: it starts a program and knows nothing of the service. */
const APART = 'embedded';
const STARTERS: readonly string[] = ['service', 'twin'];
const KNOWN_ONLY_TO: Readonly<Record<string, string>> = {
  'uWebSockets.js': 'http',
  postgres: 'postgres',
  graphql: 'graphql',
  'libpg-query': 'sql',
  'prom-client': 'api',
  '@opentelemetry/sdk-trace': 'http',
  aws4fetch: 'storage',
  sharp: 'storage',
};
const MOST_LINES = 600;
const MOST_CASTS = 99;

/** The formatted SQL of the service: it imports nothing. */
const SHARED_WITH_WEB = 'src/sql/pretty';

interface Source {
  /** Below its folder, such as src, with forward slashes. */
  readonly path: string;
  readonly text: string;
}

/** The formatter puts each statement on a line of its own. */
const WAYS_TO_IMPORT = [
  /^(?:import|export)\b[\w\s{},*$]*\bfrom '([^']+)'/gm,
  /^import '([^']+)'/gm,
  /^(?!\s*(?:\/\/|\*)).*\bimport\(\s*'([^']+)'\s*\)/gm,
];
/** Some are in strings. Only files with such lines are parsed, which is most of the work. */
const MAY_CAST = /^(?!import\b|export \{|\s*(?:\/\/|\/\*\*|\*)).* as (?!const\b)/m;

const sources = readSources('src');
const foundImports = new WeakMap<Source, readonly string[]>();

t.test('every import of the sources points downward', async (t) => {
  const all = await sources;
  t.ok(all.length > 30, `${all.length} files were read`);
  t.ok(
    all.some((source) => importsOf(source).length > 10),
    'imports were found',
  );
  t.strictSame(
    all.flatMap((source) => complaintsOf(source)),
    [],
  );
});

for (const folder of ['src', 'bench', 'web/src'])
  t.test(`no files of ${folder} import each other in a circle, not even for types`, async (t) => {
    const all = await readSources(folder);
    t.ok(
      all.some((source) => importedFiles(source, pathsOf(all)).length > 3),
      'imports were found',
    );
    t.strictSame(circlesOf(all), []);
  });

t.test('the bench imports the sources and itself, the Explorer itself and the format of SQL', async (t) => {
  const leaving = async (folder: string): Promise<string[]> =>
    (await readSources(folder)).flatMap((source) =>
      importsOf(source)
        .filter((specifier) => specifier.startsWith('.'))
        .map((specifier) => posix.join(folder, posix.dirname(source.path), specifier))
        .filter((path) => !path.startsWith(`${folder}/`)),
    );
  const fromBench = await leaving('bench');
  t.strictSame(
    fromBench.filter((path) => !path.startsWith('src/')),
    [],
  );
  t.strictSame([...new Set(await leaving('web/src'))], [SHARED_WITH_WEB]);
});

t.test('a circle is found, however it is closed', async (t) => {
  const few: readonly Source[] = [
    { path: 'plan/a.ts', text: "import { b } from './b.js';" },
    { path: 'plan/b.ts', text: "import type { C } from '../sql/c.js';" },
    { path: 'sql/c.ts', text: "let a: import('../plan/a.js').A;" },
    { path: 'sql/d.ts', text: "import { a } from '../plan/a.js';" },
  ];
  t.strictSame(circlesOf(few), [['plan/a.ts', 'plan/b.ts', 'sql/c.ts']]);
  t.strictSame(circlesOf(few.slice(1)), []);
  t.strictSame(circlesOf([{ path: 'plan/a.ts', text: "export * from './a.js';" }]), [['plan/a.ts']]);
  const pages: readonly Source[] = [
    { path: 'data/grid.tsx', text: "import { Nested } from './nested';" },
    { path: 'data/nested.tsx', text: "import type { Key } from './key';" },
    { path: 'data/key.ts', text: "import { Grid } from './grid';" },
  ];
  t.strictSame(circlesOf(pages), [['data/grid.tsx', 'data/key.ts', 'data/nested.tsx']], 'the Explorer omits endings');
});

t.test('no file of the sources is too long to read at once', async (t) => {
  const long = (await sources).filter(({ text }) => text.split('\n').length - 1 > MOST_LINES);
  t.strictSame(
    long.map(({ path }) => path),
    [],
  );
});

t.test('the sources have few casts: what the compiler cannot see is checked where it comes in', async (t) => {
  const casts = (await sources).flatMap((source) => castsOf(source));
  t.ok(casts.length <= MOST_CASTS, `${casts.length} casts, at most ${MOST_CASTS}:\n${casts.join('\n')}`);
  const text = 'const a = b as unknown as C;\nconst d = [1] as const; // as E\n';
  t.strictSame(castsOf({ path: 'plan/a.ts', text }), ['plan/a.ts: b as unknown as C', 'plan/a.ts: b as unknown']);
});

t.test('a wrong import is found, however it is written', async (t) => {
  const cases: readonly (readonly [path: string, text: string, complaint: RegExp | null])[] = [
    ['sql/fragment.ts', "import { plan } from '../plan/read.js';", /sql\/fragment.ts .* plan, which lies above sql/],
    ['sql/fragment.ts', "import type { Plan } from '../plan/read.js';", /above/],
    ['sql/fragment.ts', "export { plan } from '../plan/read.js';", /above/],
    ['sql/fragment.ts', "export * from '../plan/read.js';", /above/],
    ['sql/fragment.ts', "import '../plan/read.js';", /above/],
    ['sql/fragment.ts', "const plan = await import('../plan/read.js');", /above/],
    ['sql/fragment.ts', "let plan: import('../plan/read.js').Plan;", /above/],
    ['sql/fragment.ts', "import { sql } from './statement.js';", null],
    ['sql/fragment.ts', "import { forbidden } from '../base/errors.js';", null],
    ['sql/fragment.ts', '// import { plan } from "../plan/read.js";', null],
    ['plan/read.ts', "import { sql } from '../sql/fragment.js';", null],
    ['base/errors.ts', "import { sql } from '../sql/fragment.js';", /leaf/],
    ['base/errors.ts', "import { packageRoot } from './package-files.js';", null],
    ['config/config.ts', "import { StartError } from '../base/errors.js';", null],
    ['base/errors.ts', "import { readConfig } from '../config/config.js';", /above/],
    ['main.ts', "import { startService } from './service/start.js';", null],
    ['service/start.ts', "import { main } from '../main.js';", /above/],
    ['service/start.ts', "import { startEmbedded } from '../embedded/cluster.js';", null],
    [
      'api/items/items.ts',
      "import { startEmbedded } from '../../embedded/cluster.js';",
      /embedded is for the service and the twin alone/,
    ],
    ['embedded/cluster.ts', "import { StartError } from '../base/errors.js';", null],
    ['embedded/cluster.ts', "import { Database } from '../postgres/pools/database.js';", /only leaves/],
    ['embedded/cluster.ts', "import { sql } from '../sql/fragment.js';", /only leaves/],
    ['plan/read.ts', "import postgres from 'postgres';", /only postgres may know postgres/],
    ['plan/read.ts', "import type { Sql } from 'postgres';", /only postgres may know postgres/],
    ['plan/read.ts', "import { parse } from 'graphql/language';", /only graphql may know graphql/],
    ['api/items/items.ts', "import('uWebSockets.js')", /only http may know uWebSockets.js/],
    ['compile/read.ts', "import Grammar from 'libpg-query';", /only sql may know libpg-query/],
    ['sql/verify.ts', "import Grammar from 'libpg-query';", null],
    ['plan/read.ts', "import { test } from '../../test/support.js';", /leaves src/],
    ['basement/boiler.ts', "import { forbidden } from '../base/errors.js';", /no room of the house/],
    ['plan/read.ts', "import { heat } from '../basement/boiler.js';", /no room of the house/],
  ];
  for (const [path, text, expected] of cases) {
    const complaints = complaintsOf({ path, text });
    if (expected === null) t.strictSame(complaints, [], `${path}: ${text}`);
    else t.match(complaints, [expected], `${path}: ${text}`);
  }
});

async function readSources(folder: string): Promise<Source[]> {
  const root = packagePath(folder);
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name));
  return Promise.all(
    files.map(async (entry) => {
      const path = join(entry.parentPath, entry.name);
      return { path: posix.normalize(path.slice(root.length + 1)), text: await readFile(path, 'utf8') };
    }),
  );
}

function complaintsOf(source: Source): string[] {
  const room = roomOf(source.path);
  return importsOf(source).flatMap((specifier) => {
    const complaint = specifier.startsWith('.')
      ? judgeRoom(room, posix.join(posix.dirname(source.path), specifier))
      : judgePackage(room, specifier);
    return complaint === null ? [] : [`${source.path} imports ${specifier}: ${complaint}`];
  });
}

function castsOf({ path, text }: Source): string[] {
  const found: string[] = [];
  if (!MAY_CAST.test(text)) return found;
  const file = typescript.createSourceFile(path, text, typescript.ScriptTarget.Latest);
  const visit = (node: typescript.Node): void => {
    if (typescript.isAsExpression(node) && !typescript.isConstTypeReference(node.type))
      found.push(`${path}: ${node.getText(file)}`);
    typescript.forEachChild(node, visit);
  };
  visit(file);
  return found;
}

/** All ways to name a module: static, for types alone, dynamic, passed on. */
function importsOf(source: Source): readonly string[] {
  const known = foundImports.get(source);
  if (known) return known;
  const found = WAYS_TO_IMPORT.flatMap((way) => [...source.text.matchAll(way)].map((match) => match[1] as string));
  const imports = [...new Set(found)];
  foundImports.set(source, imports);
  return imports;
}

/** Sets of files that reach each other, by Tarjan's algorithm for strongly connected components. */
function circlesOf(all: readonly Source[]): string[][] {
  const paths = pathsOf(all);
  const imports = new Map(all.map((source) => [source.path, importedFiles(source, paths)]));
  const order = new Map<string, number>();
  const open: string[] = [];
  const circles: string[][] = [];
  /** Answers the earliest open file that can be reached from this one, by its number. */
  const visit = (path: string): number => {
    const own = order.size;
    let lowest = own;
    order.set(path, own);
    open.push(path);
    for (const next of imports.get(path) ?? []) {
      if (!order.has(next)) lowest = Math.min(lowest, visit(next));
      else if (open.includes(next)) lowest = Math.min(lowest, order.get(next) ?? own);
    }
    if (lowest === own) {
      const circle = open.splice(open.indexOf(path));
      if (circle.length > 1 || imports.get(path)?.includes(path)) circles.push(circle.sort());
    }
    return lowest;
  };
  for (const { path } of all) if (!order.has(path)) visit(path);
  return circles;
}

function pathsOf(all: readonly Source[]): ReadonlySet<string> {
  return new Set(all.map(({ path }) => path));
}

/** The sources of the Explorer name modules without their endings. */
function importedFiles(source: Source, paths: ReadonlySet<string>): string[] {
  const relative = importsOf(source).filter((specifier) => specifier.startsWith('.'));
  return relative.flatMap((specifier) => {
    const stem = posix.join(posix.dirname(source.path), specifier).replace(/\.js$/, '');
    return [`${stem}.ts`, `${stem}.tsx`].filter((path) => paths.has(path));
  });
}

function judgeRoom(room: string, target: string): string | null {
  if (target.startsWith('..')) return 'it leaves src';
  const goal = roomOf(target);
  if (room === 'base' && goal === 'config') return 'it leads to config, which lies above base';
  if (goal === room || LEAVES.includes(goal)) return isKnown(room) ? null : `${room} is no room of the house`;
  if (LEAVES.includes(room)) return `${room} is a leaf and may only know other leaves`;
  if (room === APART) return `${APART} may know only leaves`;
  if (goal === APART) return STARTERS.includes(room) ? null : `${APART} is for the service and the twin alone`;
  if (!isKnown(room)) return `${room} is no room of the house`;
  if (!isKnown(goal)) return `${goal} is no room of the house`;
  return levelOf(goal) > levelOf(room) ? null : `it leads to ${goal}, which lies above ${room}`;
}

function judgePackage(room: string, specifier: string): string | null {
  const name = specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/');
  const owner = KNOWN_ONLY_TO[name];
  return owner === undefined || owner === room ? null : `only ${owner} may know ${name}`;
}

function roomOf(path: string): string {
  return (path.split('/')[0] ?? '').replace(/(\.d)?\.[jt]s$/, '');
}

function isKnown(room: string): boolean {
  return room === APART || LEAVES.includes(room) || levelOf(room) >= 0;
}

function levelOf(room: string): number {
  return ORDER.findIndex((row) => row.includes(room));
}
