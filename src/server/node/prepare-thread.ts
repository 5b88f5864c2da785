/** Called first in each thread and each command: it gives the compiler what only Node has, and loads PostgreSQL's grammar. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { useHost } from '../../base/host.js';
import { loadGrammar } from '../../compiler/sql/grammar.js';

/**
 * The optimizing compiler of WebAssembly, which begins with the import of the grammar, would take 55 MiB that the process never gives
 * back, and new shapes are not compiled any sooner for it. In Node 24 it would take hundreds, and `--liftoff-only`, which stands for both
 * flags, has the opposite effect there when it is set after the start of the process.
 */
export async function prepareThread(): Promise<void> {
  useHost({
    now: () => performance.now(),
    nextTurn: () => nextTurn(),
    hexOfBase64: (text) => Buffer.from(text, 'base64').toString('hex'),
  });
  setFlagsFromString('--no-wasm-tier-up');
  setFlagsFromString('--no-wasm-dynamic-tiering');
  await loadGrammar();
}
