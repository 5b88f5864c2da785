/** Reads and writes the items of a collection as files. */
import type { Feature } from '../../server/feature/feature.js';
import { exportFormats } from '../export-formats/feature.js';
import { files } from '../files/feature.js';
import { OPTIONS } from './options.js';

export const importExport: Feature<unknown, typeof OPTIONS> = {
  name: 'import-export',
  needs: [exportFormats, files],
  options: OPTIONS,
  topic: 'Files and imports',
  commands: {
    import: {
      topic: 'Data and schema',
      about: 'writes the rows of a JSON, NDJSON or CSV file to a collection',
      load: async () => (await import('./command.js')).COMMANDS.import,
    },
  },
  open: async ({ config, use, observe, reload }) => {
    const services = use(files);
    if (services === null) return null;
    const { utilsRoutes } = await import('./utils.js');
    return {
      routes: utilsRoutes({ ...services, config: { ...services.config, ...config }, observe, readAnew: reload }),
    };
  },
};
