/**
 * Idempotency keys: a request with an Idempotency-Key is carried out once. Each time it comes again it is answered with the items
 * that it has written, as far as they may be read by then. The keys are in the table service_receipts.
 */
import { unprocessable } from '../errors.js';
import { displayWrittenKey } from '../plan/key.js';
import { servedCollection } from '../plan/read.js';
import type { Database } from '../postgres/database.js';
import type { Session } from '../postgres/sessions.js';
import { withKeys } from '../request/rest.js';
import type { IdempotencyKey, Key } from '../request/write.js';
import type { WriteCall, WriteServices } from './compiled-write.js';
import { NO_CLIENT } from './stages.js';

/** The error of a statement whose idempotency key was used before. */
const REPEATED = 'repeated';

export function isRepeated(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'LT403' && error.message === REPEATED;
}

/**
 * Where the items of a request are found inside its transaction, the key is taken before: the first time may have changed what is
 * found. False for that it was used before; a request that runs at the same time is waited for.
 */
export async function takeKey(
  key: IdempotencyKey,
  lifetime: string,
  database: Database,
  session: Session,
): Promise<boolean> {
  const text = database.qualified(
    `insert into service_receipts as receipt (id, fingerprint, expires) values ($1, $2, now() + $3::interval)
     on conflict (id) do update set fingerprint = excluded.fingerprint, expires = excluded.expires, keys = null, answer = null
     where receipt.expires < now() returning 1`,
  );
  return (await session.query(text, [key.id, key.fingerprint, lifetime])).length > 0;
}

export function repeated(): Error {
  return Object.assign(new Error(REPEATED), { code: 'LT403' });
}

/** A request whose key was used before: what may be read by now of the items that it has written. */
export async function answerRepeated(
  key: IdempotencyKey,
  name: string,
  { writer, client, readBack }: WriteCall,
  { mirror, consistency, database, reads }: WriteServices,
): Promise<Buffer | null> {
  const collection = servedCollection(mirror.model, name);
  await consistency?.askAgain(client, writer.caller);
  const keys = (await writtenKeys(key, database))?.map((each) => displayWrittenKey(collection, each)) ?? null;
  const query = keys && readBack && withKeys(readBack, keys);
  const compiled = query && reads.prepareReadBack(query, writer, client);
  return compiled && reads.run({ query, compiled, caller: writer.caller }, NO_CLIENT);
}

/** What was made the first time; null where that is not known any more. */
async function writtenKeys(key: IdempotencyKey, database: Database): Promise<readonly Key[] | null> {
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
