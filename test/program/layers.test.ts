/**
 * The order of the parts and folders. Imports point only downward and never in a circle, and each foreign library is known to one
 * folder alone: what a reader may assume about a file follows from where it lies. The Explorer and the bench have no order of folders,
 * but no circles either.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join, posix } from 'node:path';
import t from 'tap';
import typescript from 'typescript-api';
import { features } from '../../src/app/features.js';
import { packagePath } from '../../src/base/package-files.js';
import type { Feature } from '../../src/server/feature/feature.js';

/** From the top down. A part may import itself and the parts below it. */
const PARTS: readonly string[] = ['app', 'features', 'speed', 'server', 'compiler', 'base'];
/** Within a part, from the top down. Folders in one row may not import each other. */
const FOLDERS: Readonly<Record<string, readonly (readonly string[])[]>> = {
  server: [
    ['threads'],
    ['feature'],
    ['api'],
    ['http'],
    ['changes'],
    ['execute'],
    ['schema', 'accounts', 'batching'],
    ['postgres'],
    ['access'],
    ['config'],
    ['node'],
  ],
  compiler: [['statements'], ['access'], ['compile'], ['plan'], ['graphql'], ['request'], ['model'], ['sql']],
  speed: [['speed'], ['threads'], ['layers'], ['cache', 'replicas', 'plan-choices'], ['batching']],
};
/** It starts a program, and knows nothing of the service. */
const APART = 'features/embedded';
const MANIFEST = /\/(feature|options|log-events)\.ts$/;
/** The folder that may know a library. */
const KNOWN_ONLY_TO: Readonly<Record<string, string>> = {
  'uWebSockets.js': 'server/http',
  postgres: 'server/postgres',
  graphql: 'compiler/graphql',
  'libpg-query': 'compiler/sql',
  'prom-client': 'server/api',
  '@opentelemetry/sdk-trace': 'server/http',
  aws4fetch: 'features/files',
  sharp: 'features/files',
};
/** The features that a feature may import. */
const NEEDS: ReadonlyMap<string, readonly string[]> = new Map(
  features.map((feature: Feature) => [feature.name, (feature.needs ?? []).map(({ name }) => name)]),
);
/** The only file that may import `speed`: the deletion test replaces its line. */
const NAMES_SPEED = 'app/speed.ts';
const MOST_LINES = 900;
const MOST_CASTS = 99;

/** The formatted SQL of the service: it imports nothing. */
const SHARED_WITH_WEB = 'src/compiler/sql/pretty';

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
    [
      'compiler/sql/fragment.ts',
      "import { plan } from '../plan/read.js';",
      /fragment.ts .* compiler\/plan, which lies above/,
    ],
    ['compiler/sql/fragment.ts', "import type { Plan } from '../plan/read.js';", /above/],
    ['compiler/sql/fragment.ts', "export { plan } from '../plan/read.js';", /above/],
    ['compiler/sql/fragment.ts', "export * from '../plan/read.js';", /above/],
    ['compiler/sql/fragment.ts', "import '../plan/read.js';", /above/],
    ['compiler/sql/fragment.ts', "const plan = await import('../plan/read.js');", /above/],
    ['compiler/sql/fragment.ts', "let plan: import('../plan/read.js').Plan;", /above/],
    ['compiler/sql/fragment.ts', "import { sql } from './statement.js';", null],
    ['compiler/sql/fragment.ts', "import { forbidden } from '../../base/errors.js';", null],
    ['compiler/sql/fragment.ts', '// import { plan } from "../plan/read.js";', null],
    ['compiler/plan/read.ts', "import { sql } from '../sql/fragment.js';", null],
    [
      'compiler/plan/read.ts',
      "import { Exchange } from '../../server/http/exchange.js';",
      /server\/http, which lies above/,
    ],
    ['base/errors.ts', "import { sql } from '../compiler/sql/fragment.js';", /above/],
    ['base/errors.ts', "import { packageRoot } from './package-files.js';", null],
    ['server/config/config.ts', "import { StartError } from '../../base/errors.js';", null],
    ['server/schema/a.ts', "import { logIn } from '../accounts/authentication.js';", /above/],
    [
      'server/http/a.ts',
      "import { ReadCache } from '../../speed/cache/cache-space.js';",
      /only app\/speed.ts may know speed/,
    ],
    ['app/speed.ts', "export { speed } from '../speed/speed.js';", null],
    ['features/live/a.ts', "import { ReadCache } from '../../speed/cache/read-cache.js';", /may know speed/],
    ['main.ts', "import { startService } from './app/start.js';", null],
    ['app/start.ts', "import { startEmbedded } from '../features/embedded/cluster.js';", null],
    ['features/mcp/mcp.ts', "import { Exchange } from '../../server/http/exchange.js';", null],
    ['features/mcp/mcp.ts', "import { Webhooks } from '../webhooks/webhooks.js';", /mcp does not need webhooks/],
    ['features/sockets/a.ts', "import { LiveQueries } from '../live/live-queries.js';", null],
    ['features/embedded/cluster.ts', "import { StartError } from '../../base/errors.js';", null],
    ['features/embedded/cluster.ts', "import { sql } from '../../compiler/sql/fragment.js';", /may import base alone/],
    ['compiler/plan/read.ts', "import postgres from 'postgres';", /only server\/postgres may know postgres/],
    ['compiler/plan/read.ts', "import { parse } from 'graphql/language';", /only compiler\/graphql may know graphql/],
    ['server/api/items/items.ts', "import('uWebSockets.js')", /only server\/http may know uWebSockets.js/],
    ['compiler/compile/read.ts', "import Grammar from 'libpg-query';", /only compiler\/sql may know libpg-query/],
    ['compiler/sql/verify.ts', "import Grammar from 'libpg-query';", null],
    ['compiler/plan/read.ts', "import { test } from '../../../test/support.js';", /leaves src/],
    ['basement/boiler.ts', "import { forbidden } from '../base/errors.js';", /no part of the house/],
    ['compiler/plan/read.ts', "import { heat } from '../../basement/boiler.js';", /no part of the house/],
    ['server/attic/a.ts', "import { sql } from '../postgres/pool.js';", /no folder of server/],
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
  return importsOf(source).flatMap((specifier) => {
    const complaint = specifier.startsWith('.')
      ? judgeImport(source.path, targetOf(source, specifier))
      : judgePackage(folderOf(source.path), specifier);
    return complaint === null ? [] : [`${source.path} imports ${specifier}: ${complaint}`];
  });
}

function targetOf(source: Source, specifier: string): string {
  return posix.join(posix.dirname(source.path), specifier).replace(/\.js$/, '');
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

function judgeImport(path: string, target: string): string | null {
  if (target.startsWith('..')) return 'it leaves src';
  const [part, goal] = [partOf(path), partOf(target)];
  for (const each of [part, goal]) if (!PARTS.includes(each)) return `${each} is no part of the house`;
  if (folderOf(path) === APART && folderOf(target) !== APART && goal !== 'base' && !MANIFEST.test(path))
    return `${APART} may import base alone`;
  if (part === goal) return judgeFolders(part, path, target);
  if (goal === 'speed' && path !== NAMES_SPEED) return `only ${NAMES_SPEED} may know speed`;
  if (PARTS.indexOf(goal) > PARTS.indexOf(part)) return null;
  return `it leads to ${folderOf(target)}, which lies above ${folderOf(path)}`;
}

function judgeFolders(part: string, path: string, target: string): string | null {
  const [from, to] = [path, target].map((each) => each.replace(/\.ts$/, '').split('/')[1] ?? '') as [string, string];
  if (from === to) return null;
  if (part === 'features') return NEEDS.get(from)?.includes(to) ? null : `${from} does not need ${to}`;
  const order = FOLDERS[part];
  if (order === undefined) return null;
  const [level, goal] = [from, to].map((each) => order.findIndex((row) => row.includes(each))) as [number, number];
  if (level < 0 || goal < 0) return `${level < 0 ? from : to} is no folder of ${part}`;
  return goal > level ? null : `it leads to ${part}/${to}, which lies above ${part}/${from}`;
}

function judgePackage(folder: string, specifier: string): string | null {
  const name = specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/');
  const owner = KNOWN_ONLY_TO[name];
  return owner === undefined || owner === folder ? null : `only ${owner} may know ${name}`;
}

/** main.ts and index.ts belong to `app`. */
function partOf(path: string): string {
  return path.includes('/') ? (path.split('/')[0] ?? '') : 'app';
}

function folderOf(path: string): string {
  return path.split('/').slice(0, -1).slice(0, 2).join('/');
}
