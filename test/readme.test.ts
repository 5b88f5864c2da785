/** The table of options in the README is the one the service has. */
import { readFile, writeFile } from 'node:fs/promises';
import t from 'tap';
import { optionRows } from '../src/config.js';
import { packagePath } from '../src/files.js';

t.test('the README lists the options as they are', async (t) => {
  const path = packagePath('README.md');
  const text = await readFile(path, 'utf8');
  const rows = optionRows().map(
    ({ name, initial, about }) => `| \`${name}\` | ${initial && `\`${initial}\``} | ${about} |`,
  );
  const table = ['| option | default | |', '|---|---|---|', ...rows].join('\n');
  const current = text.replace(
    /(<!-- options -->\n)[\s\S]*(<!-- \/options -->)/,
    (_, open, close) => `${open}${table}\n${close}`,
  );
  if (process.env.UPDATE_GOLDEN) await writeFile(path, current);
  else t.equal(text, current, 'UPDATE_GOLDEN=1 npm test rewrites it');
});
