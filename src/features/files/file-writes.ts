/** Checks writes to the rows of files. */
import { invalidPayload } from '../../base/errors.js';
import { valuesOf, type WriteHook } from '../../server/execute/hooks/write-hook.js';

/** The bytes of a file that names an unknown storage location could not be found. */
export const fileWrites = (storages: readonly string[]): WriteHook => ({
  concerns: ({ collection }) => collection.name === 'service_files',
  validate: (changes) => {
    for (const change of changes)
      for (const row of change.rows) {
        const storage = valuesOf(change, row).get('storage');
        if (typeof storage === 'string' && !storages.includes(storage))
          throw invalidPayload(`"storage" must be one of ${storages.join(', ')}, not ${JSON.stringify(storage)}`);
      }
  },
});
