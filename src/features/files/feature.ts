/** Uploaded files, their storage and transformed images. */
import type { Feature } from '../../server/feature/feature.js';
import type { FilesServices } from './file-rows.js';
import { type FileLogEvent, LOG_EVENTS } from './log-events.js';
import { OPTIONS } from './options.js';

export const files: Feature<FilesServices, typeof OPTIONS, FileLogEvent> = {
  name: 'files',
  options: OPTIONS,
  topic: 'Files and imports',
  events: LOG_EVENTS,
  tables: {
    migrations: ['020_files.sql'],
    resources: [
      { name: 'folders', kind: 'write', sdk: true },
      { name: 'files', kind: 'write', sdk: true },
    ],
  },
  commands: {
    files: {
      topic: 'Serve',
      about: 'finds stored files without a row, and rows without a stored file',
      load: async () => (await import('./command.js')).COMMANDS.files,
    },
  },
  hooks: async ({ STORAGE_LOCATIONS }) => {
    const { fileWrites } = await import('./file-writes.js');
    return [fileWrites(STORAGE_LOCATIONS.map(({ name }) => name))];
  },
  open: async (context) => (await import('./part.js')).openFiles(context),
  openOnce: async (context) => (await import('./removed-files.js')).removeFilesOfDeletedRows(context),
};
