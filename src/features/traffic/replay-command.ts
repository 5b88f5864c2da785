/** `lateral replay`: sends recorded traffic to a service and compares the answers with the recording. */
import { writeFile } from 'node:fs/promises';
import { StartError, UsageError } from '../../base/errors.js';
import { messageOf } from '../../base/narrow.js';
import { checkLimits, counted, parseCount, parseDuration, parseRate, parseServiceLimits } from './limits.js';
import { checkWritable, type OwnOptions, readOwnOptions } from './own-options.js';
import { type PreparedReplay, type Progress, prepareReplay, replay as replayTraffic } from './replay.js';
import { isWithinLimits, jsonOf, junitOf, milliseconds, tableOf } from './report.js';
import { pageOf } from './report-page.js';
import { checkTarget, parseTarget, readFileOperand, readTarget } from './target.js';
import { readTraffic, serviceFactor, type Traffic } from './traffic-file.js';

const REPLAY_HELP = `Usage: lateral replay FILE --url URL --token TOKEN [--rate 1x | 500/s] [--for 1m] [--slo p99=50ms,errors=0.1%]

Sends the requests of a recording (lateral record) to a service, at the recorded times, as the recorded callers. A request is sent when it is
due, whether or not earlier ones were answered, and its latency begins then. Writes are left out, unless --writes asks for them.

  --url URL          the service
  --token TOKEN      an administrator's token: requests are sent with Lateral-View-As. ADMIN_TOKEN is used if it is absent
  --rate 1x          a multiple of the recorded rate, or requests per second as in 500/s [1x]
  --for 1m           how long; the recording is repeated or cut [once through the recording]
  --slo LIMITS       limits of all requests: p50, p90, p99 and p99.9 as times, errors and status (other than recorded) as percentages
  --writes           sends writes too, as the owner of the token
  --connections 64   connections to the service
  --compare URL      a second service, which gets the same requests in turns; --compare-token if its token is another one
  --json             prints JSON instead of the table
  --junit FILE       writes the result for CI: a test case per limit and per shape
  --html FILE        writes the result as a page

Exits with 1 if a limit is missed, with 2 if an option or the file is wrong, with 130 after Ctrl-C, which prints the report of what was sent.`;

const KINDS = {
  url: 'value',
  token: 'value',
  rate: 'value',
  for: 'value',
  slo: 'value',
  writes: 'switch',
  connections: 'value',
  compare: 'value',
  'compare-token': 'value',
  json: 'switch',
  junit: 'value',
  html: 'value',
} as const;

async function replay(words: readonly string[]): Promise<void> {
  const options = readOwnOptions('replay', words, KINDS);
  const file = readFileOperand('replay', options);
  const target = readTarget(options);
  const other = options.value('compare');
  const targets = [
    target,
    ...(other === null ? [] : [parseTarget('--compare', other, options.value('compare-token') ?? target.token)]),
  ];
  const settings = readSettings(options);
  const limits = options.value('slo') === null ? [] : parseServiceLimits(options.required('slo'));
  for (const name of ['junit', 'html']) await checkWritable(`--${name}`, options.value(name));
  const traffic = await readRecording(file);
  const factor = serviceFactor(traffic);
  if (factor !== 1) console.error(`--rate ${factor}x has the rate of the service`);
  for (const each of targets) await checkTarget(each);
  const prepared = await prepareReplay(traffic, targets, settings.writes);
  checkReplayable(file, prepared);
  const stopped = new AbortController();
  process.once('SIGINT', () => stopped.abort());
  const result = await replayTraffic(prepared, { ...settings, onProgress: showProgress(), signal: stopped.signal });
  const report = { ...result, limits: result.all.map((figures) => checkLimits(limits, figures)) };
  console.log(options.has('json') ? jsonOf(report) : tableOf(report));
  await writeReport(options.value('junit'), () => junitOf(report));
  await writeReport(options.value('html'), () => pageOf(report));
  if (!isWithinLimits(report)) process.exitCode = 1;
  if (result.isInterrupted) process.exitCode = INTERRUPTED;
}

/** As a shell reports a command that Ctrl-C has ended. */
export const INTERRUPTED = 130;

/** The least and the most. */
export const CONNECTIONS = [1, 1_000] as const;

function readSettings(options: OwnOptions) {
  const length = options.value('for');
  return {
    rate: parseRate('--rate', options.value('rate') ?? '1x'),
    milliseconds: length === null ? null : parseDuration('--for', length),
    writes: options.has('writes'),
    connections: parseCount('--connections', options.value('connections') ?? '64', CONNECTIONS),
  };
}

/** Reports anything unusual about the recording. */
export async function readRecording(file: string): Promise<Traffic> {
  const traffic = await readTraffic(file);
  const { header, isComplete, dropped } = traffic;
  if (!isComplete)
    console.error(`${file} has no end: the recording broke off, and its last request is taken for the end`);
  if (dropped > 0) console.error(`${file} lacks ${counted(dropped, 'request')}, which the service could not keep`);
  if (header.sample < 1) console.error(`${file} is a sample of ${header.sample} of all requests`);
  return traffic;
}

/** Throws if nothing is left to send. */
export function checkReplayable(file: string, { requests, omitted }: PreparedReplay): void {
  if (requests.length > 0) return;
  throw new UsageError(`${file} has no requests that can be replayed${'write' in omitted ? ' without --writes' : ''}`);
}

async function writeReport(file: string | null, text: () => string): Promise<void> {
  if (file === null) return;
  await writeFile(file, text()).catch((error: unknown) => {
    throw new StartError(`${file} cannot be written: ${messageOf(error)}`);
  });
}

/** On a terminal one line that changes, elsewhere one line in so many seconds. */
const PLAIN_SECONDS = 5;

function showProgress(): (progress: Progress) => void {
  let reports = 0;
  return ({ elapsedMs, totalMs, requests, errors, perSecond, p99 }) => {
    const time = `${Math.round(elapsedMs / 1_000)} s of ${Math.round(totalMs / 1_000)} s`;
    const text = `${time}: ${counted(requests, 'request')}, ${Math.round(perSecond)}/s, p99 ${milliseconds(p99)}, ${counted(errors, 'error')}`;
    if (process.stderr.isTTY) process.stderr.write(`\r${text.padEnd(78)}${elapsedMs + 1_000 >= totalMs ? '\n' : ''}`);
    else if (reports++ % PLAIN_SECONDS === 0) console.error(text);
  };
}

export const COMMANDS = {
  replay: { help: REPLAY_HELP, run: replay },
};
