/** The commands of the program, and `lateral --help`: the commands and the options by topic, the most used options first. */
import { setFlagsFromString } from 'node:v8';
import { ServiceError, StartError, UsageError } from '../base/errors.js';
import { packageVersion } from '../base/package-files.js';
import type { Config } from '../server/config/config.js';
import { envFile, loadEnvFile } from '../server/config/env-file.js';
import { topicsOf } from '../server/config/option-topics.js';
import { COMMAND_TOPICS, type CommandEntry } from '../server/feature/command.js';
import type { Feature } from '../server/feature/feature.js';
import { notifySystemd } from '../server/node/systemd.js';
import { MAKERS } from './app.js';
import { features } from './features.js';
import { openLog, options } from './options.js';
import { PROGRAM, type Service, startService } from './start.js';

const all: readonly Feature[] = features;

/** The commands of all features, by their names. */
const COMMANDS: ReadonlyMap<string, CommandEntry> = new Map(
  all.flatMap(({ commands = {} }) => Object.entries(commands)),
);

export async function main(given: readonly string[]): Promise<void> {
  const words = loadEnvFile(given);
  const [command = 'start', ...rest] = words;
  const wantsHelp = words.includes('--help') || words.includes('-h');
  const own = await COMMANDS.get(command)?.load();
  if (own) return wantsHelp ? console.log(own.help) : own.run(rest, PROGRAM);
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
  const config = options.config({ ...process.env, ...options.flags(flags) });
  const observe = openLog(config.LOG_LEVEL);
  const file = envFile();
  if (file !== null) observe({ kind: 'environment-read', ...file });
  for (const each of options.misspelt(process.env)) observe({ kind: 'option-misspelt', ...each });
  await MAKERS.prepareProcess(config, observe);
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

function announce(service: Service, config: Config): void {
  const { administrator, url } = service;
  console.log(`\nLateral ${packageVersion} is ready at ${url}\n`);
  for (const { announce } of all) {
    const line = announce?.(config) ?? null;
    if (line !== null) console.log(`  ${line}\n`);
  }
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

export function fail(error: unknown): never {
  console.error(`lateral: ${complaintOf(error)}`);
  process.exit(exitCodeOf(error));
}

/** The exit code: 2 for a wrong command line or a wrong value of an option, otherwise 1. */
export function exitCodeOf(error: unknown): number {
  return error instanceof UsageError ? 2 : 1;
}

/** Unexpected errors are shown with their stack. */
export function complaintOf(error: unknown): string {
  if (error instanceof StartError || error instanceof ServiceError) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

const overview =
  (): string => `Lateral ${packageVersion}: a REST and GraphQL API over PostgreSQL. One request, one statement.

Usage: lateral [COMMAND] [--option value ...]
       lateral COMMAND --help
       lateral --help | --version

${commandTopics()}

Examples
  lateral --database-url postgres://user:password@localhost/shop
  lateral explain "GET /items/articles?fields=title,author.name&limit=5"
  lateral import articles.csv

Exit codes: 0 done, 1 failed or a check found a problem, 2 wrong command line or option value.
`;

/** `start` is no feature. */
const START = ['start', { topic: 'Serve', about: 'serves the API; this is the default command' }] as const;

/** The commands under their headings, with one line each. */
function commandTopics(): string {
  const commands = [START, ...COMMANDS];
  const width = Math.max(...commands.map(([name]) => name.length));
  return COMMAND_TOPICS.map((topic) => {
    const lines = commands
      .filter(([, command]) => command.topic === topic)
      .map(([name, { about }]) => `  ${name.padEnd(width)}  ${about}`);
    return `${topic}\n${lines.join('\n')}`;
  }).join('\n\n');
}

/** Options as environment variables or flags. */
function help(): string {
  const topics = topicsOf(options.rows());
  const width = Math.max(...topics.flatMap(({ rows }) => rows.map(({ name }) => name.length)));
  const sections = topics.map(({ title, rows }) => {
    const lines = rows.map(({ name, about, initial }) => {
      const shown = initial === '' ? '' : ` [${initial}]`;
      return `  ${name.padEnd(width)}  ${about}${shown}`;
    });
    return `${title}\n${lines.join('\n')}`;
  });
  return `${overview()}\nOptions, as environment variables or flags (PORT=9000 or --port 9000). The file .env, or\nthat of --env-file FILE, sets variables that the environment lacks.\n\n${sections.join('\n\n')}`;
}
