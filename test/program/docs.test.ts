/**
 * The documentation agrees with the code: the table of options, the plot of the bench, the targets of links, and the files that it names.
 * `npm run docs:generate` rewrites the table and the plot.
 */
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import t from 'tap';
import { drawFigure } from '../../bench/report/figure.js';
import { options } from '../../src/app/options.js';
import { packagePath } from '../../src/base/package-files.js';
import type { OptionRow } from '../../src/server/config/config.js';
import { topicsOf } from '../../src/server/config/option-topics.js';
import { SUITES } from '../suites.js';
import { readPages } from './docs/pages.js';

const MAX_README_LINES = 150;
const MAX_FOLDER_README_LINES = 10;
const RENEW = 'npm run docs:generate rewrites it';

t.test('the table in docs/configuration.md lists the options as they are', async (t) => {
  const path = packagePath('docs', 'configuration.md');
  const text = await readFile(path, 'utf8');
  const row = ({ name, initial, about }: OptionRow): string =>
    `| \`${name}\` | ${initial && `\`${initial}\``} | ${about.replaceAll('<', '&lt;')} |`;
  const table = topicsOf(options.rows())
    .map(({ title, rows }) =>
      [`\n## ${title}\n`, '| option | default | |', '|---|---|---|', ...rows.map(row)].join('\n'),
    )
    .join('\n');
  const current = text.replace(
    /(<!-- options -->\n)[\s\S]*(<!-- \/options -->)/,
    (_, open, close) => `${open}${table}\n${close}`,
  );
  if (process.env['UPDATE_GOLDEN']) await writeFile(path, current);
  else t.equal(text, current, RENEW);
});

t.test('the plot in docs/bench.svg shows the figures of bench/report.md', async (t) => {
  const path = packagePath('docs', 'bench.svg');
  const current = drawFigure(await readFile(packagePath('bench', 'report.md'), 'utf8'));
  if (process.env['UPDATE_GOLDEN']) await writeFile(path, current);
  else t.equal(await readFile(path, 'utf8'), current, RENEW);
});

t.test('each suite of tests has a script, and its files exist', async (t) => {
  const { scripts } = JSON.parse(await readFile(packagePath('package.json'), 'utf8'));
  const named = Object.keys(scripts).flatMap((name) => (name.startsWith('test:') ? [name.slice('test:'.length)] : []));
  t.strictSame(named.sort(), Object.keys(SUITES).sort());
  const files = new Set((await readdir(packagePath('test'), { recursive: true })).map((path) => basename(path)));
  const wanted = Object.values(SUITES).flatMap(({ steps }) => steps.flatMap((step) => step.files ?? []));
  t.strictSame(
    wanted.filter((name) => !files.has(`${name}.test.ts`)),
    [],
  );
});

t.test('the README is short', async (t) => {
  const lines = (await readFile(packagePath('README.md'), 'utf8')).trimEnd().split('\n').length;
  t.ok(lines <= MAX_README_LINES, `${lines} lines`);
});

t.test('links lead to files and headings that exist', async (t) => {
  const pages = await readPages();
  const anchors = new Map(pages.map(({ path, text }) => [path, anchorsOf(text)]));
  const broken: string[] = [];
  for (const { path, text } of pages) {
    for (const [, target = ''] of text.matchAll(/\]\((?!https?:)([^)\s]+)\)/g)) {
      const [file = '', anchor] = target.split('#');
      const goal = file === '' ? path : join(dirname(path), file);
      const exists = await stat(packagePath(goal)).then(
        () => true,
        () => false,
      );
      if (!exists) broken.push(`${path}: ${target}`);
      if (anchor !== undefined && !anchors.get(goal)?.has(anchor)) broken.push(`${path}: ${target}`);
    }
  }
  t.strictSame(broken, []);
});

t.test('files that are named exist', async (t) => {
  const missing: string[] = [];
  for (const { path, text } of await readPages()) {
    for (const [name] of text.matchAll(/(?<![\w/.-])(?:src|sql|test)\/[\w./-]*\w/g)) {
      const exists = await stat(packagePath(name)).then(
        () => true,
        () => false,
      );
      if (!exists) missing.push(`${path}: ${name}`);
    }
  }
  t.strictSame(missing, []);
});

t.test('files that are named without their folder exist', async (t) => {
  const known = new Set((await listFiles('src', 'test', 'bench', 'web', 'sql')).map((path) => basename(path)));
  const missing = (await readPages()).flatMap(({ path, text }) =>
    [...text.matchAll(/`([\w-]+\.tsx?)`/g)].flatMap(([, name = '']) => (known.has(name) ? [] : [`${path}: ${name}`])),
  );
  t.strictSame(missing, []);
});

t.test('each folder has a README of at most ten lines, and the files in it exist', async (t) => {
  const rooms = (await readdir(packagePath('src'), { withFileTypes: true })).filter((entry) => entry.isDirectory());
  const readmes = (await listFiles('src', 'bench', 'web', 'sql', 'test')).filter((path) => path.endsWith('/README.md'));
  const needed = ['bench', 'web', 'sql', 'test', ...rooms.map(({ name }) => `src/${name}`)].map(
    (each) => `${each}/README.md`,
  );
  t.strictSame(
    needed.filter((path) => !readmes.includes(path)),
    [],
    'folders without one',
  );
  const problems = await Promise.all(readmes.map(problemsOfReadme));
  t.strictSame(problems.flat(), []);
});

t.test('every page of docs/ is reached from the README or from the list of decisions', async (t) => {
  const pages = await readPages();
  const linked = new Set(
    pages
      .filter(({ path }) => path === 'README.md' || path === 'docs/decisions/README.md')
      .flatMap(({ path, text }) =>
        [...text.matchAll(/\]\(([^)#\s]+)/g)].map((match) => join(dirname(path), match[1] ?? '')),
      ),
  );
  const missing = pages.map(({ path }) => path).filter((path) => path !== 'README.md' && !linked.has(path));
  t.strictSame(missing, []);
});

t.test('the site lists every page of docs/', async (t) => {
  const site = await readFile(packagePath('site', '.vitepress', 'config.mjs'), 'utf8');
  const names = (await readPages()).map(({ path }) => /^docs\/([\w-]+)\.md$/.exec(path)?.[1] ?? '');
  t.strictSame(
    names.filter((name) => name !== '' && !site.includes(`'${name}')`)),
    [],
  );
});

async function problemsOfReadme(path: string): Promise<string[]> {
  const text = await readFile(packagePath(path), 'utf8');
  const lines = text.trimEnd().split('\n').length;
  const names = [...text.matchAll(/`([\w/.-]+\.(?:tsx?|sql|mjs))`/g)].map(([, name = '']) => name);
  const missing = await Promise.all(
    names.map(async (name) => {
      const places = [join(dirname(path), name), name].map((place) => packagePath(place));
      const found = await Promise.all(places.map((place) => stat(place).catch(() => null)));
      return found.every((each) => each === null) ? [`${path}: ${name} does not exist`] : [];
    }),
  );
  return [...(lines > MAX_FOLDER_README_LINES ? [`${path}: ${lines} lines`] : []), ...missing.flat()];
}

/** Paths from the root of the package. */
async function listFiles(...folders: readonly string[]): Promise<string[]> {
  const lists = await Promise.all(
    folders.map((folder) => readdir(packagePath(folder), { recursive: true, withFileTypes: true })),
  );
  const files = lists.flat().filter((entry) => entry.isFile());
  return files.map((entry) => relative(packagePath(), join(entry.parentPath, entry.name)));
}

/** The anchors that viewers of Markdown derive from headings. */
function anchorsOf(text: string): Set<string> {
  const prose = text.replaceAll(/^```[\s\S]*?^```$/gm, '');
  const headings = [...prose.matchAll(/^#+ (.*)$/gm)].map((match) => match[1] ?? '');
  return new Set(
    headings.map((heading) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
        .replaceAll(' ', '-'),
    ),
  );
}
