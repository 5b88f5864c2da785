/** Latency by load: at shares of the highest rate, for three kinds of reads, of the service and of the available peers. */
import { findCase } from './cases.js';
import type { Report } from './environment.js';
import { addressOf, type Measuring } from './measure.js';
import { type OpenLoopResult, runOpenLoop } from './open-loop.js';
import { isSameData } from './peers/answers.js';
import type { Peer, PeerId } from './peers/peer.js';
import { type Address, type Question, readAnswer, sentTo } from './statement.js';

const KINDS = ['key', 'nested', 'graphql'] as const;

export const LOADS: readonly number[] = [0.25, 0.5, 0.75, 0.9];

export interface OpenPoint extends OpenLoopResult {
  /** The share of the highest rate. */
  readonly load: number;
  /** The requested rate, in requests per second. */
  readonly rate: number;
}

export interface OpenCurve {
  readonly by: 'service' | PeerId;
  /** The rate of this client when each connection sends the next request at once. */
  readonly highest: number;
  readonly points: readonly OpenPoint[];
}

export interface Open {
  readonly connections: number;
  readonly seconds: number;
  readonly kinds: readonly { readonly id: string; readonly title: string; readonly curves: readonly OpenCurve[] }[];
}

export async function measureOpen(measuring: Measuring, peers: readonly Peer[], report: Report): Promise<Open> {
  const { url, connections, signal } = measuring;
  const seconds = measuring.seconds * measuring.rounds;
  const kinds: Open['kinds'][number][] = [];
  for (const id of KINDS) {
    const each = findCase(id);
    if (each === undefined) throw new Error(`there is no case "${id}"`);
    const curves: OpenCurve[] = [];
    const address = addressOf(each, url);
    const run = { ...measuring, seconds, report: (text: string) => report(`${each.title}, ${text}`) };
    curves.push(await measureCurve('service', each, address, run));
    const { document } = await readAnswer(each, address, signal);
    for (const peer of peers) {
      const question = peer.questionOf(each);
      if (question === null) continue;
      try {
        if (!isSameData(document, (await readAnswer(question, peer, signal)).document)) throw new Error('other data');
        curves.push(await measureCurve(peer.id, question, peer, run));
      } catch (error) {
        signal.throwIfAborted();
        report(`${each.title}, ${peer.id}: FAILED, ${error instanceof Error ? error.message : error}`);
      }
    }
    kinds.push({ id, title: each.title, curves });
  }
  return { connections, seconds, kinds };
}

async function measureCurve(
  by: OpenCurve['by'],
  question: Question,
  address: Address,
  { connections, seconds, warmUp, signal, report }: Measuring & { readonly report: Report },
): Promise<OpenCurve> {
  const run = (rate: number | null, length: number): Promise<OpenLoopResult> =>
    runOpenLoop({ ...sentTo(question, address), connections, seconds: length, rate }, signal);
  if (warmUp > 0) await run(null, warmUp);
  const { requestsPerSecond: highest, errors } = await run(null, seconds);
  if (errors > 0) throw new Error(`${errors} errors under load`);
  const points: OpenPoint[] = [];
  for (const load of LOADS) {
    signal.throwIfAborted();
    const rate = highest * load;
    const point = { load, rate, ...(await run(rate, seconds)) };
    const { latency, lateness } = point;
    report(
      `${by} at ${(load * 100).toFixed(0)} % (${rate.toFixed(0)}/s): p50 ${latency.p50.toFixed(2)} ms, ` +
        `p99 ${latency.p99.toFixed(2)} ms, p99.9 ${latency['p99.9'].toFixed(2)} ms; the client late by ${lateness.p99.toFixed(2)} ms`,
    );
    points.push(point);
  }
  return { by, highest, points };
}
