/** `lateral` in the process of the test: to load the program again for each command would take longer than most commands do. */
import { AsyncLocalStorage } from 'node:async_hooks';
import { complaintOf, exitCodeOf, main } from '../../src/app/command-line.js';
import { type Outcome, ways } from './service.js';

interface Written {
  output: string;
  complaints: string;
}

/** What a command writes, also while the test writes its own results. */
const written = new AsyncLocalStorage<Written>();
let isCaptured = false;
let last: Promise<unknown> = Promise.resolve();

/** As `runProgram`, without input and for commands that end by themselves. One at a time: they share `process.env`. */
export function runCommand(
  words: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Promise<Outcome> {
  const next = last.then(() => run(words, environment));
  last = next.catch(() => {});
  return next;
}

async function run(words: readonly string[], environment: Readonly<Record<string, string>>): Promise<Outcome> {
  capture();
  const { env, exitCode } = process;
  // As if a script ran it: a person at a terminal would be asked, and see the progress.
  for (const stream of [process.stdin, process.stderr]) stream.isTTY = false;
  const found: Written = { output: '', complaints: '' };
  process.env = { PATH: env['PATH'] ?? '', ...ways(), ...environment };
  process.exitCode = undefined;
  try {
    await written.run(found, () => main(words));
    return { ...found, code: Number(process.exitCode ?? 0) };
  } catch (error) {
    return { ...found, complaints: `${found.complaints}lateral: ${complaintOf(error)}\n`, code: exitCodeOf(error) };
  } finally {
    process.env = env;
    process.exitCode = exitCode;
  }
}

function capture(): void {
  if (isCaptured) return;
  isCaptured = true;
  for (const [stream, part] of [
    [process.stdout, 'output'],
    [process.stderr, 'complaints'],
  ] as const) {
    const write = stream.write.bind(stream) as (...given: unknown[]) => boolean;
    stream.write = (...given: unknown[]): boolean => {
      const found = written.getStore();
      if (!found) return write(...given);
      found[part] += String(given[0]);
      return true;
    };
  }
}
