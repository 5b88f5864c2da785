/** Work that waits for its turn in the loop of Node, and long texts that are written in slices. */
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { Limiter } from '../../base/limiter.js';
import { mapSteps, runInSlices, type Steps } from '../../base/time-slices.js';

const MAX_PAUSE_MS = 250;
/** Work that needs no pause: between two of them the loop has its turn anyway. */
const SHORT_WORK_MS = 10;

/**
 * For work that has only a few places to pause: one step at a time, and after each the loop is left to the others for as long as it
 * took. Else several that arrive together would keep everybody waiting for as long as all of them take. Callers have their turns
 * one after the other, however much each of them has waiting.
 */
export class TurnQueue {
  readonly #turns = new Limiter(1, { maxWaiting: Number.POSITIVE_INFINITY });

  async run<Result>(caller: string, work: () => Result): Promise<Result> {
    const place = await this.#turns.enter({ caller });
    await nextTurn();
    const start = performance.now();
    try {
      return work();
    } finally {
      const took = performance.now() - start;
      if (took < SHORT_WORK_MS) place.leave();
      else void sleep(Math.min(took, MAX_PAUSE_MS)).then(() => place.leave());
    }
  }
}

/** Milliseconds. Shorter than `SLICE_MS`: a small request comes to several turns of the loop before it is answered. */
const CALLER_SLICE_MS = 0.5;

const callerTurns = new TurnQueue();

/**
 * Long work of a caller, such as planning many writes. It pauses after each slice, and in each turn of the loop only one of all such works goes on.
 * Callers have their turns one after the other.
 */
export class CallerSlice {
  #start = performance.now();

  constructor(private readonly caller: string) {}

  /** To be called between steps. Waits at the end of a slice. */
  async pause(): Promise<void> {
    if (performance.now() - this.#start < CALLER_SLICE_MS) return;
    await callerTurns.run(this.caller, () => {
      this.#start = performance.now();
    });
  }
}

const CHARACTERS_PER_STEP = 1_048_576;

/** The bytes of a long text, without keeping other requests waiting. */
export async function encodeInSlices(text: string): Promise<Buffer> {
  const pieces: string[] = [];
  for (let start = 0; start < text.length; ) {
    let end = start + CHARACTERS_PER_STEP;
    if (isHighSurrogate(text.charCodeAt(end - 1))) end++;
    pieces.push(text.slice(start, end));
    start = end;
  }
  const lengths = await runInSlices(mapSteps(pieces, (piece) => Buffer.byteLength(piece)));
  const bytes = Buffer.allocUnsafeSlow(lengths.reduce((sum, length) => sum + length, 0));
  let offset = 0;
  const write = (piece: string): void => {
    offset += bytes.write(piece, offset);
  };
  await runInSlices(mapSteps(pieces, write));
  return bytes;
}

function isHighSurrogate(code: number): boolean {
  return code >= 0xd800 && code <= 0xdbff;
}

/** JSON of a large value, without keeping other requests waiting. Objects and lists down to `depth` are written entry by entry. */
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
