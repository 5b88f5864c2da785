/** The options of imports. */
import type { ConfigWith } from '../../server/config/config.js';
import { integer } from '../../server/config/option-kinds.js';

export const OPTIONS = {
  MAX_IMPORT_ERRORS: integer('1000', 1, 1_000_000, 'Invalid rows after which an import stops'),
};

export type ImportExportConfig = ConfigWith<typeof OPTIONS>;
