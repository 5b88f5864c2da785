/**
 * Receipts: a request with an Idempotency-Key is carried out once. Each time it comes again it is answered with the items that it
 * has made, as far as they may be read by then.
 */
import { unprocessable } from '../errors.js';
import type { Database } from '../postgres/database.js';
import type { Session } from '../postgres/sessions.js';
import type { Key } from '../request/write.js';

/** A request that may come again: who sent it under which key, and what it said. */
export interface IdempotentRequest {
  readonly id: string;
  readonly fingerprint: string;
}

/** What the statement does besides: it keeps a receipt, or counts what it writes. */
export type Extra = IdempotentRequest | 'counted' | null;

/** What a statement says that found the receipt of an earlier one. */
const REPEATED = 'repeated';

export function isRepeated(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'LT403' && error.message === REPEATED;
}

/** What was made the first time; null where that is not known any more. */
export async function keysOf(receipt: IdempotentRequest, database: Database): Promise<readonly Key[] | null> {
  const [row] = await database.rows<{ fingerprint: string; keys: readonly Key[] | null }>(
    'select fingerprint, keys from service_receipts where id = $1',
    [receipt.id],
  );
  if (row?.fingerprint !== receipt.fingerprint) throw unprocessable('The Idempotency-Key was used for another request');
  return row.keys;
}

/** Keys that are not known before are those that the chain has left. */
export async function keepKeys(
  receipt: IdempotentRequest,
  keys: readonly Key[] | null,
  database: Database,
  session: Session,
): Promise<void> {
  const text = database.qualified(
    "update service_receipts set keys = coalesce($1::json, to_json(current_setting('lateral.keys')::text[])) where id = $2",
  );
  await session.query(text, [keys && JSON.stringify(keys), receipt.id]);
}

/** Receipts whose time has passed are of no use to anybody. */
export async function forgetReceipts(database: Database): Promise<void> {
  await database.rows('delete from service_receipts where expires < now()');
}
