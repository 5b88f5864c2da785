/** /collections: tables with what is said about them, and the folders that group them. */
import { forbiddenCollection, invalidPayload } from '../errors.js';
import type { Exchange } from '../http/exchange.js';
import { noContent, type Reply } from '../http/reply.js';
import type { Handler, Route } from '../http/router.js';
import { type CollectionObject, describeCollection, describeCollections } from '../mirror/describe.js';
import type { Model } from '../mirror/model.js';
import { type Operation, parseCollection, parseCollectionChange } from '../request/structure.js';
import { readItem, readKeys } from '../request/write.js';
import { answer, forAdministrators, type StructureHandler, type StructureServices } from './structure.js';

export function collectionsRoutes(services: StructureServices): Route[] {
  const by = (handle: StructureHandler): Handler => forAdministrators(handle, services);
  return [
    { method: 'GET', path: '/collections', handle: by(list) },
    { method: 'SEARCH', path: '/collections', handle: by(search) },
    { method: 'GET', path: '/collections/:collection', handle: by(read) },
    { method: 'POST', path: '/collections', handle: by(create) },
    { method: 'PATCH', path: '/collections', handle: by(updateMany) },
    { method: 'PATCH', path: '/collections/:collection', handle: by(update) },
    { method: 'DELETE', path: '/collections/:collection', handle: by(remove) },
  ];
}

function list(_: Exchange, { structure }: StructureServices): Reply {
  return answer(describeCollections(structure.model));
}

async function search(exchange: Exchange, { structure }: StructureServices): Promise<Reply> {
  const { keys, query: _, ...rest } = readItem((await exchange.json()) ?? {}, 'The body');
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw invalidPayload(`"${unknown}" is not allowed`);
  if (keys === undefined) return answer(describeCollections(structure.model));
  return answer(readKeys(keys).map((key) => describe(structure.model, String(key))));
}

function read({ parameters: [collection = ''] }: Exchange, { structure }: StructureServices): Reply {
  return answer(describe(structure.model, collection));
}

async function create(exchange: Exchange, services: StructureServices): Promise<Reply> {
  const body = await exchange.json();
  const operations = (Array.isArray(body) ? body : [body]).map(parseCollection);
  const described = await carryOut(operations, services);
  return answer(Array.isArray(body) ? described : described[0]);
}

async function update(exchange: Exchange, services: StructureServices): Promise<Reply> {
  const [collection = ''] = exchange.parameters;
  const [described] = await carryOut([parseCollectionChange(await exchange.json(), collection)], services);
  return answer(described);
}

async function updateMany(exchange: Exchange, services: StructureServices): Promise<Reply> {
  const body = await exchange.json();
  if (!Array.isArray(body)) throw invalidPayload('The body has to be a list of collections');
  return answer(
    await carryOut(
      body.map((entry) => parseCollectionChange(entry, null)),
      services,
    ),
  );
}

async function remove(exchange: Exchange, { structure }: StructureServices): Promise<Reply> {
  const [collection = ''] = exchange.parameters;
  await structure.change((draft) => draft.apply({ kind: 'delete-collection', collection }));
  return noContent;
}

/** In one transaction; answers what the collections are after it. */
async function carryOut(
  operations: readonly Extract<Operation, { kind: 'create-collection' | 'update-collection' }>[],
  { structure }: StructureServices,
): Promise<CollectionObject[]> {
  return structure.change(async (draft) => {
    for (const operation of operations) await draft.apply(operation);
    const model = await draft.model();
    return operations.map(({ collection }) => describe(model, collection));
  });
}

function describe(model: Model, name: string): CollectionObject {
  const described = describeCollection(model, name);
  if (!described) throw forbiddenCollection(name);
  return described;
}
