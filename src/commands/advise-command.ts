/** `lateral advise`: indexes that make recorded requests faster, each tried on a twin before it is proposed. */
import { StartError, UsageError } from '../base/errors.js';
import { readArguments, readConfig } from '../config/config.js';
import { counted } from '../traffic/limits.js';
import { readAccepted, requestOf } from '../twin/accepted-plans.js';
import { type AdviceReport, advise as findAdvice, type IndexAdvice, type IndexComplaint } from '../twin/advise.js';
import { differencesOf } from '../twin/check-plans.js';
import { type RecordedRequest, readRequests } from '../twin/requests.js';
import {
  describeUnplanned,
  nameOf,
  showProgress,
  TWIN_HELP,
  TWIN_SWITCHES,
  TWIN_VALUES,
  withTwinOf,
} from './twin-options.js';

export const ADVISE_HELP = `Usage: lateral advise [--traffic FILE] [--statistics FILE] [--json] [--option value ...]

Proposes indexes for recorded requests. Each candidate is created on a twin, an empty PostgreSQL with the statistics of the database, alone
and together with others. It is proposed only if a plan uses it and the cost of that plan falls to a third or less. Indexes that
are redundant or unused are listed too. The command changes nothing in the database.

${TWIN_HELP}
  --plans FILE       without --traffic: the requests of this file of accepted plans [plans.yaml]
  --json             prints the result as JSON

Exits with 2 if an option or the file of requests is wrong. All options of lateral --help are accepted.`;

export async function advise(words: readonly string[]): Promise<void> {
  const commandLine = readArguments(words, [...TWIN_SWITCHES], [...TWIN_VALUES]);
  const { operands, switches, environment, values } = commandLine;
  if (operands.length > 0) throw new UsageError(`unexpected argument "${operands[0]}": see lateral advise --help`);
  const requests = await requestsOf(values);
  const config = readConfig({ ...process.env, ...environment });
  await withTwinOf(commandLine, config, async (twin) => {
    const found = await findAdvice(twin, requests, showProgress);
    const differences = differencesOf(twin);
    if (switches.has('json')) console.log(JSON.stringify(asJson(found, differences), null, 2));
    else console.log(report(found, differences));
  });
}

async function requestsOf(values: Readonly<Record<string, string>>): Promise<readonly RecordedRequest[]> {
  const { traffic, plans = 'plans.yaml' } = values;
  if (traffic !== undefined) return readRequests(traffic);
  const accepted = await readAccepted(plans);
  if (!accepted) throw new StartError('there are no requests to advise on: name a file of them with --traffic');
  return accepted.plans.map(requestOf);
}

function report({ advice, complaints, planned, unplanned }: AdviceReport, differences: readonly string[]): string {
  const skipped = unplanned.reduce((sum, { calls }) => sum + calls, 0);
  return [
    ...advice.map(describeAdvice),
    ...complaints.map(describeComplaint),
    ...describeUnplanned(unplanned),
    ...(differences.length === 0
      ? []
      : [`The twin differs from the database:\n${differences.map((each) => `  - ${each}`).join('\n')}`]),
    `${advice.length === 0 ? 'No index is missing' : `${advice.length} ${advice.length === 1 ? 'index' : 'indexes'} proposed`} for ${counted(planned.length, 'shape')}; ${counted(skipped, 'request')} ${skipped === 1 ? 'was' : 'were'} not planned.`,
  ].join('\n\n');
}

/** The shapes that gain most, in a report for people. */
const SHOWN_SHAPES = 5;

function describeAdvice({ candidate, statement, bytes, written, shapes }: IndexAdvice): string {
  const extension = candidate.extension === null ? [] : [`create extension if not exists ${candidate.extension};`];
  const gaining = shapes.toSorted((one, other) => other.share - one.share);
  const writes =
    written === 0
      ? ''
      : `; ${written.toLocaleString('en')} rows of the table were written, each would update the index`;
  return [
    ...extension,
    statement,
    `  ${candidate.kind}, about ${size(bytes)}${writes}`,
    ...gaining
      .slice(0, SHOWN_SHAPES)
      .map(
        ({ planned: { request, role }, share, before, after }) =>
          `  ${factor(before, after)} times cheaper (${before} to ${after}), ${(100 * share).toFixed(1)} % of the time: ${nameOf(request)} (${role})`,
      ),
    ...(gaining.length > SHOWN_SHAPES ? [`  and ${gaining.length - SHOWN_SHAPES} more shapes`] : []),
  ].join('\n');
}

function describeComplaint({ kind, index, reason, bytes, statement }: IndexComplaint): string {
  return `${statement}\n  ${kind}, ${size(bytes)}: "${index}": ${reason}`;
}

function factor(before: number, after: number): string {
  const times = before / Math.max(after, 0.01);
  return times < 10 ? times.toFixed(1) : Math.round(times).toLocaleString('en');
}

function size(bytes: number): string {
  return bytes < 1_048_576
    ? `${Math.ceil(bytes / 1_024)} kB`
    : `${Math.round(bytes / 1_048_576).toLocaleString('en')} MB`;
}

function asJson({ advice, complaints, planned, unplanned }: AdviceReport, differences: readonly string[]) {
  return {
    advice: advice.map(({ candidate, statement, bytes, written, shapes }) => ({
      kind: candidate.kind,
      table: `${candidate.schema}.${candidate.table}`,
      statement,
      extension: candidate.extension,
      bytes,
      written,
      shapes: shapes.map(({ planned: { id, request, role }, share, before, after }) => ({
        shape: id,
        request: nameOf(request),
        role,
        share,
        before,
        after,
      })),
    })),
    complaints,
    shapes: planned.length,
    unplanned: unplanned.map(({ request, reason, calls }) => ({
      request: nameOf(request),
      reason,
      calls,
    })),
    differences,
  };
}
