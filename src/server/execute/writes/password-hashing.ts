/**
 * Passwords are matched against the settings and hashed before a connection is taken: both take their time by design. A write
 * that is planned only inside its transaction has its payload prepared before; the rest, such as presets of a policy, is
 * done when it is planned.
 */

import { invalidPayload } from '../../../base/errors.js';
import { isObject } from '../../../base/exact-json.js';
import type { Collection, Field, Model } from '../../../compiler/model/model.js';
import { ownValue } from '../../../compiler/model/synonyms.js';
import { CONCEALED, Secret } from '../../../compiler/plan/write/column-value.js';
import { Guard } from '../../../compiler/plan/write/guard.js';
import type { Payload, WritePlanContext } from '../../../compiler/plan/write/payload-row.js';
import type { WriteTarget } from '../../../compiler/plan/write/plan-request.js';
import { type NewSecret, newSecrets } from '../../../compiler/plan/write/secrets.js';
import type { Author, PlannedWrite } from '../../../compiler/plan/write/write.js';
import type { Input } from '../../../compiler/request/parse-context.js';
import type { WriteRequest } from '../../../compiler/request/write.js';
import { assertPassword, hashWritten } from '../../accounts/passwords.js';
import type { Writer } from '../writer.js';
import { restrict, type WriteContext } from './write-context.js';

/** Returns the rows of an internal statement. */
type Ask = (text: string) => Promise<readonly Readonly<Record<string, unknown>>[]>;

/** Hashes the secrets of a plan that are not hashed yet. */
export async function hashNewSecrets(
  planned: PlannedWrite,
  { caller, author }: Writer,
  ask: Ask,
  isLimited = !caller.administrator,
): Promise<void> {
  await hashSecrets(newSecrets(planned), isLimited, author, ask);
}

/** Hashes the passwords of a request before the transaction in which it will be planned. */
export async function prepareSecrets<Request extends WriteRequest>(
  context: WriteContext,
  request: Request,
  writer: Writer,
): Promise<Request> {
  const { mirror, database } = context.services;
  if (!mirror.model.collections.has(request.collection)) return request;
  const prepare = (payloads: readonly Input[]): Promise<readonly Input[]> => {
    const target = restrict(context, request.collection, writer, mirror.model);
    // An invalid query is refused before anything is done for it.
    if ('selected' in request) context.compiler.parseSelected(target.collection, request.selected);
    return preparePayloads(target, payloads, (text) => database.rows(text));
  };
  if ('items' in request) return { ...request, items: await prepare(request.items) };
  if (!('data' in request)) return request;
  const [data = request.data] = await prepare([request.data]);
  return { ...request, data };
}

/** The payloads with their secrets prepared, as far as the caller may write them; the rest is for the plan to refuse. */
async function preparePayloads(
  { collection, context }: WriteTarget,
  payloads: readonly Input[],
  ask: Ask,
): Promise<readonly Input[]> {
  const walker = new SecretCollector(context);
  const prepared = payloads.map((payload) => walker.walk(collection, payload, 0));
  if (walker.secrets.length > (context.maxRows ?? Number.POSITIVE_INFINITY)) return payloads;
  if (context.access !== null) countSecrets(walker.secrets.length, context.author);
  await hashSecrets(walker.secrets, context.access !== null, context.author, ask);
  return prepared;
}

/** For callers other than administrators: each hash takes tens of milliseconds by design. */
const MAX_SECRETS = 100;

/** Secrets of the request so far: a transaction has several payloads. */
const countedSecrets = new WeakMap<Author, number>();

function countSecrets(added: number, author: Author): void {
  const secrets = added + (countedSecrets.get(author) ?? 0);
  if (secrets > MAX_SECRETS) throw tooManySecrets();
  countedSecrets.set(author, secrets);
}

function tooManySecrets(): Error {
  return invalidPayload(`One request can set at most ${MAX_SECRETS} hashed values`);
}

/** Hashes of one request that are computed at a time. */
const HASHED_AT_ONCE = 2;

/** New passwords of users have to meet the settings. */
async function hashSecrets(added: readonly NewSecret[], isLimited: boolean, { ip }: Author, ask: Ask): Promise<void> {
  if (added.length === 0) return;
  if (isLimited && added.length > MAX_SECRETS) throw tooManySecrets();
  const passwords = added.filter(({ collection }) => collection === 'service_users');
  if (passwords.length > 0) {
    const [row] = await ask('select auth_password_policy as policy from service_settings limit 1');
    const policy = typeof row?.['policy'] === 'string' ? row['policy'] : null;
    await assertPassword(policy, ...passwords.map(({ secret }) => secret.text));
  }
  const waiting = [...new Set(added.map(({ secret }) => secret))];
  const hashNext = async (): Promise<void> => {
    for (let secret = waiting.pop(); secret; secret = waiting.pop())
      secret.hash = await hashWritten(secret.text, ip ?? '');
  };
  await Promise.all(Array.from({ length: HASHED_AT_ONCE }, hashNext));
}

/** Levels of items inside items: deeper ones are refused by the plan. */
const MAX_DEPTH = 1_000;

class SecretCollector {
  readonly secrets: NewSecret[] = [];
  readonly #model: Model;
  readonly #guard: Guard | null;

  constructor({ model, access }: WritePlanContext) {
    this.#model = model;
    this.#guard = access && new Guard(access, model);
  }

  /** The payload, or a copy of it if it holds a secret. */
  walk(collection: Collection | undefined, payload: Payload, depth: number): Payload {
    if (!collection || depth > MAX_DEPTH) return payload;
    const before = this.secrets.length;
    const changed: Record<string, unknown> = {};
    for (const [name, value] of Object.entries(payload)) {
      const field = collection.fields.get(name);
      if (!field) continue;
      if (field.relation) {
        if (this.#mayWrite(collection, field)) changed[name] = this.#related(field, payload, value, depth + 1);
      } else if (this.#isNew(collection, field, value)) changed[name] = this.#secret(collection, value);
    }
    return this.secrets.length === before ? payload : { ...payload, ...changed };
  }

  #secret({ name }: Collection, text: string): Secret {
    const secret = new Secret(text);
    this.secrets.push({ secret, collection: name });
    return secret;
  }

  #isNew(collection: Collection, field: Field, value: unknown): value is string {
    if (!field.special.includes('hash') || typeof value !== 'string' || value === '' || value === CONCEALED)
      return false;
    return this.#mayWrite(collection, field);
  }

  #mayWrite(collection: Collection, { name }: Field): boolean {
    const may = (action: 'create' | 'update'): boolean => this.#guard?.covers(action, collection, [name]) ?? true;
    return may('create') || may('update');
  }

  #related({ relation }: Field, payload: Payload, value: unknown, depth: number): unknown {
    const walk = (name: unknown, entry: unknown): unknown =>
      isObject(entry) ? this.walk(this.#model.collections.get(String(name)), entry, depth) : entry;
    if (relation?.kind === 'many-to-one') return walk(relation.oneCollection, value);
    if (relation?.kind === 'one-to-one') return walk(relation.manyCollection, value);
    if (relation?.kind === 'many-to-any')
      return walk(ownValue(this.#model.synonyms, payload[relation.collectionField]), value);
    if (relation?.kind !== 'one-to-many') return value;
    const each = (list: unknown): unknown =>
      Array.isArray(list) ? list.map((entry) => walk(relation.manyCollection, entry)) : list;
    if (!isObject(value)) return each(value);
    const lists = Object.entries(value).map(([name, list]) => [name, name === 'delete' ? list : each(list)]);
    return Object.fromEntries(lists);
  }
}
