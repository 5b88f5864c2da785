/** A request that is traced: the times that Server-Timing tells are the spans of its stages. */

import type { HttpRequest, HttpResponse } from 'uWebSockets.js';
import { performance } from 'node:perf_hooks';
import type { Stage } from '../engine/stages.js';
import { Exchange, type ServerHooks } from './exchange.js';
import type { RequestTrace, Traces } from './traces.js';

export function openTraced(
  traces: Traces,
  hooks: ServerHooks,
): (request: HttpRequest, response: HttpResponse) => Exchange {
  return (request, response) => new TracedExchange(request, response, hooks, traces);
}

class TracedExchange extends Exchange {
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
