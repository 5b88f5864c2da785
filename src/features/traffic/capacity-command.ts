/** `lateral capacity`: the highest rate of recorded traffic that a service serves within limits, and what limits it. */

import { UsageError } from '../../base/errors.js';
import { type Capacity, findCapacity, type Step } from './capacity.js';
import { counted, parseConstantRate, parseCount, parseDuration, parseServiceLimits } from './limits.js';
import { readOwnOptions } from './own-options.js';
import { prepareReplay } from './replay.js';
import { CONNECTIONS, checkReplayable, INTERRUPTED, readRecording } from './replay-command.js';
import { milliseconds } from './report.js';
import { checkTarget, readFileOperand, readTarget } from './target.js';

const CAPACITY_HELP = `Usage: lateral capacity FILE --url URL --token TOKEN --slo p99=50ms,errors=0.1% [--step 5s] [--json]

Finds the highest rate at which a service answers the requests of a recording within limits. The rate doubles until a limit is missed, then
the interval is halved. Names what is exhausted first (service processor, PostgreSQL processor, PostgreSQL storage, connections, locks), or
says that other programs took the processors. Prints the requests per processor-second of the service, and recommends the size of the
pool, the threads and a value of lateral_pool_waiting for autoscaling.

  --url URL         the service; nothing else should use it meanwhile
  --token TOKEN     an administrator's token; ADMIN_TOKEN is used if it is absent
  --slo LIMITS      p50, p90, p99 and p99.9 as times, errors and status (other than recorded) as percentages
  --step 5s         how long each rate is tried, at least 1s; up to four times as long if a percentile needs more requests
  --from 50/s       the first rate [that of the recording]
  --writes          sends writes too, as the owner of the token
  --connections 64  connections to the service
  --json            prints JSON

Exits with 1 if no rate keeps the limits, with 2 if an option or the file is wrong, with 130 after Ctrl-C.`;

const KINDS = {
  url: 'value',
  token: 'value',
  slo: 'value',
  step: 'value',
  from: 'value',
  writes: 'switch',
  connections: 'value',
  json: 'switch',
} as const;

const MIN_STEP_MS = 1_000;

async function capacity(words: readonly string[]): Promise<void> {
  const options = readOwnOptions('capacity', words, KINDS);
  const file = readFileOperand('capacity', options);
  const target = readTarget(options);
  const limits = parseServiceLimits(options.required('slo'));
  const stepMs = parseDuration('--step', options.value('step') ?? '5s');
  if (stepMs < MIN_STEP_MS) throw new UsageError('--step must be at least 1s');
  const from = options.value('from');
  const first = from === null ? null : parseConstantRate('--from', from);
  const connections = parseCount('--connections', options.value('connections') ?? '64', CONNECTIONS);
  const writes = options.has('writes');
  const traffic = await readRecording(file);
  await checkTarget(target);
  const prepared = await prepareReplay(traffic, [target], writes);
  checkReplayable(file, prepared);
  const stopped = new AbortController();
  process.once('SIGINT', () => stopped.abort());
  const firstRate = first ?? (prepared.requests.length * 1_000) / Math.max(1, traffic.milliseconds);
  const settings = { limits, stepMs, connections, writes, firstRate, onStep: showStep, signal: stopped.signal };
  const found = await findCapacity(prepared, target, settings);
  console.log(options.has('json') ? jsonOf(found) : textOf(found));
  if (found.perSecond === 0) process.exitCode = 1;
  if (found.isInterrupted) process.exitCode = INTERRUPTED;
}

function showStep({ perSecond, isKept, isScarce, figures: { requests, latency, errors } }: Step): void {
  const scarce = isScarce ? ` (only ${counted(requests, 'request')}: use a longer --step)` : '';
  console.error(
    `${Math.round(perSecond)}/s: ${isKept ? 'ok' : 'missed'}, p50 ${milliseconds(latency.p50)}, p99 ${milliseconds(latency.p99)}, ${counted(errors, 'error')}${scarce}`,
  );
}

function textOf(found: Capacity): string {
  const { perSecond, resource, reason, perProcessorSecond, recommended, isAtLeast, isDisturbed, isInterrupted } = found;
  const rate = Math.round(perSecond);
  if (isInterrupted)
    return `Interrupted: the search has not ended.${perSecond === 0 ? '' : ` ${rate} requests per second kept the limits.`}`;
  const options = recommended.map(({ name, value, reason: why }) => `  ${name} ${value}: ${why}`);
  return [
    perSecond === 0
      ? 'No rate keeps the limits.'
      : `Highest rate: ${isAtLeast ? 'at least ' : ''}${rate} requests per second${isAtLeast ? ': this client was too slow' : ''}`,
    resource === 'other programs'
      ? `Exhausted first: unknown, because other programs took the processors (${reason})`
      : `Exhausted first: ${resource} (${reason})`,
    ...(isDisturbed ? ['Other programs used the machine: the service may be faster without them.'] : []),
    ...(perProcessorSecond > 0
      ? [`Requests per processor-second of the service: ${Math.round(perProcessorSecond)}`]
      : []),
    ...(options.length > 0 ? ['Recommended:', ...options] : []),
  ].join('\n');
}

function jsonOf({ steps, ...found }: Capacity): string {
  const tried = steps.map(({ perSecond, isKept, figures, load }) => ({
    rate: perSecond,
    ok: isKept,
    requests: figures.requests,
    reached: figures.perSecond,
    ...figures.latency,
    errors: figures.errors,
    load,
  }));
  return JSON.stringify(
    {
      rate: found.perSecond,
      at_least: found.isAtLeast,
      disturbed: found.isDisturbed,
      interrupted: found.isInterrupted,
      exhausted: found.resource,
      reason: found.reason,
      requests_per_processor_second: found.perProcessorSecond,
      recommended: found.recommended,
      steps: tried,
    },
    null,
    2,
  );
}

export const COMMANDS = {
  capacity: { help: CAPACITY_HELP, run: capacity },
};
