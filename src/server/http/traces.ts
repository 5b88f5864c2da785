/**
 * Traces: a span for each request and one for each of its stages, sent to an OpenTelemetry collector. The library is loaded only if
 * OTEL_EXPORTER_OTLP_ENDPOINT is set.
 */

import { hostname } from 'node:os';
import { performance } from 'node:perf_hooks';
import type * as OpenTelemetry from '@opentelemetry/api';
import type { Context, Span, SpanContext, Tracer } from '@opentelemetry/api';
import type { ReadableSpan, SpanExporter } from '@opentelemetry/sdk-trace';
import { StartError } from '../../base/errors.js';
import { asError } from '../../base/narrow.js';
import type { Observer } from '../../base/observe.js';
import { packageVersion } from '../../base/package-files.js';
import { atMost } from '../../base/time-limit.js';
import { shapeDigest } from '../batching/shape-stats.js';
import type { Config } from '../config/config.js';
import type { Stage } from '../execute/stages.js';
import { Exchange, type ServerHooks } from './exchange.js';
import type { ServerRequest, ServerResponse } from './transport.js';

export interface Traces {
  readonly api: typeof OpenTelemetry;
  readonly tracer: Tracer;
  /** Sends what is left, within so many milliseconds. */
  close(timeoutMs: number): Promise<void>;
}

export async function openTraces(config: Config, observe: Observer): Promise<Traces | null> {
  const endpoint = config.OTEL_EXPORTER_OTLP_ENDPOINT;
  if (endpoint === null) return null;
  const library = await loadLibrary().catch((error: unknown) => {
    throw new StartError(
      `OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not installed (${asError(error).message})`,
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
  return {
    api: library.api,
    tracer: provider.getTracer('lateral', packageVersion),
    close: (timeoutMs) =>
      atMost(
        timeoutMs,
        provider.shutdown().catch((error: unknown) => observe({ kind: 'traces-failed', error })),
      ),
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

/** A request with a span. The times of Server-Timing are the spans of its stages. */
export class TracedExchange extends Exchange {
  readonly #span: Span;
  readonly #context: Context;
  /** Only a request that is sampled pays for its stages. */
  readonly #isRecording: boolean;
  #lastStageEnded = this.begun;

  constructor(
    request: ServerRequest,
    response: ServerResponse,
    hooks: ServerHooks,
    private readonly traces: Traces,
  ) {
    super(request, response, hooks);
    const { trace, ROOT_CONTEXT, SpanKind } = traces.api;
    const parent = parseTraceparent(request.getHeader('traceparent'));
    const outer = parent ? trace.setSpanContext(ROOT_CONTEXT, parent) : ROOT_CONTEXT;
    const startTime = epoch(this.begun);
    this.#span = traces.tracer.startSpan('request', { kind: SpanKind.SERVER, startTime }, outer);
    this.#context = trace.setSpan(outer, this.#span);
    this.#isRecording = this.#span.isRecording();
    const { traceId, spanId, traceFlags } = this.#span.spanContext();
    this.extraHeaders = `\r\ntraceparent: 00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`;
  }

  protected override stageEnded(stage: Stage | 'send', begun: number, now: number): void {
    this.#lastStageEnded = now;
    if (this.#isRecording)
      this.traces.tracer.startSpan(stage, { startTime: epoch(begun) }, this.#context).end(epoch(now));
  }

  /** The last of several statements: the write itself, not the read of its rows. */
  override statement(text: string): void {
    super.statement(text);
    if (this.#isRecording) this.#span.setAttribute('lateral.shape', shapeDigest(text));
  }

  override batched(reads: number): void {
    super.batched(reads);
    this.#span.setAttribute('lateral.batch.reads', reads);
  }

  /** The path of a span is the one of the route: values of clients may be secret. */
  override ended(status: number): void {
    if (!this.#isRecording) return;
    const now = performance.now();
    this.stageEnded('send', this.#lastStageEnded, now);
    const { method } = this;
    const route = this.routeStats?.path ?? null;
    this.#span.updateName(route === null ? method : `${method} ${route}`);
    this.#span.setAttributes({
      'http.request.method': method,
      'http.response.status_code': status,
      'lateral.request_id': this.id,
      ...(route === null ? {} : { 'http.route': route }),
    });
    if (status >= 500) this.#span.setStatus({ code: this.traces.api.SpanStatusCode.ERROR });
    this.#span.end(epoch(now));
  }
}
