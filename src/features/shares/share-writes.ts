/** Checks writes of shares. */
import { forbidden, invalidPayload } from '../../base/errors.js';
import { parseSearch } from '../../compiler/request/rest.js';
import { arrayLiteral } from '../../compiler/sql/literal.js';
import {
  type Change,
  type ChangedRow,
  CREATOR,
  type HookedWrite,
  refuseUpserts,
  valuesOf,
  type WriteHook,
} from '../../server/execute/hooks/write-hook.js';
import { countInSession, querySystem, readItem } from '../../server/execute/reads/session-reads.js';

const SHARES = 'service_shares';
const SHARE_FIELDS: ReadonlySet<string> = new Set([
  ...['id', 'name', 'role', 'password', 'date_start', 'date_end', 'max_uses'],
]);
const NEW_SHARE_FIELDS: ReadonlySet<string> = new Set([...SHARE_FIELDS, 'collection', 'item']);

/** The creator of a share must be allowed to share the item, and the share has the creator's rights. Other users may not change it. */
export const shareWrites: WriteHook = {
  concerns: ({ collection, action }) => collection.name === SHARES && action !== 'delete',
  open: (write) => ({
    beforeWrite: async () => {
      for (const change of write.changes) await checkShares(write, change);
    },
  }),
};

async function checkShares(write: HookedWrite, change: Change): Promise<void> {
  const { caller } = write.writer;
  // A share that leaves its role would be open to the public's.
  if (change.action === 'unlink' && !caller.administrator) throw forbidden();
  refuseUpserts(change);
  if (change.action === 'update' && !caller.administrator) await checkCreator(write, change);
  const allowed = change.action === 'update' ? SHARE_FIELDS : NEW_SHARE_FIELDS;
  for (const row of change.rows) {
    const values = valuesOf(change, row);
    const stray = [...values.keys()].find((name) => !allowed.has(name));
    if (stray !== undefined) throw invalidPayload(`"${stray}" of a share cannot be written`);
    if (change.action === 'create') await checkNewShare(write, change, row);
  }
}

/** A share has the rights of its creator, so only the creator decides who may use it. A user who may delete it can end it. */
async function checkCreator(write: HookedWrite, { rows }: Change): Promise<void> {
  const others = await querySystem(
    write,
    `select from service_shares
     where id = any($1::text[]::uuid[]) and user_created::text is distinct from $2::text limit 1`,
    [arrayLiteral(rows.map((row) => String(row['k']))), write.writer.caller.user],
  );
  if (others.length > 0) throw forbidden();
}

async function checkNewShare(write: HookedWrite, change: Change, row: ChangedRow): Promise<void> {
  const creator = row[`c${change.columns.findIndex(({ field }) => field.name === CREATOR)}`];
  if (creator !== undefined && creator !== write.writer.caller.user)
    throw invalidPayload(`"${CREATOR}" must be the caller: leave it out`);
  const values = valuesOf(change, row);
  const [name, item] = [String(values.get('collection')), String(values.get('item'))];
  await readItem(write, name, item);
  const count = { keys: [item], query: { aggregate: { count: '*' } } };
  const query = parseSearch(name, count, '', write.parseLimits);
  if ((await countInSession(write, query, { selectedFor: 'any share' })) !== 1) throw forbidden();
}
