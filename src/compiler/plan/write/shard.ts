/** Writes to tables of Citus, which are about one value of the column by which the tables are distributed. */
import { invalidPayload, type ServiceError } from '../../../base/errors.js';
import type { Collection } from '../../model/model.js';
import type { PlannedWrite } from './write.js';

export function isDistributed({ plan }: PlannedWrite): boolean {
  return plan.nodes.some(({ collection }) => collection.distributed);
}

/** The value that all rows have in their distribution columns, or null if they have none. */
export function shardValue({ plan, input }: PlannedWrite): string | null {
  const values = new Set<string>();
  for (const [position, { collection, columns }] of plan.nodes.entries()) {
    const { shardColumn, distributed, key } = collection;
    if (!distributed || shardColumn === null) continue;
    const part = key.findIndex(({ name }) => name === shardColumn);
    const names = [
      ...(part < 0 ? [] : [key.length === 1 ? 'k' : `k_${part}`]),
      ...columns.flatMap(({ field }, index) => (field.name === shardColumn ? [`c${index}`] : [])),
    ];
    for (const row of input.nodes[position] ?? []) {
      for (const name of names) {
        const value = row[name];
        if (value !== undefined && value !== null) values.add(String(value));
      }
    }
    if (values.size > 1) throw onlyOneValue(collection);
  }
  return [...values][0] ?? null;
}

export function onlyOneValue({ name, shardColumn }: Collection): ServiceError {
  const reason = `"${name}" is distributed by "${shardColumn}": all items of a request must have the same "${shardColumn}"`;
  return invalidPayload(reason);
}
