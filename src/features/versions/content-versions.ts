/**
 * Content versions: changes are saved next to an item, compared with it, and promoted by an update that the caller must be allowed to
 * make. A version without an item is the draft of a new one: promoting it creates the item.
 */

import { randomUUID } from 'node:crypto';
import { forbidden, forbiddenField, invalidPayload, ServiceError, unprocessable } from '../../base/errors.js';
import { isObject, parseJson, rowsOfAnswer, writeJson } from '../../base/exact-json.js';
import { hasVersions, keyNames } from '../../compiler/model/item-key.js';
import { type Collection, isSecretField, type Model } from '../../compiler/model/model.js';
import { ownName, ownValue } from '../../compiler/model/synonyms.js';
import { isMasked, restrictionOf } from '../../compiler/plan/access.js';
import { isAlways } from '../../compiler/plan/plan.js';
import { servedCollection } from '../../compiler/plan/read.js';
import { VERSIONS } from '../../compiler/plan/version.js';
import { CONCEALED } from '../../compiler/plan/write/column-value.js';
import { planCreate, planUpdate } from '../../compiler/plan/write/payload.js';
import { quoteName } from '../../compiler/request/expression.js';
import type { Input, ParseLimits } from '../../compiler/request/parse-context.js';
import { parseSelection } from '../../compiler/request/rest.js';
import { requireObject } from '../../compiler/request/write.js';
import { splitKey } from '../../compiler/sql/key-text.js';
import { CLI_IDENTITY } from '../../server/access/identity.js';
import type { Policies } from '../../server/access/policies.js';
import { writtenKeys } from '../../server/execute/distributed.js';
import type { Reads } from '../../server/execute/reads/reads.js';
import {
  querySystem,
  readInSession,
  readItem,
  type TransactionContext,
} from '../../server/execute/reads/session-reads.js';
import type { WrittenBy } from '../../server/execute/writer.js';
import type { Writes } from '../../server/execute/writes/writes.js';
import type { Mirror } from '../../server/postgres/catalog/watch.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { readSql } from '../../server/postgres/read-sql.js';
import { hashOf, mustBeEmpty, mustBeNew, mustBeReadable } from './version-hook.js';

const SAVE = readSql('features', 'versions', 'save.sql');

export interface VersionServices {
  readonly database: Database;
  readonly reads: Reads;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly writes: Writes;
  readonly limits: { readonly parse: ParseLimits };
}

/** The transaction of one request. Its `writes` join the transaction. */
interface VersionContext extends TransactionContext {
  readonly model: Model;
  readonly policies: Policies;
  readonly writes: Writes;
}

function inTransaction<Result>(
  by: WrittenBy,
  services: VersionServices,
  work: (context: VersionContext) => Promise<Result>,
): Promise<Result> {
  const { database, reads, policies, mirror, limits } = services;
  return services.writes.inOneTransaction(by, (writes, session) =>
    work({ ...by, session, writes, database, reads, policies, model: mirror.model, parseLimits: limits.parse }),
  );
}

/** A row of service_versions that the caller may see, with its changes. */
interface Version {
  readonly id: string;
  readonly collection: Collection;
  /** The key, or null if the item does not exist yet. */
  readonly item: string | null;
  readonly key: string;
  readonly hash: string | null;
  /** The user who created the version, or null if that is not known. */
  readonly createdBy: string | null;
  readonly delta: Input;
}

interface Comparison {
  readonly outdated: boolean;
  readonly mainHash: string;
  readonly current: unknown;
  readonly main: unknown;
}

interface SavedChanges {
  readonly data: Input;
  /** Adds the changes to the caller's last revision instead of a new one. */
  readonly joins: boolean;
}

/** Answers the item with all changes of the version. */
export function saveVersion(
  id: string,
  { data, joins }: SavedChanges,
  by: WrittenBy,
  services: VersionServices,
): Promise<Input> {
  return inTransaction(by, services, async (context) => {
    const { session, database, writer } = context;
    await mustBeWritable(context, id);
    const { collection, item } = await readVersion(context, id);
    if (item === null) mustBeReadable(context, collection.name);
    await checkChanges(context, collection, item, data);
    const main = item === null ? null : await readMain(context, collection, item);
    const { user, ip, user_agent, origin } = writer.author;
    const text = writeJson(data);
    if (/\\u0000/.test(text)) throw invalidPayload('A version cannot hold NUL characters');
    const parameters = [id, text, user, ip, user_agent, origin, String(joins)];
    const saved = await session.asService(() => session.cell(database.qualified(SAVE), parameters));
    const delta = parseJson(String(saved));
    const changes = main
      ? visibleDelta(context, collection, delta, main.item)
      : visibleDraft(context, collection, delta, data);
    return { ...main?.item, ...changes, _user: user, _date: new Date().toISOString() };
  });
}

export function compareVersion(id: string, by: WrittenBy, services: VersionServices): Promise<Comparison> {
  return inTransaction(by, services, async (context) => {
    const { collection, item, hash, delta } = await readVersion(context, id);
    if (item === null) throw forbidden('The version has no item yet: there is nothing to compare it with.');
    const main = await readMain(context, collection, item);
    const current = visibleDelta(context, collection, delta, main.item);
    return { outdated: hash !== main.hash, mainHash: main.hash, current, main: main.item };
  });
}

/** The body of a promotion. */
interface Promotion {
  /** Digest of the item as it was compared; required if the version has an item. */
  readonly mainHash: string | null;
  /** Names of the fields to promote, or null for all. */
  readonly fields: readonly string[] | null;
}

/** Answers the key of the item. */
export function promoteVersion(
  id: string,
  promotion: Promotion,
  by: WrittenBy,
  services: VersionServices,
): Promise<string> {
  return inTransaction(by, services, async (context) => {
    const { writes, writer, client } = context;
    // A second promotion of the same draft waits for the lock, and then finds the item.
    const version = await readVersion(context, id, LOCKED);
    const { collection, item } = version;
    if (item !== null) await mustBeUnchanged(context, collection, item, promotion.mainHash);
    const chosen = Object.entries(version.delta).filter(([name]) => promotion.fields?.includes(name) ?? true);
    if (chosen.length === 0) throw unprocessable('No changes to promote');
    const data = Object.fromEntries(chosen);
    if (item === null) {
      await mustBePromotable(context, version, data);
      return createItem(context, version, data);
    }
    const target = { kind: 'update-item', collection: collection.name, key: item, data } as const;
    const update = { ...target, isLiteral: true, readBack: null } as const;
    await writes.run(await writes.prepare(update, writer), writer, client);
    return item;
  });
}

async function mustBeUnchanged(
  context: VersionContext,
  collection: Collection,
  item: string,
  mainHash: string | null,
): Promise<void> {
  if (mainHash === null) throw invalidPayload('"mainHash" field is required');
  await lockItem(context, collection, item);
  const main = await readMain(context, collection, item);
  if (main.hash !== mainHash) throw changedSince(main.hash);
}

/** The caller may be able to read the new item, so changes of other users are promoted only if the caller could see them before. */
async function mustBePromotable(
  context: VersionContext,
  { id, collection, createdBy }: Version,
  data: Input,
): Promise<void> {
  await mustBeWritable(context, id);
  mustBeReadable(context, collection.name);
  const { user, administrator } = context.writer.caller;
  if (administrator || (user !== null && user === createdBy)) return;
  if (writeJson(visibleDraft(context, collection, data, {})) !== writeJson(data)) throw forbidden();
}

/** The version belongs to the new item from then on. */
async function createItem(context: VersionContext, { id, collection, key }: Version, data: Input): Promise<string> {
  const { writes, writer, client, session } = context;
  const { name } = collection;
  if (collection.singleton) await mustBeEmpty(context, collection);
  const create = { kind: 'create', collection: name, items: [data], many: false, readBack: null } as const;
  const request = { ...create, isLiteral: true, idempotencyKey: null, onConflict: null };
  await writes.run(await writes.prepare(request, writer), writer, client);
  const [item] = await writtenKeys(collection, session);
  if (item === undefined) throw unprocessable(`No item of "${name}" was created`);
  await mustBeNew(context, { collection: name, item, key });
  const text =
    'update service_versions set item = $2, date_updated = now(), user_updated = $3::uuid where id = $1::uuid';
  await querySystem(context, text, [id, item, writer.author.user]);
  return item;
}

function changedSince(mainHash: string): ServiceError {
  const { code, message, extensions } = unprocessable('The item has changed since "mainHash" was made: compare again');
  return new ServiceError(code, message, { ...extensions, mainHash });
}

/** Locks the row until the transaction ends. */
const LOCKED = ' for update';

type StoredVersion = Pick<Version, 'id' | 'key' | 'item' | 'hash' | 'createdBy'> & { readonly delta: string | null };

/** A version that the caller may see. The service reads its changes; changes of hidden fields are left out later. */
async function readVersion(context: VersionContext, id: string, lock: '' | typeof LOCKED = ''): Promise<Version> {
  const { session, database, model } = context;
  const visible = await readItem(context, VERSIONS, id, 'fields=collection,item');
  const { data } = parseJson(String(visible)) as { data: Input };
  const text = database.qualified(
    `select id::text, key, item, hash, user_created::text as "createdBy", delta::text
     from service_versions where id = $1::uuid${lock}`,
  );
  const [row] = await session.asService(() => session.query<StoredVersion>(text, [id]));
  const collection = servedCollection(model, ownName(model.synonyms, String(data['collection'])));
  if (!row) throw forbidden();
  if (!hasVersions(collection))
    throw unprocessable(`Content Versioning is not enabled for collection "${collection.name}"`);
  const delta = requireObject(parseJson(row.delta ?? '{}'), 'A version');
  return { ...row, collection, delta };
}

/** Requires permission to update the version, and locks it, so that later statements see everything that was saved before. */
async function mustBeWritable(context: VersionContext, id: string): Promise<void> {
  const query = parseSelection(VERSIONS, { filter: { id: { _eq: id } }, limit: 1 }, ['id'], context.parseLimits);
  const body = await readInSession(context, query, { selectedFor: 'update' });
  if (rowsOfAnswer(String(body)).length === 0) throw forbidden();
}

interface MainItem {
  readonly item: Input;
  readonly hash: string;
}

async function readMain(context: VersionContext, { name }: Collection, key: string): Promise<MainItem> {
  const body = await readItem(context, name, key);
  const { data } = parseJson(String(body)) as { data: Input };
  return { item: data, hash: hashOf(body) };
}

/** No other request changes the item between the comparison and the update. */
async function lockItem(context: VersionContext, collection: Collection, key: string): Promise<void> {
  const names = keyNames(collection);
  const parts = names.length === 1 ? [key] : splitKey(key, names.length);
  if (!parts) throw forbidden();
  const filter = { _and: names.map((name, position) => ({ [quoteName(name)]: { _eq: parts[position] } })) };
  const query = parseSelection(collection.name, { filter, limit: 1 }, names, context.parseLimits);
  await readInSession(context, query, { caller: CLI_IDENTITY, selectedFor: 'update' });
}

/**
 * Checks names and types as the promoting write will, regardless of permissions. A field that the caller may neither see nor write is
 * reported as unknown.
 */
async function checkChanges(
  { model, policies, writer: { caller, author } }: VersionContext,
  collection: Collection,
  key: string | null,
  data: Input,
): Promise<void> {
  const access = policies.accessOf(caller);
  const visible = access?.view(model).collections.get(collection.name);
  const granted = access?.grant(key === null ? 'create' : 'update', collection, model);
  const isKnown = (name: string): boolean =>
    access === null || visible?.fields.has(name) === true || (granted ? (granted.fields?.has(name) ?? true) : false);
  const hidden = Object.keys(data).find((name) => !isKnown(name));
  if (hidden !== undefined) throw forbiddenField(hidden, collection.name, 'root');
  const variables = { ...caller, now: new Date().toISOString() };
  const context = { model, author, maxRows: null, variables, newUuid: randomUUID, access: null, isPartial: true };
  const { plan } = await (key === null
    ? planCreate(collection, [data], context)
    : planUpdate(collection, [{ key, data }], context));
  // A version stores values as they were sent, so passwords would not be hashed.
  const secret = plan.nodes.flatMap(({ columns }) => columns).find((column) => isSecretField(column.field));
  if (secret) throw invalidPayload(`"${secret.field.name}" cannot be kept in a version`);
}

/** The changes that the caller may see, if the item remains as it is. */
function visibleDelta(context: VersionContext, { name }: Collection, changes: unknown, item: Input): Input {
  const model = visibleModel(context);
  return visibleChanges(changes, model.collections.get(name), model, item);
}

/** Row rules cannot be checked on an item that does not exist: callers who may not see all items see only the `data` that they sent. */
function visibleDraft(context: VersionContext, { name }: Collection, delta: unknown, data: Input): Input {
  const model = visibleModel(context);
  const collection = model.collections.get(name);
  return visibleChanges(maySeeAll(collection) ? delta : data, collection, model);
}

function visibleModel({ model, policies, writer }: VersionContext): Model {
  return policies.accessOf(writer.caller)?.view(model) ?? model;
}

/**
 * The changes of a version that the caller may see: visible fields of the item, and keys of related items. Other fields of related items
 * are visible if the caller may see every row of their collection, because the rows of a change are not looked up. `model` is the model
 * that the caller may see, `item` the visible item.
 */
function visibleChanges(changes: unknown, collection: Collection | undefined, model: Model, item: Input = {}): Input {
  if (!collection || !isObject(changes)) return {};
  const shown = Object.entries(changes).flatMap(([name, value]) => {
    const field = collection.fields.get(name);
    const isHidden = field && isMasked(collection, field) && (item[name] ?? null) === null;
    if (!field || isHidden) return [];
    if (isSecretField(field)) return [[name, value === null ? null : CONCEALED] as const];
    const { relation } = field;
    if (!relation) return [[name, value] as const];
    const target =
      relation.kind === 'many-to-any'
        ? ownValue(model.synonyms, changes[relation.collectionField])
        : targetOf(relation, field.name);
    return [[name, visibleValue(value, model.collections.get(String(target)), model)] as const];
  });
  return Object.fromEntries(shown);
}

type Related = Exclude<NonNullable<Parameters<typeof isSecretField>[0]['relation']>, { kind: 'many-to-any' }>;

function targetOf(relation: Related, field: string): string {
  return relation.kind === 'many-to-one' && relation.manyField === field
    ? relation.oneCollection
    : relation.manyCollection;
}

/** A key, an item, a list of both, or an object with lists to create, update and delete. */
function visibleValue(value: unknown, target: Collection | undefined, model: Model): unknown {
  if (Array.isArray(value)) return value.map((each) => visibleValue(each, target, model));
  if (!isObject(value)) return value;
  const names = Object.keys(value);
  const isDetailed = names.length > 0 && names.every((name) => ['create', 'update', 'delete'].includes(name));
  if (!isDetailed) return visibleChanges(maySeeAll(target) ? value : keyIn(value, target), target, model);
  return Object.fromEntries(names.map((name) => [name, visibleValue(value[name], target, model)]));
}

/** Whether no rule of the caller leaves rows of the collection out. */
function maySeeAll(target: Collection | undefined): boolean {
  const restriction = target && restrictionOf(target);
  return !restriction || isAlways(restriction.rows);
}

function keyIn(value: Input, target: Collection | undefined): Input {
  const names = target ? keyNames(target) : [];
  return Object.fromEntries(names.flatMap((name) => (name in value ? [[name, value[name]]] : [])));
}
