/** Reads of items as files: CSV, JSON, NDJSON, XML, YAML and GeoJSON. */
import type { Feature } from '../../server/feature/feature.js';

export const exportFormats: Feature = {
  name: 'export-formats',
  open: async () => {
    const { exportItems } = await import('./export-formats.js');
    return { exportItems: (...read) => exportItems(...read).reply };
  },
};
