/** A program of the service in a process of its own. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';

interface StartedProgram {
  readonly url: string;
  stop(): Promise<void>;
}

const START_WITHIN_MS = 60_000;

/** Resolves when it listens. Rejects with its output if it ends or does not start in time. */
export async function startProgram(
  file: string,
  environment: Readonly<Record<string, string>>,
): Promise<StartedProgram> {
  const child = spawn(process.execPath, [file, 'start'], {
    env: { PATH: process.env['PATH'] ?? '', ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = once(child, 'exit');
  let output = '';
  const url = await new Promise<string>((resolve, reject) => {
    const fail = (): void => reject(new Error(`the program did not start:\n${output}`));
    const timer = setTimeout(fail, START_WITHIN_MS);
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text: string) => {
        output += text;
        const found = /is ready at (http:\S+)/.exec(output)?.[1];
        if (found === undefined) return;
        clearTimeout(timer);
        resolve(found);
      });
    child.once('exit', fail);
  }).catch((error: unknown) => {
    child.kill('SIGKILL');
    throw error;
  });
  return {
    url,
    stop: async () => {
      child.kill('SIGTERM');
      await ended;
    },
  };
}
