/**
 * The text of a snapshot or a difference, JSON or YAML, as plain data. A thread parses long YAML documents, so that other
 * requests do not wait: ten megabytes take several seconds. The thread has a deadline and limited memory.
 */

import { Worker } from 'node:worker_threads';
import { Composer, type CST, type Document, isNode, isScalar, Lexer, LineCounter, Parser, visit } from 'yaml';
import { invalidPayload, type ServiceError } from '../../base/errors.js';
import { packagePath } from '../../base/package-files.js';
import { createSequence } from '../../base/time-slices.js';

/** Levels of lists and objects in YAML. The library composes them by recursion, and V8 ends the process if the stack is too short for it. */
const MAX_DEPTH = 200;

/** A value of a document without anchors has at most five times the characters of its YAML. */
const MAX_GROWTH = 8;

const REPEATED = 'The document repeats its anchors too often';

export function parseDocumentText(text: string): unknown {
  return isJson(text) ? parseJson(text) : parseYaml(text);
}

/** By how it begins: an object of JSON is YAML too, but parsed much faster as JSON. */
function isJson(text: string): boolean {
  return /^\s*[{[]/.test(text);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw invalidPayload('The document is not valid JSON');
  }
}

export function parseYaml(text: string): unknown {
  const lines = new LineCounter();
  const composer = new Composer({ logLevel: 'error', uniqueKeys: false });
  const [document, second] = composer.compose(tokensOf(text, lines), true, text.length);
  const position = document?.errors[0]?.pos[0] ?? second?.range[0] ?? (document && repeatedKey(document));
  if (!document || position !== undefined)
    throw invalidPayload(`The document is not valid YAML at line ${lines.linePos(position ?? 0).line}`);
  const value = dataOf(document);
  checkPlain(value, { left: MAX_GROWTH * (text.length + 100) });
  return value;
}

/** The position of a key that occurs twice in its map. The check of the library takes quadratic time: it compares all pairs of keys. */
function repeatedKey(document: Document): number | undefined {
  let position: number | undefined;
  visit(document, {
    Map: (_, { items }) => {
      const known = new Set<unknown>();
      for (const { key } of items) {
        const value = isScalar(key) ? key.value : key;
        if (known.has(value)) position = isNode(key) ? key.range?.[0] : 0;
        if (position !== undefined) return visit.BREAK;
        known.add(value);
      }
      return undefined;
    },
  });
  return position;
}

/** The library refuses a document that repeats its anchors so often that it would grow without measure. */
function dataOf(document: Document): unknown {
  try {
    return document.toJS({ maxAliasCount: 100 });
  } catch {
    throw invalidPayload(REPEATED);
  }
}

/** Counts characters while it goes: repeated anchors may make a short document huge as JSON. */
function checkPlain(value: unknown, room: { left: number }): void {
  room.left -= typeof value === 'string' ? value.length : 1;
  if (room.left < 0) throw invalidPayload(REPEATED);
  if (typeof value === 'object' && value !== null) {
    if (!Array.isArray(value) && Object.getPrototypeOf(value) !== Object.prototype) throw notJson();
    for (const [name, each] of Object.entries(value)) {
      if (!Array.isArray(value)) room.left -= name.length;
      checkPlain(each, room);
    }
  } else if (typeof value === 'number' && !Number.isFinite(value)) throw notJson();
}

function notJson(): ServiceError {
  return invalidPayload('The document has a value that JSON cannot hold, such as .inf or a set');
}

function* tokensOf(text: string, lines: LineCounter): Generator<CST.Token> {
  const parser = new Parser(lines.addNewLine);
  lines.addNewLine(0);
  for (const lexeme of new Lexer().lex(text)) {
    yield* parser.next(lexeme);
    if (parser.stack.length > MAX_DEPTH)
      throw invalidPayload(`The document has more than ${MAX_DEPTH} levels at line ${lines.lineStarts.length}`);
  }
  yield* parser.end();
}

const PROGRAM = packagePath('dist', 'src', 'features', 'snapshots', 'yaml-thread.js');

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

/** A document whose client has disconnected is refused, so that it is not applied minutes later. */
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

/** The result of the thread: the document as JSON, or the reason why it is refused. */
export type ParsedYaml = { readonly json: string } | { readonly refusal: string };

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
