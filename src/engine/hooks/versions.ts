/**
 * Rows of the service that speak of an item, such as its content versions: who makes one must be able to read the item, and what their
 * columns cannot express is checked. By every way in which they are written: REST, GraphQL and nested in other items.
 */
import { createHash } from 'node:crypto';
import { CLI_IDENTITY } from '../../access/identity.js';
import { concernsAccess } from '../../accounts/administrators.js';
import { forbidden, invalidPayload, unprocessable } from '../../base/errors.js';
import { hasVersions } from '../../mirror/item-key.js';
import { type Collection, isStamped } from '../../mirror/model.js';
import { VERSIONS } from '../../plan/version.js';
import type { PlannedWrite, WriteNode } from '../../plan/write/write.js';
import type { Database } from '../../postgres/pools/database.js';
import type { Session } from '../../postgres/pools/sessions.js';
import type { Parsed } from '../../request/ast.js';
import type { ParseLimits } from '../../request/parse-context.js';
import { LIVE_VERSIONS, parseRead, parseSearch } from '../../request/rest.js';
import { arrayLiteral } from '../../sql/literal.js';
import { billWriter } from '../caller-budget.js';
import type { Reads } from '../reads/reads.js';
import type { Writer } from '../writer.js';
import { lock } from '../writes/write-errors.js';
import { checkNamedItems, NAMING_ITEMS } from './comments.js';

export interface RecordServices {
  readonly database: Database;
  readonly reads: Reads;
  readonly limits: { readonly parse: ParseLimits };
}

const SHARES = 'service_shares';
const CREATOR = 'user_created';
const RECORDS: ReadonlySet<string> = new Set([VERSIONS, SHARES, ...NAMING_ITEMS]);

/** Whether something is to be found out inside of the transaction, before the write or after it. */
export function isChecked(planned: PlannedWrite): boolean {
  const { nodes, unlinks } = planned.plan;
  return concernsAccess(planned) || [...nodes, ...unlinks].some(({ collection }) => RECORDS.has(collection.name));
}

/** `write` carries the write out. */
export async function writeRecords<Result>(
  planned: PlannedWrite,
  writer: Writer,
  services: RecordServices,
  session: Session,
  write: () => Promise<Result>,
): Promise<Result> {
  await checkNamedItems(planned, writer, services, session);
  checkUnlinked(planned, writer);
  const made: MadeVersion[] = [];
  for (const [position, node] of planned.plan.nodes.entries()) {
    checkVerb(node);
    if (node.collection.name === SHARES && node.verb === 'update')
      await checkCreator(planned.input.nodes[position] ?? [], writer, services, session);
    for (const row of node.collection.name === SHARES ? (planned.input.nodes[position] ?? []) : [])
      await checkShare(node, row, writer, services, session);
    if (node.collection.name !== VERSIONS) continue;
    const rows = planned.input.nodes[position] ?? [];
    for (const row of rows)
      made.push(...(await checkVersion(planned, node, cellsOf(node, row), made, writer, services, session)));
    if (node.verb === 'update') await checkRenamed(node, rows, services, session);
  }
  const result = await write();
  const keep = services.database.qualified(
    'update service_versions set hash = $4 where collection = $1 and item = $2 and key = $3',
  );
  for (const { collection, item, key, hash } of made)
    if (item !== null) await session.query(keep, [collection, item, key, hash]);
  return result;
}

function cellsOf({ columns }: WriteNode, row: Readonly<Record<string, unknown>>): ReadonlyMap<string, unknown> {
  const entries = columns.flatMap(({ field }, index) => {
    const value = row[`c${index}`];
    return value === undefined || isStamped(field) ? [] : [[field.name, value] as const];
  });
  return new Map(entries);
}

interface MadeVersion {
  readonly collection: string;
  /** Null for the draft of an item that does not exist yet. */
  readonly item: string | null;
  readonly key: string;
  readonly hash: string | null;
}

/** What a version without an item is called: there is one way to name what has no other name. */
const DRAFT = 'draft';

const NEW_FIELDS: ReadonlySet<string> = new Set(['id', 'key', 'name', 'collection', 'item']);
const CHANGED_FIELDS: ReadonlySet<string> = new Set(['id', 'key', 'name']);

async function checkVersion(
  { model }: PlannedWrite,
  { verb }: WriteNode,
  cells: ReadonlyMap<string, unknown>,
  made: readonly MadeVersion[],
  writer: Writer,
  services: RecordServices,
  session: Session,
): Promise<MadeVersion[]> {
  const allowed = verb === 'update' ? CHANGED_FIELDS : NEW_FIELDS;
  const stray = [...cells.keys()].find((name) => !allowed.has(name));
  if (stray !== undefined) throw invalidPayload(`"${stray}" is not allowed`);
  const key = cells.get('key');
  if (key !== undefined && LIVE_VERSIONS.includes(key)) throw invalidPayload(`"${key}" is a reserved version key`);
  if (key === '') throw invalidPayload('"key" is not allowed to be empty');
  if (verb === 'update') return [];
  const missing = ['key', 'collection'].find((name) => typeof cells.get(name) !== 'string');
  if (missing !== undefined) throw invalidPayload(`"${missing}" is required`);
  const [name, item] = [String(cells.get('collection')), cells.get('item') ?? null];
  if (item !== null && typeof item !== 'string') throw invalidPayload('"item" must be a string');
  if (item === null && key !== DRAFT)
    throw invalidPayload(`"item" is required: only a version with the key "${DRAFT}" can be made without one`);
  const hash = item === null ? null : await itemHash(name, item, writer, services, session);
  if (item === null) mustBeReadable(name, writer, services);
  const collection = model.collections.get(name);
  if (!collection || !hasVersions(collection))
    throw unprocessable(`Content Versioning is not enabled for collection "${name}"`);
  const version = { collection: name, item, key: String(key), hash };
  if (item !== null) await mustBeNew({ ...version, item }, services.database, session);
  else if (collection.singleton) await mustBeOnlyDraft(collection, made, writer, services, session);
  return [version];
}

/** Drafts of new items keep the name by which they are known. */
async function checkRenamed(
  node: WriteNode,
  rows: readonly Readonly<Record<string, unknown>>[],
  { database }: RecordServices,
  session: Session,
): Promise<void> {
  const renamed = rows.filter((row) => (cellsOf(node, row).get('key') ?? DRAFT) !== DRAFT);
  if (renamed.length === 0) return;
  const drafts = await session.query(
    database.qualified('select from service_versions where id = any($1::text[]::uuid[]) and item is null limit 1'),
    [arrayLiteral(renamed.map((row) => String(row['k'])))],
  );
  if (drafts.length > 0) throw invalidPayload(`"key" must be "${DRAFT}" for a version without an item`);
}

/** Who may read no item of the collection makes no draft of one, and changes none. */
export function mustBeReadable(collection: string, writer: Writer, { reads, limits }: RecordServices): void {
  const query = parseRead(collection, null, 'limit=1', limits.parse);
  reads.compile(query, writer.caller, null, billWriter(writer));
}

export async function mustBeNew(
  { collection, item, key }: { readonly collection: string; readonly item: string; readonly key: string },
  database: Database,
  session: Session,
): Promise<void> {
  const found = await session.query(
    database.qualified('select from service_versions where collection = $1 and item = $2 and key = $3'),
    [collection, item, key],
  );
  if (found.length > 0)
    throw unprocessable(`Version "${key}" already exists for item "${item}" in collection "${collection}"`);
}

/** Of a singleton, until the end of the transaction. Whether there is an item is no matter of permissions. */
export async function mustBeEmpty(
  collection: Collection,
  writer: Writer,
  { reads, limits }: RecordServices,
  session: Session,
): Promise<void> {
  await lock(collection, session);
  const query = parseSearch(collection.name, { query: { aggregate: { count: '*' } } }, '', limits.parse);
  const compiled = reads.compile(query, CLI_IDENTITY, null, billWriter(writer));
  const { text, parameters, prepare } = reads.bind({ query, compiled, caller: CLI_IDENTITY });
  if (!String(await session.cell(text, parameters, prepare)).includes('"count":0'))
    throw unprocessable(`Singleton collection "${collection.name}" already contains an item`);
}

async function mustBeOnlyDraft(
  collection: Collection,
  made: readonly MadeVersion[],
  writer: Writer,
  services: RecordServices,
  session: Session,
): Promise<void> {
  await mustBeEmpty(collection, writer, services, session);
  const { name } = collection;
  const found = await session.query(
    services.database.qualified('select from service_versions where collection = $1 and item is null'),
    [name],
  );
  if (found.length > 0 || made.some((each) => each.collection === name))
    throw unprocessable(`Singleton collection "${name}" already has a version without an item`);
}

const SHARE_FIELDS: ReadonlySet<string> = new Set([
  ...['id', 'name', 'role', 'password', 'date_start', 'date_end', 'max_uses'],
]);

/**
 * New rows and changed ones are checked in different ways: a row that may be either could be moved to another item. Who made a row has
 * rights by that, in whatever way the payload names another.
 */
function checkVerb({ collection, verb, columns }: WriteNode): void {
  if (collection.name !== SHARES && collection.name !== VERSIONS) return;
  if (verb === 'upsert')
    throw invalidPayload(`Rows of "${collection.name}" are created or updated: they cannot be upserted`);
  if (verb === 'update' && columns.some(({ field }) => field.name === CREATOR))
    throw invalidPayload(`"${CREATOR}" is not allowed`);
}

/** A share has the rights of its creator, so nobody else says who may come in by it. Who may delete it can end it. */
async function checkCreator(
  rows: readonly Readonly<Record<string, unknown>>[],
  { caller }: Writer,
  { database }: RecordServices,
  session: Session,
): Promise<void> {
  if (caller.administrator) return;
  const others = await session.query(
    database.qualified(
      `select from service_shares
       where id = any($1::text[]::uuid[]) and user_created::text is distinct from $2::text limit 1`,
    ),
    [arrayLiteral(rows.map((row) => String(row['k']))), caller.user],
  );
  if (others.length > 0) throw forbidden();
}

/** Shares that leave a role: they would be open to the public's. */
function checkUnlinked({ plan }: PlannedWrite, { caller }: Writer): void {
  const isCleared = plan.unlinks.some(({ collection, action }) => collection.name === SHARES && action === 'nullify');
  if (isCleared && !caller.administrator) throw forbidden();
}

/** Who makes one must be allowed to share the item, and becomes the one whose rights limit it. */
async function checkShare(
  node: WriteNode,
  row: Readonly<Record<string, unknown>>,
  writer: Writer,
  { reads, limits }: RecordServices,
  session: Session,
): Promise<void> {
  const cells = cellsOf(node, row);
  const isNew = node.verb !== 'update';
  const stray = [...cells.keys()].find((name) => !SHARE_FIELDS.has(name) && !(isNew && isItem(name)));
  if (stray !== undefined) throw invalidPayload(`"${stray}" is not allowed`);
  if (!isNew) return;
  const creator = row[`c${node.columns.findIndex(({ field }) => field.name === CREATOR)}`];
  if (creator !== undefined && creator !== writer.caller.user) throw invalidPayload(`"${CREATOR}" is not allowed`);
  const [name, item] = [String(cells.get('collection')), String(cells.get('item'))];
  await readItem(parseRead(name, item, '', limits.parse), writer, reads, session);
  const query = parseSearch(name, { keys: [item], query: { aggregate: { count: '*' } } }, '', limits.parse);
  const { caller } = writer;
  const compiled = reads.compile(query, caller, 'any share', billWriter(writer));
  const { text, parameters, prepare } = reads.bind({ query, compiled, caller });
  if (!String(await session.cell(text, parameters, prepare)).includes('"count":1')) throw forbidden();
}

function isItem(name: string): boolean {
  return name === 'collection' || name === 'item';
}

/** What the item looks like to the caller, as a digest: who has seen it knows whether it is still the same. */
async function itemHash(
  collection: string,
  item: string,
  writer: Writer,
  services: RecordServices,
  session: Session,
): Promise<string> {
  const query = parseRead(collection, item, '', services.limits.parse);
  return hashOf(await readItem(query, writer, services.reads, session));
}

/** Inside of the transaction; refused where the caller may not read it. */
export async function readItem(query: Parsed, writer: Writer, reads: Reads, session: Session): Promise<Buffer> {
  const { caller } = writer;
  const compiled = reads.compile(query, caller, null, billWriter(writer));
  const { text, parameters, prepare } = reads.bind({ query, compiled, caller });
  const body = await session.cell(text, parameters, prepare);
  if (body === null) throw forbidden();
  return body;
}

export function hashOf(body: Buffer): string {
  return createHash('sha256').update(body).digest('hex');
}
