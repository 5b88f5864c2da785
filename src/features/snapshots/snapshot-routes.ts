/**
 * /schema: the whole schema as a document, what differs from another one, and how to get there. /schema/suggestions: the relations that
 * foreign keys imply and that are not declared yet, and the way to add them.
 */

import { invalidPayload, invalidQuery, unsupportedMediaType } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import { isOneOf } from '../../base/narrow.js';
import { mapSteps, runInSlices, type Steps } from '../../base/time-slices.js';
import { writeYamlInSlices } from '../../base/yaml.js';
import { requireObject } from '../../compiler/request/write.js';
import type { Identities } from '../../server/access/identities.js';
import { type Identity, onlyAdministrator } from '../../server/access/identity.js';
import { type ActionRequest, type ActionRoute, type ApiRoute, route } from '../../server/api/action.js';
import { writerOf } from '../../server/api/items/item-writes.js';
import {
  BOOLEAN,
  done,
  either,
  FORM,
  data as inEnvelope,
  json,
  list,
  object,
  ok,
  oneOf,
  queryParameter,
  ref,
  type Schema,
  STRING,
} from '../../server/api/openapi/json-schema.js';
import { type SchemaChangeServices, schemaResource } from '../../server/api/schema/definitions.js';
import { openBody } from '../../server/http/body.js';
import type { Exchange } from '../../server/http/exchange.js';
import { jsonText, noContent, type Reply } from '../../server/http/reply.js';
import { isForm } from '../../server/http/router.js';
import { writeJsonInSlices } from '../../server/node/turns.js';
import type { SchemaChanger, SchemaChanges } from '../../server/schema/change/change.js';
import { candidateStatement, referenceCandidate } from '../../server/schema/index-statement.js';
import { DIRECTUS_VERSION, directusName, ownName, schemaNames, withLists } from '../directus/compatibility.js';
import { importLimits, openUpload } from '../files/file-form.js';
import type { FilesConfig } from '../files/options.js';
import { type DifferenceBody, type EntryChange, readDifference } from './difference.js';
import { readDocumentText } from './parse-document.js';
import { policiesOnly, readSnapshot, type Snapshot, selectCollections } from './parse-snapshot.js';
import { applyDifference, compareSnapshot, takeSnapshot } from './snapshots.js';
import { type Suggestion, suggestRelations } from './suggest.js';
import { applySuggestions, findUnindexed } from './suggested-relations.js';

interface SchemaServices {
  readonly config: FilesConfig;
  /** Whether clients send and get the snapshots of Directus. */
  readonly isDirectus: boolean;
  readonly identities: Identities;
  readonly schemaChanges: SchemaChanges;
}

const FORCE = queryParameter('force', BOOLEAN, 'Whether a snapshot of another version is accepted.');

/** A document may also be sent as YAML or as a file. */
function otherMedia(schema: Schema): Schema {
  return { 'application/yaml': { schema }, 'multipart/form-data': FORM };
}

export function schemaRoutes(services: SchemaServices): ApiRoute[] {
  return [
    route('GET /schema/snapshot', (exchange) => snapshot(exchange, services), {
      summary: 'Snapshot of the schema',
      parameters: [
        queryParameter('export', oneOf('json', 'yaml'), 'As a file, without an envelope.'),
        queryParameter('includeCollections', STRING, 'Collections to include, separated by commas.'),
        queryParameter('excludeCollections', STRING, 'Collections to exclude, separated by commas.'),
        queryParameter('objects', BOOLEAN, 'Objects too: checks, indexes, views and others, in SQL.'),
        queryParameter('policies', oneOf('true', 'only'), 'Policies too, or nothing else.'),
      ],
      answers: [
        {
          ...ok({}),
          content: { ...json(either(inEnvelope(ref('Snapshot')), ref('Snapshot'))), 'text/yaml': { schema: STRING } },
        },
      ],
    }),
    {
      ...route('POST /schema/diff', (exchange) => difference(exchange, services), {
        summary: 'Compare the schema with a snapshot',
        parameters: [queryParameter('mode', oneOf('mirror', 'merge'), 'merge: nothing is deleted.'), FORCE],
        body: ref('Snapshot'),
        media: otherMedia(ref('Snapshot')),
        answers: [ok(inEnvelope(ref('Difference'))), done],
      }),
      streamsBody: true,
    },
    {
      ...route('POST /schema/apply', (exchange) => apply(exchange, services), {
        summary: 'Apply a snapshot or diff to the schema',
        parameters: [FORCE],
        body: ref('Difference'),
        media: otherMedia(ref('Difference')),
      }),
      streamsBody: true,
    },
  ];
}

/** To the entries of the lists in a snapshot or a difference. */
const DEPTH = 4;

async function snapshot(exchange: Exchange, { isDirectus, identities, schemaChanges }: SchemaServices): Promise<Reply> {
  onlyAdministrator(await identities.identify(exchange));
  const query = new URLSearchParams(exchange.queryString);
  const format = query.get('export');
  if (format !== null && format !== 'json' && format !== 'yaml') throw invalidQuery('"export" must be json or yaml');
  const policies = query.get('policies') ?? 'false';
  if (!isOneOf(['true', 'false', 'only'], policies)) throw invalidQuery('"policies" must be true, false or only');
  const objects = query.get('objects') ?? 'false';
  if (!isOneOf(['true', 'false'], objects)) throw invalidQuery('"objects" must be true or false');
  const current = await takeSnapshot(schemaChanges, { objects: objects === 'true', policies: policies !== 'false' });
  const selected = selectCollections(
    policies === 'only' ? policiesOnly(current.snapshot) : current.snapshot,
    listOf(query, 'includeCollections'),
    listOf(query, 'excludeCollections'),
  );
  const data = isDirectus ? await runInSlices(directusSnapshot(selected)) : selected;
  if (format === null) return jsonText(await writeJsonInSlices({ data }, DEPTH));
  const headers = { 'Content-Disposition': `attachment; filename="snapshot.${format}"` };
  return format === 'json'
    ? { ...jsonText(`${JSON.stringify(data, null, 2)}\n`), headers }
    : { status: 200, type: 'text/yaml; charset=utf-8', body: await writeYamlInSlices(data), headers };
}

async function difference(exchange: Exchange, services: SchemaServices): Promise<Reply> {
  const { document: body } = await readDocument(exchange, services);
  const query = new URLSearchParams(exchange.queryString);
  const mode = query.get('mode') ?? 'mirror';
  if (mode !== 'mirror' && mode !== 'merge') throw invalidQuery('"mode" must be mirror or merge');
  const force = isForced(query);
  const { isDirectus } = services;
  const own = isDirectus ? await runInSlices(ownSnapshot(body, force)) : body;
  const snapshot = await runInSlices(readSnapshot(own, force));
  const keepsUnmanaged = isDirectus && isObject(body) && 'directus' in body;
  const difference = await compareSnapshot(services.schemaChanges, snapshot, {
    merge: mode === 'merge',
    keepsUnmanaged,
  });
  if (!difference) return noContent;
  const data = isDirectus ? await runInSlices(directusDifference(difference)) : difference;
  return jsonText(await writeJsonInSlices({ data }, DEPTH));
}

async function apply(exchange: Exchange, services: SchemaServices): Promise<Reply> {
  const { document, caller } = await readDocument(exchange, services);
  const { isDirectus } = services;
  const own = isDirectus ? await runInSlices(ownDifference(document)) : document;
  const body = await runInSlices(readDifference(own));
  const schemaChanges = services.schemaChanges.by(writerOf(exchange, caller).author);
  await applyDifference(schemaChanges, body, isForced(new URLSearchParams(exchange.queryString)));
  return noContent;
}

interface SentDocument {
  readonly document: unknown;
  readonly caller: Identity;
}

/** JSON or YAML, as the body or as a form's file. A snapshot may be larger than a body of items. */
async function readDocument(exchange: Exchange, { config, identities }: SchemaServices): Promise<SentDocument> {
  // Opened before the first await: data that arrives without a reader is lost.
  const body = openBody(exchange, importLimits(config));
  const caller = onlyAdministrator(await identities.identify(exchange));
  const { contentType } = exchange.headers;
  const isUpload = isForm(contentType);
  if (!isUpload && !/^(application\/([a-z0-9.+-]+\+)?json|(application|text)\/(x-)?yaml)\s*(;|$)/i.test(contentType))
    throw unsupportedMediaType(contentType.split(';', 1)[0] ?? '', 'Content-Type header');
  const { bytes } = isUpload ? await openUpload(body, contentType) : { bytes: body };
  const pieces: Buffer[] = [];
  for await (const piece of bytes) pieces.push(piece);
  const content = Buffer.concat(pieces);
  if (content.length === 0) throw invalidPayload('A body is required');
  return { document: await readDocumentText(textOf(content), exchange), caller };
}

function textOf(content: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(content);
  } catch {
    throw invalidPayload('The document is not valid UTF-8');
  }
}

/** `?force` and `?force=true`, but not `?force=false`. */
function isForced(query: URLSearchParams): boolean {
  return query.has('force') && query.get('force') !== 'false';
}

function listOf(query: URLSearchParams, name: string): readonly string[] | null {
  const values = [...query.getAll(name), ...query.getAll(`${name}[]`)];
  return values.length === 0 ? null : values.flatMap((text) => text.split(',')).filter((entry) => entry !== '');
}

const SUGGESTIONS = list(ref('Suggestion'));
const UNINDEXED = object({ schema: STRING, table: STRING, columns: list(STRING), statement: STRING });

export function suggestionsRoutes(services: SchemaChangeServices): ActionRoute[] {
  const { inspect, change } = schemaResource(services, 'service_relations');
  return [
    inspect('GET /schema/suggestions', listSuggestions, {
      summary: 'Relations that foreign keys imply and that do not exist yet, and foreign keys without an index',
      data: object({ relations: SUGGESTIONS, indexes: list(UNINDEXED) }),
    }),
    change('POST /schema/suggestions', addSuggested, {
      summary: 'Add suggested relations; all if none are named',
      body: object({ relations: list(object({ collection: STRING, field: STRING }, ['collection', 'field'])) }),
      optional: true,
      data: object({ relations: SUGGESTIONS }),
    }),
  ];
}

async function listSuggestions(_: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const unindexed = await findUnindexed(schemaChanges);
  return {
    relations: suggestRelations(schemaChanges.model).map(describeSuggestion),
    indexes: unindexed.map((each) => {
      const { schema, table, columns } = each;
      return { schema, table, columns, statement: candidateStatement(referenceCandidate(each)) };
    }),
  };
}

async function addSuggested(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const { relations, ...rest } = requireObject((await request.json()) ?? {}, 'The body');
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw invalidPayload(`"${unknown}" is not allowed`);
  const requested = relations === undefined ? null : parseNames(relations);
  const written = await applySuggestions(
    schemaChanges,
    (each) =>
      requested?.some(({ collection, field }) => each.collection === collection && each.field === field) ?? true,
    (available) => {
      for (const { collection, field } of requested ?? [])
        if (!available.some((each) => each.collection === collection && each.field === field))
          throw invalidPayload(`"${collection}.${field}" is not suggested: see GET /schema/suggestions`);
    },
  );
  return { relations: written.map(describeSuggestion) };
}

function parseNames(relations: unknown): readonly { readonly collection: string; readonly field: string }[] {
  if (!Array.isArray(relations)) throw invalidPayload('"relations" must be a list');
  return relations.map((entry: unknown) => {
    const { collection, field } = requireObject(entry, 'Each entry of "relations"');
    if (typeof collection !== 'string') throw invalidPayload('"collection" must be a string');
    if (typeof field !== 'string') throw invalidPayload('"field" must be a string');
    return { collection, field };
  });
}

function describeSuggestion(each: Suggestion): unknown {
  return {
    kind: each.kind,
    collection: each.collection,
    field: each.field,
    related_collection: each.target,
    many_collection: each.manyCollection,
    many_field: each.manyField,
    columns: each.columns,
    junction_field: each.junctionField,
    sort_field: each.sortField,
    hidden: each.hidden,
  };
}

type Entry = Readonly<Record<string, unknown>>;

/**
 * Snapshots in the format of Directus. Its tables and columns have fewer properties than ours. The others are added under our names, so that
 * nothing is lost on the way through a client.
 */
function* directusSnapshot({
  version,
  vendor,
  collections,
  fields,
  relations,
  functions,
  objects,
  policies,
}: Snapshot): Steps<Entry> {
  return {
    version,
    directus: DIRECTUS_VERSION,
    vendor,
    collections: yield* mapSteps(collections, directusEntry),
    fields: yield* mapSteps(fields, directusEntry),
    systemFields: [],
    relations: yield* mapSteps(relations, directusEntry),
    ...(functions && functions.length > 0 ? { functions } : {}),
    ...(objects ? { objects } : {}),
    ...(policies ? { policies } : {}),
  };
}

function directusEntry(entry: object): unknown {
  return withLists(schemaNames(withTable({ ...entry }), directusName));
}

/** A field has its name in its schema, a collection that of its table, and both in their metadata. */
function withTable(entry: Entry): Entry {
  const { collection, field, meta, schema } = entry;
  const name = field ?? collection;
  const named = isObject(meta)
    ? { ...meta, collection, ...(field === undefined || 'related_collection' in entry ? {} : { field }) }
    : meta;
  if (!isObject(schema) || 'related_collection' in entry) return { ...entry, meta: relationMeta(entry, named) };
  if (field === undefined) {
    const { comment, indexes, ...rest } = schema;
    const isPlain = comment === null && Array.isArray(indexes) && indexes.length === 0;
    return { ...entry, meta: named, schema: { name, ...rest, ...(isPlain ? {} : { comment, indexes }) } };
  }
  const { data_type, ...rest } = schema;
  return { ...entry, meta: named, schema: { name, table: collection, ...typeOf(String(data_type)), ...rest } };
}

function relationMeta({ collection, field, related_collection }: Entry, meta: unknown): unknown {
  if (!isObject(meta) || related_collection === undefined) return meta;
  const allowed = meta['one_allowed_collections'];
  return {
    ...meta,
    many_collection: collection,
    many_field: field,
    one_collection: related_collection,
    one_allowed_collections: typeof allowed === 'string' ? allowed.split(',') : allowed,
  };
}

/** Snapshots of Directus store `character varying(255)` as a type and a length, `numeric(10,2)` as a type and two numbers. */
function typeOf(text: string): Entry {
  const [, type = text, first, second, rest = ''] = /^([a-z ]+?)\((\d+)(?:,\s*(\d+))?\)(.*)$/.exec(text) ?? [];
  const isLength = /char/.test(type) && rest === '';
  const isNumber = type === 'numeric' && rest === '';
  return {
    data_type: isLength || isNumber ? type : text,
    max_length: isLength ? Number(first) : null,
    numeric_precision: isNumber ? Number(first) : null,
    numeric_scale: isNumber ? Number(second ?? 0) : null,
  };
}

/** The sections of a difference hold entries, or single properties of one. */
function* directusDifference({ hash, diff }: DifferenceBody): Steps<Entry> {
  const sections: Record<string, unknown> = {};
  for (const [section, entries] of Object.entries(diff)) sections[section] = yield* mapSteps(entries, directusChange);
  return { hash, diff: { ...sections, systemFields: [] } };
}

function directusChange(entry: EntryChange): Entry {
  return {
    ...(schemaNames(entry, directusName) as Entry),
    diff: entry.diff.map((change) => ({
      ...change,
      ...('rhs' in change && isObject(change.rhs) ? { rhs: directusEntry(change.rhs) } : {}),
      ...('lhs' in change && isObject(change.lhs) ? { lhs: directusEntry(change.lhs) } : {}),
    })),
  };
}

/**
 * A document of either format, in ours; `readSnapshot` reports the rest that is wrong with it. Another version of Directus may mean something
 * else by the same document, so only `force` accepts it.
 */
function* ownSnapshot(value: unknown, force: boolean): Steps<unknown> {
  if (!isObject(value) || !('directus' in value)) return value;
  // Which system fields are indexed is for each installation to say.
  const { directus: version, systemFields: _, ...rest } = value;
  if (version !== DIRECTUS_VERSION && !force)
    throw invalidPayload(
      `The snapshot was made by version ${JSON.stringify(version)} of Directus, and this is ${DIRECTUS_VERSION}: add "force" to the query to use it`,
    );
  return yield* changedLists(rest, ownEntry);
}

/** The entries of lists changed, anything else as it is. */
function* changedLists(value: Entry, change: (entry: unknown) => unknown): Steps<Entry> {
  const changed: [string, unknown][] = [];
  for (const [name, entries] of Object.entries(value))
    changed.push([name, Array.isArray(entries) ? yield* mapSteps(entries, change) : entries]);
  return Object.fromEntries(changed);
}

function* ownDifference(value: unknown): Steps<unknown> {
  if (!isObject(value) || !isObject(value['diff'])) return value;
  const { systemFields: _, ...sections } = value['diff'];
  const ownChange = (change: unknown): unknown =>
    isObject(change)
      ? {
          ...change,
          ...(isObject(change['rhs']) ? { rhs: ownEntry(change['rhs']) } : {}),
          ...(isObject(change['lhs']) ? { lhs: ownEntry(change['lhs']) } : {}),
        }
      : change;
  const diff = yield* changedLists(sections, (entry) =>
    isObject(entry) && Array.isArray(entry['diff'])
      ? { ...(schemaNames({ ...entry, diff: [] }, ownName) as Entry), diff: entry['diff'].map(ownChange) }
      : entry,
  );
  return { ...value, diff: { functions: [], ...diff } };
}

function ownEntry(value: unknown): unknown {
  const entry = schemaNames(value, ownName);
  if (!isObject(entry) || !isObject(entry['schema'])) return entry;
  const { schema, collection, field } = entry;
  if ('related_collection' in entry) return { ...entry, schema: ownReference(schema) };
  if (field !== undefined) return { ...entry, schema: ownColumn(schema) };
  const { name, ...table } = schema;
  return { ...entry, schema: name === collection ? table : schema };
}

/** The column is the one of the relation, and the name of a constraint differs from one database to another. */
function ownReference(schema: Entry): Entry {
  if (!('foreign_key_table' in schema)) return schema;
  const { table, column, foreign_key_table, foreign_key_column, foreign_key_schema, constraint_name, ...rest } = schema;
  return rest;
}

/** Defaults that are no constants: Directus has both in one place. */
const EXPRESSION = /^(?:now|gen_random_uuid|uuid_generate_v4)\(\)$|^CURRENT_(?:TIMESTAMP|DATE|TIME)$/i;

function ownColumn(schema: Entry): Entry {
  const { name, table, max_length, numeric_precision, numeric_scale, foreign_key_table, foreign_key_column, ...own } =
    schema;
  const { is_generated: _, data_type, default_value: initial = null, ...column } = own;
  const expression =
    column['default_expression'] ?? (typeof initial === 'string' && EXPRESSION.test(initial) ? initial : null);
  const counts = column['has_auto_increment'] === true;
  const isChar =
    typeof max_length === 'number' && /^(?:character varying|varchar|character|char)$/.test(String(data_type));
  const isNumber = typeof numeric_precision === 'number' && data_type === 'numeric';
  const size = isChar ? `(${max_length})` : isNumber ? `(${numeric_precision},${numeric_scale ?? 0})` : '';
  return {
    ...column,
    data_type: `${data_type}${size}`,
    default_value: counts || expression !== null ? null : initial,
    default_expression: counts ? null : expression,
  };
}
