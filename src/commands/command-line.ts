/** The commands of the program. */
import { execFile } from 'node:child_process';
import { setFlagsFromString } from 'node:v8';
import { ServiceError, StartError, UsageError } from '../base/errors.js';
import { createObserver } from '../base/observe.js';
import { packageVersion } from '../base/package-files.js';
import { type Config, readArguments, readConfig, readFlags } from '../config/config.js';
import { describeTypes } from '../mirror/typings.js';
import { LateralService } from '../service/lateral.js';
import { surviveRejections } from '../service/load-extensions.js';
import { withCore } from '../service/start.js';
import { Storages } from '../storage/storage.js';
import { ADOPT_HELP, adopt } from './adopt.js';
import { ADVISE_HELP, advise } from './advise-command.js';
import { CAPACITY_HELP, capacity } from './capacity.js';
import { LIVE_HELP, live, WEBHOOKS_HELP, webhooks } from './changes.js';
import { DOCTOR_HELP, doctor } from './doctor.js';
import { help } from './help.js';
import { EXPLAIN_HELP, explain, IMPORT_HELP, importFile } from './items.js';
import { PLANS_HELP, plans, STATISTICS_HELP, statistics } from './plans.js';
import { RECORD_HELP, record } from './record.js';
import { REPLAY_HELP, replay } from './replay.js';
import { RELATIONS_HELP, relations, SCHEMA_HELP, schema } from './schema.js';

const TYPES_HELP = `Usage: lateral types [--option value ...]

Prints the collections as a TypeScript schema for @directus/sdk.

All options of lateral --help are accepted; DATABASE_URL selects the database.`;

const FILES_HELP = `Usage: lateral files [--remove] [--option value ...]

Lists stored files without a row in service_files (what a crash in the middle of an upload leaves), and rows whose
stored file is missing. Files that are younger than a day are left out: their upload may not have ended.

  --remove  removes the stored files that have no row

Ends with status 1 if a row has lost its stored file. All options of lateral --help are accepted; STORAGE_LOCATIONS and
DATABASE_URL say where to look.`;

/** Commands with a help of their own. */
const COMMANDS = new Map([
  ['schema', { help: SCHEMA_HELP, run: schema }],
  ['live', { help: LIVE_HELP, run: live }],
  ['webhooks', { help: WEBHOOKS_HELP, run: webhooks }],
  ['adopt', { help: ADOPT_HELP, run: adopt }],
  ['doctor', { help: DOCTOR_HELP, run: doctor }],
  ['files', { help: FILES_HELP, run: files }],
  ['relations', { help: RELATIONS_HELP, run: relations }],
  ['statistics', { help: STATISTICS_HELP, run: statistics }],
  ['plans', { help: PLANS_HELP, run: plans }],
  ['record', { help: RECORD_HELP, run: record }],
  ['replay', { help: REPLAY_HELP, run: replay }],
  ['capacity', { help: CAPACITY_HELP, run: capacity }],
  ['advise', { help: ADVISE_HELP, run: advise }],
  ['explain', { help: EXPLAIN_HELP, run: explain }],
  ['import', { help: IMPORT_HELP, run: importFile }],
  ['types', { help: TYPES_HELP, run: printTypes }],
]);

export async function main(words: readonly string[]): Promise<void> {
  const [command = 'start', ...rest] = words;
  const wantsHelp = words.includes('--help') || words.includes('-h');
  const own = COMMANDS.get(command);
  if (own) return wantsHelp ? console.log(own.help) : own.run(rest);
  if (wantsHelp || command === 'help') return console.log(help());
  if (words.includes('--version')) return console.log(packageVersion);
  if (command.startsWith('-')) return start(words);
  if (command === 'start') return start(rest);
  throw new UsageError(`unknown command "${command}": see lateral --help`);
}

/**
 * Half as much again as is in use: so much memory may be filled before the whole of it is collected. By itself Node takes up to
 * four times what is in use, which on a busy service is garbage for the most part (bench/profile.md).
 */
const MEMORY_GROWTH = '--heap-growing-percent=50';

async function start(flags: readonly string[]): Promise<void> {
  setFlagsFromString(MEMORY_GROWTH);
  const config = readConfig({ ...process.env, ...readFlags(flags) });
  const observe = createObserver(config.LOG_LEVEL);
  surviveRejections(config, observe);
  const stopped = new AbortController();
  const lateral = new LateralService(config, { log: observe, report: (message) => console.log(message) });
  const service = lateral.start({ signal: stopped.signal });
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      // A second signal while the first is being served ends the wait.
      if (stopped.signal.aborted) process.exit(1);
      stopped.abort();
      observe({ kind: 'stopping', reason: signal });
      notifySystemd('--stopping');
      service
        .then(
          (running) => running.stop(),
          () => {},
        )
        .then(
          () => {
            observe({ kind: 'stopped' });
            process.exit(0);
          },
          (error: unknown) => fail(error),
        );
    });
  }
  const running = await service.catch((error: unknown) => {
    // A start that was stopped is only waited for.
    if (stopped.signal.aborted) return new Promise<never>(() => {});
    throw error;
  });
  announce(running, config);
  notifySystemd('--ready');
  void running.failure.then(async (error) => {
    console.error(`lateral: a worker thread exited unexpectedly, stopping: ${error.stack ?? error.message}`);
    // Running requests get their time; the process supervisor starts it again.
    if (!stopped.signal.aborted) await running.stop().catch(fail);
    process.exit(1);
  });
}

/** Where a unit of `Type=notify` has started it. Node cannot send to such a socket itself. */
function notifySystemd(state: '--ready' | '--stopping'): void {
  if (process.env['NOTIFY_SOCKET'] === undefined) return;
  execFile('systemd-notify', [state], (error) => {
    if (error) console.error(`lateral: systemd could not be notified: ${error.message}`);
  });
}

function announce(service: LateralService, config: Config): void {
  const { administrator, url } = service;
  console.log(`\nLateral ${packageVersion} is ready at ${url}\n`);
  if (config.EXPLORER)
    console.log(
      '  Open it in a browser: the Explorer shows the data, the SQL of each request, the model and who may see it.\n',
    );
  if (!administrator) {
    console.log(`  Try it:    curl ${url}/server/ping\n`);
    return;
  }
  // The log may be read by others: what the operator has chosen is not repeated there.
  const { ADMIN_PASSWORD: password, ADMIN_TOKEN: token } = config;
  const once = password === null || token === null ? ', shown this once' : '';
  const authorization =
    token === null ? `'Authorization: Bearer ${administrator.token}'` : '"Authorization: Bearer $ADMIN_TOKEN"';
  console.log(`  Log in as the first administrator${once}:`);
  console.log(`    email     ${administrator.email}`);
  console.log(`    password  ${password === null ? administrator.password : 'that of ADMIN_PASSWORD'}`);
  console.log(`    token     ${token === null ? administrator.token : 'that of ADMIN_TOKEN'}\n`);
  console.log(`  Try it:    curl -g -H ${authorization} '${url}${service.example}'\n`);
}

async function printTypes(flags: readonly string[]): Promise<void> {
  const config = readConfig({ ...process.env, ...readFlags(flags) });
  await withCore(config, createObserver('warn'), console.error, async ({ mirror }) => {
    console.log(describeTypes(mirror.model));
  });
}

const YOUNG_MS = 86_400_000;

/** Other files in the folder or the bucket do not belong to the service. */
const OWN_NAME = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}/;

function isYoung(modified: Date): boolean {
  return Date.now() - modified.getTime() < YOUNG_MS;
}

/** Compares the rows of files with the contents of their storage locations. */
async function files(words: readonly string[]): Promise<void> {
  const { operands, switches, environment } = readArguments(words, ['remove']);
  if (operands.length > 0) throw new UsageError('files takes options only: see lateral files --help');
  const config = readConfig({ ...process.env, ...environment });
  const storages = new Storages(config.STORAGE_LOCATIONS);
  const rows = await withCore(config, createObserver('warn'), console.error, ({ database }) =>
    database.rows<{ id: string; storage: string; filename_disk: string }>(
      'select id::text, storage, filename_disk from service_files where filename_disk is not null order by id',
    ),
  );
  let orphans = 0;
  const missing = new Map(rows.map((row) => [`${row.storage}/${row.filename_disk}`, row.id]));
  const named = new Set(missing.keys());
  for (const storage of storages.names) {
    const location = storages.of(storage);
    for await (const { name, bytes, modified } of location.list()) {
      missing.delete(`${storage}/${name}`);
      if (named.has(`${storage}/${name}`) || !OWN_NAME.test(name) || isYoung(modified)) continue;
      orphans++;
      console.log(`no row: ${storage}/${name} (${bytes} bytes)`);
      if (switches.has('remove')) await location.remove(name);
    }
  }
  for (const [name, id] of missing) console.log(`no stored file: ${id} (${name})`);
  const done = switches.has('remove') ? 'removed' : 'found';
  console.log(`${rows.length} files; ${orphans} without a row ${done}; ${missing.size} rows without a stored file`);
  if (missing.size > 0) process.exitCode = 1;
}

export function fail(error: unknown): never {
  console.error(`lateral: ${complaintOf(error)}`);
  process.exit(exitCodeOf(error));
}

/** 2 for a wrong command line, or a wrong value of an option. */
export function exitCodeOf(error: unknown): number {
  return error instanceof UsageError ? 2 : 1;
}

/** Unexpected errors are shown with their stack. */
export function complaintOf(error: unknown): string {
  if (error instanceof StartError || error instanceof ServiceError) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
