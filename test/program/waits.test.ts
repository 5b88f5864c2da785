/** Tests wait for conditions: a fixed wait is too long on a fast machine and too short on a busy one. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { packagePath } from '../../src/base/package-files.js';

/** Milliseconds. Shorter ones pause between two questions. */
const LEAST = 100;
const WAITS = /(?:\bsleep\(|\bsetTimeout\(\s*(?:resolve|\(\) => resolve\(\)),)\s*([\d_]+)/g;

t.test('no test waits a fixed time, unless it says with passTime why', async (t) => {
  const root = packagePath('test');
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  const files = entries.filter(({ name }) => name.endsWith('.ts')).map((entry) => join(entry.parentPath, entry.name));
  t.ok(files.length > 100, `${files.length} files were read`);
  const texts = await Promise.all(files.map(async (file) => [file, await readFile(file, 'utf8')] as const));
  t.strictSame(
    texts.flatMap(([file, text]) => waitsOf(text).map((line) => `${file.slice(root.length + 1)}: ${line}`)),
    [],
  );
});

t.test('a fixed wait is found', async (t) => {
  t.strictSame(waitsOf(`await ${'sleep'}(1_000);`).length, 1);
  t.strictSame(waitsOf(`${'setTimeout'}(resolve, 100)`).length, 1);
  t.strictSame(waitsOf('await sleep(20);\nawait Promise.race([done, sleep(5_000)]);\nselect pg_sleep(100)'), []);
});

/** The lines of them. In a race, time is a limit. */
function waitsOf(text: string): string[] {
  return text
    .split('\n')
    .filter((line) => !line.includes('Promise.race('))
    .filter((line) => [...line.matchAll(WAITS)].some(([, time = '']) => Number(time.replaceAll('_', '')) >= LEAST))
    .map((line) => line.trim());
}
