/** /collections: tables with what is said about them, and the folders that group them. */
import { forbiddenCollection, invalidPayload } from '../errors.js';
import type { Exchange } from '../http/exchange.js';
import { noContent, type Reply } from '../http/reply.js';
import type { Route } from '../http/router.js';
import { type CollectionObject, describeCollection, describeCollections } from '../mirror/describe.js';
import type { Model } from '../mirror/model.js';
import { readItem, readKeys } from '../request/write.js';
import type { SchemaChanges } from '../schema/change.js';
import { type Operation, parseCollection, parseCollectionChange } from '../schema/parse.js';
import { answer, changeSchema, readSchema, type StructureServices } from './structure.js';

export function collectionsRoutes(services: StructureServices): Route[] {
  return [
    { method: 'GET', path: '/collections', handle: readSchema(services, 'service_collections', list) },
    { method: 'SEARCH', path: '/collections', handle: readSchema(services, 'service_collections', search) },
    { method: 'GET', path: '/collections/:collection', handle: readSchema(services, 'service_collections', read) },
    { method: 'POST', path: '/collections', handle: changeSchema(services, create) },
    { method: 'PATCH', path: '/collections', handle: changeSchema(services, updateMany) },
    { method: 'PATCH', path: '/collections/:collection', handle: changeSchema(services, update) },
    { method: 'DELETE', path: '/collections/:collection', handle: changeSchema(services, remove) },
  ];
}

function list(_: Exchange, model: Model): Reply {
  return answer(describeCollections(model));
}

async function search(exchange: Exchange, model: Model): Promise<Reply> {
  const { keys, query: _, ...rest } = readItem((await exchange.json()) ?? {}, 'The body');
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw invalidPayload(`"${unknown}" is not allowed`);
  if (keys === undefined) return answer(describeCollections(model));
  return answer(readKeys(keys).map((key) => collectionObject(model, String(key))));
}

function read({ parameters: [collection = ''] }: Exchange, model: Model): Reply {
  return answer(collectionObject(model, collection));
}

async function create(exchange: Exchange, structure: SchemaChanges): Promise<Reply> {
  const body = await exchange.json();
  const operations = (Array.isArray(body) ? body : [body]).map(parseCollection);
  const described = await carryOut(operations, structure);
  return answer(Array.isArray(body) ? described : described[0]);
}

async function update(exchange: Exchange, structure: SchemaChanges): Promise<Reply> {
  const [collection = ''] = exchange.parameters;
  const [described] = await carryOut([parseCollectionChange(await exchange.json(), collection)], structure);
  return answer(described);
}

async function updateMany(exchange: Exchange, structure: SchemaChanges): Promise<Reply> {
  const body = await exchange.json();
  if (!Array.isArray(body)) throw invalidPayload('The body must be a list of collections');
  return answer(
    await carryOut(
      body.map((entry) => parseCollectionChange(entry, null)),
      structure,
    ),
  );
}

async function remove(exchange: Exchange, structure: SchemaChanges): Promise<Reply> {
  const [collection = ''] = exchange.parameters;
  await structure.change((draft) => draft.apply({ kind: 'delete-collection', collection }));
  return noContent;
}

/** In one transaction; answers what the collections are after it. */
async function carryOut(
  operations: readonly Extract<Operation, { kind: 'create-collection' | 'update-collection' }>[],
  structure: SchemaChanges,
): Promise<CollectionObject[]> {
  return structure.change(async (draft) => {
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
