/** Snapshots as files: JSON and YAML, over HTTP and with `lateral schema snapshot | diff | apply`. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { parse, stringify } from 'yaml';
import { runCommand } from '../../support/command.js';
import {
  createDatabase,
  databaseUrl,
  get,
  makeFolder,
  request,
  runProgram,
  startDatabase,
  withSql,
} from '../../support/service.js';
import { demoScript, openService, snapshotOf } from './snapshot/support.js';

const server = await startDatabase();
const demo = await openService(server, 'demo', demoScript);

t.test('JSON and YAML, as a body, a form and a file of the command line', async (t) => {
  const folder = await makeFolder();
  const original = await snapshotOf(demo);
  const yaml = await get(demo, '/schema/snapshot?export=yaml');
  const whole = await get(demo, '/schema/snapshot?export=yaml&objects=true');
  t.match(yaml.headers, { 'content-type': /yaml/, 'content-disposition': /snapshot\.yaml/ });
  t.strictSame(parse(yaml.text), original);
  t.strictSame(JSON.parse((await get(demo, '/schema/snapshot?export=json')).text), original);
  t.match(
    await request(demo, 'POST', '/schema/diff', { headers: { 'content-type': 'application/yaml' }, body: yaml.text }),
    { status: 204 },
  );
  const form = `--edge\r\ncontent-disposition: form-data; name="file"; filename="snapshot.yaml"\r\ncontent-type: text/yaml\r\n\r\n${yaml.text}\r\n--edge--\r\n`;
  const uploaded = await request(demo, 'POST', '/schema/diff', {
    headers: { 'content-type': 'multipart/form-data; boundary=edge' },
    body: form,
  });
  t.match(uploaded, { status: 204 });

  const source = { DATABASE_URL: databaseUrl(server, 'demo') };
  const target = { DATABASE_URL: await createDatabase(server, 'command') };
  const file = join(folder, 'snapshot.yaml');
  t.match(await runProgram(['schema', 'snapshot', file], source), {
    code: 0,
    complaints: /^9 collections, 46 fields, 7 relations written/,
  });
  t.equal(await readFile(file, 'utf8'), whole.text, 'the file is what the service answers');
  const printed = await runCommand(['schema', 'snapshot', '--json'], source);
  t.strictSame(JSON.parse(printed.output), parse(whole.text));

  t.match(await runCommand(['schema', 'diff', file], source), { code: 0, output: 'No differences.\n' });
  t.match(await runProgram(['schema', 'diff', '-'], target, printed.output), {
    code: 2,
    output: /^ {2}\+ collection articles\n[\s\S]* {2}\+ relation /,
  });
  t.match(await runCommand(['schema', 'apply', file, '--dry-run'], target), {
    code: 0,
    output: /\+ field authors\.email\n/,
  });
  t.match(await runCommand(['schema', 'apply', file], target), { code: 0, output: /\nApplied\.\n$/ });
  t.equal((await runCommand(['schema', 'snapshot'], target)).output, whole.text, 'the same there');

  const smaller = { ...original, collections: original.collections.slice(0, -1) };
  const gone = original.collections.at(-1)?.['collection'];
  smaller.fields = original.fields.filter(
    ({ collection, field }) => collection !== gone && !(collection === 'articles' && field === 'tags'),
  );
  smaller.relations = original.relations.filter((each) => each['related_collection'] !== gone);
  await writeFile(file, stringify(smaller));
  t.match(await runCommand(['schema', 'apply', file], target), {
    code: 1,
    output: / - collection tags\n/,
    complaints: /--yes/,
  });
  t.match(await runCommand(['schema', 'apply', file, '--yes'], target), { code: 0, output: /Applied/ });

  const wrong: [words: string[], outcome: object][] = [
    [['--help'], { code: 0, output: /^Usage: lateral schema snapshot/ }],
    [['upload'], { code: 2, complaints: /snapshot, diff or apply/ }],
    [['diff'], { code: 1, complaints: /a file is needed/ }],
    [['diff', join(folder, 'none')], { code: 1, complaints: /cannot be read/ }],
  ];
  const outcomes = await Promise.all(wrong.map(([words]) => runCommand(['schema', ...words], target)));
  for (const [position, [words, outcome]] of wrong.entries()) t.match(outcomes[position], outcome, words.join(' '));
  await writeFile(file, 'version: 1');
  t.match(await runCommand(['schema', 'apply', file], target), {
    code: 1,
    complaints: /^lateral: Invalid payload[^\n]*\n$/,
  });
});

async function fileOf(snapshot: string): Promise<string> {
  const file = join(await makeFolder(), 'snapshot.yaml');
  await writeFile(file, snapshot);
  return file;
}

t.test('types that list their values, the empty text among them', async (t) => {
  const source = { DATABASE_URL: await createDatabase(server, 'moods') };
  const target = { DATABASE_URL: await createDatabase(server, 'moods_target') };
  await withSql(source.DATABASE_URL, (sql) =>
    sql
      .unsafe("create type mood as enum ('', 'glad'); create table days (id int primary key, mood mood default '')")
      .simple(),
  );
  const { output } = await runCommand(['schema', 'snapshot'], source);
  t.match(output, /enum_values:\n +- ""\n +- glad\n/);
  const file = await fileOf(output);
  t.match(await runCommand(['schema', 'diff', file], target), { code: 2, output: /\+ field days\.mood/ });
  t.match(await runProgram(['schema', 'apply', '-'], target, output), { code: 0, output: /Applied/ });
  t.equal((await runCommand(['schema', 'snapshot'], target)).output, output, 'the same there');
});

t.test('a type that the target does not have is named with the fields that have it', async (t) => {
  const source = { DATABASE_URL: await createDatabase(server, 'domains') };
  const target = { DATABASE_URL: await createDatabase(server, 'domains_target') };
  const types = `create domain year as integer check (value > 1900); create type "Odd pair" as (one int, two text);
    create type mood as enum ('glad');`;
  await withSql(source.DATABASE_URL, (sql) =>
    sql
      .unsafe(`${types}
        create table film (id int primary key, release_year year, prices numeric(9,2)[], mood mood, moods mood[], stamp timestamp(3));
        create table series (id int primary key, begun year, years year[], pair "Odd pair" default row(1, 'a'), title varchar(9))`)
      .simple(),
  );
  const { output } = await runCommand(['schema', 'snapshot'], source);
  // An older snapshot.
  const file = await fileOf(stringify({ ...parse(output), objects: undefined }));
  t.match(await runCommand(['schema', 'apply', file], target), {
    code: 1,
    complaints:
      /the type "year" of "film\.release_year", "series\.begun", "series\.years", nor the type "Odd pair" of "series\.pair"/,
  });
  t.match((await runCommand(['schema', 'snapshot'], target)).output, /collections: \[\]/, 'nothing was made');
  await withSql(target.DATABASE_URL, (sql) => sql.unsafe(types).simple());
  t.match(await runCommand(['schema', 'apply', file], target), { code: 0, output: /Applied/ });
  t.match(await runCommand(['schema', 'apply', await fileOf(output)], target), {
    code: 0,
    output: /default series\.pair/,
  });
  t.equal((await runCommand(['schema', 'snapshot'], target)).output, output, 'the same there');
});
