/**
 * A feature can be deleted: with its folder and its line in app/features.ts, the rest compiles, starts and answers. The features that
 * need it are deleted with it. So can `speed`, with its line in app/speed.ts. Two features are tried by turns, a pair each day; `DELETED_FEATURES=each` tries each alone.
 */
import { execFile } from 'node:child_process';
import { cp, mkdir, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { features } from '../../src/app/features.js';
import { packagePath } from '../../src/base/package-files.js';
import type { Feature } from '../../src/server/feature/feature.js';
import { ADMIN_TOKEN, createLibrary, get, makeFolder, startDatabase, waitFor } from '../support/service.js';
import { startProgram } from '../support/started-program.js';

/** Files outside of its folder that a feature is deleted with. */
const OUTSIDE: Readonly<Record<string, readonly string[]>> = { program: ['src/index.ts'] };

const run = promisify(execFile);
const all: readonly Feature[] = features;
const deletable = [...all.map(({ name }) => name), 'speed'];
const DAY_MS = 86_400_000;

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'without_features');

t.test('each folder of features has its line, and each line its folder', async (t) => {
  const entries = await readdir(packagePath('src', 'features'), { withFileTypes: true });
  t.strictSame(
    all.map(({ name }) => name),
    entries
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name)
      .sort(),
  );
  for (const name of all.map((feature) => feature.name))
    t.match(await readFile(packagePath('src', 'app', 'features.ts'), 'utf8'), lineOf(name), name);
});

for (const names of chosen())
  t.test(`the service compiles, starts and answers without ${names.join(' and ')}`, async (t) => {
    const folder = await copyWithout(withDependents(names));
    const compiler = packagePath('node_modules', 'typescript', 'bin', 'tsc');
    const errors = await run(process.execPath, [compiler, '-p', join(folder, 'tsconfig.json')], { cwd: folder }).then(
      () => '',
      ({ stdout }: { readonly stdout: string }) => stdout,
    );
    t.equal(errors, '', 'it compiles');
    await run(process.execPath, [join(folder, 'build.mjs'), '--package'], { cwd: folder });
    const service = await startProgram(join(folder, 'dist', 'src', 'main.js'), {
      DATABASE_URL: databaseUrl,
      ADMIN_TOKEN,
      PORT: '0',
      LIVE: 'triggers',
      READ_CACHE_SIZE: keepsResults(names) ? '16mb' : '0',
    });
    try {
      const { status, json } = await get(service, '/items/articles?limit=1&fields=*.*', { token: ADMIN_TOKEN });
      t.equal(status, 200, 'it answers');
      t.match(json, { data: [{ id: /./ }] });
      const isHit = async (): Promise<boolean> => {
        const { headers } = await get(service, '/items/articles/1?fields=id', { token: ADMIN_TOKEN });
        return headers['cache-status'] === 'lateral; hit';
      };
      if (keepsResults(names)) await t.resolves(waitFor(isHit, 10_000), 'it answers from memory');
      for (const { name: resource } of tablesOf(names)) {
        const answer = await get(service, `/items/service_${resource}`, { token: ADMIN_TOKEN });
        t.equal(answer.status, 403, `${resource} stays hidden`);
      }
    } finally {
      await service.stop();
    }
  });

/** Results stay in memory until the stream of changes reports a change. */
function keepsResults(names: readonly string[]): boolean {
  return !names.includes('speed') && !names.includes('change-stream');
}

/** The tables that requests could read. */
function tablesOf(names: readonly string[]) {
  return all.filter(({ name }) => names.includes(name)).flatMap(({ tables }) => tables?.resources ?? []);
}

function chosen(): readonly (readonly string[])[] {
  const given = process.env['DELETED_FEATURES'];
  if (given === 'each') return deletable.map((name) => [name]);
  if (given !== undefined) return [given.split(',')];
  const day = Math.floor(Date.now() / DAY_MS);
  return [[0, 1].map((position) => deletable[(2 * day + position) % deletable.length] ?? '')];
}

/** The features, and those that need them. */
function withDependents(names: readonly string[]): ReadonlySet<string> {
  const deleted = new Set(names);
  const needsDeleted = ({ needs = [] }: Feature): boolean => needs.some(({ name }) => deleted.has(name));
  for (let size = -1; size !== deleted.size; ) {
    size = deleted.size;
    for (const feature of all) if (needsDeleted(feature)) deleted.add(feature.name);
  }
  return deleted;
}

async function copyWithout(deleted: ReadonlySet<string>): Promise<string> {
  const folder = await makeFolder();
  for (const name of ['src', 'sql', 'package.json', 'package-lock.json', 'build.mjs'])
    await cp(packagePath(name), join(folder, name), { recursive: true });
  await symlink(packagePath('node_modules'), join(folder, 'node_modules'));
  for (const name of ['dist', 'test', 'bench']) await mkdir(join(folder, name));
  for (const name of deleted)
    for (const path of name === 'speed'
      ? [join('src', 'speed')]
      : [join('src', 'features', name), join('sql', 'features', name), ...(OUTSIDE[name] ?? [])])
      await rm(join(folder, path), { recursive: true, force: true });
  const list = join(folder, 'src', 'app', 'features.ts');
  let text = await readFile(list, 'utf8');
  for (const name of deleted) text = text.replace(lineOf(name), '').replace(entryOf(name), '');
  await writeFile(list, text);
  if (deleted.has('speed'))
    await writeFile(
      join(folder, 'src', 'app', 'speed.ts'),
      "export { plain as speed } from '../server/threads/speed.js';\n",
    );
  const options = { extends: packagePath('tsconfig.json'), include: ['src'], exclude: ['src/compiler/globals.d.ts'] };
  const compilerOptions = {
    rootDir: '.',
    incremental: false,
    tsBuildInfoFile: null,
    typeRoots: [packagePath('node_modules', '@types')],
  };
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ ...options, compilerOptions }));
  return folder;
}

function lineOf(name: string): RegExp {
  return new RegExp(`^import \\{ ${camelCase(name)} \\} from '../features/${name}/feature\\.js';\n`, 'm');
}

function entryOf(name: string): RegExp {
  return new RegExp(`^  ${camelCase(name)},\n`, 'm');
}

function camelCase(name: string): string {
  return name.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
