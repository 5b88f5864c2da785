/** Traces: the spans that a collector gets by OTLP over HTTP, the header that names them, and nothing of it without the option. */
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { type Service, startService } from '../../../src/app/start.js';
import type { Event } from '../../../src/base/observe.js';
import { parseTraceparent } from '../../../src/server/http/traces.js';
import {
  ADMIN_TOKEN,
  type Answer,
  createLibrary,
  get,
  request,
  startDatabase,
  waitFor,
  ways,
} from '../../support/service.js';

interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly status: { readonly code: number };
  readonly attributes: readonly { readonly key: string; readonly value: Readonly<Record<string, unknown>> }[];
}

interface ExportRequest {
  readonly resourceSpans: readonly {
    readonly resource: Pick<Span, 'attributes'>;
    readonly scopeSpans: readonly { readonly spans: readonly Span[] }[];
  }[];
}

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const PARENT = 'b7ad6b7169203331';
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'traced');

async function openCollector(
  t: Test,
): Promise<{ url: string; spans: Span[]; requests: IncomingHttpHeaders[]; resources: Pick<Span, 'attributes'>[] }> {
  const spans: Span[] = [];
  const requests: IncomingHttpHeaders[] = [];
  const resources: Pick<Span, 'attributes'>[] = [];
  const collector = createServer(async (incoming, response) => {
    const pieces: Buffer[] = [];
    for await (const piece of incoming) pieces.push(piece);
    if (incoming.method !== 'POST' || incoming.url !== '/v1/traces') return void response.writeHead(404).end();
    requests.push(incoming.headers);
    const { resourceSpans } = JSON.parse(Buffer.concat(pieces).toString()) as ExportRequest;
    for (const { resource, scopeSpans } of resourceSpans) {
      resources.push(resource);
      spans.push(...scopeSpans.flatMap((scope) => scope.spans));
    }
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
  });
  collector.listen(0, '127.0.0.1');
  await once(collector, 'listening');
  t.teardown(() => collector.closeAllConnections());
  t.teardown(() => collector.close());
  return { url: `http://127.0.0.1:${(collector.address() as AddressInfo).port}`, spans, requests, resources };
}

async function startTraced(t: Test, options: Record<string, string>): Promise<{ service: Service; events: Event[] }> {
  const events: Event[] = [];
  const given = { PORT: '0', LOG_LEVEL: 'silent', ADMIN_TOKEN, ...ways(), ...options, DATABASE_URL: databaseUrl };
  const service = await startService(
    readConfig(given),
    (event) => events.push(event),
    () => {},
  );
  t.teardown(() => service.stop());
  return { service, events };
}

function attributesOf({ attributes }: Pick<Span, 'attributes'>): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
}

const children = (spans: readonly Span[], { spanId }: Span): Span[] =>
  spans.filter(({ parentSpanId }) => parentSpanId === spanId);
const names = (spans: readonly Span[]): string[] => spans.map(({ name }) => name);

/** In this thread. */
function isLoaded(): boolean {
  return Object.keys(createRequire(import.meta.url).cache).some((path) => path.includes('@opentelemetry/sdk-trace'));
}

t.test('without the option nothing is loaded, and no header is sent', async (t) => {
  const { service } = await startTraced(t, { WORKERS: '1' });
  const { headers } = await get(service, '/items/articles?limit=1', {
    headers: { traceparent: `00-${TRACE}-${PARENT}-01` },
  });
  t.notOk('traceparent' in headers);
  t.notOk(isLoaded());
});

for (const workers of ['1', '2']) {
  t.test(`with ${workers} threads a request is a span, and each of its stages one below it`, async (t) => {
    const collector = await openCollector(t);
    const { service } = await startTraced(t, {
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_HEADERS: 'x-api-key=a%20key,x-other=b',
      OTEL_SERVICE_NAME: 'library',
      WORKERS: workers,
      SERVER_TIMING: workers === '1' ? 'true' : 'false',
    });
    t.ok(isLoaded() || workers !== '1');
    const path = '/items/articles/1?fields=id,title';
    const { headers } = await get(service, path, { headers: { traceparent: `00-${TRACE}-${PARENT}-01` } });
    const [, traceId, spanId, flags] = String(headers['traceparent']).split('-');
    t.equal(traceId, TRACE);
    t.not(spanId, PARENT);
    t.equal(flags, '01');
    t.equal('server-timing' in headers, workers === '1');
    const { json: shapes } = await get(service, '/server/shapes?limit=1000');
    await service.stop();

    const { spans } = collector;
    const span = spans.find((each) => each.spanId === spanId);
    if (!span) throw new Error(`the span did not arrive: ${names(spans)}`);
    t.equal(span.traceId, TRACE);
    t.equal(span.parentSpanId, PARENT);
    t.equal(span.name, 'GET /items/:collection/:key');
    t.equal(span.kind, 2, 'a server');
    t.equal(span.status.code, 0);
    const { 'lateral.shape': shape, ...others } = attributesOf(span);
    t.strictSame(others, {
      'http.request.method': 'GET',
      'http.route': '/items/:collection/:key',
      'http.response.status_code': 200,
      'lateral.request_id': headers['x-request-id'],
    });
    const digests = (shapes as { data: { digest: string; text: string }[] }).data.filter(({ text }) =>
      text.includes('articles'),
    );
    t.ok(
      digests.some(({ digest }) => digest === shape),
      'the shape is found in /server/shapes',
    );
    const stages = children(spans, span);
    t.strictSame(names(stages), ['identify', 'parse', 'restrict', 'plan', 'compile', 'execute', 'reply', 'send']);
    for (const [position, { startTimeUnixNano, endTimeUnixNano, name, traceId }] of stages.entries()) {
      t.equal(traceId, TRACE);
      const before = stages[position - 1]?.endTimeUnixNano ?? span.startTimeUnixNano;
      t.equal(startTimeUnixNano, before, `${name} begins where the stage before ended`);
      t.ok(BigInt(endTimeUnixNano) >= BigInt(startTimeUnixNano));
    }
    t.equal(stages.at(-1)?.endTimeUnixNano, span.endTimeUnixNano);
    t.ok(
      Math.abs(Number(BigInt(span.endTimeUnixNano) / 1_000_000n) - Date.now()) < 60_000,
      'the time is that of the clock',
    );
    t.match(attributesOf(collector.resources[0] ?? { attributes: [] }), { 'service.name': 'library' });
    t.match(collector.requests[0], { 'x-api-key': 'a key', 'x-other': 'b', 'content-type': 'application/json' });
  });
}

t.test('a known shape skips stages; writes, GraphQL and errors have spans; values and keys are in none', async (t) => {
  const collector = await openCollector(t);
  const { service } = await startTraced(t, { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, WORKERS: '1' });
  const ids: Record<string, string> = {};
  const note = (name: string, { headers }: Pick<Answer, 'headers'>): void => {
    ids[name] = String(headers['traceparent']).split('-')[2] ?? '';
  };
  const json = { 'content-type': 'application/json' };
  await get(service, '/items/authors?fields=id,name&filter[name][_eq]=hidden-value');
  note('warm', await get(service, '/items/authors?fields=id,name&filter[name][_eq]=hidden-value'));
  note(
    'write',
    await request(service, 'PATCH', '/items/articles/1', { headers: json, body: '{"title":"hidden-value"}' }),
  );
  const query = JSON.stringify({ query: '{ articles(limit: 1) { id } }' });
  note('graphql', await request(service, 'POST', '/graphql', { headers: json, body: query }));
  note('invalid', await get(service, '/items/articles?fields=nonsense'));
  note('unknown', await get(service, '/hidden-value'));
  note('small', await get(service, '/server/ping'));
  await service.stop();
  const { spans } = collector;
  const of = (name: string): Span => spans.find(({ spanId }) => spanId === ids[name]) as Span;
  t.strictSame(names(children(spans, of('warm'))), ['identify', 'parse', 'execute', 'reply', 'send']);
  const written = names(children(spans, of('write')));
  for (const stage of ['identify', 'parse', 'plan', 'compile', 'execute', 'send']) t.ok(written.includes(stage), stage);
  t.type(attributesOf(of('write'))['lateral.shape'], 'string');
  t.equal(of('graphql').name, 'POST /graphql');
  t.type(attributesOf(of('graphql'))['lateral.shape'], 'string');
  t.equal(attributesOf(of('invalid'))['http.response.status_code'], 403);
  t.equal(of('invalid').status.code, 0, 'a mistake of the client is no error of the server');
  t.equal(of('unknown').name, 'GET');
  t.strictSame(names(children(spans, of('small'))), ['send']);
  t.notMatch(JSON.stringify(spans), /hidden-value/);
});

t.test('the caller decides whether a request is traced; without a caller the share does', async (t) => {
  const collector = await openCollector(t);
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, WORKERS: '1' };
  const { service } = await startTraced(t, { ...endpoint, OTEL_TRACES_SAMPLER_ARG: '0' });
  const answers = [
    await get(service, '/items/articles?limit=1', { headers: { traceparent: `00-${TRACE}-${PARENT}-00` } }),
    await get(service, '/items/articles?limit=1'),
    await get(service, '/items/articles?limit=1', { headers: { traceparent: 'nonsense' } }),
    await get(service, '/items/articles?limit=1', { headers: { traceparent: `00-${TRACE}-${PARENT}-01` } }),
  ];
  await service.stop();
  const sent = answers.map(({ headers }) => String(headers['traceparent']));
  t.strictSame(
    sent.map((each) => each.slice(-2)),
    ['00', '00', '00', '01'],
  );
  t.ok(sent[0]?.includes(TRACE));
  t.notOk(sent[2]?.includes(TRACE));
  t.strictSame([...new Set(collector.spans.map(({ traceId }) => traceId))], [TRACE]);
});

t.test('a collector that is away costs a line in the log and no request', async (t) => {
  const { service, events } = await startTraced(t, { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9', WORKERS: '1' });
  t.equal((await get(service, '/items/articles?limit=1')).status, 200);
  const failed = (): boolean => events.some(({ kind }) => kind === 'traces-failed');
  await waitFor(async () => failed(), 20_000);
  t.equal((await get(service, '/items/articles?limit=1')).status, 200);
  const begun = performance.now();
  await service.stop();
  t.ok(performance.now() - begun < 5_000, 'the stop waits no longer than a moment');
});

t.test('headers for the collector and shares that cannot be read stop the start', async (t) => {
  for (const headers of ['nonsense', 'a=%zz', '=b'])
    t.throws(() => readConfig({ OTEL_EXPORTER_OTLP_HEADERS: headers }), /OTEL_EXPORTER_OTLP_HEADERS: must look like/);
  for (const share of ['1.1', '-1', 'half'])
    t.throws(() => readConfig({ OTEL_TRACES_SAMPLER_ARG: share }), /OTEL_TRACES_SAMPLER_ARG: must be a number from 0/);
});

t.test('traceparent is read as the W3C has it', async (t) => {
  const context = { traceId: TRACE, spanId: PARENT, isRemote: true };
  t.strictSame(parseTraceparent(`00-${TRACE}-${PARENT}-01`), { ...context, traceFlags: 1 });
  t.strictSame(parseTraceparent(`00-${TRACE}-${PARENT}-02`), { ...context, traceFlags: 0 });
  t.strictSame(parseTraceparent(`cc-${TRACE}-${PARENT}-01-more`), { ...context, traceFlags: 1 });
  for (const wrong of [
    '',
    `00-${TRACE}-${PARENT}`,
    `00-${TRACE}-${PARENT}-01-more`,
    `ff-${TRACE}-${PARENT}-01`,
    `00-${'0'.repeat(32)}-${PARENT}-01`,
    `00-${TRACE}-${'0'.repeat(16)}-01`,
    `00-${TRACE.toUpperCase()}-${PARENT}-01`,
  ])
    t.equal(parseTraceparent(wrong), null, wrong);
});
