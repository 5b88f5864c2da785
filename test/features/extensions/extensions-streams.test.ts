/** Bodies without bound: of the responses of extensions, and of requests that the program passes on. */
import t from 'tap';
import { createLateral, defineExtension, type RouteOptions } from '../../../src/index.js';
import { ADMIN_TOKEN, createDatabase, request, startDatabase, waitFor } from '../../support/service.js';

const ADMIN = { as: 'administrator' } as const;
const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'extensions_streams');

const PIECE = new Uint8Array(65_536).fill(97);
const PIECES_OF_A_LARGE_BODY = 2_000;
const MANY_BYTES = 3_000_000;

let cancelled = 0;
let produced = 0;
let waiting = 0;
let release: () => void = () => {};
const released = new Promise<void>((resolve) => {
  release = resolve;
});

/** Never pauses: each pull has a piece at once. It ends by itself after a while, or no test would end. */
function flood(
  piece: Uint8Array,
  most: { readonly pieces?: number; readonly ms?: number },
): ReadableStream<Uint8Array> {
  const begun = performance.now();
  let pieces = 0;
  return new ReadableStream<Uint8Array>({
    pull: (controller) => {
      const isOver = pieces >= (most.pieces ?? Number.POSITIVE_INFINITY);
      if (isOver || performance.now() - begun > (most.ms ?? 20_000)) return controller.close();
      pieces++;
      produced++;
      controller.enqueue(piece);
    },
    cancel: () => void cancelled++,
  });
}

function held(): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(new Uint8Array(MANY_BYTES)),
    pull: async (controller) => {
      waiting++;
      await released;
      controller.close();
    },
  });
}

const extension = defineExtension({
  name: 'streams',
  routes: (router) => {
    const open: RouteOptions = { allow: 'anyone' };
    router.get('/large', open, () => new Response(flood(PIECE, { pieces: PIECES_OF_A_LARGE_BODY })));
    router.get('/empty', open, () => new Response(flood(new Uint8Array(0), { ms: 6_000 })));
    router.get('/held', open, () => new Response(held()));
    router.get('/json', open, () => 'x'.repeat(5_000_000));
    router.get('/text', open, () => new Response(ReadableStream.from(['text' as never])));
  },
});
const lateral = createLateral(
  {
    databaseUrl,
    port: 0,
    logLevel: 'silent',
    adminToken: ADMIN_TOKEN,
    extensionTimeout: '2s',
    bodyTimeout: '2s',
    maxPayloadSize: '1mb',
    maxResponseSize: '4mb',
    responseMemory: '8mb',
  },
  { extensions: [extension] },
);
await lateral.start();
t.teardown(() => lateral.stop());

const over = (path: string) => request(lateral, 'GET', `/ext/streams${path}`);

t.test('a response that is too large is refused while it is read, and its stream is cancelled', async (t) => {
  const large = await over('/large');
  t.equal(large.status, 503);
  t.equal(cancelled, 1);
  t.ok(produced < 100, `${produced} pieces were taken`);
  t.equal((await over('/json')).status, 503, 'also JSON');
  t.equal((await over('/text')).status, 503, 'pieces that are no bytes');
});

t.test('a stream without pause leaves the thread to others, and ends with its deadline', async (t) => {
  const before = cancelled;
  const begun = performance.now();
  const endless = over('/empty').then((answer) => ({ answer, ms: performance.now() - begun }));
  t.equal((await request(lateral, 'GET', '/server/ping')).status, 200);
  t.ok(performance.now() - begun < 1_500, 'another request was answered meanwhile');
  const { answer, ms } = await endless;
  t.equal(answer.status, 503);
  t.ok(ms < 5_000, `after ${Math.round(ms)} ms`);
  t.equal(cancelled, before + 1);
});

t.test('responses of extensions share the memory for large responses', async (t) => {
  let refused = 0;
  const answers = Array.from({ length: 4 }, async () => {
    const answer = await over('/held');
    if (answer.status === 503) refused++;
    return answer;
  });
  await waitFor(async () => waiting >= 2 && refused >= 2, 1_500);
  release();
  const all = await Promise.all(answers);
  t.strictSame(all.map(({ status }) => status).sort(), [200, 200, 503, 503]);
  t.match(all.find(({ status }) => status === 503)?.text, /Too many large responses/);
  t.strictSame([...new Set(all.filter(({ status }) => status === 200).map(({ text }) => text.length))], [MANY_BYTES]);
  t.equal((await over('/held')).status, 200, 'the memory was given back');
});

t.test('a request body without pause leaves the thread to others', async (t) => {
  const post = (body: ReadableStream<Uint8Array>) => {
    const headers = { 'content-type': 'application/json' };
    const given = new Request('http://lateral/auth/login', { method: 'POST', headers, body, duplex: 'half' });
    return lateral.fetch(given, ADMIN);
  };
  const large = await post(flood(PIECE, { pieces: PIECES_OF_A_LARGE_BODY }));
  t.equal(large.status, 400);
  t.match(await large.text(), /too large/);
  const begun = performance.now();
  const endless = post(flood(new Uint8Array(0), { ms: 6_000 }));
  t.equal((await request(lateral, 'GET', '/server/ping')).status, 200);
  t.ok(performance.now() - begun < 1_500, 'another request was answered meanwhile');
  const late = await endless;
  t.equal(late.status, 400);
  t.match(await late.text(), /did not arrive within/);
});
