/** PostgreSQL's own grammar, a megabyte of WebAssembly. */
import { setFlagsFromString } from 'node:v8';
import { onlyOf } from '../narrow.js';

let grammar: typeof import('libpg-query') | null = null;

/**
 * Once per process, before anything is parsed. The optimizing compiler of WebAssembly, which begins with the import, would take
 * 55 MiB that the process never gives back, and new shapes are not compiled any sooner for it.
 */
export async function loadGrammar(): Promise<void> {
  setFlagsFromString('--liftoff-only');
  grammar = await import('libpg-query');
  await grammar.loadModule();
}

/**
 * The one expression that a text is: null for anything else. It is read by itself and between parentheses, which have to give
 * the same: else it closes one that it has not opened, or swallows the one behind it.
 */
export function parseSqlExpression(text: string): unknown {
  const [alone, enclosed] = [`select ${text}`, `select (${text})`].map(onlyTarget);
  if (alone === null || enclosed === null || withoutPlaces(alone) !== withoutPlaces(enclosed)) return null;
  return enclosed;
}

/** What is read of a `select`. */
export interface SelectStatement {
  readonly stmt?: { readonly SelectStmt?: SelectNode };
}

interface SelectNode {
  readonly targetList?: readonly { readonly ResTarget?: Readonly<Record<string, unknown>> }[];
}

function onlyTarget(text: string): unknown {
  try {
    return onlyExpression(parseStatements(text));
  } catch {
    return null;
  }
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

function withoutPlaces(node: unknown): string {
  return JSON.stringify(node, (key, value) => (key === 'location' ? undefined : value));
}

/** The statements of a text. Throws where it has none that PostgreSQL could read. */
export function parseStatements<Statement>(text: string): readonly Statement[] {
  if (grammar === null) throw new Error('the grammar is not loaded');
  const statements: readonly unknown[] = grammar.parseSync(text).stmts ?? [];
  return statements as readonly Statement[];
}
