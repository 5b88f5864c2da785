/** /relations: which fields lead to other collections, by a foreign key or by what the metadata says. */
import { forbidden, forbiddenCollection } from '../../base/errors.js';
import { describeRelations, type RelationObject } from '../../mirror/describe-model.js';
import type { Model } from '../../mirror/model.js';
import type { SchemaChanges } from '../../schema/change/change.js';
import { type Operation, parseRelation, parseRelationChange } from '../../schema/change/parse.js';
import { type ActionRequest, type ActionRoute, actionRoute } from '../action.js';
import { changeSchema, readSchema, type SchemaChangeServices } from './shared.js';

export function relationsRoutes(services: SchemaChangeServices): ActionRoute[] {
  return [
    actionRoute('GET', '/relations', readSchema(services, 'service_relations', listAll)),
    actionRoute('GET', '/relations/:collection', readSchema(services, 'service_relations', list)),
    actionRoute('GET', '/relations/:collection/:field', readSchema(services, 'service_relations', read)),
    actionRoute('POST', '/relations', changeSchema(services, create)),
    actionRoute('PATCH', '/relations/:collection/:field', changeSchema(services, update)),
    actionRoute('DELETE', '/relations/:collection/:field', changeSchema(services, remove)),
  ];
}

function listAll(_: ActionRequest, model: Model): unknown {
  return describeRelations(model);
}

function list({ parameters: [collection = ''] }: ActionRequest, model: Model): unknown {
  if (!model.collections.has(collection) && !model.folders.has(collection)) throw forbiddenCollection(collection);
  return describeRelations(model).filter((relation) => relation.collection === collection);
}

function read({ parameters: [collection = '', field = ''] }: ActionRequest, model: Model): unknown {
  return relationObject(model, collection, field);
}

async function create(request: ActionRequest, schemaChanges: SchemaChanges): Promise<unknown> {
  return carryOut({ kind: 'create-relation', ...parseRelation(await request.json()) }, schemaChanges);
}

async function update(request: ActionRequest, schemaChanges: SchemaChanges): Promise<unknown> {
  const [collection = '', field = ''] = request.parameters;
  const change = parseRelationChange(await request.json(), { collection, field });
  return carryOut({ kind: 'update-relation', ...change }, schemaChanges);
}

async function remove(request: ActionRequest, schemaChanges: SchemaChanges): Promise<void> {
  const [collection = '', field = ''] = request.parameters;
  await schemaChanges.change((draft) => draft.apply({ kind: 'delete-relation', collection, field }));
}

async function carryOut(
  operation: Extract<Operation, { kind: 'create-relation' | 'update-relation' }>,
  schemaChanges: SchemaChanges,
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
