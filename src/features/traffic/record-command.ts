/** `lateral record`: the traffic of a running service, in a file. */
import { createWriteStream } from 'node:fs';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { StartError, UsageError } from '../../base/errors.js';
import { isRecord, messageOf, parseOwnJson, propertiesOf } from '../../base/narrow.js';
import { counted, parseDuration } from './limits.js';
import { checkWritable, readOwnOptions } from './own-options.js';
import { Redactor } from './redact.js';
import { replaceFile } from './replace-file.js';
import { ask, readTarget, type Target } from './target.js';
import {
  endLine,
  headerLine,
  requestLine,
  serviceFactor,
  splitLines,
  type Traffic,
  TrafficReader,
} from './traffic-file.js';

const RECORD_HELP = `Usage: lateral record --url URL --token TOKEN [--for 10m] [--sample 0.1] [--redact] -o traffic.lateral

Records the requests that a running service answers: their times, statements, callers, statuses and durations. lateral replay sends them
again, and lateral capacity finds the highest rate. Tokens, passwords, cookies and values of concealed fields are never recorded.

  --url URL     the service; with several instances, the one to record
  --token TOKEN an administrator's token; ADMIN_TOKEN is used if it is absent
  --for 10m     how long, up to 1h [1m]
  --sample 0.1  the share of requests to record [1]; of many requests, the service records fewer (docs/benchmark-your-own.md)
  --redact      replaces values: numbers, dates, UUIDs and keys by other recorded ones, texts by invented ones of the same length
  -o FILE       the recording, which is NDJSON compressed with gzip

Ctrl-C ends the recording and keeps it. Exits with 1 if the service ended it too early, which keeps it too, and with 2 if an option is wrong. The file format and what --redact loses: docs/benchmark-your-own.md.`;

async function record(words: readonly string[]): Promise<void> {
  const options = readOwnOptions('record', words, {
    url: 'value',
    token: 'value',
    for: 'value',
    sample: 'value',
    redact: 'switch',
    output: 'value',
  });
  if (options.operands.length > 0)
    throw new UsageError(`unexpected argument "${options.operands[0]}": see lateral record --help`);
  const target = readTarget(options);
  const file = options.required('output');
  const milliseconds = parseDuration('--for', options.value('for') ?? '1m');
  if (milliseconds < MIN_MS || milliseconds > MAX_MS)
    throw new UsageError(`--for must be from 1s to 1h, not "${options.value('for')}"`);
  const sample = Number(options.value('sample') ?? '1');
  if (!(sample > 0 && sample <= 1))
    throw new UsageError(`--sample must be a number above 0 and up to 1, not "${options.value('sample')}"`);
  const redactor = options.has('redact') ? new Redactor() : null;
  await checkWritable('--output', file);
  const { traffic, isCutOff } = await listen(target, milliseconds, sample);
  await write(file, traffic, redactor);
  const { requests, recorded } = traffic;
  const shapes = new Set(recorded.map(({ shape }) => shape)).size;
  const length = `${Math.round(traffic.milliseconds / 1_000)} s`;
  console.error(
    `${counted(requests, 'request')} of ${counted(shapes, 'shape')} in ${length}, written to ${file}${describeDropped(traffic)}`,
  );
  if (!isCutOff) return;
  console.error(
    `the service ended the recording after ${length} of ${Math.round(milliseconds / 1_000)} s: has it stopped?`,
  );
  process.exitCode = 1;
}

function describeDropped(traffic: Traffic): string {
  const { dropped } = traffic;
  const left = dropped === 0 ? '' : `; the service left out ${dropped} to save processor time`;
  const factor = serviceFactor(traffic);
  return factor === 1 ? left : `${left}; lateral replay --rate ${factor}x has the rate of the service`;
}

const [MIN_MS, MAX_MS] = [1_000, 3_600_000];

/** Milliseconds after which a recording should have ended. */
const GRACE_MS = 30_000;

/** Milliseconds between two lines of progress. */
const PROGRESS_MS = 5_000;

/** A recording that is shorter by so many milliseconds did not end by itself. */
const MAX_MISSING_MS = 500;

interface Heard {
  readonly traffic: Traffic;
  /** Whether the service ended it before its time. */
  readonly isCutOff: boolean;
}

async function listen(target: Target, milliseconds: number, sample: number): Promise<Heard> {
  const stopped = new AbortController();
  const stop = (): void => stopped.abort();
  process.once('SIGINT', stop);
  const signal = AbortSignal.any([stopped.signal, AbortSignal.timeout(milliseconds + GRACE_MS)]);
  const response = await ask(target, `/server/traffic?for=${milliseconds}ms&sample=${sample}`, { signal });
  if (response.status !== 200) throw await refusal(target, response);
  const begun = performance.now();
  const reader = new TrafficReader(target.url.origin);
  const timer = setInterval(() => console.error(counted(reader.requests, 'request')), PROGRESS_MS).unref();
  let reason = 'is it running?';
  try {
    // The whole recording is kept in memory until it ends: values are replaced by how often they come.
    const body = response.body;
    if (body === null) throw new StartError(`${target.url.origin} sent nothing`);
    await splitLines(body, (line) => reader.add(line));
  } catch (error) {
    if (error instanceof StartError) throw error;
    reason = messageOf(error);
  } finally {
    clearInterval(timer);
    process.off('SIGINT', stop);
  }
  if (!reader.hasBegun) throw new StartError(`the recording of ${target.url.origin} broke off: ${reason}`);
  const traffic = reader.finish(performance.now() - begun);
  const isShort = !traffic.isComplete || traffic.milliseconds < milliseconds - MAX_MISSING_MS;
  return { traffic, isCutOff: isShort && !stopped.signal.aborted };
}

/** The reason of the service, if it has one. */
async function refusal({ url }: Target, response: Response): Promise<StartError> {
  const text = await response.text().catch(() => '');
  const reason = messageIn(text);
  if (response.status === 401 || response.status === 403)
    return new StartError(`${url.origin} refuses the token (${response.status}): it must be an administrator's`);
  if (response.status === 404)
    return new StartError(`${response.url} does not exist: is ${url.href} Lateral, and recent enough?`);
  return new StartError(`${url.origin} refuses to record (${response.status})${reason === '' ? '' : `: ${reason}`}`);
}

function messageIn(text: string): string {
  try {
    const { errors } = propertiesOf(parseOwnJson<unknown>(text));
    const first: unknown = Array.isArray(errors) ? errors[0] : null;
    return isRecord(first) ? messageOf(first) : '';
  } catch {
    return '';
  }
}

async function write(file: string, traffic: Traffic, redactor: Redactor | null): Promise<void> {
  try {
    await replaceFile(file, (path) =>
      pipeline(Readable.from(linesOf(traffic, redactor)), createGzip(), createWriteStream(path, { mode: 0o600 })),
    );
  } catch (error) {
    throw new StartError(`${file} cannot be written: ${messageOf(error)}`);
  }
}

function* linesOf(traffic: Traffic, redactor: Redactor | null): Iterable<string> {
  const { header, statements, recorded } = traffic;
  yield `${headerLine({ ...header, isRedacted: redactor !== null })}\n`;
  for (const [shape, text] of statements) yield `${JSON.stringify({ shape, text })}\n`;
  if (redactor) for (const request of recorded) redactor.learn(request);
  for (const request of recorded) yield `${requestLine(redactor ? redactor.redact(request) : request)}\n`;
  yield `${endLine(traffic)}\n`;
}

export const COMMANDS = {
  record: { help: RECORD_HELP, run: record },
};
