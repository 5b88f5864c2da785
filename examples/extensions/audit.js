/**
 * Writes a row to "audit_log" for each change of an article or author, in the same transaction:
 *
 *   create table audit_log (id bigserial primary key, at timestamptz not null default now(), user_id uuid, collection text not null,
 *     item text, action text not null, changes jsonb);
 *
 * Callers need no permission for the table, because the hook writes as an administrator. Rows of "unlink" and "delete" have no item if
 * only the statement knows which items leave a list.
 */
import { defineExtension } from 'lateral';

export default defineExtension({
  name: 'audit',
  collections: ['articles', 'authors'],
  afterWrite: async ({ collection, action, payload, keys, caller, tx }) => {
    const items = keys.length > 0 ? keys.map(String) : [null];
    const rows = items.map((item) => ({ user_id: caller.user, collection, item, action, changes: payload }));
    await tx.items('audit_log', { as: 'administrator' }).createMany(rows);
  },
});
