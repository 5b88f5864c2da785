/** The options of the Explorer. */
import type { ConfigWith } from '../../server/config/config.js';
import { boolean } from '../../server/config/option-kinds.js';

export const OPTIONS = {
  EXPLORER: boolean('true', 'Serve the Explorer, a web interface, at /explorer, and redirect browsers from / to it'),
};

export type ExplorerConfig = ConfigWith<typeof OPTIONS>;
