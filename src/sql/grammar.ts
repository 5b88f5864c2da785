/** PostgreSQL's own grammar, a megabyte of WebAssembly. */
import { setFlagsFromString } from 'node:v8';

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

/** The statements of a text. Throws where it has none that PostgreSQL could read. */
export function parseStatements(text: string): readonly unknown[] {
  if (grammar === null) throw new Error('the grammar is not loaded');
  return grammar.parseSync(text).stmts ?? [];
}
