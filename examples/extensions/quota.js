/**
 * Limits the comments that a user may create:
 *
 *   create table quotas (user_id uuid primary key, used integer not null default 0, allowed integer not null);
 *
 * The update locks the row of the user until the commit, so that requests at the same time cannot exceed the limit together. An upsert
 * counts as well, because it may create the comment.
 */
import { defineExtension, Refused } from 'lateral';

export default defineExtension({
  name: 'quota',
  afterWrite: {
    comments: async ({ action, caller, tx }) => {
      if (!['create', 'upsert'].includes(action) || caller.administrator) return;
      const quotas = tx.items('quotas', { as: 'administrator' });
      const own = { query: { filter: { user_id: { _eq: caller.user } } } };
      const [quota] = (await quotas.updateMany(own, { used: { _increment: 1 } })) ?? [];
      if (quota && quota.used > quota.allowed)
        throw new Refused(403, 'QUOTA_EXCEEDED', `You may create ${quota.allowed} comments.`);
    },
  },
});
