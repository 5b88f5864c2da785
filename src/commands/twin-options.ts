/** Options that all commands with a twin have: the sources of statistics, of the schema and of requests. */

import { readFile } from 'node:fs/promises';
import { StartError, UsageError } from '../base/errors.js';
import { groupBy } from '../base/narrow.js';
import { createObserver } from '../base/observe.js';
import { runSteps } from '../base/time-slices.js';
import type { CommandLine, Config } from '../config/config.js';
import { parseDocumentText } from '../schema/parse-document.js';
import { readSnapshot } from '../schema/snapshot/parse-snapshot.js';
import { applySnapshot } from '../schema/snapshot/snapshots.js';
import type { Core } from '../service/core.js';
import { withDatabase } from '../service/start.js';
import { loadGrammar } from '../sql/grammar.js';
import { rootFieldOf } from '../traffic/replay.js';
import { readScripts } from '../twin/build-structure.js';
import type { UnplannedRequest } from '../twin/plan-requests.js';
import type { RecordedRequest } from '../twin/requests.js';
import { readStatistics, type StatisticsFile } from '../twin/statistics-file.js';
import { takeStatistics } from '../twin/take-statistics.js';
import { type Twin, type TwinPlan, withTwin } from '../twin/twin.js';

export const TWIN_SWITCHES = ['connected', 'json'] as const;
export const TWIN_VALUES = ['statistics', 'traffic', 'plans', 'migrations', 'apply', 'snapshot'] as const;

export const TWIN_HELP = `  --statistics FILE  statistics of "lateral statistics"; without it they are read from the database of DATABASE_URL
  --traffic FILE     requests to plan: a recording of "lateral record", or lines such as "GET /items/articles?limit=10"
  --connected        builds the schema of the database of DATABASE_URL, with the statistics of the file
  --migrations DIR   builds the schema from the .sql files of a folder, in the order of their names
  --snapshot FILE    builds the schema from a snapshot of "lateral schema snapshot"
  --apply PATH       runs a .sql file, or those of a folder, after that: a migration that is not deployed yet`;

/** Statistics of a file, or of the connected database. */
async function statisticsOf({ values, switches }: CommandLine, config: Config): Promise<StatisticsFile> {
  const path = values['statistics'];
  const file = path === undefined ? null : await readStatistics(path);
  if (file && !switches.has('connected')) return file;
  const connected = await withDatabase(config, createObserver('error'), console.error, (database) =>
    takeStatistics(database, { system: config.SYSTEM_SCHEMA, redact: [] }),
  );
  if (!file) return connected;
  const hasMetadata = connected.system !== null;
  return { ...file, structure: connected.structure, metadata: hasMetadata ? connected.metadata : file.metadata };
}

/** Builds the twin that the options describe, and removes it after the work. */
export async function withTwinOf<Result>(
  commandLine: CommandLine,
  config: Config,
  work: (twin: Twin) => Promise<Result>,
): Promise<Result> {
  const plan = await twinPlan(commandLine);
  const statistics = await statisticsOf(commandLine, config);
  await loadGrammar();
  return withTwin(config, statistics, plan, work);
}

async function twinPlan({ values: { migrations, apply, snapshot }, switches }: CommandLine): Promise<TwinPlan> {
  const sources = [migrations !== undefined, snapshot !== undefined, switches.has('connected')];
  if (sources.filter(Boolean).length > 1)
    throw new UsageError('--migrations, --snapshot and --connected exclude each other: each is the whole schema');
  const pending = apply === undefined ? [] : await readScripts(apply);
  if (snapshot !== undefined) return { migrations: [], pending, change: await snapshotChange(snapshot) };
  return { migrations: migrations === undefined ? null : await readScripts(migrations), pending };
}

async function snapshotChange(path: string): Promise<(core: Core) => Promise<void>> {
  const text = await readFile(path, 'utf8').catch(() => {
    throw new StartError(`"${path}" cannot be read`);
  });
  await loadGrammar();
  const snapshot = runSteps(readSnapshot(parseDocumentText(text), false));
  return async ({ schemaChanges }) => {
    await applySnapshot(schemaChanges, snapshot, { merge: true }, { confirm: () => {}, progress: () => {} });
  };
}

/** Shown at a terminal only. */
export function showProgress(done: number, all: number): void {
  if (process.stderr.isTTY)
    process.stderr.write(`\r\x1b[K${done === all ? '' : `planning ${done} of ${all} requests`}`);
}

/** A GraphQL request is named with its first field. */
export function nameOf({ method, path, body }: RecordedRequest): string {
  const field = path.startsWith('/graphql') ? rootFieldOf(body ?? '') : '';
  return `${method} ${path}${field === '' ? '' : ` ${field}`}`;
}

/** One line for each reason, with an example. */
export function describeUnplanned(unplanned: readonly UnplannedRequest[]): string[] {
  return [...groupBy(unplanned, ({ reason }) => reason)].map(([reason, [first, ...rest]]) => {
    const more = rest.length === 0 ? '' : ` and ${rest.length} more`;
    return `not planned  ${first ? nameOf(first.request) : ''}${more}\n  ${reason}`;
  });
}
