/** Files in a bucket, from URLs, as images, and by the SDK of the family. The bucket is that of a server from npm. */
import { createHash, createHmac } from 'node:crypto';
import { once } from 'node:events';
import { readdir, unlink, utimes, writeFile } from 'node:fs/promises';
import {
  createServer,
  type IncomingMessage,
  request as openRequest,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import {
  createDirectus,
  importFile,
  readAssetArrayBuffer,
  readAssetRaw,
  readFiles,
  rest,
  staticToken,
  updateFile,
  uploadFiles,
} from '@directus/sdk';
import sharp from 'sharp';
import t from 'tap';
import { isStorageName, Storages } from '../../../src/features/files/storage.js';
import { readLocations } from '../../../src/features/files/storage-options.js';
import { isPublicAddress } from '../../../src/server/http/public-addresses.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  makeFolder,
  request,
  runProgram,
  startDatabase,
  startTestService,
  type TestOptions,
  waitFor,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'storage');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const root = await makeFolder();
const bucketFolder = await makeFolder();
const bucket = await startBucket(bucketFolder);
const remote = await startRemote();

const options: TestOptions & Record<string, string> = {
  databaseUrl,
  STORAGE_LOCATIONS: 'local,bucket,wrong',
  STORAGE_LOCAL_ROOT: root,
  ...bucketOptions('BUCKET', 'S3RVER'),
  ...bucketOptions('WRONG', 'not-the-secret'),
  FILES_IMPORT_ALLOW_LIST: `${remote.url},http://localhost:${new URL(remote.url).port}`,
  FILES_IMPORT_TIMEOUT: '3s',
  FILES_MAX_UPLOAD_SIZE: '18mb',
  ASSETS_TRANSFORM_IMAGE_MAX_DIMENSION: '1000',
};
const service = await startTestService(options);
const client = createDirectus(service.url).with(staticToken(ADMIN_TOKEN)).with(rest());

function bucketOptions(name: string, secret: string): Record<string, string> {
  return {
    [`STORAGE_${name}_DRIVER`]: 's3',
    [`STORAGE_${name}_BUCKET`]: 'files',
    [`STORAGE_${name}_ENDPOINT`]: bucket,
    [`STORAGE_${name}_KEY`]: 'S3RVER',
    [`STORAGE_${name}_SECRET`]: secret,
    [`STORAGE_${name}_ROOT`]: 'some folder',
    [`STORAGE_${name}_FORCE_PATH_STYLE`]: 'true',
  };
}

async function startBucket(directory: string): Promise<string> {
  const { default: S3rver } = await import('s3rver');
  const configureBuckets = [{ name: 'files' }];
  const running = new S3rver({ port: 0, address: '127.0.0.1', silent: true, directory, configureBuckets });
  const { port } = await running.run();
  // It takes any signature: what stands before it does not.
  const gate = createServer((incoming, response) => {
    if (incoming.headers.authorization !== authorizationOf(incoming, 'S3RVER')) {
      response.writeHead(403).end('<Error><Code>SignatureDoesNotMatch</Code></Error>');
      return;
    }
    const { method, url: path, headers } = incoming;
    const outgoing = openRequest({ port, host: '127.0.0.1', method, path, headers, agent: false }, (answer) => {
      response.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(response);
    });
    outgoing.on('error', () => response.destroy());
    incoming.pipe(outgoing);
  });
  await once(gate.listen(0, '127.0.0.1'), 'listening');
  t.teardown(async () => {
    gate.closeAllConnections();
    gate.close();
    await running.close();
  });
  return `http://127.0.0.1:${(gate.address() as AddressInfo).port}`;
}

/** As the description of AWS Signature Version 4 has it, without the library that signs. */
function authorizationOf({ method = '', url = '', headers }: IncomingMessage, secret: string): string {
  const { pathname, searchParams } = new URL(url, 'http://x');
  const [, day = '', region = '', names = ''] =
    /Credential=S3RVER\/(\d+)\/([^/]+)\/s3\/aws4_request, SignedHeaders=([^,]+),/.exec(headers.authorization ?? '') ??
    [];
  const query = [...searchParams]
    .map((pair) => pair.map(encodeURIComponent).join('='))
    .sort()
    .join('&');
  const signed = names.split(';').map((name) => `${name}:${headers[name]}\n`);
  const digest = String(headers['x-amz-content-sha256']);
  const canonical = [method, pathname, query, signed.join(''), names, digest].join('\n');
  const scope = `${day}/${region}/s3/aws4_request`;
  const hash = createHash('sha256').update(canonical).digest('hex');
  const text = ['AWS4-HMAC-SHA256', headers['x-amz-date'], scope, hash].join('\n');
  const sign = (key: string | Buffer, value: string): Buffer => createHmac('sha256', key).update(value).digest();
  const key = [region, 's3', 'aws4_request'].reduce(sign, sign(`AWS4${secret}`, day));
  return `AWS4-HMAC-SHA256 Credential=S3RVER/${scope}, SignedHeaders=${names}, Signature=${sign(key, text).toString('hex')}`;
}

async function startRemote(): Promise<{ readonly url: string }> {
  const answers: Readonly<Record<string, (response: ServerResponse) => unknown>> = {
    '/a%20cat.txt': (response) => response.writeHead(200, { 'content-type': 'text/plain; charset=utf-8' }).end('meow'),
    '/moved': (response) => response.writeHead(302, { location: '/a%20cat.txt' }).end(),
    '/to-metadata': (response) => response.writeHead(302, { location: 'http://169.254.169.254/latest' }).end(),
    '/round': (response) => response.writeHead(302, { location: '/round' }).end(),
    '/half': (response) => {
      response.writeHead(200, { 'content-length': '100' }).write('half');
      setTimeout(() => response.destroy(), 50);
    },
    '/silent': () => {},
    '/drops': (response) => {
      response.writeHead(200, { 'content-type': 'text/plain' });
      const timer = setInterval(() => response.write('x'), 100);
      response.on('close', () => clearInterval(timer));
    },
    '/slow-redirect': (response) => void setTimeout(() => response.writeHead(302, { location: '/drops' }).end(), 700),
    '/large': (response) => response.writeHead(200).end(Buffer.alloc(19 * 1_048_576)),
  };
  const http: Server = createServer(({ url = '' }, response) => {
    const answer = answers[url];
    if (answer) answer(response);
    else response.writeHead(404).end();
  });
  await once(http.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => {
    http.closeAllConnections();
    http.close();
  });
  return { url: `http://127.0.0.1:${(http.address() as AddressInfo).port}` };
}

async function uploadTo(
  storage: string,
  content: Buffer | string,
  name = 'a.bin',
  type = 'application/octet-stream',
): Promise<Answer> {
  const start = `--edge\r\nContent-Disposition: form-data; name="storage"\r\n\r\n${storage}\r\n--edge\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\nContent-Type: ${type}\r\n\r\n`;
  return request(service, 'POST', '/files', {
    headers: { 'content-type': 'multipart/form-data; boundary=edge' },
    body: Buffer.concat([Buffer.from(start), Buffer.from(content), Buffer.from('\r\n--edge--\r\n')]),
  });
}

const idOf = ({ json }: Answer): string => (json as { data: { id: string } }).data.id;
const count = async (): Promise<number> => Number((await sql`select count(*) from service_files`)[0]?.['count']);
const inBucket = async (): Promise<string[]> =>
  (await readdir(bucketFolder, { recursive: true })).filter((name) => /some folder\/[^/]+\._S3rver_object$/.test(name));

t.test('a bucket stores, serves and removes files, in parts where they are large', async (t) => {
  const small = await uploadTo('bucket', 'small content');
  t.equal(small.status, 200, small.text);
  const content = Buffer.alloc(17 * 1_048_576, 'abcdefghijk');
  const large = await uploadTo('bucket', content);
  t.equal(large.status, 200, large.text);
  t.match(large.json, { data: { storage: 'bucket', filesize: String(content.length) } });
  t.equal((await request(service, 'GET', `/assets/${idOf(small)}`)).text, 'small content');
  const whole = await request(service, 'GET', `/assets/${idOf(large)}`);
  t.ok(whole.text === content.toString(), 'every byte is there');
  t.match(await request(service, 'GET', `/assets/${idOf(large)}`, { headers: { range: 'bytes=8388606-8388610' } }), {
    status: 206,
    text: content.subarray(8_388_606, 8_388_611).toString(),
    headers: { 'content-range': `bytes 8388606-8388610/${content.length}` },
  });
  t.equal((await inBucket()).length, 2);
  const tooLarge = await uploadTo('bucket', Buffer.alloc(18 * 1_048_576 + 1));
  t.equal(tooLarge.status, 400, 'and what is too large is taken back');
  t.equal((await inBucket()).length, 2);
  for (const answer of [small, large]) await request(service, 'DELETE', `/files/${idOf(answer)}`);
  await waitFor(async () => (await inBucket()).length === 0, 5_000);
});

t.test('a bucket that refuses is a 503, and there is no row', async (t) => {
  const before = await count();
  t.match(await uploadTo('wrong', 'x'), {
    status: 503,
    json: { errors: [{ extensions: { code: 'SERVICE_UNAVAILABLE', service: 'files' } }] },
  });
  t.equal(await count(), before);
});

t.test('the SDK uploads, reads and changes files', async (t) => {
  const form = new FormData();
  form.append('title', 'By the SDK');
  form.append('file', new Blob(['from a client'], { type: 'application/zip' }), 'client.zip');
  const row = (await client.request(uploadFiles(form))) as Record<string, unknown>;
  const id = String(row['id']);
  t.match(row, { title: 'By the SDK', filename_download: 'client.zip', type: 'application/zip', filesize: '13' });
  t.equal(Buffer.from(await client.request(readAssetArrayBuffer(id))).toString(), 'from a client');
  t.ok(await client.request(readAssetRaw(id)), 'a stream');
  t.match(await client.request(readFiles({ filter: { id: { _eq: id } }, fields: ['title'] })), [
    { title: 'By the SDK' },
  ]);
  const next = new FormData();
  next.append('file', new Blob(['changed'], { type: 'text/plain' }), 'next.txt');
  t.match(await client.request(updateFile(id, next as never)), { id, filesize: '7' });
  t.match(await client.request(importFile(`${remote.url}/a%20cat.txt`, { title: 'A cat' })), {
    title: 'A cat',
    filesize: '4',
  });
});

t.test('files are imported from allowed origins alone, and never from private addresses behind a name', async (t) => {
  const post = (url: unknown): Promise<Answer> =>
    request(service, 'POST', '/files/import', {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ url }),
    });
  const before = await count();
  t.match(await post(`${remote.url}/moved`), {
    status: 200,
    json: { data: { filename_download: 'a cat.txt', type: 'text/plain', filesize: '4' } },
  });
  const { port } = new URL(remote.url);
  for (const [url, status] of [
    [`${remote.url}/to-metadata`, 403],
    [`http://localhost:${port}/a%20cat.txt`, 403],
    [`http://127.1:${port}/a%20cat.txt`, 200],
    [`http://[::1]:${port}/a%20cat.txt`, 403],
    [`http://0.0.0.0:${port}/a%20cat.txt`, 403],
    ['http://169.254.169.254/latest/meta-data', 403],
    [`http://user:password@127.0.0.1:${port}/a%20cat.txt`, 400],
    ['file:///etc/passwd', 400],
    ['gopher://x', 400],
    [7, 400],
    [`${remote.url}/missing`, 503],
    [`${remote.url}/round`, 503],
    [`${remote.url}/half`, 503],
    [`${remote.url}/silent`, 503],
    [`${remote.url}/large`, 400],
  ] as const) {
    const answer = await post(url);
    t.equal(answer.status, status, `${url}: ${answer.text.slice(0, 200)}`);
  }
  t.equal(await count(), before + 2);
  t.equal(
    (
      await request(service, 'POST', '/files/import', {
        token: null,
        headers: { 'content-type': 'application/json' },
        body: '{"url":"http://127.0.0.1"}',
      })
    ).status,
    403,
  );
  const query = `mutation { import_file(url: "${remote.url}/moved", data: {title: "By GraphQL"}) }`;
  t.match(
    await request(service, 'POST', '/graphql/system', {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ query }),
    }),
    { json: { data: { import_file: { title: 'By GraphQL' } } } },
  );
  for (const address of ['8.8.8.8', '2606:4700::1111']) t.ok(isPublicAddress(address), address);
  for (const address of [
    ...['127.0.0.1', '10.1.2.3', '172.20.0.1', '192.168.1.1', '100.64.0.1', '169.254.0.1', '0.0.0.0', '224.0.0.1'],
    ...['::1', '::', 'fe80::1', 'fc00::1', '::ffff:10.0.0.1', '::ffff:7f00:1', '64:ff9b::a00:1', '2002:a00:1::', 'x'],
  ])
    t.notOk(isPublicAddress(address), address);
});

t.test('the deadline of an import is that of the whole download', async (t) => {
  for (const path of ['/drops', '/slow-redirect']) {
    const start = performance.now();
    const answer = await request(service, 'POST', '/files/import', {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ url: `${remote.url}${path}` }),
    });
    const ms = performance.now() - start;
    t.match(
      answer,
      { status: 503, json: { errors: [{ extensions: { option: 'FILES_IMPORT_TIMEOUT' } }] } },
      answer.text,
    );
    t.ok(ms < 10_000, `${path}: answered after ${Math.round(ms)} ms`);
  }
});

t.test('images are transformed, kept, and measured', async (t) => {
  const png = await sharp({ create: { width: 200, height: 100, channels: 3, background: 'red' } })
    .png()
    .toBuffer();
  const uploaded = await uploadTo('local', png, 'a.png', 'image/png');
  t.match(uploaded.json, { data: { width: 200, height: 100 } });
  const id = idOf(uploaded);
  const ask = async (query: string, accept = '*/*') => {
    const answer = await fetch(`${service.url}/assets/${id}?${query}`, {
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, accept },
    });
    const bytes = Buffer.from(await answer.arrayBuffer());
    const { width, height, format } = answer.ok ? await sharp(bytes).metadata() : {};
    return { status: answer.status, type: answer.headers.get('content-type'), width, height, format };
  };
  for (const [query, expected] of [
    ['width=50', { status: 200, type: 'image/png', width: 50, height: 25, format: 'png' }],
    ['width=50&height=50', { width: 50, height: 50 }],
    ['width=50&height=50&focal_point_x=180&focal_point_y=50', { width: 50, height: 50 }],
    ['width=50&height=50&fit=inside&format=jpg', { type: 'image/jpeg', width: 50, height: 25 }],
    ['width=400&withoutEnlargement=true', { width: 200 }],
    ['key=system-small-cover', { width: 64, height: 64, format: 'png' }],
    ['format=webp&quality=10', { type: 'image/webp', format: 'webp' }],
    [`transforms=${encodeURIComponent('[["rotate",90],["greyscale"]]')}`, { width: 100, height: 200 }],
  ] as const)
    t.match(await ask(query), expected, query);
  t.match(await ask('format=auto', 'image/webp,*/*'), { type: 'image/webp' });
  for (const query of [
    ...['width=0', 'width=-1', 'width=abc', 'width=1001', 'fit=x', 'format=gif', 'quality=101', 'key=unknown'],
    ...['transforms=x', `transforms=${encodeURIComponent('[["toFile","/tmp/x"]]')}`, 'transforms=[["constructor"]]'],
    ...[
      `transforms=${encodeURIComponent('[["resize",100000]]')}`,
      'transforms=[1,2,3,4,5,6]',
      'transforms=[["blur","x"]]',
    ],
  ])
    t.match(await ask(query), { status: 400 }, query);
  const derived = await readdir(join(root, 'derived', id));
  t.ok(derived.length >= 8, `${derived.length} are kept`);
  t.match(await ask('width=50'), { status: 200, width: 50 }, 'from what was kept');
  await sql`update service_settings set storage_asset_transform = 'presets', storage_asset_presets = ${sql.json([{ key: 'tiny', width: 7 }])}`;
  t.match(await ask('key=tiny'), { status: 200, width: 7 });
  t.match(await ask('width=50'), { status: 400 });
  await sql`update service_settings set storage_asset_transform = 'all'`;
  const broken = idOf(await uploadTo('local', 'no image at all', 'b.png', 'image/png'));
  t.equal((await request(service, 'GET', `/assets/${broken}?width=5`)).status, 400);
  const drawing = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>';
  const disguised = await uploadTo('local', drawing, 'e.png', 'image/png');
  t.match(disguised.json, { data: { width: null } }, 'a drawing is not read, whatever its type');
  t.equal((await request(service, 'GET', `/assets/${idOf(disguised)}?width=5`)).status, 400);
  const gif = await sharp(png).gif().toBuffer();
  const moving = await uploadTo('local', gif, 'f.png', 'image/png');
  t.match(moving.json, { data: { width: 200 } });
  t.equal((await request(service, 'GET', `/assets/${idOf(moving)}?width=5`)).status, 400, 'none of the formats');
  const bomb = await sharp({ create: { width: 1200, height: 10, channels: 3, background: 'red' } })
    .png()
    .toBuffer();
  t.equal(
    (await request(service, 'GET', `/assets/${idOf(await uploadTo('local', bomb, 'c.png', 'image/png'))}?width=5`))
      .status,
    400,
  );
  const text = idOf(await uploadTo('local', 'plain', 'd.txt', 'text/plain'));
  t.match(await request(service, 'GET', `/assets/${text}?width=5`), { status: 200, text: 'plain' });
  const tagAt = async (x: number) =>
    (await request(service, 'GET', `/assets/${id}?width=9&height=9&focal_point_x=${x}&focal_point_y=5`)).headers.etag;
  t.equal(await tagAt(200), await tagAt(99_999), 'points outside are one');
  t.not(await tagAt(20), await tagAt(180));
  await Promise.all(
    Array.from({ length: 100 }, (_, number) => writeFile(join(root, 'derived', id, `${number}.png`), '')),
  );
  const full = (await readdir(join(root, 'derived', id))).length;
  t.match(await ask('width=51'), { status: 200, width: 51 });
  t.equal((await readdir(join(root, 'derived', id))).length, full, 'a hundred are kept, the others are sent');
  t.match(await ask('key=system-medium-cover'), { status: 200, width: 300 });
  t.equal((await readdir(join(root, 'derived', id))).length, full + 1, 'and those of presets');
  await request(service, 'DELETE', `/files/${id}`);
  await waitFor(async () => !(await readdir(join(root, 'derived'))).includes(id), 5_000);
});

t.test('names in a folder are counted', async (t) => {
  const env = { STORAGE_LOCAL_ROOT: root, ...bucketOptions('BUCKET', 'S3RVER') };
  const storages = new Storages(readLocations(['local', 'bucket'], env));
  async function* bytes(): AsyncIterable<Buffer> {
    yield Buffer.from('x');
  }
  for (const location of ['local', 'bucket']) {
    const storage = storages.of(location);
    t.equal(await storage.count('derived/one'), 0, location);
    for (const name of ['one/a.png', 'one/b.png', 'one-more/a.png']) await storage.write(`derived/${name}`, bytes());
    t.equal(await storage.count('derived/one'), 2, location);
    for (const name of ['one', 'one-more']) await storage.removeFolder(`derived/${name}`);
  }
});

t.test('the command finds stored files without a row, and rows without a stored file', async (t) => {
  const orphan = '00000000-0000-4000-8000-00000000000f.txt';
  const storages = new Storages(readLocations(['local'], { STORAGE_LOCAL_ROOT: root }));
  async function* bytes(): AsyncIterable<Buffer> {
    yield Buffer.from('orphan');
  }
  await storages.of('local').write(orphan, bytes());
  await writeFile(join(root, 'of somebody else.txt'), 'x');
  for (const name of [orphan, 'of somebody else.txt']) await utimes(join(root, name), new Date(0), new Date(0));
  const lost = idOf(await uploadTo('local', 'lost', 'lost.txt'));
  await unlink(join(root, `${lost}.txt`));
  const environment = { DATABASE_URL: databaseUrl, STORAGE_LOCAL_ROOT: root, STORAGE_LOCATIONS: 'local' };
  const { code, output, complaints } = await runProgram(['files', '--remove'], environment);
  t.match(output, new RegExp(`no row: local/${orphan} \\(6 bytes\\)`), complaints);
  t.match(output, new RegExp(`no stored file: ${lost} \\(local/${lost}\\.txt\\)`));
  t.notMatch(output, /somebody/);
  t.equal(code, 1);
  t.notOk((await readdir(root)).includes(orphan));
});

t.test('names and options', async (t) => {
  for (const name of ['a.txt', 'derived/x/y.png']) t.ok(isStorageName(name), name);
  for (const name of ['', '.', '..', '../x', 'a/../b', '/etc', 'a//b', 'a/b/c/d', 'a\\b', 'a\0b', '.x', 'a b'])
    t.notOk(isStorageName(name), JSON.stringify(name));
  t.strictSame(readLocations([], {}), [{ driver: 'local', name: 'local', root: './uploads' }]);
  for (const [names, environment, complaint] of [
    [['x'], {}, /STORAGE_X_DRIVER must be set/],
    [['x'], { STORAGE_X_DRIVER: 'gcs' }, /must be local or s3/],
    [['x'], { STORAGE_X_DRIVER: 's3' }, /STORAGE_X_KEY must be set/],
    [['local'], { STORAGE_LOCAL_BUCKET: 'a' }, /STORAGE_LOCAL_BUCKET: the driver local has no such option/],
    [['a/b'], {}, /must be letters/],
  ] as const)
    t.throws(() => readLocations(names, environment), { message: complaint });
  t.match(
    readLocations(['a', 'a_b'], {
      STORAGE_A_DRIVER: 'local',
      STORAGE_A_B_DRIVER: 's3',
      STORAGE_A_B_KEY: 'k',
      STORAGE_A_B_SECRET: 's',
      STORAGE_A_B_BUCKET: 'b',
    }),
    [{ driver: 'local' }, { driver: 's3', url: 'https://b.s3.us-east-1.amazonaws.com/', root: '' }],
  );
});
