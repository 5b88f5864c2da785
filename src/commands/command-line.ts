/** The commands of the program. */
import { execFile } from 'node:child_process';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { basename, extname } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { CLI_IDENTITY } from '../access/identity.js';
import { ServiceError, StartError } from '../base/errors.js';
import { createObserver } from '../base/observe.js';
import { packageVersion } from '../base/package-files.js';
import { type Config, optionRows, readArguments, readConfig, readFlags } from '../config/config.js';
import { read, write } from '../engine/pipeline.js';
import { NO_CLIENT } from '../engine/stages.js';
import { ImportFailure, importRows } from '../engine/writes/import.js';
import { describeTypes } from '../mirror/typings.js';
import { NO_AUTHOR } from '../plan/write/write.js';
import { type ImportFormat, readRows } from '../request/import-file.js';
import { parseOnConflict } from '../request/on-conflict.js';
import { parseRead } from '../request/rest.js';
import { parseLimits } from '../service/core.js';
import { surviveRejections } from '../service/load-extensions.js';
import { type Service, startService, withCore } from '../service/start.js';
import { pretty } from '../sql/pretty.js';
import { Storages } from '../storage/storage.js';
import { UsageError } from '../traffic/limits.js';
import { ADOPT_HELP, adopt } from './adopt.js';
import { ADVISE_HELP, advise } from './advise-command.js';
import { CAPACITY_HELP, capacity } from './capacity.js';
import { DOCTOR_HELP, doctor } from './doctor.js';
import { LIVE_HELP, live } from './live-command.js';
import { PLANS_HELP, plans, STATISTICS_HELP, statistics } from './plans-command.js';
import { RECORD_HELP, record } from './record.js';
import { RELATIONS_HELP, relations } from './relations-command.js';
import { REPLAY_HELP, replay } from './replay.js';
import { SCHEMA_HELP, schema } from './schema-command.js';
import { WEBHOOKS_HELP, webhooks } from './webhooks-command.js';

const USAGE = `Lateral ${packageVersion}: a REST and GraphQL API over PostgreSQL. One request, one statement.

Usage: lateral [start] [--option value ...]
       lateral explain [--analyze] "GET /items/..." [--option value ...]
       lateral types [--option value ...]
       lateral import FILE [COLLECTION] [--on-conflict COLUMNS] [--resolution merge|ignore] [--option value ...]
       lateral schema {snapshot | diff | apply} [FILE] [--option value ...]
       lateral relations suggest [COLLECTION ...] [--apply] [--option value ...]
       lateral files [--remove] [--option value ...]
       lateral doctor [--json] [--option value ...]
       lateral statistics -o FILE [--redact COLUMNS] [--option value ...]
       lateral plans check [--statistics FILE] [--traffic FILE] [--accept] [--option value ...]
       lateral advise [--traffic FILE] [--statistics FILE] [--json] [--option value ...]
       lateral live {install | remove} [--dry-run] [--option value ...]
       lateral webhooks {list | test | pause | resume | rotate | deliveries | redeliver} [WEBHOOK] [--option value ...]
       lateral adopt [--dry-run] [--option value ...]
       lateral record --url URL --token TOKEN [--for 10m] [--sample 0.1] [--redact] -o FILE
       lateral replay FILE --url URL --token TOKEN [--rate 1x] [--for 1m] [--slo p99=50ms,errors=0.1%] [--writes]
       lateral capacity FILE --url URL --token TOKEN --slo p99=50ms,errors=0.1%
       lateral --help | --version

  start      serves the API; this is the default command
  explain    prints the SQL of a read, its parameters and PostgreSQL's plan; --analyze also runs it
  types      prints the collections as a TypeScript schema for @directus/sdk
  import     writes the rows of a JSON, NDJSON or CSV file to a collection (by default the one that the file is named after)
             in one transaction; rows whose key exists are updated, all others are created. --on-conflict email finds items
             by a unique index instead, --resolution ignore leaves those that exist as they are
  schema     exports the schema to a file, compares it with a file, or applies a file (lateral schema --help)
  relations  finds the one-to-many, one-to-one and many-to-many relations that foreign keys imply (lateral relations --help)
  files      finds stored files without a row, and rows without a stored file (lateral files --help)
  doctor     checks the database and says how to fix problems (lateral doctor --help)
  statistics writes what the planner knows about a database to a file, without rows (lateral statistics --help)
  plans      plans recorded requests on an empty twin of a database, and fails if a plan got worse (lateral plans --help)
  advise     proposes indexes for recorded requests, each tried on the twin (lateral advise --help)
  live       makes or drops the triggers for live queries without the log of PostgreSQL (lateral live --help)
  webhooks   lists, tests and pauses webhooks, and sends deliveries again (lateral webhooks --help)
  adopt      takes over an installation of Directus in the same database (lateral adopt --help)
  record     records the traffic of a running service (lateral record --help)
  replay     sends recorded traffic to a service, and checks limits of latency and errors (lateral replay --help)
  capacity   finds the highest rate of recorded traffic within limits, and what limits it (lateral capacity --help)

Options, as environment variables or flags (PORT=9000 or --port 9000):
`;

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
  if (command === 'explain') return explain(rest);
  if (command === 'types') return printTypes(rest);
  if (command === 'import') return importFile(rest);
  throw new StartError(`unknown command "${command}": see lateral --help`);
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
  const service = startService(config, observe, (message) => console.log(message), { signal: stopped.signal });
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

function announce(service: Service, config: Config): void {
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

async function explain(words: readonly string[]): Promise<void> {
  const { operands, switches, environment } = readArguments(words, ['analyze']);
  const [request = ''] = operands;
  const match = /^(?:GET\s+)?\/items\/([^/?]+)(?:\/([^/?]+))?(?:\?(.*))?$/s.exec(request.trim());
  if (!match) throw new StartError('explain expects a request such as "GET /items/articles?fields=title,author.name"');
  const config = readConfig({ ...process.env, ...environment });
  const [, collection = '', key, queryString = ''] = match.map((part) => part ?? undefined);
  await withCore(config, createObserver('warn'), console.error, async ({ reads }) => {
    const item = key === undefined ? null : decodeURIComponent(key);
    const { sql, parameters, plan } = await read(
      {
        client: NO_CLIENT,
        identify: () => CLI_IDENTITY,
        parse: () => parseRead(decodeURIComponent(collection), item, queryString, parseLimits(config)),
        execute: (prepared) => reads.explain(prepared, switches.has('analyze')),
      },
      reads,
    );
    console.log(pretty(sql));
    for (const [position, value] of parameters.entries()) console.log(`$${position + 1} = ${JSON.stringify(value)}`);
    console.log(`\n${JSON.stringify(plan, null, 2)}`);
  });
}

async function printTypes(flags: readonly string[]): Promise<void> {
  const config = readConfig({ ...process.env, ...readFlags(flags) });
  await withCore(config, createObserver('warn'), console.error, async ({ mirror }) => {
    console.log(describeTypes(mirror.model));
  });
}

async function importFile(words: readonly string[]): Promise<void> {
  const { operands, environment, values } = readArguments(words, [], ['on-conflict', 'resolution']);
  const [file, named] = operands;
  if (file === undefined) throw new StartError('import expects a file: see lateral --help');
  const onConflict = parseOnConflict(values['on-conflict']?.split(',') ?? null, values['resolution'] ?? null);
  const ending = extname(file).slice(1).toLowerCase();
  const format = IMPORT_FORMATS[ending];
  if (!format) throw new StartError(`"${file}" is not a .json, .ndjson, .jsonl or .csv file`);
  const total = await stat(file).then(
    (stats) => {
      if (!stats.isFile()) throw new StartError(`"${file}" is not a file`);
      return stats.size;
    },
    () => {
      throw new StartError(`"${file}" cannot be read`);
    },
  );
  const config = readConfig({ ...process.env, ...environment });
  const collection = named ?? basename(file, extname(file));
  let readBytes = 0;
  // Opened only when it is read: what flows before that would be lost.
  const bytes = async function* (): AsyncGenerator<Buffer> {
    for await (const piece of createReadStream(file)) {
      readBytes += piece.length;
      yield piece;
    }
  };
  const progress = (rows: number): void => {
    const share = total === 0 ? 100 : Math.floor((100 * readBytes) / total);
    if (process.stderr.isTTY) process.stderr.write(`\r[${'#'.repeat(share / 4).padEnd(25)}] ${share} %  ${rows} rows`);
  };
  await withCore(config, createObserver('warn'), console.error, async ({ writes }) => {
    const { MAX_IMPORT_ERRORS: maxErrors } = config;
    await write({
      client: NO_CLIENT,
      identify: () => ({ caller: CLI_IDENTITY, author: NO_AUTHOR }),
      parse: () => ({ collection, rows: readRows(bytes(), format), format, maxErrors, progress, onConflict }),
      execute: (options, writer) => importRows(writes, options, writer, NO_CLIENT).catch(failImport),
      reply: (count) => {
        if (process.stderr.isTTY) process.stderr.write('\n');
        console.log(`${count} ${count === 1 ? 'row' : 'rows'} imported into "${collection}"`);
      },
    });
  });
}

function failImport(error: unknown): never {
  if (!(error instanceof ImportFailure)) throw error;
  const lines = error.errors.slice(0, 20).map((each) => `  row ${each.row}: ${each.error.message}`);
  const count = error.errors.length === 1 ? '1 row is' : `${error.errors.length} rows are`;
  throw new StartError(`nothing was imported, ${count} invalid:\n${lines.join('\n')}`);
}

const IMPORT_FORMATS: Readonly<Record<string, ImportFormat>> = {
  json: 'json',
  ndjson: 'ndjson',
  jsonl: 'ndjson',
  csv: 'csv',
};

const YOUNG_MS = 86_400_000;

/** Other files in the folder or the bucket do not belong to the service. */
const OWN_NAME = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}/;

function isYoung(modified: Date): boolean {
  return Date.now() - modified.getTime() < YOUNG_MS;
}

/** Compares the rows of files with the contents of their storage locations. */
async function files(words: readonly string[]): Promise<void> {
  const { operands, switches, environment } = readArguments(words, ['remove']);
  if (operands.length > 0) throw new StartError('files takes options only: see lateral files --help');
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

function help(): string {
  const rows = optionRows();
  const width = Math.max(...rows.map((row) => row.name.length));
  const lines = rows.map((row) => {
    const initial = row.initial === '' ? '' : ` [${row.initial}]`;
    return `  ${row.name.padEnd(width)}  ${row.about}${initial}`;
  });
  return USAGE + lines.join('\n');
}

export function fail(error: unknown): never {
  console.error(`lateral: ${complaintOf(error)}`);
  process.exit(exitCodeOf(error));
}

/** 2 for a wrong command line of a command that has limits to miss. */
export function exitCodeOf(error: unknown): number {
  return error instanceof UsageError ? 2 : 1;
}

/** Unexpected errors are shown with their stack. */
export function complaintOf(error: unknown): string {
  if (error instanceof StartError || error instanceof ServiceError) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
