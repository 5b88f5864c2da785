/** GET /server/traffic: the requests that the service answers, as they come, for administrators who record them (docs/benchmark-your-own.md). */
import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { invalidQuery, serviceUnavailable } from '../../base/errors.js';
import { messageOf } from '../../base/narrow.js';
import type { Observer } from '../../base/observe.js';
import { packageVersion } from '../../base/package-files.js';
import type { Identities } from '../../server/access/identities.js';
import { onlyAdministrator } from '../../server/access/identity.js';
import { type ApiRoute, route } from '../../server/api/action.js';
import { file, queryParameter, STRING } from '../../server/api/openapi/json-schema.js';
import { duration } from '../../server/config/option-kinds.js';
import type { Exchange } from '../../server/http/exchange.js';
import type { Reply, Sink } from '../../server/http/reply.js';
import type { TrafficLogEvent } from './log-events.js';
import { MAX_RECORDINGS, type TrafficBatch, type TrafficPull, type TrafficRecorder } from './recorder.js';
import { endLine, headerLine } from './traffic-file.js';

interface TrafficServices {
  readonly identities: Identities;
  /** The recordings of this thread. */
  readonly recorder: TrafficRecorder;
  /** Asks all threads. */
  readonly observe: Observer<TrafficLogEvent>;
  readonly pull: (pull: TrafficPull) => Promise<readonly TrafficBatch[]>;
}

export function trafficRoutes(services: TrafficServices): ApiRoute[] {
  return [
    route('GET /server/traffic', (exchange) => record(exchange, services), {
      summary: 'The requests that the service answers, one JSON document per line',
      parameters: [
        queryParameter('for', STRING, 'How long to record, from 1s to 1h; 1m by default.'),
        queryParameter(
          'sample',
          { type: 'number' },
          'The share of requests to record, above 0 and up to 1; 1 by default.',
        ),
      ],
      answers: [file(['application/x-ndjson'])],
    }),
  ];
}

interface Wanted {
  readonly milliseconds: number;
  readonly sample: number;
}

const [MIN_MS, MAX_MS] = [1_000, 3_600_000];
const PULL_INTERVAL_MS = 250;
/** An empty line shows clients and proxies that the recording goes on. */
const MAX_SILENCE_MS = 2_000;

async function record(exchange: Exchange, services: TrafficServices): Promise<Reply> {
  const { user } = onlyAdministrator(await services.identities.identify(exchange));
  const wanted = readWanted(exchange.queryString);
  if ((services.recorder.current?.length ?? 0) >= MAX_RECORDINGS)
    throw serviceUnavailable('traffic', `${MAX_RECORDINGS} recordings are running. Wait until one of them ends`);
  services.observe({ kind: 'traffic-recorded', administrator: user, seconds: wanted.milliseconds / 1_000 });
  return {
    status: 200,
    type: 'application/x-ndjson; charset=utf-8',
    secret: true,
    body: (sink) => new RecordingStream(sink, wanted, services).run(),
  };
}

function readWanted(queryString: string): Wanted {
  const parameters = new URLSearchParams(queryString);
  const milliseconds = readDuration(parameters.get('for') ?? '1m');
  if (milliseconds < MIN_MS || milliseconds > MAX_MS) throw invalidQuery('"for" must be from 1s to 1h');
  const sampleText = parameters.get('sample') ?? '1';
  const sample = /^\d*\.?\d+$/.test(sampleText) ? Number(sampleText) : 0;
  if (sample <= 0 || sample > 1)
    throw invalidQuery(`"sample" must be a number above 0 and up to 1, not "${sampleText}"`);
  return { milliseconds, sample };
}

const { parse: parseDuration } = duration('', '');

function readDuration(text: string): number {
  try {
    return parseDuration(text);
  } catch (error) {
    throw invalidQuery(`"for" ${messageOf(error)}`);
  }
}

/** Writes the recording until its time has passed, the client leaves or the service stops. */
class RecordingStream {
  readonly #pull: TrafficPull;
  readonly #until: number;
  #isGone = false;
  #wake = (): void => {};
  #writtenAt = 0;
  #requests = 0;
  #dropped = 0;
  readonly #statements = new Set<string>();

  constructor(
    private readonly sink: Sink,
    private readonly wanted: Wanted,
    private readonly services: TrafficServices,
  ) {
    this.#pull = { id: randomUUID(), sample: wanted.sample, begun: Date.now(), isLast: false };
    this.#until = performance.now() + wanted.milliseconds;
    sink.onAbort(() => {
      this.#isGone = true;
      this.#wake();
    });
  }

  async run(): Promise<void> {
    const { recorder, pull } = this.services;
    const { begun, sample } = this.#pull;
    await pull(this.#pull);
    try {
      await this.#write([headerLine({ started: new Date(begun), sample, service: packageVersion })]);
      while (performance.now() < this.#until && !this.#isGone && !recorder.isStopping) {
        await this.#pause();
        await this.#writeBatches(await pull(this.#pull));
      }
    } finally {
      await this.#writeBatches(await pull({ ...this.#pull, isLast: true }));
    }
    const milliseconds = Math.min(Date.now() - begun, this.wanted.milliseconds);
    await this.#write([endLine({ milliseconds, requests: this.#requests, dropped: this.#dropped })]);
  }

  #pause(): Promise<void> {
    const left = this.#until - performance.now();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, Math.max(0, Math.min(PULL_INTERVAL_MS, left)));
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /** Several threads have the same statements. */
  async #writeBatches(batches: readonly TrafficBatch[]): Promise<void> {
    const statements = batches.flatMap((batch) => batch.statements).filter((line) => !this.#statements.has(line));
    for (const line of statements) this.#statements.add(line);
    for (const { requests, dropped } of batches) {
      this.#requests += requests;
      this.#dropped += dropped;
    }
    if (statements.length > 0) await this.#write([...new Set(statements)]);
    const lines = Buffer.concat(batches.map((batch) => batch.lines));
    if (lines.length > 0) await this.#send(lines);
    else if (performance.now() - this.#writtenAt > MAX_SILENCE_MS) await this.#write([]);
  }

  async #write(lines: readonly string[]): Promise<void> {
    await this.#send(Buffer.from(`${lines.join('\n')}\n`));
  }

  async #send(piece: Buffer): Promise<void> {
    if (this.#isGone) return;
    this.#writtenAt = performance.now();
    await this.sink.write(piece);
  }
}
