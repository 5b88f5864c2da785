/** PostgreSQL's own grammar, a megabyte of WebAssembly. */
import type { Grammar } from 'libpg-query/wasm/libpg-query.js';
import { onlyOf } from '../../base/narrow.js';

let grammar: Grammar | null = null;
const ENCODER = new TextEncoder();
const DECODER = new TextDecoder('utf-8', { ignoreBOM: true });

/** Called before anything is parsed. Only the first call in a thread loads the grammar, and a program may start several services. */
export async function loadGrammar(): Promise<void> {
  if (grammar !== null) return;
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
  // A character of JavaScript has at most three bytes, and the text ends with a zero.
  const size = 3 * text.length + 1;
  const input = grammar._malloc(size);
  let result = 0;
  try {
    ENCODER.encodeInto(`${text}\0`, new Uint8Array(grammar.HEAPU8.buffer, input, size));
    result = grammar._wasm_parse_query_raw(input);
    // Memory may have grown.
    const { buffer } = grammar.HEAPU8;
    // A pointer each: the tree, what was written to stderr, the error, which begins with its message.
    const pointers = new DataView(buffer);
    const error = pointers.getUint32(result + 8, true);
    if (error !== 0) throw new Error(textAt(buffer, pointers.getUint32(error, true)));
    return textAt(buffer, pointers.getUint32(result, true));
  } finally {
    grammar._free(input);
    if (result !== 0) grammar._wasm_free_parse_result(result);
  }
}

function textAt(buffer: ArrayBuffer, start: number): string {
  const memory = new Uint8Array(buffer);
  return DECODER.decode(memory.subarray(start, memory.indexOf(0, start)));
}
