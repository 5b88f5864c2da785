/** /relations: which fields lead to other collections, by a foreign key or by what the metadata says. */
import { forbidden, forbiddenCollection } from '../errors.js';
import type { Exchange } from '../http/exchange.js';
import { noContent, type Reply } from '../http/reply.js';
import type { Route } from '../http/router.js';
import { describeRelations, type RelationObject } from '../mirror/describe.js';
import type { Model } from '../mirror/model.js';
import type { SchemaChanges } from '../schema/change.js';
import { type Operation, parseRelation, parseRelationChange } from '../schema/parse.js';
import { answer, changeSchema, readSchema, type StructureServices } from './structure.js';

export function relationsRoutes(services: StructureServices): Route[] {
  return [
    { method: 'GET', path: '/relations', handle: readSchema(services, 'service_relations', listAll) },
    { method: 'GET', path: '/relations/:collection', handle: readSchema(services, 'service_relations', list) },
    { method: 'GET', path: '/relations/:collection/:field', handle: readSchema(services, 'service_relations', read) },
    { method: 'POST', path: '/relations', handle: changeSchema(services, create) },
    { method: 'PATCH', path: '/relations/:collection/:field', handle: changeSchema(services, update) },
    { method: 'DELETE', path: '/relations/:collection/:field', handle: changeSchema(services, remove) },
  ];
}

function listAll(_: Exchange, model: Model): Reply {
  return answer(describeRelations(model));
}

function list({ parameters: [collection = ''] }: Exchange, model: Model): Reply {
  if (!model.collections.has(collection) && !model.folders.has(collection)) throw forbiddenCollection(collection);
  return answer(describeRelations(model).filter((relation) => relation.collection === collection));
}

function read({ parameters: [collection = '', field = ''] }: Exchange, model: Model): Reply {
  return answer(relationObject(model, collection, field));
}

async function create(exchange: Exchange, structure: SchemaChanges): Promise<Reply> {
  return carryOut({ kind: 'create-relation', ...parseRelation(await exchange.json()) }, structure);
}

async function update(exchange: Exchange, structure: SchemaChanges): Promise<Reply> {
  const [collection = '', field = ''] = exchange.parameters;
  const change = parseRelationChange(await exchange.json(), { collection, field });
  return carryOut({ kind: 'update-relation', ...change }, structure);
}

async function remove(exchange: Exchange, structure: SchemaChanges): Promise<Reply> {
  const [collection = '', field = ''] = exchange.parameters;
  await structure.change((draft) => draft.apply({ kind: 'delete-relation', collection, field }));
  return noContent;
}

async function carryOut(
  operation: Extract<Operation, { kind: 'create-relation' | 'update-relation' }>,
  structure: SchemaChanges,
): Promise<Reply> {
  return answer(
    await structure.change(async (draft) => {
      await draft.apply(operation);
      return relationObject(await draft.model(), operation.collection, operation.field);
    }),
  );
}

function relationObject(model: Model, collection: string, field: string): RelationObject {
  const relation = describeRelations(model).find((each) => each.collection === collection && each.field === field);
  if (!relation) throw forbidden();
  return relation;
}
