/** Several test files in one process: each has its own result, and an error outside of an assertion fails the test that runs. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { packagePath } from '../../src/base/package-files.js';
import { makeFolder } from '../support/service.js';

const FILES: Readonly<Record<string, string>> = {
  first: "t.teardown(() => console.log('# first ends')); t.test('passes', async (t) => t.equal(t.name, 'passes'));",
  thrown:
    "t.test('throws late', async () => { setTimeout(() => { throw new Error('a late error'); }); await wait(50); });",
  rejected: "t.test('rejects', async (t) => { Promise.reject(new Error('unhandled')); await wait(50); t.pass(); });",
  broken: "throw new Error('at the top');",
  last: "t.test('named by its file', async (test) => test.equal(t.name, 'last'));",
};

t.test('a file fails alone, and its teardowns run before the next file', async (t) => {
  const { output, code } = await runGroup(Object.keys(FILES));
  t.strictSame(output.match(/^(not )?ok \d+ - \w+/gm), [
    'ok 1 - first',
    'not ok 2 - thrown',
    'not ok 3 - rejected',
    'not ok 4 - broken',
    'ok 5 - last',
  ]);
  t.match(output, /not ok 1 - a late error/);
  t.match(output, /not ok \d - unhandled/);
  t.ok(output.indexOf('# first ends') < output.indexOf('# Subtest: thrown'), 'in time');
  t.not(code, 0);
});

t.test('a group without failures ends well', async (t) => {
  t.match(await runGroup(['first', 'last']), { code: 0, output: /^1\.\.2$/m });
});

async function runGroup(names: readonly string[]): Promise<{ readonly output: string; readonly code: unknown }> {
  const folder = await makeFolder();
  const header = `import t from '${packagePath('dist', 'node_modules', 'tap', 'index.js')}';
    const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));\n`;
  await writeFile(join(folder, 'package.json'), '{"type":"module"}');
  for (const name of names) await writeFile(join(folder, `${name}.test.js`), header + FILES[name]);
  const paths = names.map((name) => join(folder, `${name}.test.js`));
  return new Promise((resolve) => {
    execFile(process.execPath, [packagePath('dist', 'test', 'group.js'), ...paths], (error, output) =>
      resolve({ output, code: error?.code ?? 0 }),
    );
  });
}
