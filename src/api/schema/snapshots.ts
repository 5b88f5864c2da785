/**
 * /schema: the whole schema as a document, what differs from another one, and how to get there. /schema/suggestions: the relations that
 * foreign keys imply and that are not declared yet, and the way to add them.
 */
import type { Identities } from '../../access/identities.js';
import { onlyAdministrator } from '../../access/identity.js';
import { invalidPayload, invalidQuery, unsupportedMediaType } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import { isOneOf } from '../../base/narrow.js';
import { runInSlices, writeJsonInSlices } from '../../base/time-slices.js';
import { writeYamlInSlices } from '../../base/yaml.js';
import { candidateStatement, referenceCandidate } from '../../compile/index-candidates.js';
import type { Config } from '../../config/config.js';
import { openBody } from '../../http/body.js';
import type { Exchange } from '../../http/exchange.js';
import { jsonText, noContent, type Reply } from '../../http/reply.js';
import { isForm } from '../../http/router.js';
import { requireObject } from '../../request/write.js';
import type { SchemaChanger, SchemaChanges } from '../../schema/change/change.js';
import { readDocumentText } from '../../schema/parse-document.js';
import { readDifference } from '../../schema/snapshot/difference.js';
import { policiesOnly, readSnapshot, selectCollections } from '../../schema/snapshot/parse-snapshot.js';
import { applyDifference, compareSnapshot, takeSnapshot } from '../../schema/snapshot/snapshots.js';
import { type Suggestion, suggestRelations } from '../../schema/suggest/suggest.js';
import { applySuggestions, findUnindexed } from '../../schema/suggest/suggested-relations.js';
import { type ActionRequest, type ActionRoute, type ApiRoute, route } from '../action.js';
import { directusDifference, directusSnapshot, ownDifference, ownSnapshot } from '../directus/snapshot.js';
import { importLimits, openUpload } from '../files/file-form.js';
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
} from '../openapi/json-schema.js';
import { type SchemaChangeServices, schemaResource } from './definitions.js';

interface SchemaServices {
  readonly config: Config;
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

async function snapshot(exchange: Exchange, { config, identities, schemaChanges }: SchemaServices): Promise<Reply> {
  onlyAdministrator(await identities.identify(exchange));
  const query = new URLSearchParams(exchange.queryString);
  const format = query.get('export');
  if (format !== null && format !== 'json' && format !== 'yaml') throw invalidQuery('"export" must be json or yaml');
  const policies = query.get('policies') ?? 'false';
  if (!isOneOf(['true', 'false', 'only'], policies)) throw invalidQuery('"policies" must be true, false or only');
  const current = await takeSnapshot(schemaChanges, policies !== 'false');
  const selected = selectCollections(
    policies === 'only' ? policiesOnly(current.snapshot) : current.snapshot,
    listOf(query, 'includeCollections'),
    listOf(query, 'excludeCollections'),
  );
  const data = config.DIRECTUS_COMPATIBILITY ? await runInSlices(directusSnapshot(selected)) : selected;
  if (format === null) return jsonText(await writeJsonInSlices({ data }, DEPTH));
  const headers = { 'Content-Disposition': `attachment; filename="snapshot.${format}"` };
  return format === 'json'
    ? { ...jsonText(`${JSON.stringify(data, null, 2)}\n`), headers }
    : { status: 200, type: 'text/yaml; charset=utf-8', body: await writeYamlInSlices(data), headers };
}

async function difference(exchange: Exchange, services: SchemaServices): Promise<Reply> {
  const body = await readDocument(exchange, services);
  const query = new URLSearchParams(exchange.queryString);
  const mode = query.get('mode') ?? 'mirror';
  if (mode !== 'mirror' && mode !== 'merge') throw invalidQuery('"mode" must be mirror or merge');
  const force = isForced(query);
  const { DIRECTUS_COMPATIBILITY: isDirectus } = services.config;
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
  const document = await readDocument(exchange, services);
  const { DIRECTUS_COMPATIBILITY: isDirectus } = services.config;
  const own = isDirectus ? await runInSlices(ownDifference(document)) : document;
  const body = await runInSlices(readDifference(own));
  await applyDifference(services.schemaChanges, body, isForced(new URLSearchParams(exchange.queryString)));
  return noContent;
}

/** JSON or YAML, as the body or as a form's file. A snapshot may be larger than a body of items. */
async function readDocument(exchange: Exchange, { config, identities }: SchemaServices): Promise<unknown> {
  // Opened before the first await: data that arrives without a reader is lost.
  const body = openBody(exchange, importLimits(config));
  onlyAdministrator(await identities.identify(exchange));
  const { contentType } = exchange.headers;
  const isUpload = isForm(contentType);
  if (!isUpload && !/^(application\/([a-z0-9.+-]+\+)?json|(application|text)\/(x-)?yaml)\s*(;|$)/i.test(contentType))
    throw unsupportedMediaType(contentType.split(';', 1)[0] ?? '', 'Content-Type header');
  const { bytes } = isUpload ? await openUpload(body, contentType) : { bytes: body };
  const pieces: Buffer[] = [];
  for await (const piece of bytes) pieces.push(piece);
  const content = Buffer.concat(pieces);
  if (content.length === 0) throw invalidPayload('A body is required');
  return readDocumentText(textOf(content), exchange);
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
