/** Files and their content: uploads, reads, ranges, permissions, and what a fault leaves. */
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { request as openRequest } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import { makeCaller, makePolicy, type Permission } from '../../support/callers.js';
import {
  type Answer,
  connectSql,
  createLibrary,
  makeFolder,
  request,
  startDatabase,
  startTestService,
  type TestOptions,
  waitFor,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'files');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const root = await makeFolder();

const allow = (action: Permission['action'], permissions: object | null = null, fields: readonly string[] = ['*']) => ({
  collection: 'service_files',
  action,
  permissions,
  fields,
});
const own = { uploaded_by: { _eq: '$CURRENT_USER' } };
const user = await makeCaller(sql, 'user', [
  { permissions: [allow('create', null, ['title', 'folder']), allow('read', own), allow('update', own, ['title'])] },
]);
const other = await makeCaller(sql, 'other', [{ permissions: [allow('read', own), allow('delete', own)] }]);
const nameless = await makeCaller(sql, 'nameless', [{ permissions: [allow('read', null, ['title'])] }]);

const options: TestOptions & Record<string, string> = {
  databaseUrl,
  STORAGE_LOCATIONS: 'local,second',
  STORAGE_LOCAL_ROOT: root,
  STORAGE_SECOND_DRIVER: 'local',
  STORAGE_SECOND_ROOT: join(root, 'second'),
  FILES_MAX_UPLOAD_SIZE: '40mb',
  BODY_TIMEOUT: '2s',
};
const service = await startTestService(options);

interface Part {
  readonly name: string;
  readonly filename?: string;
  readonly type?: string;
  readonly content: string | Buffer;
}

function form(parts: readonly Part[]): { headers: Record<string, string>; body: Buffer } {
  const pieces = parts.flatMap(({ name, filename, type, content }) => [
    Buffer.from(
      `--edge\r\nContent-Disposition: form-data; name="${name}"${filename === undefined ? '' : `; filename="${filename}"`}\r\n${type ? `Content-Type: ${type}\r\n` : ''}\r\n`,
    ),
    Buffer.from(content),
    Buffer.from('\r\n'),
  ]);
  return {
    headers: { 'content-type': 'multipart/form-data; boundary=edge' },
    body: Buffer.concat([...pieces, Buffer.from('--edge--\r\n')]),
  };
}

const text = (content: string, filename = 'my_first-file.txt', type = 'text/plain'): Part => ({
  name: 'file',
  filename,
  type,
  content,
});

function dataOf({ json }: Answer): Record<string, unknown> {
  return (json as { data: Record<string, unknown> }).data;
}

async function upload(parts: readonly Part[], token?: string | null, path = '/files'): Promise<Answer> {
  return request(service, path === '/files' ? 'POST' : 'PATCH', path, {
    ...form(parts),
    ...(token === undefined ? {} : { token }),
  });
}

async function uploaded(content: string, token?: string): Promise<string> {
  const answer = await upload([text(content)], token);
  t.equal(answer.status, 200, answer.text);
  return String(dataOf(answer)['id']);
}

const stored = async (): Promise<string[]> =>
  (await readdir(root)).filter((name) => name !== 'second' && name !== 'derived');
const count = async (): Promise<number> => Number((await sql`select count(*) from service_files`)[0]?.['count']);

t.test('an upload is a row and its bytes, and comes back', async (t) => {
  const answer = await upload([{ name: 'title', content: 'A title' }, text('hello files')]);
  const row = dataOf(answer);
  t.match(answer, { status: 200 });
  t.match(row, {
    title: 'A title',
    storage: 'local',
    filename_download: 'my_first-file.txt',
    filename_disk: `${row['id']}.txt`,
    type: 'text/plain',
    filesize: '11',
  });
  t.type(row['uploaded_by'], 'string');
  t.type(row['uploaded_on'], 'string');
  t.equal(await readFile(join(root, `${row['id']}.txt`), 'utf8'), 'hello files');
  const asset = await request(service, 'GET', `/assets/${row['id']}`);
  t.match(asset, {
    status: 200,
    text: 'hello files',
    headers: {
      'content-type': 'text/plain',
      'content-length': '11',
      'content-disposition': 'inline; filename="my_first-file.txt"',
      'accept-ranges': 'bytes',
      'cache-control': 'private, no-cache',
      'x-content-type-options': 'nosniff',
      'content-security-policy': /default-src 'none'/,
    },
  });
  for (const path of [`${row['id']}.txt`, `${row['id']}/another%20name.txt`]) {
    t.match(await request(service, 'GET', `/assets/${path}?download`), {
      status: 200,
      text: 'hello files',
      headers: { 'content-disposition': /^attachment; filename="(my_first-file|another name)\.txt"$/ },
    });
  }
  const head = await request(service, 'HEAD', `/assets/${row['id']}`);
  t.match(head, { status: 200, text: '', headers: { 'content-length': '11' } });
});

t.test('several files are a list, each with the fields that stand before it', async (t) => {
  const answer = await upload([
    { name: 'title', content: 'One' },
    { name: 'tags', content: '["a"]' },
    text('1', 'one.txt'),
    { name: 'storage', content: 'second' },
    text('22', 'two.txt'),
  ]);
  const rows = (answer.json as { data: Record<string, unknown>[] }).data;
  const byName = new Map(rows.map((row) => [row['filename_download'], row]));
  t.match(byName.get('one.txt'), { title: 'One', tags: ['a'], storage: 'local' });
  t.match(byName.get('two.txt'), { title: 'Two', tags: null, storage: 'second', filesize: '2' });
  t.equal((await request(service, 'GET', `/assets/${byName.get('two.txt')?.['id']}`)).text, '22');
});

t.test('entity tags and dates spare the transfer', async (t) => {
  const id = await uploaded('tagged');
  const first = await request(service, 'GET', `/assets/${id}`);
  const tag = String(first.headers.etag);
  t.match(tag, /^"[0-9a-f]{32}"$/);
  const again = (headers: Record<string, string>) => request(service, 'GET', `/assets/${id}`, { headers });
  t.match(await again({ 'if-none-match': tag }), { status: 304, text: '', headers: { etag: tag } });
  t.equal((await again({ 'if-none-match': '"other"' })).status, 200);
  t.equal((await again({ 'if-modified-since': String(first.headers['last-modified']) })).status, 304);
  t.equal((await again({ 'if-modified-since': 'Mon, 01 Jan 2001 00:00:00 GMT' })).status, 200);
  await upload([text('other content')], undefined, `/files/${id}`);
  const changed = await again({ 'if-none-match': tag });
  t.match(changed, { status: 200, text: 'other content' });
  t.not(changed.headers.etag, tag);
});

t.test('ranges', async (t) => {
  const id = await uploaded('0123456789');
  const ask = (range: string, headers: Record<string, string> = {}) =>
    request(service, 'GET', `/assets/${id}`, { headers: { range, ...headers } });
  for (const [range, body, content] of [
    ['bytes=0-4', '01234', 'bytes 0-4/10'],
    ['bytes=4-', '456789', 'bytes 4-9/10'],
    ['bytes=-3', '789', 'bytes 7-9/10'],
    ['bytes=-30', '0123456789', 'bytes 0-9/10'],
    ['bytes=9-9', '9', 'bytes 9-9/10'],
    ['bytes=5-100', '56789', 'bytes 5-9/10'],
  ] as const)
    t.match(await ask(range), {
      status: 206,
      text: body,
      headers: { 'content-range': content, 'content-length': String(body.length) },
    });
  for (const range of ['bytes=10-', 'bytes=10-20', 'bytes=-0'])
    t.match(await ask(range), {
      status: 416,
      headers: { 'content-range': 'bytes */10' },
      json: { errors: [{ extensions: { code: 'RANGE_NOT_SATISFIABLE', range } }] },
    });
  for (const range of ['bytes=5-2', 'bytes=a-b', 'items=0-1', 'bytes=0-1,3-4', 'bytes=', 'bytes=99999999999999999999-'])
    t.match(await ask(range), { status: 200, text: '0123456789' }, `${range} is answered with the whole file`);
  const tag = String((await ask('bytes=0-0')).headers.etag);
  t.equal((await ask('bytes=0-0', { 'if-range': tag })).status, 206);
  t.equal((await ask('bytes=0-0', { 'if-range': '"old"' })).status, 200);
  t.match(await request(service, 'HEAD', `/assets/${id}`, { headers: { range: 'bytes=2-5' } }), {
    status: 206,
    headers: { 'content-length': '4', 'content-range': 'bytes 2-5/10' },
  });
  const empty = String(dataOf(await upload([text('', 'empty.txt')]))['id']);
  t.match(await request(service, 'GET', `/assets/${empty}`), {
    status: 200,
    text: '',
    headers: { 'content-length': '0' },
  });
  t.equal((await request(service, 'GET', `/assets/${empty}`, { headers: { range: 'bytes=0-' } })).status, 416);
});

t.test('the bytes are for who may read the row', async (t) => {
  const id = await uploaded('private', user.token);
  t.match(await request(service, 'GET', `/assets/${id}`, { token: user.token }), { status: 200, text: 'private' });
  t.match(await request(service, 'GET', `/assets/${id}`, { token: nameless.token }), { status: 200, text: 'private' });
  const missing = '00000000-0000-4000-8000-000000000000';
  for (const [token, key] of [
    [other.token, id],
    [null, id],
    [other.token, missing],
    [undefined, missing],
    [undefined, 'no-key'],
    [undefined, '%2e%2e%2fetc%2fpasswd'],
  ] as const) {
    const answer = await request(service, 'GET', `/assets/${key}`, token === undefined ? {} : { token });
    t.match(answer, { status: 403, json: { errors: [{ extensions: { code: 'FORBIDDEN' } }] } }, `${key}`);
  }
  t.equal((await request(service, 'DELETE', `/files/${id}`, { token: other.token })).status, 403);
});

t.test('shared caches keep only what anybody gets', async (t) => {
  const id = await uploaded('for all');
  const policy = await makePolicy(sql, 'everybody', { permissions: [allow('read', { id: { _eq: id } })] });
  const ask = (given: object) => request(service, 'GET', `/assets/${id}`, { token: null, ...given });
  await waitFor(async () => (await ask({})).status === 200, 5_000);
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify({ collection: 'service_files', item: id });
  const share = String(dataOf(await request(service, 'POST', '/shares', { headers, body }))['id']);
  const entered = await request(service, 'POST', '/shares/auth', { headers, body: JSON.stringify({ share }) });
  const visitor = String(dataOf(entered)['access_token']);
  await waitFor(async () => (await ask({})).headers['cache-control'] === 'public, no-cache', 5_000);
  for (const given of [
    { token: visitor },
    { token: undefined, headers: { 'lateral-view-as': 'public' } },
    { token: undefined, headers: { 'lateral-view-as': `role:${nameless.role}` } },
    { headers: { authorization: 'Basic eDp5' } },
  ])
    t.match(
      await ask(given),
      { status: 200, headers: { 'cache-control': 'private, no-cache' } },
      JSON.stringify(given),
    );
  await sql`update service_policies set ip_access = '127.0.0.0/8,::1' where id = ${policy}`;
  await waitFor(async () => (await ask({})).headers['cache-control'] === 'private, no-cache', 5_000);
  t.equal((await ask({})).status, 200);
  await sql`delete from service_policies where id = ${policy}`;
  await waitFor(async () => (await ask({})).status === 403, 5_000);
});

t.test('an option lets caches keep the content for a time', async (t) => {
  const kept = await startTestService({ ...options, ASSETS_CACHE_TTL: '30d' });
  const { headers } = await request(kept, 'GET', `/assets/${await uploaded('kept')}`);
  t.equal(headers['cache-control'], 'private, max-age=2592000', 'as Directus sends by default');
  await kept.stop();
});

t.test('uploading needs the permission to create; its fields count for what the caller sends', async (t) => {
  const before = await stored();
  const rows = await count();
  for (const [token, parts, status] of [
    [null, [text('x')], 403],
    [other.token, [text('x')], 403],
    [user.token, [{ name: 'description', content: 'x' }, text('x')], 403],
    [user.token, [{ name: 'storage', content: 'second' }, text('x')], 403],
    [undefined, [{ name: 'storage', content: 'nowhere' }, text('x')], 400],
    [undefined, [{ name: 'filename_disk', content: 'x' }, text('x')], 400],
    [undefined, [{ name: 'id', content: 'x' }, text('x')], 400],
    [undefined, [{ name: 'nonsense', content: 'x' }, text('x')], 400],
    [undefined, [{ name: 'folder', content: '00000000-0000-4000-8000-000000000000' }, text('x')], 400],
    [undefined, [{ name: 'title', content: 'x' }], 400],
    [undefined, [{ name: 'tags', content: '{' }, text('x')], 400],
  ] as const) {
    const answer = await upload(parts, token);
    t.equal(answer.status, status, answer.text);
  }
  t.equal((await upload([{ name: 'title', content: 'Mine' }, text('x')], user.token)).status, 200);
  t.equal(await count(), rows + 1);
  t.equal((await stored()).length, before.length + 1, 'nothing is left of what was refused');
});

t.test('an upload may bring the id of the file', async (t) => {
  const id = '6F9619FF-8B86-4011-B42D-00CF4FC964FF';
  const before = await stored();
  const first = await upload([{ name: 'id', content: id }, text('first')]);
  t.match(first, { status: 200, json: { data: { id: id.toLowerCase(), title: 'My First File' } } });
  t.match(dataOf(first)['filename_disk'], /^6f9619ff-8b86-4011-b42d-00cf4fc964ff-[0-9a-f]{16}\.txt$/);
  const again = await upload([{ name: 'id', content: id }, text('second')]);
  t.match(again, { status: 400, text: /RECORD_NOT_UNIQUE|unique/ }, 'a file with the id exists');
  t.equal((await request(service, 'GET', `/assets/${id}`)).text, 'first', 'and keeps its bytes');
  t.equal((await stored()).length, before.length + 1, 'nothing is left of the second upload');
  t.match(await upload([{ name: 'id', content: '../x' }, text('x')]), { status: 400, text: /must be a UUID/ });
  const named = [{ name: 'id', content: '6f9619ff-8b86-4011-b42d-00cf4fc964fe' }, text('x')];
  t.equal((await upload(named, user.token)).status, 403, 'it needs the permission for the field');
  t.match(
    await upload(named, undefined, `/files/${id}`),
    { status: 400, text: /cannot be set/ },
    'an id never changes',
  );
});

t.test('content is replaced under the same key, and the former bytes are removed', async (t) => {
  const id = await uploaded('before', user.token);
  t.equal((await upload([text('stolen')], other.token, `/files/${id}`)).status, 403);
  const answer = await upload([text('after, and longer', 'new.md', 'text/markdown')], user.token, `/files/${id}`);
  t.match(dataOf(answer), { id, title: 'My First File', type: 'text/markdown', filesize: '17' });
  t.equal(dataOf(answer)['filename_download'], 'new.md', 'the name belongs to the content');
  t.match(dataOf(answer)['filename_disk'], new RegExp(`^${id}-[0-9a-f]{16}\\.md$`));
  t.equal((await request(service, 'GET', `/assets/${id}`)).text, 'after, and longer');
  await waitFor(async () => !(await stored()).includes(`${id}.txt`), 5_000);
  t.match(
    await request(service, 'PATCH', `/files/${id}`, {
      headers: { 'content-type': 'application/json' },
      body: '{"title":"New"}',
    }),
    {
      status: 200,
    },
  );
  t.equal((await request(service, 'GET', `/assets/${id}`)).text, 'after, and longer');
  const named = [{ name: 'filename_download', content: 'kept.txt' }, text('named', 'other.md')];
  t.equal(dataOf(await upload(named, undefined, `/files/${id}`))['filename_download'], 'kept.txt', 'the form names it');
  t.equal((await upload([text('x')], undefined, '/files/00000000-0000-4000-8000-000000000000')).status, 403);
  t.equal((await stored()).filter((name) => name.startsWith('0000')).length, 0);
});

t.test('new content stays in the storage location of its file', async (t) => {
  const made = dataOf(await upload([{ name: 'storage', content: 'second' }, text('before')]));
  const path = `/files/${made['id']}`;
  const second = () => readdir(join(root, 'second'));
  t.match(dataOf(await upload([text('after')], undefined, path)), { storage: 'second', filesize: '5' });
  t.equal((await request(service, 'GET', `/assets/${made['id']}`)).text, 'after');
  await waitFor(async () => !(await second()).includes(String(made['filename_disk'])), 5_000);
  t.equal((await second()).filter((name) => name.startsWith(String(made['id']))).length, 1);
  const moved = dataOf(await upload([{ name: 'storage', content: 'local' }, text('moved')], undefined, path));
  t.match(moved, { storage: 'local' }, 'unless the form names another');
  await sql`update service_files set storage = 'gone' where id = ${String(made['id'])}`;
  t.match(dataOf(await upload([text('again')], undefined, path)), { storage: 'local' }, 'or it is not configured');
  await sql`delete from service_files_removed where storage = 'gone'`;
});

t.test('a row can name only a storage location that there is', async (t) => {
  const id = await uploaded('stays');
  const headers = { 'content-type': 'application/json' };
  const refusal = {
    status: 400,
    json: { errors: [{ message: /"storage" must be one of local, second/, extensions: { code: 'INVALID_PAYLOAD' } }] },
  };
  const send = (method: string, path: string, body: unknown) =>
    request(service, method, path, { headers, body: JSON.stringify(body) });
  for (const storage of ['../../x', 'nowhere', '']) {
    t.match(await send('PATCH', `/files/${id}`, { storage }), refusal, storage);
    t.match(await send('PATCH', '/files', { keys: [id], data: { storage } }), refusal);
    t.match(await send('POST', '/files', { storage, filename_download: 'a.txt' }), refusal);
    const query = `mutation { update_files_item(id: "${id}", data: {storage: "${storage}"}) { id } }`;
    t.match((await send('POST', '/graphql/system', { query })).text, /must be one of local, second/);
    const nested = { avatar: { storage, filename_download: 'a.txt' } };
    t.match(await send('PATCH', `/users/${user.user}`, nested), refusal, 'nested in another item');
  }
  t.equal((await request(service, 'GET', `/assets/${id}`)).text, 'stays');
});

t.test('deleting the row in any way deletes the bytes', async (t) => {
  const ids = await Promise.all(['1', '2', '3', '4'].map((content) => uploaded(content)));
  const json = { 'content-type': 'application/json' };
  t.equal((await request(service, 'DELETE', `/files/${ids[0]}`)).status, 204);
  t.match(
    await request(service, 'DELETE', '/files', {
      headers: { ...json, 'content-length': '40' },
      body: JSON.stringify([ids[1]]),
    }),
    {
      status: 204,
    },
  );
  const query = `mutation { delete_files_item(id: "${ids[2]}") { id } }`;
  t.match(await request(service, 'POST', '/graphql/system', { headers: json, body: JSON.stringify({ query }) }), {
    status: 200,
    json: { data: { delete_files_item: { id: ids[2] } } },
  });
  await sql`delete from service_files where id = ${ids[3] ?? ''}`;
  await waitFor(async () => !(await stored()).some((name) => ids.some((id) => name.startsWith(id))), 5_000);
  await waitFor(async () => (await sql`select from service_files_removed`).length === 0, 5_000);
  t.equal((await request(service, 'GET', `/assets/${ids[0]}`)).status, 403);
});

t.test('no row can name bytes that are not its own', async (t) => {
  const victim = await uploaded('secret of another');
  const thief = await uploaded('thief');
  await writeFile(join(root, 'outside.txt'), 'outside');
  for (const name of [
    `${victim}.txt`,
    '../../etc/passwd',
    `${thief}/../${victim}.txt`,
    'outside.txt',
    `${thief}.txt/..`,
    '',
    `${thief}.`,
  ])
    t.match(
      await request(service, 'PATCH', `/files/${thief}`, {
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ filename_disk: name }),
      }),
      { status: 400, json: { errors: [{ extensions: { code: 'FAILED_VALIDATION' } }] } },
      name,
    );
  t.equal((await request(service, 'GET', `/assets/${thief}`)).text, 'thief');
});

t.test('a page or a drawing with scripts cannot run on our origin', async (t) => {
  const script = '<script>alert(document.domain)</script>';
  for (const [name, type, disposition, policy] of [
    ['a.html', 'text/html', 'attachment', /sandbox$/],
    ['a.xhtml', 'application/xhtml+xml', 'attachment', /sandbox$/],
    ['a.svg', 'image/svg+xml', 'inline', /sandbox$/],
    ['b.svg', 'image/svg', 'attachment', /sandbox$/],
    ['a.xml', 'image/x+xml', 'attachment', /sandbox$/],
    ['b.xml', 'video/x+xml', 'attachment', /sandbox$/],
    ['c.xml', 'image/xml', 'attachment', /sandbox$/],
    ['d.xml', 'image/vnd.x', 'attachment', /sandbox$/],
    ['a.webp', 'image/webp', 'inline', /^default-src 'none'/],
    ['a.mp4', 'video/mp4', 'inline', /^default-src 'none'/],
    ['a.js', 'text/javascript', 'attachment', /sandbox$/],
    ['a.bin', 'text/html\r\nX: y', 'attachment', /sandbox$/],
    ['a.png', 'image/png', 'inline', /^default-src 'none'/],
  ] as const) {
    const id = String(dataOf(await upload([text(script, name, type)]))['id']);
    const answer = await request(service, 'GET', `/assets/${id}`);
    t.match(answer.headers['content-disposition'], new RegExp(`^${disposition};`), type);
    t.match(answer.headers['content-security-policy'], policy, type);
    t.equal(answer.headers['x-content-type-options'], 'nosniff');
  }
  const id = await uploaded('x');
  await sql`update service_files set type = ${'text/html\r\nSet-Cookie: a=b'}, filename_download = ${'a"\r\nX-Evil: 1.html'} where id = ${id}`;
  const answer = await request(service, 'GET', `/assets/${id}`);
  t.match(answer, { status: 200, headers: { 'content-type': 'application/octet-stream' } });
  t.notOk(answer.headers['x-evil'] ?? answer.headers['set-cookie']);
});

t.test('names of uploads become neither paths nor headers', async (t) => {
  for (const name of [
    '../../../etc/passwd',
    '..\\\\..\\\\boot.ini',
    'x/../../y.txt',
    '.htaccess',
    'con',
    'ü%00.txt',
    'a.'.padEnd(600, 'b'),
  ]) {
    const row = dataOf(await upload([text('x', name)]));
    t.match(row['filename_disk'], new RegExp(`^${row['id']}(\\.[a-z0-9]{1,20})?$`), name);
    t.notMatch(row['filename_download'], /[/\\]/);
    t.equal((await request(service, 'GET', `/assets/${row['id']}`)).text, 'x');
  }
  t.match(
    (await readdir(join(root, '..'))).filter((name) => name === 'etc' || name === 'y.txt'),
    [],
  );
});

t.test('an upload that is too large, breaks off or stalls leaves nothing', async (t) => {
  const before = await stored();
  const rows = await count();
  const large = await upload([text('x'.repeat(41 * 1_048_576))]);
  t.match(large, {
    status: 400,
    json: { errors: [{ extensions: { code: 'INVALID_PAYLOAD', option: 'FILES_MAX_UPLOAD_SIZE' } }] },
  });
  const { body, headers } = form([text('y'.repeat(2_000_000))]);
  const { hostname, port } = new URL(service.url);
  const send = (bytes: Buffer, end: 'destroy' | 'stall' | 'short'): Promise<number> =>
    new Promise((resolve) => {
      const outgoing = openRequest({
        ...{ hostname, port, method: 'POST', path: '/files', agent: false },
        headers: {
          ...headers,
          authorization: 'Bearer the-token-of-the-test-administrator',
          'content-length': end === 'short' ? bytes.length : body.length,
        },
      });
      outgoing.on('error', () => resolve(0));
      outgoing.on('response', (incoming) => {
        incoming.resume();
        resolve(incoming.statusCode ?? 0);
        outgoing.destroy();
      });
      if (end === 'short') outgoing.end(bytes);
      else outgoing.write(bytes, () => end === 'destroy' && setTimeout(() => outgoing.destroy(), 50));
    });
  t.equal(await send(body.subarray(0, 1_500_000), 'destroy'), 0);
  t.equal(await send(body.subarray(0, 1_500_000), 'stall'), 400, 'nothing arrives any more');
  t.equal(await send(body.subarray(0, 1_500_000), 'short'), 400, 'the form has no end');
  await waitFor(async () => (await stored()).length === before.length, 5_000);
  t.equal(await count(), rows);
});

t.test('a form that is refused stores nothing of what follows', { timeout: 8_000 }, async (t) => {
  const before = await stored();
  for (const parts of [
    [{ name: 'title', content: 'x'.repeat(65_537) }, text('y'.repeat(200_000))],
    [{ name: 'file', filename: '', type: 'text/plain', content: 'x' }, text('y'.repeat(200_000))],
  ])
    t.match(await upload(parts), { status: 400, json: { errors: [{ extensions: { code: 'INVALID_PAYLOAD' } }] } });
  t.strictSame(await stored(), before);
});

t.test('an image that is too large to be transformed in memory is refused', async (t) => {
  const id = String(dataOf(await upload([text('z'.repeat(33_554_433), 'large.png', 'image/png')]))['id']);
  t.match(await request(service, 'GET', `/assets/${id}?width=5`), {
    status: 400,
    json: { errors: [{ message: /larger than 33554432 bytes/, extensions: { code: 'INVALID_QUERY' } }] },
  });
  await request(service, 'DELETE', `/files/${id}`);
});

t.test('large files pass in both directions in constant memory, also to a slow reader', async (t) => {
  const size = 38 * 1_048_576;
  const id = String(dataOf(await upload([text('z'.repeat(size), 'large.bin', 'application/octet-stream')]))['id']);
  const { hostname, port } = new URL(service.url);
  const before = process.memoryUsage().arrayBuffers;
  const sockets = await Promise.all(
    Array.from({ length: 20 }, async () => {
      const socket = connect(Number(port), hostname);
      socket.write(
        `GET /assets/${id} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer the-token-of-the-test-administrator\r\n\r\n`,
      );
      socket.once('data', () => socket.pause());
      return socket;
    }),
  );
  await passTime(700, 'a service without limits would read on');
  const held = process.memoryUsage().arrayBuffers - before;
  t.ok(held < 60 * 1_048_576, `20 readers that do not read hold ${Math.round(held / 1_048_576)} MB of 760`);
  for (const socket of sockets) socket.destroy();
  const whole = await request(service, 'GET', `/assets/${id}`);
  t.equal(whole.text.length, size);
  t.equal(whole.headers['content-length'], String(size));
});

t.test('bytes that are missing are a 503, and a row without content is a 403', async (t) => {
  const id = await uploaded('x');
  await sql`update service_files set storage = 'gone' where id = ${id}`;
  t.match(await request(service, 'GET', `/assets/${id}`), {
    status: 503,
    json: { errors: [{ message: /"gone" is not configured/ }] },
  });
  await sql`update service_files set storage = 'second' where id = ${id}`;
  t.match(await request(service, 'GET', `/assets/${id}`), { status: 503, json: { errors: [{ message: /missing/ }] } });
  const created = await request(service, 'POST', '/files', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ storage: 'local', filename_download: 'a.txt', type: 'text/plain' }),
  });
  t.equal(created.status, 200);
  t.equal((await request(service, 'GET', `/assets/${dataOf(created)['id']}`)).status, 403);
  await upload([text('now')], undefined, `/files/${dataOf(created)['id']}`);
  t.equal((await request(service, 'GET', `/assets/${dataOf(created)['id']}`)).text, 'now');
});

t.test('an export is stored as a file, and its caller is notified', async (t) => {
  const headers = { 'content-type': 'application/json' };
  const exportTags = (body: object, token?: string | null) =>
    request(service, 'POST', '/utils/export/tags', {
      headers,
      body: JSON.stringify({ query: { fields: ['name'], filter: { id: { _lte: 2 } }, sort: ['-id'] }, ...body }),
      ...(token === undefined ? {} : { token }),
    });
  const folder = await sql<{ id: string }[]>`insert into service_folders (name) values ('exports') returning id`;
  for (const [format, ending, type, expected] of [
    ['json', 'json', 'application/json', /^\[\{"name":"tech"\},\{"name":"news"\}\]$/],
    ['csv', 'csv', 'text/csv', /^name\ntech\nnews\n$/],
    ['csv_utf8', 'csv', 'text/csv', /^\uFEFFname\ntech\nnews\n$/],
    ['xml', 'xml', 'text/xml', /<name>tech<\/name>[\s\S]*<name>news<\/name>/],
    ['yaml', 'yaml', 'text/yaml', /^- name: tech\n- name: news\n$/],
    ['ndjson', 'ndjson', 'application/x-ndjson', /^\{"name":"tech"\}\n\{"name":"news"\}\n$/],
  ] as const) {
    const file = { title: `Tags as ${format}`, folder: folder[0]?.id, storage: 'second' };
    t.match(await exportTags({ format, file }), { status: 204, text: '' }, format);
    const find = () => sql`select * from service_files where title = ${file.title}`;
    await waitFor(async () => (await find()).length > 0, 10_000);
    const [row] = await find();
    t.match(row, { storage: 'second', folder: file.folder, type, uploaded_by: /-/ });
    t.match(row?.['filename_download'], new RegExp(`^export-tags-\\d{8}-\\d{6}\\.${ending}$`));
    t.match((await request(service, 'GET', `/assets/${row?.['id']}`)).text, expected, format);
    const told = () => sql`select * from service_notifications where item = ${row?.['id']}`;
    await waitFor(async () => (await told()).length > 0, 10_000);
    t.match((await told())[0], {
      subject: 'Your export of tags is ready',
      collection: 'service_files',
      recipient: row?.['uploaded_by'],
    });
  }
});

t.test('a stored export needs permission to read the items and to create the file', async (t) => {
  const read = (permissions: object): Permission => ({
    collection: 'tags',
    action: 'read',
    permissions,
    fields: ['name'],
  });
  const reader = await makeCaller(sql, 'exporter', [
    { permissions: [read({ id: { _eq: 2 } }), allow('create', null, ['title']), allow('read', own)] },
  ]);
  const rowsBefore = await count();
  const send = (body: object, token: string | null) =>
    request(service, 'POST', '/utils/export/tags', {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ format: 'csv', query: { fields: ['name'] }, ...body }),
      token,
    });
  const administrator = 'the-token-of-the-test-administrator';
  for (const [body, token, status] of [
    [{ file: {} }, null, 403],
    [{ file: {} }, user.token, 403],
    [{ file: {}, query: { fields: ['id'] } }, reader.token, 403],
    [{ file: { folder: null } }, reader.token, 403],
    [{ file: { storage: 'second' } }, reader.token, 403],
    [{ file: {} }, other.token, 403],
    [{ file: { nonsense: 1 } }, administrator, 400],
    [{ file: { storage: '../x' } }, administrator, 400],
    [{ file: { filename_disk: 'x' } }, administrator, 400],
    [{ file: 7 }, administrator, 400],
    [{ file: [] }, administrator, 400],
    [{ file: {}, format: 'pdf' }, administrator, 400],
    [{ file: {}, query: { filter: { name: { _nope: 1 } } } }, administrator, 400],
  ] as const) {
    const answer = await send(body, token);
    t.equal(answer.status, status, `${JSON.stringify(body)}: ${answer.text}`);
  }
  t.equal(await count(), rowsBefore);
  t.equal((await send({ file: { title: 'Mine' } }, reader.token)).status, 204);
  const mine = () => sql`select * from service_files where title = 'Mine' and uploaded_by = ${reader.user}`;
  await waitFor(async () => (await mine()).length > 0, 10_000);
  const asset = await request(service, 'GET', `/assets/${(await mine())[0]?.['id']}`, { token: reader.token });
  t.match(asset, { status: 200, text: 'name\ntech\n' }, 'only the rows that the caller may read');
  t.equal((await send({ file: { title: 'x'.repeat(300) } }, reader.token)).status, 204);
  const told = () => sql`select * from service_notifications where recipient = ${reader.user} and item is null`;
  await waitFor(async () => (await told()).length > 0, 10_000);
  t.match((await told())[0], { subject: 'Your export of tags failed', message: /title/ });
  await waitFor(async () => (await stored()).every((name) => !name.endsWith('.part~')), 5_000);
});
