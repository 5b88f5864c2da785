/** Files: the bytes of a row that names an unknown storage location could not be found. */
import { invalidPayload } from '../../base/errors.js';
import type { WriteHook } from './write-hook.js';
import { valuesOf } from './write-hook.js';

export const files: WriteHook = {
  concerns: ({ collection }) => collection.name === 'service_files',
  validate: (changes, { storages }) => {
    for (const change of changes)
      for (const row of change.rows) {
        const storage = valuesOf(change, row).get('storage');
        if (typeof storage === 'string' && !storages.includes(storage))
          throw invalidPayload(`"storage" must be one of ${storages.join(', ')}, not ${JSON.stringify(storage)}`);
      }
  },
};
