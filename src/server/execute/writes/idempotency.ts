/**
 * Idempotency keys: a request with an Idempotency-Key is carried out once. Each time it comes again it is answered with the items
 * that it has written, as far as they may be read by then. The response of a function or a transaction is stored and sent again as it
 * was. The keys are in the table service_receipts.
 */

import { unprocessable } from '../../../base/errors.js';
import { isObject } from '../../../base/exact-json.js';
import { parseOwnJson } from '../../../base/narrow.js';
import type { Collection } from '../../../compiler/model/model.js';
import { servedCollection } from '../../../compiler/plan/read.js';
import { displayWrittenKey } from '../../../compiler/plan/write/key.js';
import { withKeys } from '../../../compiler/request/rest.js';
import type { IdempotencyKey, Key } from '../../../compiler/request/write.js';
import type { Database } from '../../postgres/pools/database.js';
import type { Session } from '../../postgres/pools/sessions.js';
import { NO_CLIENT } from '../stages.js';
import type { WriteCall, WriteServices } from './compiled-write.js';

/** The error of a statement whose idempotency key was used before. */
const REPEATED = 'repeated';

export function isRepeated(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'LT403' && error.message === REPEATED;
}

/**
 * If a request selects its items inside the transaction, the key is taken before: the first request may have changed what is
 * found. False if the key was used before. A concurrent request with the same key is waited for.
 */
async function takeKey(key: IdempotencyKey, lifetime: string, database: Database, session: Session): Promise<boolean> {
  const text = database.qualified(
    `insert into service_receipts as receipt (id, fingerprint, expires) values ($1, $2, now() + $3::interval)
     on conflict (id) do update set fingerprint = excluded.fingerprint, expires = excluded.expires, keys = null, answer = null
     where receipt.expires < now() returning 1`,
  );
  const taken = await session.asService(() => session.query(text, [key.id, key.fingerprint, lifetime]));
  return taken.length > 0;
}

/** Throws if the key was used before. */
export async function takeNewKey(
  key: IdempotencyKey,
  { idempotencyLifetime }: { readonly idempotencyLifetime: string },
  database: Database,
  session: Session,
): Promise<void> {
  if (!(await takeKey(key, idempotencyLifetime, database, session))) throw repeated();
}

interface KeyServices {
  readonly database: Database;
  readonly session: Session;
  readonly idempotencyLifetime: string;
}

function repeated(): Error {
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
  const { keys, answer } = ownReceipt(await database.rows<Receipt>(RECEIPT, [key.id]), key);
  if (readBack === null) return null;
  const written = keys?.map((each) => displayWrittenKey(collection, each)) ?? keysOfAnswer(answer, collection);
  if (written === null) throw unprocessable(UNKNOWN_ITEMS);
  const query = withKeys(readBack, written);
  const compiled = reads.prepareReadBack(query, writer, client);
  return compiled && reads.run({ query, compiled, caller: writer.caller, origin: client }, NO_CLIENT);
}

const UNKNOWN_ITEMS =
  'The request with this Idempotency-Key was carried out by an earlier version of the service, which did not keep the keys of its items. It was not carried out again: read the items to see them';

/** The stored outcome of the first request. */
interface Receipt {
  readonly fingerprint: string;
  readonly keys: readonly Key[] | null;
  /** The response of a function call. Versions before 1.0 stored the responses of all requests, and no keys. */
  readonly answer: string | null;
}

const RECEIPT = 'select fingerprint, keys, answer from service_receipts where id = $1';

/** The receipt, unless it belongs to another request. */
function ownReceipt([receipt]: readonly Receipt[], key: IdempotencyKey): Receipt {
  if (receipt?.fingerprint !== key.fingerprint) throw unprocessable('The Idempotency-Key was used for another request');
  return receipt;
}

/** Runs the work once: the call of a function, or a transaction. A repeated request gets the stored answer. */
export async function answerOnce(
  key: IdempotencyKey,
  services: KeyServices,
  work: () => Promise<Buffer | null>,
): Promise<Buffer | null> {
  const { database, session, idempotencyLifetime } = services;
  if (!(await takeKey(key, idempotencyLifetime, database, session))) {
    const found = await session.asService(() => session.query<Receipt>(database.qualified(RECEIPT), [key.id]));
    const { answer } = ownReceipt(found, key);
    return answer === null ? null : Buffer.from(answer);
  }
  const body = await work();
  const store = database.qualified('update service_receipts set answer = $1 where id = $2');
  await session.asService(() => session.query(store, [body === null ? null : body.toString(), key.id]));
  return body;
}

/** Keys of the items in an answer, or null if it does not show them. The caller may read less now, so the answer itself is not sent. */
function keysOfAnswer(answer: string | null, { key: [field, ...others] }: Collection): readonly Key[] | null {
  if (answer === null || !field || others.length > 0) return null;
  const { data } = parseOwnJson<{ readonly data?: unknown }>(answer);
  const keys: Key[] = [];
  for (const item of Array.isArray(data) ? data : [data]) {
    const key: unknown = isObject(item) ? item[field.name] : null;
    if (typeof key !== 'string' && typeof key !== 'number') return null;
    keys.push(key);
  }
  return keys;
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
  await session.asService(() => session.query(text, [keys && JSON.stringify(keys), key.id]));
}

export async function deleteExpiredKeys(database: Database): Promise<void> {
  await database.rows('delete from service_receipts where expires < now()');
}
