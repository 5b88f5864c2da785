#!/usr/bin/env node
/** The command line. */
import { optionRows, readConfig, readFlags } from './config.js';
import { StartError } from './errors.js';
import { packageVersion } from './files.js';
import { createObserver } from './observe.js';
import { type Service, startService } from './server.js';

const USAGE = `Lateral ${packageVersion}: a REST and GraphQL API over PostgreSQL. One request, one statement.

Usage: lateral [start] [--option value ...]
       lateral --help | --version

Options, as environment variables or flags (PORT=9000 or --port 9000):
`;

async function main(words: readonly string[]): Promise<void> {
  const [command = 'start', ...rest] = words;
  if (words.includes('--help') || words.includes('-h') || command === 'help') return console.log(help());
  if (words.includes('--version')) return console.log(packageVersion);
  if (command.startsWith('-')) return start(words);
  if (command !== 'start') throw new StartError(`unknown command "${command}": see lateral --help`);
  return start(rest);
}

async function start(flags: readonly string[]): Promise<void> {
  const config = readConfig({ ...process.env, ...readFlags(flags) });
  const observe = createObserver(config.LOG_LEVEL);
  const stopped = new AbortController();
  const service = startService(config, observe, (message) => console.log(message));
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      // A second signal while the first is being served ends the wait.
      if (stopped.signal.aborted) process.exit(1);
      stopped.abort();
      observe({ kind: 'stopping', reason: signal });
      service
        .then((running) => running.stop())
        .then(
          () => {
            observe({ kind: 'stopped' });
            process.exit(0);
          },
          (error: unknown) => fail(error),
        );
    });
  }
  announce(await service);
}

function announce(service: Service): void {
  const { administrator, url } = service;
  console.log(`\nLateral ${packageVersion} is ready at ${url}\n`);
  if (!administrator) {
    console.log(`  Try it:    curl ${url}/server/ping\n`);
    return;
  }
  console.log('  The first administrator, shown this once:');
  console.log(`    email     ${administrator.email}`);
  console.log(`    password  ${administrator.password}`);
  console.log(`    token     ${administrator.token}\n`);
  console.log(`  Try it:    curl -H 'Authorization: Bearer ${administrator.token}' ${url}/server/info\n`);
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

function fail(error: unknown): never {
  const text =
    error instanceof StartError
      ? error.message
      : error instanceof Error
        ? (error.stack ?? error.message)
        : String(error);
  console.error(`lateral: ${text}`);
  process.exit(1);
}

main(process.argv.slice(2)).catch(fail);
