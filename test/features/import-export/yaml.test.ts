/** YAML that the service writes is read alike by every parser: of version 1.2, of version 1.1, and by PyYAML where it is installed. */
import { spawnSync } from 'node:child_process';
import t from 'tap';
import { parse } from 'yaml';
import { writeYaml, writeYamlInSlices } from '../../../src/base/yaml.js';
import { createDatabase, get, startDatabase, startTestService, withSql } from '../../support/service.js';

const WORDS = [
  ...['yes', 'No', 'on', 'OFF', 'y', 'n', 'true', '~', 'null', '2024-01-01', '2024-1-1 10:00:00', '12:30', '190:20:30'],
  ...[
    '2001-12-14t21:59:43.10-05:00',
    '017',
    '08',
    '0o17',
    '0x1F',
    '0b101',
    '1_000',
    '1,000',
    '.inf',
    '.NaN',
    '+1',
    '1.',
  ],
  ...[
    '=',
    '<<',
    '1e5',
    '685.230_15e+03',
    '-',
    '---',
    '!x',
    '&a',
    '*a',
    '@a',
    '%a',
    'a: b',
    'a #b',
    '',
    '  a',
    '\t',
    'a\tb',
  ],
  ...[
    '\u0085',
    'a\u2028b',
    '\ufeffx',
    'a\nb\u0085c\n',
    'line\n\ttab\n',
    '\nx',
    'é ✓ 😀',
    'a\\\u0085',
    'a\r\nb',
    '\u0007',
    '\x7f',
  ],
];

function randomWords(count: number): string[] {
  let seed = 7;
  const next = (most: number): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((seed / 2_147_483_648) * most);
  };
  const alphabet = [...'0123456789:-_.,+eExobTtZnyYNf~=<>!&*@%#|? \t\n"\'\\ax\u0085\u2028'];
  const word = (): string => Array.from({ length: 1 + next(7) }, () => alphabet[next(alphabet.length)]).join('');
  return Array.from({ length: count }, word);
}

const READ = 'import sys, json, yaml; json.dump(yaml.safe_load(sys.stdin.buffer.read().decode("utf8")), sys.stdout)';

/** What PyYAML makes of a text; null where there is none. */
function readByPython(text: string): unknown {
  if (spawnSync('python3', ['-c', 'import yaml']).status !== 0) return null;
  const { stdout, stderr, status } = spawnSync('python3', ['-c', READ], { input: text, maxBuffer: 1e8 });
  if (status !== 0) throw new Error(String(stderr));
  return JSON.parse(String(stdout));
}

t.test('texts stay texts, as values and as keys', async (t) => {
  const words = [...WORDS, ...randomWords(1_000)];
  const data = { words, keys: Object.fromEntries(words.map((word, index) => [word, index])), none: null, yes: true };
  const text = writeYaml(data);
  t.strictSame(parse(text), data, 'version 1.2');
  t.strictSame(parse(text, { version: '1.1' }), data, 'version 1.1');
  const read = readByPython(text);
  if (read === null) t.comment('PyYAML is not installed: not compared with it');
  else t.strictSame(read, data, 'PyYAML');
});

t.test('a snapshot and an export keep what looks like dates, booleans and numbers', async (t) => {
  const server = await startDatabase();
  const databaseUrl = await createDatabase(server, 'yaml');
  await withSql(databaseUrl, async (sql) => {
    await sql`create table "on" (id serial primary key, "no" text default 'yes', "y" text default '2024-01-01')`;
    await sql`comment on table "on" is '12:30'`;
    await sql`insert into "on" ("no", "y") values ('off', '017')`;
  });
  const service = await startTestService({ databaseUrl });
  const snapshot = await get(service, '/schema/snapshot');
  const file = await get(service, '/schema/snapshot?export=yaml');
  const exported = await get(service, '/items/on?export=yaml');
  t.match(file.text, /- collection: "on"\n[\s\S]*comment: "12:30"\n[\s\S]*default_value: "2024-01-01"\n/);
  t.equal(exported.text, '- id: 1\n  "no": "off"\n  "y": "017"\n');
  const { data } = snapshot.json as { data: unknown };
  t.strictSame(parse(file.text, { version: '1.1' }), data);
  const read = readByPython(file.text);
  if (read !== null) t.strictSame(read, data);
});

t.test('numbers keep their digits wherever they stand', async (t) => {
  const server = await startDatabase();
  const databaseUrl = await createDatabase(server, 'yaml_digits');
  await withSql(databaseUrl, async (sql) => {
    await sql.unsafe(`
      create type measure as (size numeric, unit text);
      create table readings (id int primary key, doc jsonb, raw json, list numeric[], measure measure);
      insert into readings values (1, '{"a": [${LONG}, -0.10]}', '[1e5, 1e400, 2E-7, 1.50, 0.0000001]', '{${LONG},1.50}', row(${LONG}, 'm'))`);
  });
  const service = await startTestService({ databaseUrl });
  for (const format of ['yaml', 'xml', 'csv']) {
    const { text } = await get(service, `/items/readings?export=${format}`);
    t.equal(text.split(LONG).length, 4, `${format}: ${text}`);
    t.match(text, /-0\.10\b[\s\S]*1\.50\b[\s\S]*1\.50\b/, format);
  }
  const { text } = await get(service, '/items/readings?export=yaml&fields=raw');
  t.equal(text, '- raw:\n    - 100000\n    - 1.0e+400\n    - 2.0e-7\n    - 1.50\n    - 1.0e-7\n');
  const numbers = [{ raw: [100_000, Infinity, 2e-7, 1.5, 1e-7] }];
  t.strictSame(parse(text), numbers);
  t.strictSame(parse(text, { version: '1.1' }), numbers);
  const small = '- raw:\n    - 2.0e-7\n';
  t.strictSame(readByPython(small) ?? [{ raw: [2e-7] }], [{ raw: [2e-7] }]);
});

const LONG = '12345678901234567890.1234567890123';

t.test('lists that are written in slices are the same text', async (t) => {
  const texts = [...WORDS, 'a\n\n  b\n', `${'long '.repeat(30)}\n\nline\t"`, ' \n x', 'a\n\n\n'];
  const entry = (text: string) => ({ text, list: [text, { text }], [text || 'empty']: null });
  const data = { version: 1, words: texts.map(entry), none: [], all: Array.from({ length: 50 }, () => [...texts]) };
  t.equal(await writeYamlInSlices(data), writeYaml(data));
});
