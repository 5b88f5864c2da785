/** A file whose row names an unknown storage location could not be read: such a write is refused, however it arrives. */
import { invalidPayload } from '../../base/errors.js';
import type { PlannedWrite } from '../../plan/write/write.js';

export function checkStorages({ plan, input }: PlannedWrite, storages: readonly string[]): void {
  for (const [position, { collection, columns }] of plan.nodes.entries()) {
    if (collection.name !== 'service_files') continue;
    const index = columns.findIndex(({ field }) => field.name === 'storage');
    if (index < 0) continue;
    for (const row of input.nodes[position] ?? []) {
      const value = row[`c${index}`];
      if (typeof value === 'string' && !storages.includes(value))
        throw invalidPayload(`"storage" must be one of ${storages.join(', ')}, not ${JSON.stringify(value)}`);
    }
  }
}
