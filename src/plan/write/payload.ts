/** Payloads × model → write plan: what is created, updated, or either. The payload is walked once (payload-walker.ts). */

import { forEachInSlices, oneByOne } from '../../base/time-slices.js';
import type { Collection } from '../../mirror/model.js';
import type { ItemChange, Payload, WritePlanContext } from './payload-row.js';
import { PayloadWalker } from './payload-walker.js';
import type { PlannedWrite } from './write.js';

export function planCreate(
  collection: Collection,
  payloads: readonly Payload[],
  context: WritePlanContext,
): Promise<PlannedWrite> {
  return planned(payloads, async () => {
    const walker = new PayloadWalker(context);
    const many = payloads.length > 1;
    const root: number[] = [];
    await forEachInSlices(payloads, (payload, position) => {
      root.push(walker.create(collection, payload, many ? `${position}` : '').number);
    });
    return walker.finish(collection, root, null);
  });
}

/** From so many items on, a payload takes tens of megabytes while it is planned. */
const LARGE = 5_000;

function planned<Result>(items: readonly unknown[], work: () => Promise<Result>): Promise<Result> {
  return items.length > LARGE ? oneByOne(work) : work();
}

export function planUpdate(
  collection: Collection,
  changes: readonly ItemChange[],
  context: WritePlanContext,
): Promise<PlannedWrite> {
  return planned(changes, async () => {
    const walker = new PayloadWalker(context);
    const many = changes.length > 1;
    const root: number[] = [];
    await forEachInSlices(changes, ({ key, data }, position) => {
      root.push(walker.update(collection, key, data, many ? `${position}` : '', true).number);
    });
    const keys = changes.map(({ key }) => key);
    return walker.finish(collection, root, keys);
  });
}

/** Rows with a key are changed, or made with it; rows without one are made. */
export async function planUpsert(
  collection: Collection,
  payloads: readonly Payload[],
  context: WritePlanContext,
): Promise<PlannedWrite> {
  const walker = new PayloadWalker(context);
  await forEachInSlices(payloads, (payload) => void walker.save(collection, payload, ''));
  return walker.finish(collection, [], []);
}
