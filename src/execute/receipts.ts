/** Receipts: a request with an Idempotency-Key is carried out once, and answered the same each time it comes again. */
import { unprocessable } from '../errors.js';
import type { Database } from './database.js';
import type { Session } from './sessions.js';

/** A request that may come again: who sent it under which key, and what it said. */
export interface Receipt {
  readonly id: string;
  readonly fingerprint: string;
}

/** What a statement says that found the receipt of an earlier one. */
const REPEATED = 'repeated';

export function isRepeated(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'LT403' && error.message === REPEATED;
}

/** What was answered the first time. */
export async function answerOf(receipt: Receipt, database: Database): Promise<Buffer | null> {
  const [row] = await database.rows<{ fingerprint: string; body: string | null }>(
    'select fingerprint, body from service_receipts where id = $1',
    [receipt.id],
  );
  if (row?.fingerprint !== receipt.fingerprint) throw unprocessable('The Idempotency-Key was used for another request');
  return row.body === null ? null : Buffer.from(row.body);
}

export async function keepAnswer(receipt: Receipt, body: Buffer, database: Database, session: Session): Promise<void> {
  const text = database.qualified('update service_receipts set body = $1 where id = $2');
  await session.query(text, [body.toString(), receipt.id]);
}

/** Receipts whose time has passed are of no use to anybody. */
export async function forgetReceipts(database: Database): Promise<void> {
  await database.rows('delete from service_receipts where expires < now()');
}
