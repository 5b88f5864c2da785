/** The options of the embedded PostgreSQL. */
import { boolean, text } from '../../server/config/option-kinds.js';

export const OPTIONS = {
  DATA_DIR: text('./data', 'Directory of the embedded PostgreSQL'),
  DEMO_DATA: boolean('true', 'Load the demo model into a new embedded database'),
};
