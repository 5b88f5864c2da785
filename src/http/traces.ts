/**
 * Traces: a span for each request and one for each of its stages, sent to an OpenTelemetry collector. The library is loaded only if
 * OTEL_EXPORTER_OTLP_ENDPOINT is set.
 */

import type { HttpRequest, HttpResponse } from 'uWebSockets.js';
import { hostname } from 'node:os';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context, Span, SpanContext, Tracer } from '@opentelemetry/api';
import type { ReadableSpan, SpanExporter } from '@opentelemetry/sdk-trace';
import { LRUCache } from 'lru-cache';
import { StartError } from '../base/errors.js';
import type { Observer } from '../base/observe.js';
import { packageVersion } from '../base/package-files.js';
import { digestOf } from '../batching/shape-stats.js';
import type { Config } from '../config/config.js';
import type { Stage } from '../engine/stages.js';
import { Exchange, type ServerHooks } from './exchange.js';

export interface Traces {
  /** Times are those of `performance.now()`. */
  begin(traceparent: string, now: number): RequestTrace;
  /** Sends what is left, within so many milliseconds. */
  close(timeoutMs: number): Promise<void>;
}

/** A request whose answer has left. */
export interface TracedRequest {
  readonly id: string;
  readonly method: string;
  /** The path as the route names it, since values of clients may be secret; or null without a route. */
  readonly route: string | null;
  readonly status: number;
}

type Library = Awaited<ReturnType<typeof loadLibrary>>;

export async function openTraces(config: Config, observe: Observer): Promise<Traces | null> {
  const endpoint = config.OTEL_EXPORTER_OTLP_ENDPOINT;
  if (endpoint === null) return null;
  const library = await loadLibrary().catch((error: unknown) => {
    throw new StartError(
      `OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not installed (${messageOf(error)})`,
    );
  });
  const { TracerProvider, BatchSpanProcessor, ParentBasedSampler, TraceIdRatioBasedSampler } = library.sdk;
  const exporter = new library.OTLPTraceExporter({
    url: `${endpoint}/v1/traces`,
    headers: { ...config.OTEL_EXPORTER_OTLP_HEADERS },
    timeoutMillis: EXPORT_TIMEOUT_MS,
  });
  const provider = new TracerProvider({
    resource: library.resourceFromAttributes({
      'service.name': config.OTEL_SERVICE_NAME,
      'service.version': packageVersion,
      'host.name': hostname(),
      'process.pid': process.pid,
    }),
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(config.OTEL_TRACES_SAMPLER_ARG) }),
    spanProcessors: [
      new BatchSpanProcessor({ exporter: reporting(exporter, observe), scheduledDelayMillis: EXPORT_INTERVAL_MS }),
    ],
  });
  const tracer = provider.getTracer('lateral', packageVersion);
  return {
    begin: (traceparent, now) => new RequestTrace(tracer, library, traceparent, now),
    close: async (timeoutMs) => {
      const late = new AbortController();
      const shutdown = provider.shutdown().catch((error: unknown) => observe({ kind: 'traces-failed', error }));
      await Promise.race([shutdown, sleep(timeoutMs, undefined, { signal: late.signal }).catch(() => {})]);
      late.abort();
    },
  };
}

const EXPORT_INTERVAL_MS = 1_000;
const EXPORT_TIMEOUT_MS = 5_000;

async function loadLibrary() {
  const [api, sdk, { resourceFromAttributes }, { OTLPTraceExporter }] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/sdk-trace'),
    import('@opentelemetry/resources'),
    import('@opentelemetry/exporter-trace-otlp-http'),
  ]);
  return { api, sdk, resourceFromAttributes, OTLPTraceExporter };
}

/** A collector that is away costs spans, and a line in the log; requests are answered as ever. */
function reporting(exporter: SpanExporter, observe: Observer): SpanExporter {
  return {
    export: (spans: ReadableSpan[], done) =>
      exporter.export(spans, (result) => {
        if (result.error) observe({ kind: 'traces-failed', error: result.error });
        done(result);
      }),
    shutdown: () => exporter.shutdown(),
    forceFlush: async () => exporter.forceFlush?.(),
  };
}

/** The span of a request. */
export class RequestTrace {
  /** Names this span, as `traceparent` does. */
  readonly traceparent: string;
  readonly #api: Library['api'];
  readonly #span: Span;
  readonly #context: Context;
  /** Only a request that is sampled pays for its stages. */
  readonly #isRecording: boolean;

  constructor(
    private readonly tracer: Tracer,
    { api }: Library,
    traceparent: string,
    now: number,
  ) {
    const { trace, ROOT_CONTEXT, SpanKind } = api;
    const parent = parseTraceparent(traceparent);
    const outer = parent ? trace.setSpanContext(ROOT_CONTEXT, parent) : ROOT_CONTEXT;
    this.#api = api;
    this.#span = tracer.startSpan('request', { kind: SpanKind.SERVER, startTime: epoch(now) }, outer);
    this.#context = trace.setSpan(outer, this.#span);
    this.#isRecording = this.#span.isRecording();
    const { traceId, spanId, traceFlags } = this.#span.spanContext();
    this.traceparent = `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`;
  }

  stage(name: string, begun: number, now: number): void {
    if (!this.#isRecording) return;
    this.tracer.startSpan(name, { startTime: epoch(begun) }, this.#context).end(epoch(now));
  }

  /** The last of several statements: the write itself, not the read of its rows. */
  statement(text: string): void {
    if (this.#isRecording) this.#span.setAttribute('lateral.shape', cachedDigest(text));
  }

  batched(reads: number): void {
    this.#span.setAttribute('lateral.batch.reads', reads);
  }

  end({ id, method, route, status }: TracedRequest, now: number): void {
    if (!this.#isRecording) return;
    this.#span.updateName(route === null ? method : `${method} ${route}`);
    this.#span.setAttributes({
      'http.request.method': method,
      'http.response.status_code': status,
      'lateral.request_id': id,
      ...(route === null ? {} : { 'http.route': route }),
    });
    if (status >= 500) this.#span.setStatus({ code: this.#api.SpanStatusCode.ERROR });
    this.#span.end(epoch(now));
  }
}

/** As https://www.w3.org/TR/trace-context/ has it; null for what is not to be trusted, which begins a trace of its own. */
export function parseTraceparent(text: string): SpanContext | null {
  const match = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/.exec(text);
  const [, version = '', traceId = '', spanId = '', flags = '', rest] = match ?? [];
  if (!match || version === 'ff' || /^0+$/.test(traceId) || /^0+$/.test(spanId)) return null;
  if (version === '00' && rest !== undefined) return null;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1, isRemote: true };
}

function epoch(now: number): number {
  return performance.timeOrigin + now;
}

const digests = new LRUCache<string, string>({ max: 1_000 });

function cachedDigest(text: string): string {
  const known = digests.get(text);
  if (known !== undefined) return known;
  const digest = digestOf(text);
  digests.set(text, digest);
  return digest;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** A traced request: the times of Server-Timing are the spans of its stages. */
export class TracedExchange extends Exchange {
  readonly #trace: RequestTrace;
  #lastStageEnded = this.begun;

  constructor(request: HttpRequest, response: HttpResponse, hooks: ServerHooks, traces: Traces) {
    super(request, response, hooks);
    this.#trace = traces.begin(request.getHeader('traceparent'), this.begun);
    this.extraHeaders = `\r\ntraceparent: ${this.#trace.traceparent}`;
  }

  protected override stageEnded(stage: Stage, begun: number, now: number): void {
    this.#trace.stage(stage, begun, now);
    this.#lastStageEnded = now;
  }

  override statement(text: string): void {
    this.#trace.statement(text);
  }

  override batched(reads: number): void {
    super.batched(reads);
    this.#trace.batched(reads);
  }

  override ended(status: number): void {
    const now = performance.now();
    this.#trace.stage('send', this.#lastStageEnded, now);
    const { id, method, routeStats } = this;
    this.#trace.end({ id, method, route: routeStats?.path ?? null, status }, now);
  }
}
