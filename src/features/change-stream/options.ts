/** The options of the stream of changes. */
import { choice, size } from '../../server/config/option-kinds.js';

export const OPTIONS = {
  LIVE: choice(
    'auto',
    ['auto', 'logical', 'triggers', 'off'],
    "How live queries learn of changes: logical reads PostgreSQL's log (needs wal_level logical and a role with REPLICATION), triggers installs triggers on the tables that are served, auto reads the log if it can and otherwise uses installed triggers, off refuses live queries",
  ),
  LIVE_MAX_WAL: size(
    '1gb',
    'WAL that PostgreSQL may keep for the log stream of a thread; its slot is replaced each time it keeps a sixteenth of this, and given up beyond it',
    16 * 1_048_576,
  ),
};
