/**
 * Content versions: changes are saved beside an item, compared with it, and promoted by an update that its caller must be allowed to make.
 * One without an item is the draft of a new one: to promote it is to create the item.
 */
import { CLI_IDENTITY } from '../../access/identity.js';
import type { Policies } from '../../access/policies.js';
import { forbidden, forbiddenField, invalidPayload, ServiceError, unprocessable } from '../../base/errors.js';
import { parseJson, writeJson } from '../../base/exact-json.js';
import { hasVersions, keyNames } from '../../mirror/item-key.js';
import { type Collection, isSecretField, type Model } from '../../mirror/model.js';
import { ownName } from '../../mirror/synonyms.js';
import type { Mirror } from '../../mirror/watch.js';
import { servedCollection } from '../../plan/read.js';
import { VERSIONS } from '../../plan/version.js';
import { maySeeAll, visibleChanges } from '../../plan/visible-changes.js';
import { planCreate, planUpdate } from '../../plan/write/payload.js';
import type { Session } from '../../postgres/pools/sessions.js';
import { quoteName } from '../../request/expression.js';
import type { Input } from '../../request/parse-context.js';
import { parseRead, parseSelection } from '../../request/rest.js';
import { requireObject } from '../../request/write.js';
import { splitKey } from '../../sql/key-text.js';
import { readSql } from '../../sql/read-sql.js';
import { billWriter } from '../caller-budget.js';
import { writtenKeys } from '../distributed.js';
import { hashOf, mustBeEmpty, mustBeNew, mustBeReadable, type RecordServices, readItem } from '../hooks/versions.js';
import type { RequestClient } from '../stages.js';
import type { Writer, WrittenBy } from '../writer.js';
import type { Writes } from '../writes/writes.js';

const SAVE = readSql('versions', 'save.sql');

export interface VersionServices extends RecordServices {
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly writes: Writes;
}

/** A row of service_versions that the caller may see, with what it changes. */
interface Version {
  readonly id: string;
  readonly collection: Collection;
  /** Null where the item does not exist yet. */
  readonly item: string | null;
  readonly key: string;
  readonly hash: string | null;
  /** The user; null where that is not known. */
  readonly madeBy: string | null;
  readonly delta: Input;
}

export interface Comparison {
  readonly outdated: boolean;
  readonly mainHash: string;
  readonly current: unknown;
  readonly main: unknown;
}

/** Answers the item with all that the version changes. `joins` adds them to what the caller saved last, where that was recorded. */
export function saveVersion(
  id: string,
  data: Input,
  joins: boolean,
  by: WrittenBy,
  services: VersionServices,
): Promise<Input> {
  return services.writes.inOneTransaction(by, async (_, session) => {
    const { writer, client } = by;
    await mustBeWritable(id, writer, client, services, session);
    const { collection, item } = await readVersion(id, writer, services, session);
    if (item === null) mustBeReadable(collection.name, writer, services);
    await checkChanges(collection, item, data, writer, services);
    const main = item === null ? null : await readMain(collection, item, writer, services, session);
    const { user, ip, user_agent, origin } = writer.author;
    const text = writeJson(data);
    if (/\\u0000/.test(text)) throw invalidPayload('A version cannot hold NUL characters');
    const parameters = [id, text, user, ip, user_agent, origin, String(joins)];
    const delta = parseJson(String(await session.cell(services.database.qualified(SAVE), parameters)));
    const changes = main
      ? shownTo(writer, collection, delta, main.item, services)
      : shownOfNew(writer, collection, delta, data, services);
    return { ...main?.item, ...changes, _user: user, _date: new Date().toISOString() };
  });
}

export function compareVersion(id: string, by: WrittenBy, services: VersionServices): Promise<Comparison> {
  return services.writes.inOneTransaction(by, async (_, session) => {
    const { collection, item, hash, delta } = await readVersion(id, by.writer, services, session);
    if (item === null) throw forbidden('The version has no item yet: there is nothing to compare it with.');
    const main = await readMain(collection, item, by.writer, services, session);
    const current = shownTo(by.writer, collection, delta, main.item, services);
    return { outdated: hash !== main.hash, mainHash: main.hash, current, main: main.item };
  });
}

/** What a promotion asks for. */
export interface Promotion {
  /** Of the item as it was compared; null where there is none to compare with. */
  readonly mainHash: string | null;
  /** Those that are promoted; null for all. */
  readonly fields: readonly string[] | null;
}

/** Answers the key of the item. */
export function promoteVersion(
  id: string,
  promotion: Promotion,
  by: WrittenBy,
  services: VersionServices,
): Promise<string> {
  return services.writes.inOneTransaction(by, async (writes, session) => {
    // Who promotes the same draft at the same time waits, and then finds the item.
    const version = await readVersion(id, by.writer, services, session, LOCKED);
    const { collection, item } = version;
    if (item !== null) await mustBeUnchanged(collection, item, promotion.mainHash, by.writer, services, session);
    const chosen = Object.entries(version.delta).filter(([name]) => promotion.fields?.includes(name) ?? true);
    if (chosen.length === 0) throw unprocessable('No changes to promote');
    const data = Object.fromEntries(chosen);
    if (item === null) {
      await mustBePromotable(version, data, by, services, session);
      return createItem(version, data, by, services, writes, session);
    }
    const update = { kind: 'update-item', collection: collection.name, key: item, data, readBack: null } as const;
    await writes.run(await writes.prepare(update, by.writer), by.writer, by.client);
    return item;
  });
}

async function mustBeUnchanged(
  collection: Collection,
  item: string,
  mainHash: string | null,
  writer: Writer,
  services: VersionServices,
  session: Session,
): Promise<void> {
  if (mainHash === null) throw invalidPayload('"mainHash" field is required');
  await lockItem(collection, item, writer, services, session);
  const main = await readMain(collection, item, writer, services, session);
  if (main.hash !== mainHash) throw changedSince(main.hash);
}

/** The new item may be one that the caller sees: of what others have saved they promote only what is shown to them before. */
async function mustBePromotable(
  { id, collection, madeBy }: Version,
  data: Input,
  { writer, client }: WrittenBy,
  services: VersionServices,
  session: Session,
): Promise<void> {
  await mustBeWritable(id, writer, client, services, session);
  mustBeReadable(collection.name, writer, services);
  const { user, administrator } = writer.caller;
  if (administrator || (user !== null && user === madeBy)) return;
  if (writeJson(shownOfNew(writer, collection, data, {}, services)) !== writeJson(data)) throw forbidden();
}

/** The version belongs to the new item from then on. */
async function createItem(
  { id, collection, key }: Version,
  data: Input,
  { writer, client }: WrittenBy,
  services: VersionServices,
  writes: Writes,
  session: Session,
): Promise<string> {
  const { name } = collection;
  const { database } = services;
  if (collection.singleton) await mustBeEmpty(collection, writer, services, session);
  const create = { kind: 'create', collection: name, items: [data], many: false, readBack: null } as const;
  const request = { ...create, idempotencyKey: null, onConflict: null };
  await writes.run(await writes.prepare(request, writer), writer, client);
  const [item] = await writtenKeys(collection, session);
  if (item === undefined) throw unprocessable(`No item of "${name}" was created`);
  await mustBeNew({ collection: name, item, key }, database, session);
  await session.query(
    database.qualified(
      'update service_versions set item = $2, date_updated = now(), user_updated = $3::uuid where id = $1::uuid',
    ),
    [id, item, writer.author.user],
  );
  return item;
}

function changedSince(mainHash: string): ServiceError {
  const { code, message, extensions } = unprocessable('The item has changed since "mainHash" was made: compare again');
  return new ServiceError(code, message, { ...extensions, mainHash });
}

/** Nobody else changes the row until the transaction ends. */
const LOCKED = ' for update';

/** What the caller sees of a version; its changes are read by the service, and shown as far as those of the item are. */
async function readVersion(
  id: string,
  writer: Writer,
  { database, reads, mirror, limits }: VersionServices,
  session: Session,
  lock: '' | typeof LOCKED = '',
): Promise<Version> {
  const visible = await readItem(
    parseRead(VERSIONS, id, 'fields=collection,item', limits.parse),
    writer,
    reads,
    session,
  );
  const { data } = parseJson(String(visible)) as { data: Input };
  const [row] = await session.query<
    Pick<Version, 'id' | 'key' | 'item' | 'hash' | 'madeBy'> & { delta: string | null }
  >(
    database.qualified(
      `select id::text, key, item, hash, user_created::text as "madeBy", delta::text
       from service_versions where id = $1::uuid${lock}`,
    ),
    [id],
  );
  const collection = servedCollection(mirror.model, ownName(mirror.model.synonyms, String(data['collection'])));
  if (!row) throw forbidden();
  if (!hasVersions(collection))
    throw unprocessable(`Content Versioning is not enabled for collection "${collection.name}"`);
  const delta = requireObject(parseJson(row.delta ?? '{}'), 'A version');
  return { ...row, collection, delta };
}

/** As any other update of the row would find out; nobody else changes it from then on, so that later statements see all that was saved before. */
async function mustBeWritable(
  id: string,
  writer: Writer,
  client: RequestClient,
  { reads, limits }: VersionServices,
  session: Session,
): Promise<void> {
  const query = parseSelection(VERSIONS, { filter: { id: { _eq: id } }, limit: 1 }, ['id'], limits.parse);
  const { caller } = writer;
  const compiled = reads.compile(query, caller, 'update', billWriter(writer), client);
  const { text, parameters, prepare } = reads.bind({ query, compiled, caller });
  const body = String(await session.cell(text, parameters, prepare));
  if (!body.includes('"id"')) throw forbidden();
}

interface MainItem {
  readonly item: Input;
  readonly hash: string;
}

async function readMain(
  { name }: Collection,
  key: string,
  writer: Writer,
  { reads, limits }: VersionServices,
  session: Session,
): Promise<MainItem> {
  const body = await readItem(parseRead(name, key, '', limits.parse), writer, reads, session);
  const { data } = parseJson(String(body)) as { data: Input };
  return { item: data, hash: hashOf(body) };
}

/** Nobody changes it between the look at it and the update. */
async function lockItem(
  collection: Collection,
  key: string,
  writer: Writer,
  { reads, limits }: VersionServices,
  session: Session,
): Promise<void> {
  const names = keyNames(collection);
  const parts = names.length === 1 ? [key] : splitKey(key, names.length);
  if (!parts) throw forbidden();
  const filter = { _and: names.map((name, position) => ({ [quoteName(name)]: { _eq: parts[position] } })) };
  const query = parseSelection(collection.name, { filter, limit: 1 }, names, limits.parse);
  const compiled = reads.compile(query, CLI_IDENTITY, 'update', billWriter(writer));
  const { text, parameters, prepare } = reads.bind({ query, compiled, caller: CLI_IDENTITY });
  await session.cell(text, parameters, prepare);
}

/** Names and types are those of the write that promotes them, whoever may make it; a field that the caller may neither see nor write is none. */
async function checkChanges(
  collection: Collection,
  key: string | null,
  data: Input,
  { caller, author }: Writer,
  { mirror: { model }, policies }: VersionServices,
): Promise<void> {
  const access = policies.accessOf(caller);
  const visible = access?.view(model).collections.get(collection.name);
  const granted = access?.grant(key === null ? 'create' : 'update', collection, model);
  const isKnown = (name: string): boolean =>
    access === null || visible?.fields.has(name) === true || (granted ? (granted.fields?.has(name) ?? true) : false);
  const hidden = Object.keys(data).find((name) => !isKnown(name));
  if (hidden !== undefined) throw forbiddenField(hidden, collection.name, 'root');
  const variables = { ...caller, now: new Date().toISOString() };
  const context = { model, author, maxRows: null, variables, access: null, isPartial: true };
  const { plan } = await (key === null
    ? planCreate(collection, [data], context)
    : planUpdate(collection, [{ key, data }], context));
  // They would be kept as they were sent.
  const secret = plan.nodes.flatMap(({ columns }) => columns).find((column) => isSecretField(column.field));
  if (secret) throw invalidPayload(`"${secret.field.name}" cannot be kept in a version`);
}

function shownTo(
  { caller }: Writer,
  { name }: Collection,
  changes: unknown,
  item: Input,
  { mirror, policies }: VersionServices,
): Input {
  const model: Model = policies.accessOf(caller)?.view(mirror.model) ?? mirror.model;
  return visibleChanges(changes, model.collections.get(name), model, item);
}

/** Of an item that is not there no rule can say whether the caller may see it: who may not see every one sees what they sent. */
function shownOfNew(
  { caller }: Writer,
  { name }: Collection,
  delta: unknown,
  data: Input,
  { mirror, policies }: VersionServices,
): Input {
  const model: Model = policies.accessOf(caller)?.view(mirror.model) ?? mirror.model;
  const collection = model.collections.get(name);
  return visibleChanges(maySeeAll(collection) ? delta : data, collection, model);
}
