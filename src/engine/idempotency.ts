/**
 * Idempotency keys: a request with an Idempotency-Key is carried out once. Each time it comes again it is answered with the items
 * that it has made, as far as they may be read by then. The keys are in the table service_receipts.
 */
import { unprocessable } from '../errors.js';
import type { Database } from '../postgres/database.js';
import type { Session } from '../postgres/sessions.js';
import type { IdempotencyKey, Key } from '../request/write.js';

/** The error of a statement whose idempotency key was used before. */
const REPEATED = 'repeated';

export function isRepeated(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'LT403' && error.message === REPEATED;
}

/** What was made the first time; null where that is not known any more. */
export async function writtenKeys(key: IdempotencyKey, database: Database): Promise<readonly Key[] | null> {
  const [row] = await database.rows<{ fingerprint: string; keys: readonly Key[] | null }>(
    'select fingerprint, keys from service_receipts where id = $1',
    [key.id],
  );
  if (row?.fingerprint !== key.fingerprint) throw unprocessable('The Idempotency-Key was used for another request');
  return row.keys;
}

/** Keys of items that are not known before are those that the statement has left. */
export async function keepWrittenKeys(
  key: IdempotencyKey,
  keys: readonly Key[] | null,
  database: Database,
  session: Session,
): Promise<void> {
  const text = database.qualified(
    "update service_receipts set keys = coalesce($1::json, to_json(current_setting('lateral.keys')::text[])) where id = $2",
  );
  await session.query(text, [keys && JSON.stringify(keys), key.id]);
}

export async function deleteExpiredKeys(database: Database): Promise<void> {
  await database.rows('delete from service_receipts where expires < now()');
}
