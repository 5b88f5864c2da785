/**
 * Documents of any size, parsed without keeping other requests waiting. A long YAML document is parsed by a thread of its own: ten
 * megabytes take several seconds. The thread has a deadline and limited memory.
 */
import { Worker } from 'node:worker_threads';
import { invalidPayload, type ServiceError } from '../base/errors.js';
import { packagePath } from '../base/package-files.js';
import { createSequence } from '../base/time-slices.js';
import { isJson, parseDocumentText, parseJson } from './parse-document.js';
import type { ParsedYaml } from './yaml-thread.js';

const PROGRAM = packagePath('dist', 'src', 'schema', 'yaml-thread.js');

/** Characters of YAML that are parsed in place, which takes a few milliseconds. */
const SHORT = 16_384;

/** Ten megabytes take about ten seconds of processor time, and more than a minute where many share it. */
const DEADLINE_MS = 300_000;

/** Megabytes. A document of ten megabytes takes 500. */
const MAX_MEMORY = 1_024;

/** Characters. A snapshot of 3,000 tables has ten million; with twenty million the thread would reach its limit of memory. */
const MAX_LENGTH = 16_000_000;

/** Each thread takes much memory. */
const inSequence = createSequence();

/** A document whose client has disconnected is refused, so that nobody applies it minutes later. */
export async function readDocumentText(text: string, client: { readonly aborted: boolean }): Promise<unknown> {
  if (text.length <= SHORT || isJson(text)) return parseDocumentText(text);
  if (text.length > MAX_LENGTH) throw tooLarge(`is longer than ${MAX_LENGTH / 1_000_000} MB`);
  const mustBeConnected = (): void => {
    if (client.aborted) throw invalidPayload('The client disconnected');
  };
  const json = await inSequence(async () => {
    mustBeConnected();
    return jsonOf(text);
  });
  mustBeConnected();
  return parseJson(json);
}

function jsonOf(text: string): Promise<string> {
  const thread = new Worker(PROGRAM, {
    workerData: text,
    resourceLimits: { maxOldGenerationSizeMb: MAX_MEMORY },
    env: {},
    execArgv: [],
  });
  // A service that stops does not wait for it.
  thread.unref();
  return new Promise<string>((resolve, reject) => {
    const deadline = setTimeout(() => {
      reject(tooLarge(`takes longer than ${DEADLINE_MS / 1_000} seconds to parse`));
      void thread.terminate();
    }, DEADLINE_MS).unref();
    thread.on('message', (result: ParsedYaml) => {
      if ('json' in result) resolve(result.json);
      else reject(invalidPayload(result.refusal));
    });
    thread.on('error', (error: NodeJS.ErrnoException) =>
      reject(error.code === 'ERR_WORKER_OUT_OF_MEMORY' ? tooLarge('takes too much memory to parse') : error),
    );
    thread.on('exit', () => {
      clearTimeout(deadline);
      reject(new Error('the thread that parses YAML has ended without an answer'));
    });
  });
}

function tooLarge(complaint: string): ServiceError {
  return invalidPayload(`The YAML document ${complaint}: send it as JSON`);
}
