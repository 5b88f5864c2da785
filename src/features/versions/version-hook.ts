/**
 * Content versions: the writer must be able to read the item that a new version belongs to, and a digest of the item is stored
 * with it. A version without an item is the draft of a new item.
 */
import { createHash } from 'node:crypto';
import { invalidPayload, unprocessable } from '../../base/errors.js';
import { hasVersions } from '../../compiler/model/item-key.js';
import type { Collection } from '../../compiler/model/model.js';
import { VERSIONS } from '../../compiler/plan/version.js';
import { LIVE_VERSIONS, parseRead, parseSearch } from '../../compiler/request/rest.js';
import { arrayLiteral } from '../../compiler/sql/literal.js';
import { CLI_IDENTITY } from '../../server/access/identity.js';
import {
  bringsRows,
  type Change,
  type HookedWrite,
  refuseUpserts,
  valuesOf,
  type WriteHook,
} from '../../server/execute/hooks/write-hook.js';
import {
  compileInSession,
  countInSession,
  querySystem,
  readItem,
  type TransactionContext,
} from '../../server/execute/reads/session-reads.js';
import { lock } from '../../server/execute/writes/write-errors.js';

interface NewVersion {
  readonly collection: string;
  /** The key of the item, or null if the version is the draft of a new one. */
  readonly item: string | null;
  readonly key: string;
  readonly hash: string | null;
}

export const versions: WriteHook = {
  concerns: (change) => change.collection.name === VERSIONS && bringsRows(change),
  open: (write) => {
    const added: NewVersion[] = [];
    return {
      beforeWrite: async () => {
        for (const change of write.changes) {
          refuseUpserts(change);
          for (const row of change.rows) await checkVersion(write, change.action, valuesOf(change, row), added);
          if (change.action === 'update') await checkRenamed(write, change);
        }
      },
      afterWrite: async () => {
        const store = 'update service_versions set hash = $4 where collection = $1 and item = $2 and key = $3';
        for (const { collection, item, key, hash } of added)
          if (item !== null) await querySystem(write, store, [collection, item, key, hash]);
      },
    };
  },
};

/** The key of every version without an item. */
const DRAFT = 'draft';

const NEW_FIELDS: ReadonlySet<string> = new Set(['id', 'key', 'name', 'collection', 'item']);
const CHANGED_FIELDS: ReadonlySet<string> = new Set(['id', 'key', 'name']);

/** Adds a new version to `added`. */
async function checkVersion(
  write: HookedWrite,
  action: Change['action'],
  values: ReadonlyMap<string, unknown>,
  added: NewVersion[],
): Promise<void> {
  const allowed = action === 'update' ? CHANGED_FIELDS : NEW_FIELDS;
  const stray = [...values.keys()].find((name) => !allowed.has(name));
  if (stray !== undefined) throw invalidPayload(`"${stray}" is not allowed`);
  const key = values.get('key');
  if (key !== undefined && LIVE_VERSIONS.includes(key)) throw invalidPayload(`"${key}" is a reserved version key`);
  if (key === '') throw invalidPayload('"key" is not allowed to be empty');
  if (action === 'update') return;
  const missing = ['key', 'collection'].find((name) => typeof values.get(name) !== 'string');
  if (missing !== undefined) throw invalidPayload(`"${missing}" is required`);
  const [name, item] = [String(values.get('collection')), values.get('item') ?? null];
  if (item !== null && typeof item !== 'string') throw invalidPayload('"item" must be a string');
  if (item === null && key !== DRAFT)
    throw invalidPayload(`"item" is required: only a version with the key "${DRAFT}" can be made without one`);
  const hash = item === null ? null : hashOf(await readItem(write, name, item));
  if (item === null) mustBeReadable(write, name);
  const collection = write.model.collections.get(name);
  if (!collection || !hasVersions(collection))
    throw unprocessable(`Content Versioning is not enabled for collection "${name}"`);
  const version = { collection: name, item, key: String(key), hash };
  if (item !== null) await mustBeNew(write, { ...version, item });
  else if (collection.singleton) await mustBeOnlyDraft(write, collection, added);
  added.push(version);
}

/** Drafts of new items keep their key. */
async function checkRenamed(write: HookedWrite, change: Change): Promise<void> {
  const renamed = change.rows.filter((row) => (valuesOf(change, row).get('key') ?? DRAFT) !== DRAFT);
  if (renamed.length === 0) return;
  const drafts = await querySystem(
    write,
    'select from service_versions where id = any($1::text[]::uuid[]) and item is null limit 1',
    [arrayLiteral(renamed.map((row) => String(row['k'])))],
  );
  if (drafts.length > 0) throw invalidPayload(`"key" must be "${DRAFT}" for a version without an item`);
}

async function mustBeOnlyDraft(
  write: HookedWrite,
  collection: Collection,
  added: readonly NewVersion[],
): Promise<void> {
  await mustBeEmpty(write, collection);
  const { name } = collection;
  const text = 'select from service_versions where collection = $1 and item is null';
  const found = await querySystem(write, text, [name]);
  if (found.length > 0 || added.some((each) => each.collection === name))
    throw unprocessable(`Singleton collection "${name}" already has a version without an item`);
}

/** A draft requires permission to read the collection. */
export function mustBeReadable(context: TransactionContext, collection: string): void {
  compileInSession(context, parseRead(collection, null, 'limit=1', context.parseLimits));
}

export async function mustBeNew(
  context: TransactionContext,
  { collection, item, key }: { readonly collection: string; readonly item: string; readonly key: string },
): Promise<void> {
  const text = 'select from service_versions where collection = $1 and item = $2 and key = $3';
  if ((await querySystem(context, text, [collection, item, key])).length > 0)
    throw unprocessable(`Version "${key}" already exists for item "${item}" in collection "${collection}"`);
}

/** Locks a singleton until the transaction ends. The item counts even if the caller may not read it. */
export async function mustBeEmpty(context: TransactionContext, collection: Collection): Promise<void> {
  await lock(collection, context.session);
  const query = parseSearch(collection.name, { query: { aggregate: { count: '*' } } }, '', context.parseLimits);
  if ((await countInSession(context, query, { caller: CLI_IDENTITY })) !== 0)
    throw unprocessable(`Singleton collection "${collection.name}" already contains an item`);
}

/** A digest of the item as the caller sees it: a client that has it can check whether the item changed. */
export function hashOf(body: Buffer): string {
  return createHash('sha256').update(body).digest('hex');
}
