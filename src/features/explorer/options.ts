/** The options of the Explorer. */
import { boolean } from '../../server/config/option-kinds.js';

export const OPTIONS = {
  EXPLORER: boolean('true', 'Serve the Explorer, a web interface, at /explorer, and redirect browsers from / to it'),
};
