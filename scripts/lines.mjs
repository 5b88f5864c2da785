/** Prints the lines of each part of src and of each feature, with the budget of the part. `npm run check` calls it. */
import { readdir, readFile } from 'node:fs/promises';
import { dirname, join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const SRC = join(dirname(dirname(fileURLToPath(import.meta.url))), 'src');
/** Lines that a part may have. The first three count together. */
const CORE = ['compiler', 'server', 'base'];
const CORE_BUDGET = 48_500;
const BUDGETS = { app: 1_500, live: 6_000 };
const FEATURE_BUDGET = 5_000;

const parts = new Map();
const features = new Map();
for (const entry of await readdir(SRC, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || !entry.name.endsWith('.ts')) continue;
  const path = join(entry.parentPath, entry.name);
  const [part, name] = path.slice(SRC.length + 1).split(sep);
  const lines = (await readFile(path, 'utf8')).split('\n').length - 1;
  const add = (counts, key) => counts.set(key, (counts.get(key) ?? 0) + lines);
  add(parts, part);
  if (part === 'features') add(features, name);
}
const sum = (names) => names.reduce((total, name) => total + (parts.get(name) ?? 0), 0);
const show = (name, lines, budget) =>
  console.log(
    `${name.padEnd(26)}${String(lines).padStart(7)}${budget === undefined ? '' : ` of ${budget}${lines > budget ? ', too many' : ''}`}`,
  );
for (const [name, lines] of [...parts].sort()) show(name, lines, BUDGETS[name]);
for (const [name, lines] of [...features].sort()) show(`  ${name}`, lines, BUDGETS[name] ?? FEATURE_BUDGET);
show(CORE.join(' + '), sum(CORE), CORE_BUDGET);
show('src', sum([...parts.keys()]));
