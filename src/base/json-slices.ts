/** JSON of a large value, written in slices: `JSON.stringify` would keep all other requests waiting. */
import { runInSlices, type Steps } from './time-slices.js';

/** The outer objects and lists, as far as `depth`, are written entry by entry. */
export async function writeJsonInSlices(value: object, depth: number): Promise<string> {
  const pieces: string[] = [];
  await runInSlices(piecesOf(value, depth, pieces));
  return pieces.join('');
}

function* piecesOf(value: unknown, depth: number, pieces: string[]): Steps<void> {
  if (depth === 0 || typeof value !== 'object' || value === null) {
    pieces.push(JSON.stringify(value) ?? 'null');
    yield;
    return;
  }
  const isList = Array.isArray(value);
  const [start, end] = isList ? '[]' : '{}';
  let mark = start ?? '';
  for (const [name, entry] of Object.entries(value)) {
    if (entry === undefined && !isList) continue;
    pieces.push(mark, isList ? '' : `${JSON.stringify(name)}:`);
    mark = ',';
    yield* piecesOf(entry, depth - 1, pieces);
  }
  pieces.push(mark === ',' ? '' : mark, end ?? '');
}
