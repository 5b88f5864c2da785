/** The files and the command lines of recordings: devices and links stay, damaged or empty files and services that refuse are named. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, lstat, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import t from 'tap';
import { replaceFile } from '../../../src/features/traffic/replace-file.js';
import { endLine, headerLine, requestLine } from '../../../src/features/traffic/traffic-file.js';
import { runCommand } from '../../support/command.js';
import { makeFolder } from '../../support/service.js';

const folder = await makeFolder();
const path = (name: string): string => join(folder, name);
const HEADER = headerLine({ started: new Date(), sample: 1, service: '1.0.0' });
const REQUEST = { method: 'GET', path: '/items/tags', user: null, role: null, status: 200, bytes: 1, ms: 1 };
const END = endLine({ milliseconds: 1_000, requests: 1, dropped: 0 });

/** Answers as a service does, and records these lines. */
async function serve(lines: readonly string[], status = 200): Promise<string> {
  const server = createServer((request, response) => {
    response.statusCode = status;
    if (request.url === '/items/silent') return;
    response.end(request.url?.startsWith('/server/traffic') ? lines.join('\n') : '{"data":[]}');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.closeAllConnections());
  t.teardown(() => server.close());
  return `http://127.0.0.1:${Object(server.address()).port}`;
}

const url = await serve([HEADER, requestLine({ t: 5, ...REQUEST }), END]);
const credentials = ['--url', url, '--token', 'x'];
const record = (file: string, service = url) =>
  runCommand(['record', '--url', service, '--token', 'x', '--for', '1s', '-o', file]);

async function written(name: string, ...lines: readonly string[]): Promise<string> {
  await writeFile(path(name), lines.join('\n'));
  return path(name);
}

t.test('a recording is written through a link and into a pipe', async (t) => {
  await writeFile(path('target.lateral'), 'before');
  await symlink(path('target.lateral'), path('link.lateral'));
  t.match(await record(path('link.lateral')), { code: 0 });
  t.ok((await lstat(path('link.lateral'))).isSymbolicLink());
  t.match(gunzipSync(await readFile(path('target.lateral'))).toString(), /items\/tags/);

  execFileSync('mkfifo', [path('pipe')]);
  const reader = spawn('cat', [path('pipe')]);
  const chunks: Buffer[] = [];
  reader.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
  const closed = once(reader, 'close');
  t.match(await record(path('pipe')), { code: 0 });
  const isPipe = (await stat(path('pipe'))).isFIFO();
  t.ok(isPipe, 'it is still a pipe');
  if (!isPipe) reader.kill();
  await closed;
  t.match(isPipe ? gunzipSync(Buffer.concat(chunks)).toString() : '', /items\/tags/);
});

t.test('a file stays as it is if its replacement fails', async (t) => {
  await writeFile(path('kept'), 'before');
  const failing = replaceFile(path('kept'), async (file) => {
    await writeFile(file, 'half');
    throw new Error('no space left');
  });
  await t.rejects(failing, /no space left/);
  t.equal(await readFile(path('kept'), 'utf8'), 'before');
  t.strictSame(
    (await readdir(path('.'))).filter((name) => name.startsWith('kept')),
    ['kept'],
  );
});

t.test('a replaced file keeps its mode and its links', async (t) => {
  await writeFile(path('shared'), 'before');
  await chmod(path('shared'), 0o664);
  await symlink('shared', path('link'));
  await replaceFile(path('link'), (file) => writeFile(file, 'after'));
  t.equal(await readFile(path('shared'), 'utf8'), 'after');
  t.equal((await stat(path('shared'))).mode & 0o777, 0o664);
  await replaceFile(path('shared'), (file) => writeFile(file, 'private', { mode: 0o600 }));
  t.equal((await stat(path('shared'))).mode & 0o777, 0o600, 'a private one becomes private');
  await symlink('new', path('broken'));
  await replaceFile(path('broken'), (file) => writeFile(file, 'made'));
  t.equal(await readFile(path('new'), 'utf8'), 'made');
});

t.test('an empty recording names no factor', async (t) => {
  const empty = await serve([HEADER, endLine({ milliseconds: 1_000, requests: 0, dropped: 0 })]);
  const recorded = await record(path('empty.lateral'), empty);
  t.match(recorded, { code: 0, complaints: /^0 requests of 0 shapes in 1 s, written to \S+\n$/ });
  const replayed = await runCommand(['replay', path('empty.lateral'), ...credentials]);
  t.match(replayed, { code: 2, complaints: /^lateral: \S+ has no requests that can be replayed\n$/ });
});

t.test('wrong options and recordings are refused with a reason', async (t) => {
  const made = await written('made', HEADER, requestLine({ t: 5, ...REQUEST }), END);
  const writes = await written('writes', HEADER, requestLine({ t: 5, ...REQUEST, method: 'POST', write: true }), END);
  const moment = await written('moment', HEADER, requestLine({ t: 0, ...REQUEST }));
  const never = await written('never', HEADER, requestLine({ t: 5, ...REQUEST }).replace('"t":5', '"t":1e999'));
  const sample = await written('sample', HEADER.replace('"sample":1', '"sample":0'), END);
  for (const [words, complaint] of [
    [['replay', writes, ...credentials], /has no requests that can be replayed without --writes\n/],
    [['replay', moment, ...credentials, '--for', '1s'], /has no length.*--rate 50\/s/],
    [['replay', never, ...credentials], /has no request in line 2/],
    [['replay', sample, ...credentials], /is no recording/],
    [
      ['replay', made, ...credentials, '--rate', '-1x'],
      'lateral: --rate must be a factor such as 2x, or a rate such as 500/s, not "-1x"\n',
    ],
    [['capacity', made, ...credentials, '--slo', 'p99=1s', '--from', '0/s'], /--from must be a rate such as 50\/s/],
    [['replay', made, '--url', url.replace('//', '//name:secret@'), '--token', 'x'], /without a name and a password/],
  ] as const) {
    const outcome = await runCommand(words);
    t.match(outcome, { code: 2, complaints: complaint, output: '' }, String(complaint));
    t.notMatch(outcome.complaints, /secret/);
  }
  t.match(await runCommand(['replay', moment, ...credentials]), { code: 0 }, 'once needs no length');
});

t.test('a service that limits requests is named', async (t) => {
  const limiting = await serve([], 429);
  const made = await written('limited', HEADER, requestLine({ t: 5, ...REQUEST }), END);
  for (const words of [
    ['replay', made],
    ['record', '-o', path('x')],
  ])
    t.match(await runCommand([...words, '--url', limiting, '--token', 'x']), {
      code: 1,
      complaints: /limits requests \(429\): if it is Lateral's limit, set RATE_LIMITER_ENABLED=false/,
    });
});

t.test('requests that were never sent have waited since they were due', async (t) => {
  const silent = await written('silent', HEADER, requestLine({ t: 5, ...REQUEST, path: '/items/silent' }), END);
  const options = ['--rate', '10/s', '--for', '1s', '--connections', '1', '--slo', 'p50=10.3s', '--json'];
  const { code, output } = await runCommand(['replay', silent, ...credentials, ...options]);
  t.equal(code, 1, output);
  const { replayed } = JSON.parse(output);
  t.match(replayed, [{ requests: 10, errors: 10, causes: { 'not sent, because all connections were busy': 8 } }]);
  // The request that was due in the middle waited until the end, ten seconds after the last one was due.
  t.ok(replayed[0].p50 > 10_300 && replayed[0].p50 < 12_000, `${replayed[0].p50} ms`);
});
