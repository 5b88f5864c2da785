/** The options of live queries. */
import { duration, integer } from '../../server/config/option-kinds.js';

export const OPTIONS = {
  LIVE_INTERVAL: duration('50ms', 'Shortest time between two reads of a live query'),
  LIVE_MAX_SUBSCRIPTIONS: integer('20000', 1, 1_000_000, 'Live queries at the same time, per thread'),
  LIVE_MAX_SUBSCRIPTIONS_PER_USER: integer(
    '1000',
    1,
    1_000_000,
    'Live queries of one user, or of one address without a user, at the same time, per thread',
  ),
  LIVE_MAX_REMEMBERED_KEYS: integer(
    '1000000',
    1_000,
    100_000_000,
    'Item keys kept per thread to report deletions to subscribers with row rules; one user may have a quarter of them',
  ),
};
