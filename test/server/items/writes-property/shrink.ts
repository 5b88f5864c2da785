/** Makes a failing write smaller: without one entry or one key at a time, as long as it still fails. */
import type { Payload, WriteCase } from './requests.js';

export type Check = (candidate: WriteCase) => Promise<string | null>;

const MOST_STEPS = 400;

export async function shrinkWrite(write: WriteCase, check: Check): Promise<WriteCase> {
  let smallest = write;
  for (let steps = 0; steps < MOST_STEPS; ) {
    let found: WriteCase | null = null;
    for (const candidate of smallerWrites(smallest)) {
      if (++steps > MOST_STEPS) break;
      if ((await check(candidate)) === null) continue;
      found = candidate;
      break;
    }
    if (!found) return smallest;
    smallest = found;
  }
  return smallest;
}

function* smallerWrites(write: WriteCase): Generator<WriteCase> {
  if (write.kind === 'create' || write.kind === 'each' || write.kind === 'conflict') {
    for (const items of smallerLists(write.items))
      if (write.kind === 'each' || write.many || items.length === 1) yield { ...write, items };
  }
  if (write.kind === 'one' || write.kind === 'same')
    for (const data of smallerObjects(write.data)) yield { ...write, data };
  if ((write.kind === 'same' || write.kind === 'delete') && write.selected.kind === 'keys') {
    for (const keys of smallerLists(write.selected.keys))
      if (keys.length > 0) yield { ...write, selected: { ...write.selected, keys } };
  }
}

function* smallerLists<Item>(list: readonly Item[]): Generator<Item[]> {
  for (const position of list.keys()) yield list.toSpliced(position, 1);
  for (const [position, entry] of list.entries())
    for (const smaller of smallerValues(entry)) yield list.with(position, smaller as Item);
}

function* smallerObjects(object: Payload): Generator<Payload> {
  for (const name of Object.keys(object)) {
    const { [name]: _, ...rest } = object;
    if (name !== 'label') yield rest;
  }
  for (const [name, value] of Object.entries(object))
    for (const smaller of smallerValues(value)) yield { ...object, [name]: smaller };
}

function* smallerValues(value: unknown): Generator<unknown> {
  if (Array.isArray(value)) yield* smallerLists(value);
  else if (value !== null && typeof value === 'object') yield* smallerObjects(value as Payload);
}
