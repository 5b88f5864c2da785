/** The Server-Timing header: how long each stage of the pipeline took, in the order of the stages. */
import { STAGES, type Stage } from '../engine/stages.js';

/** Milliseconds by the position of the stage; negative for a stage that the request did not pass. */
export type StageTimes = number[];

export function noStageTimes(): StageTimes {
  return [-1, -1, -1, -1, -1, -1, -1];
}

const POSITIONS = Object.fromEntries(STAGES.map((stage, position) => [stage, position])) as Record<Stage, number>;

/** A stage may be passed several times, as by a retry: its times are added up. */
export function addStageTime(times: StageTimes, stage: Stage, milliseconds: number): void {
  const position = POSITIONS[stage];
  const before = times[position] ?? -1;
  times[position] = before < 0 ? milliseconds : before + milliseconds;
}

/** A read that travelled in a batch says with how many: `batch;desc="7"`. */
export function serverTiming(times: StageTimes, batch = 1): string {
  let text = '';
  for (let position = 0; position < STAGES.length; position++) {
    const milliseconds = times[position] ?? -1;
    if (milliseconds < 0) continue;
    const entry = entryOf(position, Math.round(milliseconds * 100));
    text = text === '' ? entry : `${text}, ${entry}`;
  }
  return batch === 1 ? text : text + batchEntry(batch);
}

const BATCH_ENTRIES: string[] = [];

function batchEntry(batch: number): string {
  BATCH_ENTRIES[batch] ??= `, batch;desc="${batch}"`;
  return BATCH_ENTRIES[batch];
}

/** By stage and hundredths of a millisecond: short durations come again and again. */
const MAX_CACHED_HUNDREDTHS = 2_000;
const ENTRIES: readonly string[][] = STAGES.map(() => new Array(MAX_CACHED_HUNDREDTHS));

function entryOf(position: number, hundredths: number): string {
  const entries = ENTRIES[position] ?? [];
  const known = entries[hundredths];
  if (known !== undefined) return known;
  const text = `${STAGES[position]};dur=${(hundredths / 100).toFixed(2)}`;
  if (hundredths < MAX_CACHED_HUNDREDTHS) entries[hundredths] = text;
  return text;
}
