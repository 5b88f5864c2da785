/** PostgreSQL's own grammar, a megabyte of WebAssembly. */
import { setFlagsFromString } from 'node:v8';
import type { Grammar } from 'libpg-query/wasm/libpg-query.js';
import { onlyOf } from '../../base/narrow.js';

let grammar: Grammar | null = null;

/**
 * Called before anything is parsed; only the first call in a thread loads it, and a program may start several services. The optimizing compiler of WebAssembly, which begins with the import, would take
 * 55 MiB that the process never gives back, and new shapes are not compiled any sooner for it. In Node 24 it would take hundreds, and
 * `--liftoff-only`, which stands for both flags, has the opposite effect there when it is set after the start of the process.
 */
export async function loadGrammar(): Promise<void> {
  if (grammar !== null) return;
  setFlagsFromString('--no-wasm-tier-up');
  setFlagsFromString('--no-wasm-dynamic-tiering');
  // The package's own functions read each tree as JSON, which takes as long as parsing: most need not be read.
  const { default: load } = await import('libpg-query/wasm/libpg-query.js');
  grammar = await load();
}

/**
 * The one expression that a text is: null for anything else. It is read by itself and between parentheses, which have to give
 * the same: else it closes one that it has not opened, or swallows the one behind it.
 */
export function parseSqlExpression(text: string): unknown {
  const [alone, enclosed] = [`select ${text}`, `select (${text})`].map((each) => onlyExpression(tryParse(each) ?? []));
  if (alone === null || enclosed === null || withoutPlaces(alone) !== withoutPlaces(enclosed)) return null;
  return enclosed;
}

/** The part of a `select` that is read. */
interface SelectStatement {
  readonly stmt?: { readonly SelectStmt?: SelectNode };
}

interface SelectNode {
  readonly targetList?: readonly { readonly ResTarget?: Readonly<Record<string, unknown>> }[];
}

/** The only thing that a select without any clause selects. */
export function onlyExpression(statements: readonly SelectStatement[]): unknown {
  const [only, ...others] = statements;
  const select = only?.stmt?.SelectStmt;
  if (others.length > 0 || !select) return null;
  if (!Object.keys(select).every((key) => ['targetList', 'limitOption', 'op'].includes(key))) return null;
  const target = onlyOf(select.targetList ?? [])?.ResTarget;
  return target && target['name'] === undefined && target['indirection'] === undefined ? (target['val'] ?? null) : null;
}

/** Where a node stands in the text; of an array or a list, also where that begins and ends. */
const PLACE = /^(location|(rexpr_)?list_(start|end))$/;

function withoutPlaces(node: unknown): string {
  return JSON.stringify(node, (key, value) => (PLACE.test(key) ? undefined : value));
}

/** The statements of a text. Throws where it has none that PostgreSQL could read. */
export function parseStatements<Statement>(text: string): readonly Statement[] {
  const { stmts = [] }: { stmts?: readonly Statement[] } = JSON.parse(parseTree(text));
  return stmts;
}

/** The same, or null if PostgreSQL cannot read the text. */
export function tryParse(text: string): readonly SelectStatement[] | null {
  try {
    return parseStatements(text);
  } catch {
    return null;
  }
}

/** The same as the JSON that the grammar writes. */
export function parseTree(text: string): string {
  if (grammar === null) throw new Error('the grammar is not loaded');
  if (text.includes('\0')) throw new Error('a statement has no NUL');
  const size = Buffer.byteLength(text);
  const input = grammar._malloc(size + 1);
  let result = 0;
  try {
    memoryOf(grammar).write(`${text}\0`, input);
    result = grammar._wasm_parse_query_raw(input);
    // A pointer each: the tree, what was written to stderr, the error, which begins with its message. Memory may have grown.
    const memory = memoryOf(grammar);
    const error = memory.readUInt32LE(result + 8);
    if (error !== 0) throw new Error(textAt(memory, memory.readUInt32LE(error)));
    return textAt(memory, memory.readUInt32LE(result));
  } finally {
    grammar._free(input);
    if (result !== 0) grammar._wasm_free_parse_result(result);
  }
}

function memoryOf({ HEAPU8 }: Grammar): Buffer {
  return Buffer.from(HEAPU8.buffer);
}

function textAt(memory: Buffer, start: number): string {
  return memory.toString('utf8', start, memory.indexOf(0, start));
}
