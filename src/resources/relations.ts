/** /relations: which fields lead to other collections, by a foreign key or by what the metadata says. */
import { forbidden, forbiddenCollection } from '../errors.js';
import type { Exchange } from '../http/exchange.js';
import { noContent, type Reply } from '../http/reply.js';
import type { Handler, Route } from '../http/router.js';
import { describeRelations, type RelationObject } from '../mirror/describe.js';
import type { Model } from '../mirror/model.js';
import { type Operation, parseRelation, parseRelationChange } from '../request/structure.js';
import { answer, forAdministrators, type StructureHandler, type StructureServices } from './structure.js';

export function relationsRoutes(services: StructureServices): Route[] {
  const by = (handle: StructureHandler): Handler => forAdministrators(handle, services);
  return [
    { method: 'GET', path: '/relations', handle: by(listAll) },
    { method: 'GET', path: '/relations/:collection', handle: by(list) },
    { method: 'GET', path: '/relations/:collection/:field', handle: by(read) },
    { method: 'POST', path: '/relations', handle: by(create) },
    { method: 'PATCH', path: '/relations/:collection/:field', handle: by(update) },
    { method: 'DELETE', path: '/relations/:collection/:field', handle: by(remove) },
  ];
}

function listAll(_: Exchange, { structure }: StructureServices): Reply {
  return answer(describeRelations(structure.model));
}

function list({ parameters: [collection = ''] }: Exchange, { structure: { model } }: StructureServices): Reply {
  if (!model.collections.has(collection) && !model.folders.has(collection)) throw forbiddenCollection(collection);
  return answer(describeRelations(model).filter((relation) => relation.collection === collection));
}

function read({ parameters: [collection = '', field = ''] }: Exchange, { structure }: StructureServices): Reply {
  return answer(describe(structure.model, collection, field));
}

async function create(exchange: Exchange, services: StructureServices): Promise<Reply> {
  return carryOut({ kind: 'create-relation', ...parseRelation(await exchange.json()) }, services);
}

async function update(exchange: Exchange, services: StructureServices): Promise<Reply> {
  const [collection = '', field = ''] = exchange.parameters;
  const change = parseRelationChange(await exchange.json(), { collection, field });
  return carryOut({ kind: 'update-relation', ...change }, services);
}

async function remove(exchange: Exchange, { structure }: StructureServices): Promise<Reply> {
  const [collection = '', field = ''] = exchange.parameters;
  await structure.change((draft) => draft.apply({ kind: 'delete-relation', collection, field }));
  return noContent;
}

async function carryOut(
  operation: Extract<Operation, { kind: 'create-relation' | 'update-relation' }>,
  { structure }: StructureServices,
): Promise<Reply> {
  return answer(
    await structure.change(async (draft) => {
      await draft.apply(operation);
      return describe(await draft.model(), operation.collection, operation.field);
    }),
  );
}

function describe(model: Model, collection: string, field: string): RelationObject {
  const relation = describeRelations(model).find((each) => each.collection === collection && each.field === field);
  if (!relation) throw forbidden();
  return relation;
}
