/** Uploaded files, their storage and transformed images. */
import type { Feature } from '../../server/feature/feature.js';

export const files: Feature = {
  name: 'files',
  commands: {
    files: {
      topic: 'Serve',
      about: 'finds stored files without a row, and rows without a stored file',
      load: async () => (await import('./command.js')).COMMANDS.files,
    },
  },
};
