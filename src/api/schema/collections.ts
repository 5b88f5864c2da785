/** /collections: tables with what is said about them, and the folders that group them. */
import { forbiddenCollection, invalidPayload } from '../../base/errors.js';
import { type CollectionObject, describeCollection, describeCollections } from '../../mirror/describe-model.js';
import type { Model } from '../../mirror/model.js';
import { readKeys, requireObject } from '../../request/write.js';
import type { SchemaChanges } from '../../schema/change/change.js';
import { type Operation, parseCollection, parseCollectionChange } from '../../schema/change/parse.js';
import type { ActionRequest, ActionRoute } from '../action.js';
import { either, list, ref } from '../openapi/json-schema.js';
import { type SchemaChangeServices, schemaResource } from './shared.js';

const COLLECTION = ref('Collection');
const ONE_OR_SEVERAL = either(COLLECTION, list(COLLECTION));

export function collectionsRoutes(services: SchemaChangeServices): ActionRoute[] {
  const { read, change } = schemaResource(services, 'service_collections');
  const all = { summary: 'Read collections', data: list(COLLECTION) };
  return [
    read('GET /collections', listAll, { ...all, graphql: { name: 'collections' } }),
    read('SEARCH /collections', search, all),
    read('GET /collections/:collection', readOne, {
      summary: 'Read a collection',
      data: COLLECTION,
      graphql: { name: 'collections_by_name', parameters: ['name'] },
    }),
    change('POST /collections', create, {
      summary: 'Create collections',
      body: ONE_OR_SEVERAL,
      data: ONE_OR_SEVERAL,
      graphql: {
        name: 'create_collections_item',
        input: 'create_service_collections_input!',
        type: 'service_collections',
      },
    }),
    change('PATCH /collections', updateMany, {
      summary: 'Update collections',
      body: list(COLLECTION),
      data: list(COLLECTION),
    }),
    change('PATCH /collections/:collection', update, {
      summary: 'Update a collection',
      body: COLLECTION,
      data: COLLECTION,
      graphql: { name: 'update_collections_item', input: 'update_service_collections_input!' },
    }),
    change('DELETE /collections/:collection', remove, {
      summary: 'Delete a collection with its items',
      graphql: { name: 'delete_collections_item', type: 'delete_collection' },
    }),
  ];
}

function listAll(_: ActionRequest, model: Model): unknown {
  return describeCollections(model);
}

async function search(request: ActionRequest, model: Model): Promise<unknown> {
  const { keys, query: _, ...rest } = requireObject((await request.json()) ?? {}, 'The body');
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw invalidPayload(`"${unknown}" is not allowed`);
  if (keys === undefined) return describeCollections(model);
  return readKeys(keys).map((key) => collectionObject(model, String(key)));
}

function readOne({ parameters: [collection = ''] }: ActionRequest, model: Model): unknown {
  return collectionObject(model, collection);
}

async function create(request: ActionRequest, schemaChanges: SchemaChanges): Promise<unknown> {
  const body = await request.json();
  const operations = (Array.isArray(body) ? body : [body]).map(parseCollection);
  const described = await carryOut(operations, schemaChanges);
  return Array.isArray(body) ? described : described[0];
}

async function update(request: ActionRequest, schemaChanges: SchemaChanges): Promise<unknown> {
  const [collection = ''] = request.parameters;
  const [described] = await carryOut([parseCollectionChange(await request.json(), collection)], schemaChanges);
  return described;
}

async function updateMany(request: ActionRequest, schemaChanges: SchemaChanges): Promise<unknown> {
  const body = await request.json();
  if (!Array.isArray(body)) throw invalidPayload('The body must be a list of collections');
  return carryOut(
    body.map((entry) => parseCollectionChange(entry, null)),
    schemaChanges,
  );
}

async function remove(request: ActionRequest, schemaChanges: SchemaChanges): Promise<void> {
  const [collection = ''] = request.parameters;
  await schemaChanges.change((draft) => draft.apply({ kind: 'delete-collection', collection }));
}

/** In one transaction; answers what the collections are after it. */
async function carryOut(
  operations: readonly Extract<Operation, { kind: 'create-collection' | 'update-collection' }>[],
  schemaChanges: SchemaChanges,
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
