/**
 * Imports: JSON, NDJSON and CSV, as bodies, forms and files of the command line; large ones in constant memory, wrong ones
 * without a trace but for the numbers of their rows. And the order of items, which has its own route.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { type IncomingMessage, request as openRequest } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import { runCommand } from '../../support/command.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createDatabase,
  get,
  makeFolder,
  type Outcome,
  request,
  runProgram,
  startDatabase,
  startTestService,
  waitFor,
  ways,
} from '../../support/service.js';

t.setTimeout(300_000);
const MEBIBYTE = 1_048_576;
const START_WITHIN = 60_000;

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'imports');
await (await startTestService({ databaseUrl })).stop();
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql
  .unsafe(`
    create table makers (id serial primary key, name text not null unique);
    create table goods (
      id serial primary key,
      name varchar(40) not null,
      price numeric(10, 2),
      stock integer not null default 7,
      listed boolean,
      made date,
      notes text,
      extra json,
      maker integer references makers (id),
      constraint goods_stock_check check (stock >= 0)
    );
    create table codes (code text primary key, label text);
    create table lines (id integer primary key, label text not null, padding text);
    create table ranks (id serial primary key, name text, sort integer);
    insert into makers (name) values ('first'), ('second');
    insert into service_collections (collection, sort_field) values ('ranks', 'sort');
    insert into service_collections (collection, accountability) values ('lines', null);
    insert into service_fields (collection, field, special) values ('goods', 'extra', 'cast-json'), ('makers', 'goods', 'o2m');
    insert into service_relations (many_collection, many_field, one_collection, one_field) values ('goods', 'maker', 'makers', 'goods');`)
  .simple();
const service = await startTestService({ databaseUrl });
t.beforeEach(() => sql`truncate goods, codes, lines, ranks restart identity`);

const TYPES = { json: 'application/json', ndjson: 'application/x-ndjson', csv: 'text/csv' } as const;

function send(collection: string, type: string, body: string | Buffer, to: { url: string } = service): Promise<Answer> {
  return request(to, 'POST', `/utils/import/${collection}`, { headers: { 'content-type': type }, body });
}

interface Part {
  readonly name: string;
  readonly file?: string;
  readonly type?: string;
  readonly content: string;
}

function form(parts: readonly Part[], boundary = 'the-boundary'): { type: string; body: string } {
  const texts = parts.map(({ name, file, type, content }) => {
    const named = file === undefined ? '' : `; filename="${file}"`;
    const typed = type === undefined ? '' : `Content-Type: ${type}\r\n`;
    return `--${boundary}\r\nContent-Disposition: form-data; name="${name}"${named}\r\n${typed}\r\n${content}\r\n`;
  });
  return { type: `multipart/form-data; boundary=${boundary}`, body: `${texts.join('')}--${boundary}--\r\n` };
}

async function names(): Promise<string[]> {
  return (await sql`select name from goods order by id`).map((row) => row['name']);
}

function rowsOf(answer: Answer): unknown[] {
  const { errors } = answer.json as { errors: { extensions: { rows: unknown } }[] };
  return errors.map(({ extensions }) => extensions.rows);
}

t.test('every format, as a body and as a form', async (t) => {
  const rows = [
    { name: 'plain', price: '1.50', stock: 3, listed: true, made: '2024-02-29', notes: 'two\nlines, "quoted"' },
    { name: 'bäre ✓ 漢字' },
  ];
  const contents = {
    json: JSON.stringify(rows, null, 2),
    ndjson: `${rows.map((row) => JSON.stringify(row)).join('\r\n\r\n')}\n`,
    csv: 'name,price,stock,listed,made,notes\r\nplain,1.50,3,true,2024-02-29,"two\nlines, ""quoted"""\r\nbäre ✓ 漢字,,,,,\r\n',
  };
  const expected = [
    { name: 'plain', price: '1.50', stock: 3, listed: true, made: '2024-02-29', notes: 'two\nlines, "quoted"' },
    { name: 'bäre ✓ 漢字', price: null, stock: 7, listed: null, made: null, notes: null },
  ];
  const check = async (answer: Answer, how: string): Promise<void> => {
    t.match(answer, { status: 200, json: { data: { imported: 2 } } }, how);
    const found = await sql`select name, price, stock, listed, made::text, notes from goods order by id`;
    t.strictSame([...found], expected, how);
    await sql`truncate goods`;
  };
  for (const [format, content] of Object.entries(contents) as [keyof typeof TYPES, string][]) {
    await check(await send('goods', TYPES[format], content), format);
    await check(
      await send('goods', `${TYPES[format].toUpperCase()}; charset=utf-8`, content),
      `${format}, spelt oddly`,
    );
    await check(
      await send('goods', TYPES[format], Buffer.from(`\ufeff${content}`)),
      `${format} with a byte order mark`,
    );
    const typed = form([{ name: 'file', file: 'upload', type: TYPES[format], content }]);
    await check(await send('goods', typed.type, typed.body), `${format} in a form`);
    const untyped = form([
      { name: 'note', content: 'fields may come first' },
      { name: 'file', file: `rows.${format}`, type: 'application/octet-stream', content },
      { name: 'second', file: 'ignored.json', type: TYPES.json, content: '[{"name":"never"}]' },
    ]);
    await check(await send('goods', untyped.type, untyped.body), `${format} known by its ending`);
  }
  for (const empty of ['[]', ' [ ] '])
    t.match(await send('goods', TYPES.json, empty), { json: { data: { imported: 0 } } });
  t.match(await send('goods', TYPES.csv, 'name,price\n'), { status: 200, json: { data: { imported: 0 } } });
});

t.test('pieces of any size: characters and rows torn apart', async (t) => {
  const body = JSON.stringify([
    { name: 'ü"\\[]{},', extra: { nested: ['[', '{', { a: '}' }] } },
    { name: '漢字', extra: [] },
  ]);
  for (const size of [1, 7]) {
    await sql`truncate goods`;
    const bytes = Buffer.from(body);
    const pieces = Array.from({ length: Math.ceil(bytes.length / size) }, (_, n) =>
      bytes.subarray(n * size, (n + 1) * size),
    );
    const answer = await upload(service, 'goods', TYPES.json, trickle(pieces));
    t.match(answer, { status: 200 });
    const found = await sql`select name, extra::text from goods order by id`;
    t.strictSame(
      [...found].map((row) => [row['name'], JSON.parse(row['extra'])]),
      [
        ['ü"\\[]{},', { nested: ['[', '{', { a: '}' }] }],
        ['漢字', []],
      ],
    );
  }
});

t.test('rows with a key that exists are changed, all others made', async (t) => {
  await sql`insert into goods (id, name, stock, notes) values (1, 'one', 1, 'kept'), (2, 'two', 2, 'kept')`;
  await sql`select setval('goods_id_seq', 2)`;
  const rows = [{ id: 2, name: 'changed' }, { name: 'new' }, { id: 50, name: 'supplied' }, { id: 1, stock: 9 }];
  t.match(await send('goods', TYPES.json, JSON.stringify(rows)), { status: 200, json: { data: { imported: 4 } } });
  t.strictSame(
    [...(await sql`select name, stock, notes from goods order by name`)],
    [
      { name: 'changed', stock: 2, notes: 'kept' },
      { name: 'new', stock: 7, notes: null },
      { name: 'one', stock: 9, notes: 'kept' },
      { name: 'supplied', stock: 7, notes: null },
    ],
  );
  const after = await request(service, 'POST', '/items/goods', json({ name: 'after' }));
  t.match(after, { status: 200 });
  t.ok((after.json as { data: { id: number } }).data.id > 50, 'the sequence is ahead of the keys that were supplied');

  t.match(await send('codes', TYPES.csv, 'code,label\na,first\nb,\n'), { status: 200 });
  t.match(await send('codes', TYPES.csv, 'code,label\na,second\nc,third\n'), { status: 200 });
  t.strictSame(
    (await sql`select code, label from codes order by code`).map((row) => [row['code'], row['label']]),
    [
      ['a', 'second'],
      ['b', null],
      ['c', 'third'],
    ],
  );
  const twice = await send('codes', TYPES.ndjson, '{"code":"d","label":"first"}\n{"code":"d","label":"last"}\n');
  t.match(twice, { status: 200, json: { data: { imported: 2 } } });
  t.strictSame(
    [...(await sql`select label from codes where code = 'd'`)],
    [{ label: 'last' }],
    'the last of a key counts',
  );

  const nested = [
    { name: 'with a new maker', maker: { name: 'third' } },
    { name: 'with a maker', maker: 2 },
  ];
  t.match(await send('goods', TYPES.json, JSON.stringify(nested)), { status: 200 });
  t.strictSame(
    (
      await sql`select goods.name, makers.name as maker from goods join makers on makers.id = maker order by goods.id`
    ).map((row) => [row['name'], row['maker']]),
    [
      ['with a new maker', 'third'],
      ['with a maker', 'second'],
    ],
  );
});

t.test('wrong rows are named by their numbers, and nothing is kept', async (t) => {
  const rows: Record<string, unknown>[] = Array.from({ length: 1_300 }, (_, n) => ({ name: `row ${n + 1}` }));
  rows[2] = { name: 'a'.repeat(41) };
  rows[499] = { name: 'x', stock: -1 };
  rows[500] = { name: 'x', stock: 'many' };
  rows[1_000] = { name: 'x', maker: 999 };
  rows[1_299] = { stock: 1 };
  const wrong = [[3], [500], [501], [1_001], [1_300]];
  const texts = {
    json: JSON.stringify(rows),
    ndjson: rows.map((row) => JSON.stringify(row)).join('\n'),
    csv: `name,stock,maker\n${rows.map(({ name = '', stock = '', maker = '' }) => `${name},${stock},${maker}`).join('\n')}`,
  };
  for (const [format, text] of Object.entries(texts) as [keyof typeof TYPES, string][]) {
    const answer = await send('goods', TYPES[format], text);
    t.equal(answer.status, 400);
    t.strictSame(rowsOf(answer), wrong, format);
    t.match(answer.json, {
      errors: [
        { message: /^Row 3: /, extensions: { code: 'FAILED_VALIDATION', field: 'name', type: 'too_long' } },
        { message: /^Row 500: /, extensions: { code: 'FAILED_VALIDATION' } },
        { message: /^Row 501: .*"(0\.)?stock"/, extensions: { code: 'INVALID_PAYLOAD' } },
        { message: /^Row 1001: /, extensions: { code: 'FAILED_VALIDATION', field: 'maker', type: 'foreign_key' } },
        { message: /^Row 1300: /, extensions: { code: 'FAILED_VALIDATION', field: 'name', type: 'required' } },
      ],
    });
    t.strictSame(await names(), []);
  }
  const few = await startTestService({ databaseUrl, MAX_IMPORT_ERRORS: '3' });
  const many = Array.from({ length: 2_000 }, () => '{"name":null}').join('\n');
  const stopped = await send('goods', TYPES.ndjson, many, few);
  t.equal(stopped.status, 400);
  t.strictSame(rowsOf(stopped), [[1], [2], [3]], 'it gives up at MAX_IMPORT_ERRORS');

  const csv = await send('goods', TYPES.csv, 'name,colour\na,red\n');
  t.match(csv, { status: 400, text: /colour/ }, 'an unknown column is named');
  t.match(await send('goods', TYPES.json, '[{"name":"a","colour":"red"}]'), { status: 400, text: /colour/ });
  t.strictSame(await names(), []);
});

t.test('broken files', async (t) => {
  const good = Array.from({ length: 600 }, (_, n) => JSON.stringify({ name: `row ${n + 1}` }));
  const broken: readonly (readonly [keyof typeof TYPES, string | Buffer, RegExp])[] = [
    ['json', `[${good.join(',')},{"name":}]`, /Row 601 /],
    ['json', `[${good.join(',')}`, /ends inside/],
    ['json', `[${good.join(',')},7]`, /Row 601 /],
    ['json', `[${good.join(',')},null]`, /Row 601 /],
    ['json', `[${good.join(',')},[{"name":"x"}]]`, /Row 601 /],
    ['json', `[${good.join(',')},]`, /JSON/],
    ['json', `[,${good.join(',')}]`, /Row 1 /],
    ['json', `[${good.join(',')}}`, /JSON/],
    ['json', `[${good.join(',')}] []`, /JSON array/],
    ['json', '{"name":"x"}', /JSON array/],
    ['json', '"x"', /JSON array/],
    ['json', '', /JSON array/],
    ['ndjson', `${good.join('\n')}\n{"name":\n`, /Row 601 /],
    ['ndjson', `${good.join('\n')}\n[1]\n`, /Row 601 /],
    [
      'ndjson',
      Buffer.concat([Buffer.from(`${good.join('\n')}\n{"name":"`), Buffer.from([0xff, 0xfe]), Buffer.from('"}')]),
      /UTF-8/,
    ],
    ['csv', `name,stock\n${'a,1\n'.repeat(600)}b,2,3\n`, /602/],
    ['csv', `name,stock\n${'a,1\n'.repeat(600)}"b,2\n`, /CSV/],
    ['csv', Buffer.concat([Buffer.from('name\n'), Buffer.from([0x61, 0xff, 0xfe]), Buffer.from('\n')]), /UTF-8/],
  ];
  for (const [format, body, complaint] of broken) {
    await sql`truncate goods`;
    const answer = await send('goods', TYPES[format], body);
    const what = `${format} ${String(body).slice(-20)}`;
    t.match(answer, { status: 400, json: { errors: [{ extensions: { code: 'INVALID_PAYLOAD' } }] } }, what);
    t.match(answer.text, complaint, what);
    t.strictSame(await names(), [], what);
  }
});

t.test('files that cannot be imported', async (t) => {
  for (const type of ['text/plain', 'application/xml', '', 'application/jsonp', 'multipart/mixed; boundary=x'])
    t.match(await send('goods', type, '[]'), {
      status: 415,
      json: { errors: [{ extensions: { code: 'UNSUPPORTED_MEDIA_TYPE' } }] },
    });
  const picture = form([{ name: 'file', file: 'picture.png', type: 'image/png', content: 'png' }]);
  t.match(await send('goods', picture.type, picture.body), { status: 415 });
  t.match(await send('nowhere', TYPES.json, '[]'), { status: 403 });
  t.match(await send('service_users', TYPES.json, '[{"email":"x@example.com"}]'), { status: 403 });
  const headers = { 'content-type': TYPES.json };
  t.match(await request(service, 'POST', '/utils/import/goods', { headers, body: '[]', token: null }), { status: 403 });
  t.match(await request(service, 'POST', '/utils/import/goods', { headers, body: '[]', token: 'x'.repeat(20) }), {
    status: 401,
  });
  t.strictSame(await names(), []);
});

t.test('broken forms are refused, and the service lives on', async (t) => {
  const strong = await launch();
  const whole = form([{ name: 'file', file: 'rows.json', type: TYPES.json, content: '[{"name":"x"}]' }]);
  const forms: readonly (readonly [string, string, string])[] = [
    ['no boundary', 'multipart/form-data', whole.body],
    ['an empty body', whole.type, ''],
    ['no part', whole.type, 'nothing of a form'],
    ['an end and no beginning', whole.type, '--the-boundary--\r\n'],
    ['only fields', ...pair(form([{ name: 'a', content: '1' }]))],
    ['another boundary', 'multipart/form-data; boundary=other', whole.body],
    ['cut in the head of the file', whole.type, whole.body.slice(0, 60)],
    ['cut in the file', whole.type, whole.body.slice(0, whole.body.indexOf('"x"'))],
    ['cut behind the file', whole.type, whole.body.slice(0, whole.body.indexOf(']') + 1)],
  ];
  for (const [what, type, body] of forms) {
    const answer = await send('goods', type, body, strong).catch((error: Error) => error);
    t.match(answer, { status: 400, json: { errors: [{ extensions: { code: 'INVALID_PAYLOAD' } }] } }, what);
    t.strictSame(await names(), [], what);
    if (strong.child.exitCode !== null) return void t.fail(`${what}: the service ended`);
  }
  for (const position of [30, 60, 130, whole.body.length - 25]) {
    await leave(strong, 'goods', whole.type, whole.body.slice(0, position), whole.body.length);
    t.match(await get(strong, '/server/ping'), { text: 'pong' }, `who leaves after ${position} bytes disturbs nobody`);
  }
  const unwanted = form([{ name: 'file', file: 'a.txt', type: 'text/plain', content: 'x'.repeat(1_000) }]);
  await leave(strong, 'goods', unwanted.type, unwanted.body.slice(0, 500), unwanted.body.length);
  await leave(strong, 'nowhere', whole.type, whole.body.slice(0, 130), whole.body.length);
  t.match(await get(strong, '/server/ping'), { text: 'pong' });
  t.strictSame(await names(), []);
});

t.test('a client that leaves in the middle leaves nothing behind', async (t) => {
  const rows = Array.from({ length: 3_000 }, (_, n) => `{"name":"row ${n}","notes":"${'x'.repeat(200)}"}`).join('\n');
  const csv = `name,notes\n${Array.from({ length: 3_000 }, (_, n) => `row ${n},${'x'.repeat(200)}`).join('\n')}`;
  const inForm = form([{ name: 'file', file: 'rows.ndjson', type: TYPES.ndjson, content: rows }]);
  const cases = [[TYPES.ndjson, rows], [TYPES.csv, csv], pair(inForm)] as const;
  for (const [type, body] of cases) {
    const begun = (): Promise<unknown> => waitFor(async () => (await openTransactions()) > 0, 5_000);
    await leave(service, 'goods', type, body.slice(0, -1_000), body.length, begun);
    await waitFor(async () => (await openTransactions()) === 0, 5_000);
    t.strictSame(await names(), [], type);
  }
  t.match(await send('goods', TYPES.ndjson, rows), { status: 200, json: { data: { imported: 3_000 } } });
});

/** IMPORT_ROWS sets the number of rows of the largest import. */
const LARGE = Number(process.env['IMPORT_ROWS'] ?? 50_000);

t.test(`${LARGE} rows pass through little memory`, async (t) => {
  const large = await launch({ IMPORT_MAX_FILE_SIZE: '200mb' });
  await send('lines', TYPES.ndjson, await toText(manyRows(0, 3_000)), large);
  const before = await residentBytes(large.child);
  let highest = before;
  const watch = setInterval(() => {
    residentBytes(large.child).then(
      (bytes) => {
        highest = Math.max(highest, bytes);
      },
      () => {},
    );
  }, 50);
  const start = performance.now();
  const answer = await upload(large, 'lines', TYPES.ndjson, manyRows(0, LARGE));
  clearInterval(watch);
  t.match(answer, { status: 200, json: { data: { imported: LARGE } } });
  const [found] =
    await sql`select count(*)::int as count, sum(id)::text as sum, min(length(padding)) as shortest from lines`;
  t.strictSame({ ...found }, { count: LARGE, sum: String((LARGE * (LARGE - 1)) / 2), shortest: 100 });
  const growth = (highest - before) / MEBIBYTE;
  t.comment(`grew by ${growth.toFixed(1)} MiB in ${((performance.now() - start) / 1_000).toFixed(1)} s`);
  t.ok(growth < 64, `grew by ${growth.toFixed(1)} MiB`);
});

t.test('a huge row, and files above the limit', async (t) => {
  const notes = 'ü'.repeat(4 * MEBIBYTE);
  for (const format of ['json', 'ndjson'] as const) {
    const row = JSON.stringify({ name: format, notes });
    const start = performance.now();
    t.match(await send('goods', TYPES[format], format === 'json' ? `[${row}]` : row), { status: 200 });
    t.ok(performance.now() - start < 8_000, `${format} in ${Math.round(performance.now() - start)} ms`);
  }
  t.match(await send('goods', TYPES.csv, `name,notes\ncsv,"${notes}"\n`), { status: 200 });
  t.strictSame(
    [...(await sql`select name, length(notes) as length from goods order by id`)].map((row) => ({ ...row })),
    ['json', 'ndjson', 'csv'].map((name) => ({ name, length: 4 * MEBIBYTE })),
  );
  const small = await launch({ IMPORT_MAX_FILE_SIZE: '100kb' });
  await sql`truncate goods`;
  const rows = `{"name":"x"}\n`.repeat(20_000);
  const refused = await upload(small, 'goods', TYPES.ndjson, [Buffer.from(rows)]).catch((error: Error) => error);
  if (!(refused instanceof Error)) t.match(refused, { status: 400, text: /IMPORT_MAX_FILE_SIZE/ });
  const inForm = form([{ name: 'file', file: 'rows.ndjson', type: TYPES.ndjson, content: rows }]);
  const second = await upload(small, 'goods', inForm.type, [Buffer.from(inForm.body)]).catch((error: Error) => error);
  if (!(second instanceof Error)) t.match(second, { status: 400, text: /IMPORT_MAX_FILE_SIZE/ });
  t.match(await get(small, '/server/ping'), { text: 'pong' });
  t.strictSame(await names(), []);
});

t.test('an answer before the end of the upload reaches a client that writes first and reads later', async (t) => {
  const patient = await launch();
  const body = `{"name":"x"}\n`.repeat(600_000);
  for (const [collection, type] of [
    ['nowhere', TYPES.ndjson],
    ['goods', 'text/plain'],
  ] as const) {
    const { hostname, port } = new URL(patient.url);
    const socket = connect({ host: hostname, port: Number(port) });
    socket.pause();
    socket.on('error', () => {});
    await once(socket, 'connect');
    const head = `POST /utils/import/${collection} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${ADMIN_TOKEN}\r\n`;
    socket.write(`${head}Content-Type: ${type}\r\nContent-Length: ${body.length}\r\n\r\n`);
    let written = false;
    socket.write(body, () => {
      written = true;
    });
    await waitFor(async () => written || socket.destroyed, 8_000).catch(() => {});
    t.ok(written || socket.destroyed, `${collection} as ${type}: it is not left hanging`);
    socket.destroy();
    t.match(await get(patient, '/server/ping').catch(String), { text: 'pong' }, 'the service lives on');
  }
});

t.test('lateral import', async (t) => {
  const folder = await makeFolder();
  const files = {
    'goods.json': '[{"name":"a"},{"name":"b"}]',
    'goods.csv': '\ufeffname,notes\nc,"x\ny"\n',
    'goods.ndjson': `${Array.from({ length: 1_200 }, (_, n) => `{"name":"row ${n + 1}"}`).join('\n')}\n`,
    'other.jsonl': '{"name":"d"}\n',
    'GOODS.JSON': '[]',
    'wrong.json': '[{"name":"fine"},{"name":null},{"stock":1}]',
    'broken.json': '[{"name":"fine"},{"name":]',
    'column.csv': 'name,colour\na,red\n',
    'goods.xml': '<goods/>',
  };
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  await mkdir(join(folder, 'folder.json'));
  const path = (name: string): string => join(folder, name);

  t.match(await runProgram(['import', path('goods.json')], { DATABASE_URL: databaseUrl }), {
    code: 0,
    output: /^2 rows imported into "goods"$/m,
  });
  t.strictSame(await names(), ['a', 'b']);
  t.match(await run([path('goods.csv'), 'goods', '--log-level', 'error']), {
    code: 0,
    output: /^1 row imported into "goods"$/m,
  });
  t.match(await run([path('other.jsonl'), 'goods']), { code: 0, output: /^1 row imported into "goods"$/m });
  t.strictSame(await names(), ['a', 'b', 'c', 'd']);
  t.match(await run([path('goods.ndjson')]), { code: 0, output: /^1200 rows imported into "goods"$/m });
  t.equal((await names()).length, 1_204);

  await writeFile(path('again.json'), '[{"id":1,"notes":"changed"},{"id":5000,"name":"new"}]');
  const noted = async (): Promise<unknown[]> => [
    ...(await sql`select id, notes from goods where id in (1, 5000) order by id`),
  ];
  const first = await noted();
  t.match(await run([path('again.json'), 'goods', '--on-conflict', 'id', '--resolution', 'ignore']), { code: 1 });
  t.strictSame(await noted(), first, 'a row without a name is no new item, and the other one is undone');
  await writeFile(path('again.json'), '[{"id":1,"name":"z","notes":"changed"},{"id":5000,"name":"new"}]');
  t.match(await run([path('again.json'), 'goods', '--on-conflict', 'id', '--resolution', 'ignore']), {
    code: 0,
    output: /^1 row imported into "goods"$/m,
  });
  t.match(await noted(), [...first, { id: 5000 }], 'what exists is left as it is');
  t.match(await run([path('again.json'), 'goods', '--on-conflict=id']), { code: 0, output: /^2 rows imported/m });
  t.match(await noted(), [{ id: 1, notes: 'changed' }, { id: 5000 }]);

  const failures: readonly (readonly [string[], RegExp])[] = [
    [[], /^lateral: import expects a file: see lateral import --help$/],
    [[path('missing.json'), 'goods'], /^lateral: ".*missing\.json" cannot be read$/],
    [[path('folder.json'), 'goods'], /^lateral: .*folder\.json.*$/],
    [[path('goods.xml')], /^lateral: ".*goods\.xml" is not a \.json, \.ndjson, \.jsonl or \.csv file$/],
    [[path('other.jsonl')], /^lateral: .*collection "other".*$/],
    [
      [path('wrong.json'), 'goods'],
      /^lateral: nothing was imported, 2 rows are invalid:\n {2}row 2: .*"name".*\n {2}row 3: .*"name".*$/,
    ],
    [[path('broken.json'), 'goods'], /^lateral: Invalid payload\. The file ends inside its JSON array\.$/],
    [[path('column.csv'), 'goods'], /^lateral: nothing was imported, 1 row is invalid:\n {2}row 1: .*colour".*$/],
    [
      [path('goods.json'), 'goods', '--resolution', 'guess'],
      /^lateral: .*"resolution" must be one of merge, ignore.*$/,
    ],
    [[path('goods.json'), 'goods', '--on-conflict', 'notes'], /^lateral: .*no unique index of "goods".*$/s],
    [[path('goods.json'), 'goods', '--nonsense', '1'], /^lateral: unknown option "--nonsense": see lateral --help$/],
  ];
  for (const [words, complaint] of failures) {
    const { code, complaints } = await run(words);
    const isWrongCommand = words.length === 0 || words.includes('--nonsense');
    t.equal(code, isWrongCommand ? 2 : 1, words.join(' '));
    t.match(complaints.trim(), complaint, words.join(' '));
    t.notMatch(complaints, /\n\s+at /, 'no stack');
  }
  t.equal((await names()).length, 1_205, 'failures leave nothing');
});

t.test('an import that meets a change of its table is repeated', async (t) => {
  await sql`create table shifting (id integer primary key, label text)`;
  t.teardown(() => sql`drop table shifting`);
  await waitFor(async () => (await get(service, '/items/shifting')).status === 200, 10_000);
  const body = JSON.stringify(Array.from({ length: 1_500 }, (_, row) => ({ id: row, label: `${row}` })));
  const statuses: Record<number, number> = {};
  const changing = connectSql(databaseUrl);
  t.teardown(() => changing.end());
  const isWaiting = async (): Promise<boolean> => {
    const [row] = await sql`
      select count(*)::int as count from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
    return row?.['count'] > 0;
  };
  for (const type of ['integer', 'text', 'bigint', 'text']) {
    let imported: Promise<Answer> | null = null;
    await changing.begin(async (change) => {
      await change.unsafe(`alter table shifting alter column label type ${type} using label::${type}`);
      // The service does not know of it, and waits for the table.
      imported = send('shifting', TYPES.json, body);
      await waitFor(isWaiting, 10_000);
    });
    const { status, text } = await (imported as unknown as Promise<Answer>);
    statuses[status] = (statuses[status] ?? 0) + 1;
    if (status !== 200) t.comment(text);
  }
  t.strictSame(statuses, { 200: 4 });
  const [row] = await sql`select count(*)::int as count from shifting`;
  t.equal(row?.['count'], 1_500);
});

t.test('POST /utils/sort', async (t) => {
  const order = async (): Promise<string> =>
    (await sql`select name || coalesce(sort::text, '-') as place from ranks order by sort, id`)
      .map((row) => row['place'])
      .join(' ');
  const sort = (item: unknown, to: unknown, collection = 'ranks'): Promise<Answer> =>
    request(service, 'POST', `/utils/sort/${collection}`, json({ item, to }));
  await sql`insert into ranks (name, sort) values ('a', 1), ('b', 2), ('c', 3), ('d', 4), ('e', 5)`;
  t.match(await sort(4, 2), { status: 200, text: '' });
  t.equal(await order(), 'a1 d2 b3 c4 e5', 'up');
  t.match(await sort(1, '3'), { status: 200 });
  t.equal(await order(), 'd1 b2 c3 a4 e5', 'down');
  t.match(await sort(3, 3), { status: 200 });
  t.equal(await order(), 'd1 b2 c3 a4 e5', 'to its own place');
  t.match(await sort(4, 5), { status: 200 });
  t.equal(await order(), 'b1 c2 a3 e4 d5', 'to the end');

  await sql`update ranks set sort = case name when 'a' then 7 when 'b' then 7 when 'c' then -3 end`;
  t.match(await sort(5, 1), { status: 200 });
  t.equal(await order(), 'c1 e2 a3 b4 d5', 'duplicates and missing numbers are numbered anew');
  await sql`update ranks set sort = null`;
  t.match(await sort(5, 1), { status: 200 });
  t.equal(await order(), 'e1 a2 b3 c4 d5');

  const before = await order();
  for (const [item, to] of [
    [1, 99],
    [99, 1],
    ['x', 1],
    [1, 'x'],
    [99, 98],
    ['', 1],
  ]) {
    t.match(
      await sort(item, to),
      { status: 403, json: { errors: [{ extensions: { code: 'FORBIDDEN' } }] } },
      `${item}, ${to}`,
    );
  }
  for (const [item, to] of [
    [null, 1],
    [1, undefined],
    [[1], 2],
    [{}, 1],
    [true, 1],
  ]) {
    t.match(await sort(item, to), { status: 400, json: { errors: [{ extensions: { code: 'INVALID_PAYLOAD' } }] } });
  }
  t.match(await sort(1, 2, 'goods'), { status: 400, text: /sort field/ });
  t.match(await sort(1, 2, 'nowhere'), { status: 403 });
  t.match(await request(service, 'POST', '/utils/sort/ranks', { ...json({ item: 1, to: 2 }), token: null }), {
    status: 403,
  });
  t.equal(await order(), before);

  const moves = Array.from({ length: 40 }, (_, n) => sort((n % 5) + 1, ((n * 3) % 5) + 1));
  t.strictSame(new Set((await Promise.all(moves)).map(({ status }) => status)), new Set([200]));
  const [numbers] = await sql`select array_agg(sort order by sort) as list from ranks`;
  t.strictSame(numbers?.['list'], [1, 2, 3, 4, 5], 'moves at the same time leave an order');
});

function json(value: unknown): { headers: Record<string, string>; body: string } {
  return { headers: { 'content-type': 'application/json' }, body: JSON.stringify(value) };
}

function pair({ type, body }: { type: string; body: string }): [string, string] {
  return [type, body];
}

/** Sends a body as it is produced, and reads the answer, which may come before the end of it. */
async function upload(
  to: { readonly url: string },
  collection: string,
  type: string,
  pieces: Iterable<Buffer> | AsyncIterable<Buffer>,
): Promise<Answer> {
  const outgoing = openRequest(`${to.url}/utils/import/${collection}`, {
    method: 'POST',
    agent: false,
    headers: { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': type },
  });
  const answered = once(outgoing, 'response', { signal: AbortSignal.timeout(60_000) }) as Promise<[IncomingMessage]>;
  const sent = pipeline(Readable.from(pieces), outgoing).catch(() => {});
  const [incoming] = await answered;
  const text = Buffer.concat((await incoming.toArray()) as Buffer[]).toString();
  outgoing.destroy();
  await sent;
  return { status: incoming.statusCode ?? 0, headers: incoming.headers, text, json: JSON.parse(text) };
}

/** Begins a request of the given length, sends a part of it and is gone. */
async function leave(
  to: { readonly url: string },
  collection: string,
  type: string,
  part: string,
  length: number,
  begun: () => Promise<unknown> = () => sleep(50),
): Promise<void> {
  const { hostname, port } = new URL(to.url);
  const socket = connect({ host: hostname, port: Number(port), noDelay: true });
  socket.on('error', () => {});
  await once(socket, 'connect');
  const head = `POST /utils/import/${collection} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${ADMIN_TOKEN}\r\n`;
  socket.write(`${head}Content-Type: ${type}\r\nContent-Length: ${length}\r\n\r\n`);
  socket.write(part);
  await begun();
  socket.resetAndDestroy();
  await sleep(50);
}

async function* trickle(pieces: readonly Buffer[]): AsyncGenerator<Buffer> {
  for (const piece of pieces) {
    yield piece;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

function* manyRows(first: number, count: number): Generator<Buffer> {
  const padding = 'p'.repeat(100);
  for (let n = first; n < first + count; n += 1_000) {
    const rows = Array.from({ length: 1_000 }, (_, position) => ({
      id: n + position,
      label: `line ${n + position}`,
      padding,
    }));
    yield Buffer.from(`${rows.map((row) => JSON.stringify(row)).join('\n')}\n`);
  }
}

async function toText(pieces: Iterable<Buffer>): Promise<string> {
  return Buffer.concat([...pieces]).toString();
}

async function openTransactions(): Promise<number> {
  const [row] = await sql`
    select count(*)::int as count from pg_stat_activity
    where datname = current_database() and application_name like 'lateral%' and xact_start is not null and state <> 'active'`;
  return row?.['count'];
}

interface Launched {
  readonly url: string;
  readonly child: ChildProcess;
}

async function launch(options: Readonly<Record<string, string>> = {}): Promise<Launched> {
  const child = spawn(process.execPath, [packagePath('dist', 'src', 'main.js')], {
    env: {
      PATH: process.env['PATH'] ?? '',
      ...ways(),
      PORT: '0',
      LOG_LEVEL: 'fatal',
      ADMIN_TOKEN,
      ...options,
      DATABASE_URL: databaseUrl,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  });
  let output = '';
  const url = await new Promise<string>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`not ready: ${output}`)), START_WITHIN);
    child.stdout.on('data', (chunk) => {
      output += String(chunk);
      const ready = /ready at (\S+)/.exec(output)?.[1];
      if (!ready) return;
      clearTimeout(timer);
      resolve(ready);
    });
  });
  return { url, child };
}

function run(words: readonly string[]): Promise<Outcome> {
  return runCommand(['import', ...words], { DATABASE_URL: databaseUrl });
}

async function residentBytes({ pid }: ChildProcess): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1_024;
}
