/**
 * /collections, /fields and /relations: tables, columns and relations, with their metadata. A folder that groups collections is a
 * collection without a table. `POST /schema/changes` creates several that belong together in one transaction.
 */

import { forbidden, forbiddenCollection, invalidPayload, invalidQuery } from '../../../base/errors.js';
import {
  type CollectionObject,
  describeCollection,
  describeCollections,
  describeField,
  describeFields,
  describeRelations,
  type FieldObject,
  keyNamesOf,
  type RelationObject,
} from '../../../compiler/model/describe-model.js';
import type { Model } from '../../../compiler/model/model.js';
import { readKeys, requireObject } from '../../../compiler/request/write.js';
import { SCHEMA_TABLES } from '../../access/describe-permissions.js';
import type { Identities } from '../../access/identities.js';
import type { Identity } from '../../access/identity.js';
import type { Policies } from '../../access/policies.js';
import type { SchemaChanger, SchemaChanges } from '../../schema/change/change.js';
import {
  type Operation,
  parseCollection,
  parseCollectionChange,
  parseCreations,
  parseField,
  parseFieldChange,
  parseFieldChanges,
  parseRelation,
  parseRelationChange,
} from '../../schema/change/parse.js';
import { requireCollection, requireField } from '../../schema/change/plan-names.js';
import {
  type ActionRequest,
  type ActionResult,
  type ActionRoute,
  actionRoutes,
  type Description,
  type MethodAndPath,
} from '../action.js';
import { writerOf } from '../items/item-writes.js';
import { BOOLEAN, done, either, data as inEnvelope, list, ok, queryParameter, ref } from '../openapi/json-schema.js';

export interface SchemaChangeServices {
  readonly identities: Identities;
  readonly policies: Policies;
  readonly schemaChanges: SchemaChanges;
}

type Read = (request: ActionRequest, model: Model) => unknown;
type Change = (request: ActionRequest, schemaChanges: SchemaChanger) => Promise<unknown>;

/** Makes the routes of a resource of the schema, which is stored in the given table. */
export function schemaResource(services: SchemaChangeServices, table: string) {
  const action = actionRoutes(services);

  /** Only administrators change the schema. `?dry_run=true` answers with the statements of the change and rolls it back. */
  function change(methodAndPath: MethodAndPath, change: Change, description: Description): ActionRoute {
    const { schemaChanges } = services;
    const act = async (request: ActionRequest<Identity>): Promise<ActionResult> => {
      request.client.staged('identify');
      if (isDryRun(request.queryString))
        return { data: { statements: await schemaChanges.dryRun((draft) => change(request, draft)) } };
      const { author } = writerOf(request.client, request.caller);
      return { data: await change(request, schemaChanges.by(author)) };
    };
    return action(methodAndPath, act, { ...withDryRun(description), allow: 'administrators' });
  }

  /** A read for administrators, of facts that the model does not hold. */
  function inspect(methodAndPath: MethodAndPath, inspect: Change, description: Description): ActionRoute {
    const act = async (request: ActionRequest): Promise<ActionResult> => {
      request.client.staged('identify');
      return { data: await inspect(request, services.schemaChanges) };
    };
    return action(methodAndPath, act, { ...description, allow: 'administrators' });
  }

  /** Callers see of the schema what they may see of the items, if they may read the table, use the app or are a view. */
  function read(methodAndPath: MethodAndPath, read: Read, description: Description): ActionRoute {
    const act = async (request: ActionRequest<Identity>): Promise<ActionResult> => {
      const { application, isView } = request.caller;
      const whole = services.schemaChanges.model;
      const access = services.policies.accessOf(request.caller);
      request.client.staged('identify');
      const model = access ? access.view(whole) : whole;
      if (!application && !isView && !model.collections.has(table)) throw forbidden();
      const isUserOfApp = access !== null && application;
      return { data: await read(request, isUserOfApp ? withSchemaTables(model, whole) : model) };
    };
    return action(methodAndPath, act, { ...description, allow: 'identified' });
  }

  return { read, inspect, change };
}

const DRY_RUN = queryParameter(
  'dry_run',
  BOOLEAN,
  'Executes the change, rolls it back and returns its SQL statements instead of the result.',
);

function withDryRun(description: Description): Description {
  const { data, parameters = [] } = description;
  const statements = ok(inEnvelope(ref('DryRun')));
  const answers = data ? [ok(either(inEnvelope(data), inEnvelope(ref('DryRun'))))] : [done, statements];
  return { ...description, parameters: [...parameters, DRY_RUN], answers };
}

function isDryRun(queryString: string): boolean {
  const value = new URLSearchParams(queryString).get('dry_run');
  if (value !== null && value !== 'true' && value !== 'false') throw invalidQuery('"dry_run" must be true or false');
  return value === 'true';
}

/** Deletes what the path names. */
function remove(kind: 'delete-collection' | 'delete-field' | 'delete-relation'): Change {
  return async ({ parameters: [collection = '', field = ''] }, schemaChanges) => {
    await schemaChanges.change((draft) => draft.apply({ kind, collection, field }));
  };
}

/** The tables that the routes read are described to all of their readers. Their rows stay hidden: other routes do not see this model. */
function withSchemaTables(view: Model, { collections }: Model): Model {
  const tables = SCHEMA_TABLES.flatMap((name) => collections.get(name) ?? []);
  return { ...view, collections: new Map([...view.collections, ...tables.map((each) => [each.name, each] as const)]) };
}

const COLLECTION = ref('Collection');
const ONE_OR_SEVERAL = either(COLLECTION, list(COLLECTION));

export function collectionsRoutes(services: SchemaChangeServices): ActionRoute[] {
  const { read, change } = schemaResource(services, 'service_collections');
  const all = { summary: 'Read collections', data: list(COLLECTION) };
  return [
    read('GET /collections', (_, model) => describeCollections(model), { ...all, graphql: { name: 'collections' } }),
    read('SEARCH /collections', searchCollections, all),
    read('GET /collections/:collection', ({ parameters: [name = ''] }, model) => collectionObject(model, name), {
      summary: 'Read a collection',
      data: COLLECTION,
      graphql: { name: 'collections_by_name', parameters: ['name'] },
    }),
    change('POST /collections', createCollection, {
      summary: 'Create collections',
      body: ONE_OR_SEVERAL,
      data: ONE_OR_SEVERAL,
      graphql: {
        name: 'create_collections_item',
        input: 'create_service_collections_input!',
        type: 'service_collections',
      },
    }),
    change('PATCH /collections', updateCollections, {
      summary: 'Update collections',
      body: list(COLLECTION),
      data: list(COLLECTION),
    }),
    change('PATCH /collections/:collection', updateCollection, {
      summary: 'Update a collection',
      body: COLLECTION,
      data: COLLECTION,
      graphql: { name: 'update_collections_item', input: 'update_service_collections_input!' },
    }),
    change('DELETE /collections/:collection', remove('delete-collection'), {
      summary: 'Delete a collection with its items',
      graphql: { name: 'delete_collections_item', type: 'delete_collection' },
    }),
  ];
}

async function searchCollections(request: ActionRequest, model: Model): Promise<unknown> {
  const { keys, query: _, ...rest } = requireObject((await request.json()) ?? {}, 'The body');
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw invalidPayload(`"${unknown}" is not allowed`);
  if (keys === undefined) return describeCollections(model);
  return readKeys(keys).map((key) => collectionObject(model, String(key)));
}

async function createCollection(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const body = await request.json();
  const operations = (Array.isArray(body) ? body : [body]).map(parseCollection);
  const described = await changeCollections(operations, schemaChanges);
  return Array.isArray(body) ? described : described[0];
}

async function updateCollection(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const [collection = ''] = request.parameters;
  const [described] = await changeCollections([parseCollectionChange(await request.json(), collection)], schemaChanges);
  return described;
}

async function updateCollections(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const body = await request.json();
  if (!Array.isArray(body)) throw invalidPayload('The body must be a list of collections');
  return changeCollections(
    body.map((entry) => parseCollectionChange(entry, null)),
    schemaChanges,
  );
}

/** In one transaction; answers what the collections are after it. */
async function changeCollections(
  operations: readonly Extract<Operation, { kind: 'create-collection' | 'update-collection' }>[],
  schemaChanges: SchemaChanger,
): Promise<CollectionObject[]> {
  return schemaChanges.change(async (draft) => {
    for (const operation of operations) await draft.apply(operation);
    const model = await draft.model();
    return operations.map(({ collection }) => collectionObject(model, collection));
  });
}

function collectionObject(model: Model, name: string): CollectionObject {
  const described = describeCollection(model, name);
  if (!described) throw forbiddenCollection(name);
  return described;
}

const FIELD = ref('Field');

export function fieldsRoutes(services: SchemaChangeServices): ActionRoute[] {
  const { read, change } = schemaResource(services, 'service_fields');
  return [
    read('GET /fields', (_, model) => [...model.collections.values()].flatMap(describeFields), {
      summary: 'Read fields',
      data: list(FIELD),
      graphql: { name: 'fields' },
    }),
    read('GET /fields/:collection', listFields, {
      summary: 'Read the fields of a collection',
      data: list(FIELD),
      graphql: { name: 'fields_in_collection' },
    }),
    read('GET /fields/:collection/:field', readField, {
      summary: 'Read a field',
      data: FIELD,
      graphql: { name: 'fields_by_name' },
    }),
    change('POST /fields/:collection', createField, {
      summary: 'Create a field',
      body: FIELD,
      data: FIELD,
      graphql: { name: 'create_fields_item', input: 'create_service_fields_input!' },
    }),
    change('PATCH /fields/:collection', updateFields, {
      summary: 'Update fields',
      body: list(FIELD),
      data: list(FIELD),
      graphql: { name: 'update_fields_items', input: '[update_service_fields_input!]!' },
    }),
    change('PATCH /fields/:collection/:field', updateField, {
      summary: 'Update a field',
      body: FIELD,
      data: FIELD,
      graphql: { name: 'update_fields_item', input: 'update_service_fields_input!' },
    }),
    change('DELETE /fields/:collection/:field', remove('delete-field'), {
      summary: 'Delete a field with its values',
      graphql: { name: 'delete_fields_item', type: 'delete_field' },
    }),
  ];
}

function listFields({ parameters: [collection = ''] }: ActionRequest, model: Model): unknown {
  if (model.folders.has(collection)) return [];
  return describeFields(requireCollection(model, collection));
}

function readField({ parameters: [collection = '', field = ''] }: ActionRequest, model: Model): unknown {
  if (model.folders.has(collection)) throw forbidden();
  return fieldObject(model, collection, field);
}

async function createField(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const [collection = ''] = request.parameters;
  const definition = parseField(await request.json());
  return changeField({ kind: 'create-field', collection, definition }, schemaChanges);
}

async function updateField(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const [collection = '', field = ''] = request.parameters;
  const definition = parseFieldChange(await request.json(), field);
  return changeField({ kind: 'update-field', collection, definition }, schemaChanges);
}

async function changeField(
  operation: Extract<Operation, { kind: 'create-field' | 'update-field' }>,
  schemaChanges: SchemaChanger,
): Promise<FieldObject> {
  return schemaChanges.change(async (draft) => {
    await draft.apply(operation);
    return fieldObject(await draft.model(), operation.collection, operation.definition.field);
  });
}

async function updateFields(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const [collection = ''] = request.parameters;
  const changes = parseFieldChanges(await request.json());
  return schemaChanges.change(async (draft) => {
    requireCollection(await draft.model(), collection);
    for (const definition of changes) await draft.apply({ kind: 'update-field', collection, definition });
    const model = await draft.model();
    return changes.map(({ field }) => fieldObject(model, collection, field));
  });
}

function fieldObject(model: Model, collection: string, field: string): FieldObject {
  const described = requireCollection(model, collection);
  return describeField(requireField(described, field), keyNamesOf(described));
}

const RELATION = ref('Relation');

export function relationsRoutes(services: SchemaChangeServices): ActionRoute[] {
  const { read, change } = schemaResource(services, 'service_relations');
  return [
    read('GET /relations', (_, model) => describeRelations(model), {
      summary: 'Read relations',
      data: list(RELATION),
      graphql: { name: 'relations' },
    }),
    read('GET /relations/:collection', listRelations, {
      summary: 'Read the relations of a collection',
      data: list(RELATION),
      graphql: { name: 'relations_in_collection' },
    }),
    read('GET /relations/:collection/:field', readRelation, {
      summary: 'Read a relation',
      data: RELATION,
      graphql: { name: 'relations_by_name' },
    }),
    change('POST /relations', createRelation, {
      summary: 'Create a relation',
      body: RELATION,
      data: RELATION,
      graphql: { name: 'create_relations_item', input: 'create_service_relations_input!' },
    }),
    change('PATCH /relations/:collection/:field', updateRelation, {
      summary: 'Update a relation',
      body: RELATION,
      data: RELATION,
      graphql: { name: 'update_relations_item', input: 'update_service_relations_input!' },
    }),
    change('DELETE /relations/:collection/:field', remove('delete-relation'), {
      summary: 'Delete a relation; the field stays',
      graphql: { name: 'delete_relations_item', type: 'delete_relation' },
    }),
  ];
}

function listRelations({ parameters: [collection = ''] }: ActionRequest, model: Model): unknown {
  if (!model.collections.has(collection) && !model.folders.has(collection)) throw forbiddenCollection(collection);
  return describeRelations(model).filter((relation) => relation.collection === collection);
}

function readRelation({ parameters: [collection = '', field = ''] }: ActionRequest, model: Model): unknown {
  return relationObject(model, collection, field);
}

async function createRelation(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  return changeRelation({ kind: 'create-relation', ...parseRelation(await request.json()) }, schemaChanges);
}

async function updateRelation(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const [collection = '', field = ''] = request.parameters;
  const change = parseRelationChange(await request.json(), { collection, field });
  return changeRelation({ kind: 'update-relation', ...change }, schemaChanges);
}

async function changeRelation(
  operation: Extract<Operation, { kind: 'create-relation' | 'update-relation' }>,
  schemaChanges: SchemaChanger,
): Promise<unknown> {
  return schemaChanges.change(async (draft) => {
    await draft.apply(operation);
    return relationObject(await draft.model(), operation.collection, operation.field);
  });
}

function relationObject(model: Model, collection: string, field: string): RelationObject {
  const relation = describeRelations(model).find((each) => each.collection === collection && each.field === field);
  if (!relation) throw forbidden();
  return relation;
}

const CHANGES = ref('SchemaChanges');

export function changesRoutes(services: SchemaChangeServices): ActionRoute[] {
  const { change } = schemaResource(services, 'service_relations');
  return [
    change('POST /schema/changes', create, {
      summary: 'Create collections, fields and relations in one transaction',
      body: CHANGES,
      data: CHANGES,
    }),
  ];
}

async function create(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const creations = parseCreations(await request.json());
  return schemaChanges.change(async (draft) => {
    for (const creation of creations) await draft.apply(creation);
    const model = await draft.model();
    return {
      collections: creations.flatMap((each) =>
        each.kind === 'create-collection' ? [collectionObject(model, each.collection)] : [],
      ),
      fields: creations.flatMap((each) =>
        each.kind === 'create-field' ? [fieldObject(model, each.collection, each.definition.field)] : [],
      ),
      relations: creations.flatMap((each) =>
        each.kind === 'create-relation' ? [relationObject(model, each.collection, each.field)] : [],
      ),
    };
  });
}
