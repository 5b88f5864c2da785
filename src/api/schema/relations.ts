/** /relations: which fields lead to other collections, by a foreign key or by what the metadata says. */
import { forbidden, forbiddenCollection } from '../../base/errors.js';
import { describeRelations, type RelationObject } from '../../mirror/describe-model.js';
import type { Model } from '../../mirror/model.js';
import type { SchemaChanges } from '../../schema/change/change.js';
import { type Operation, parseRelation, parseRelationChange } from '../../schema/change/parse.js';
import type { ActionRequest, ActionRoute } from '../action.js';
import { list, ref } from '../openapi/json-schema.js';
import { type SchemaChangeServices, schemaResource } from './shared.js';

const RELATION = ref('Relation');

export function relationsRoutes(services: SchemaChangeServices): ActionRoute[] {
  const { read, change } = schemaResource(services, 'service_relations');
  return [
    read('GET /relations', listAll, {
      summary: 'Read relations',
      data: list(RELATION),
      graphql: { name: 'relations' },
    }),
    read('GET /relations/:collection', listOne, {
      summary: 'Read the relations of a collection',
      data: list(RELATION),
      graphql: { name: 'relations_in_collection' },
    }),
    read('GET /relations/:collection/:field', readOne, {
      summary: 'Read a relation',
      data: RELATION,
      graphql: { name: 'relations_by_name' },
    }),
    change('POST /relations', create, {
      summary: 'Create a relation',
      body: RELATION,
      data: RELATION,
      graphql: { name: 'create_relations_item', input: 'create_service_relations_input!' },
    }),
    change('PATCH /relations/:collection/:field', update, {
      summary: 'Update a relation',
      body: RELATION,
      data: RELATION,
      graphql: { name: 'update_relations_item', input: 'update_service_relations_input!' },
    }),
    change('DELETE /relations/:collection/:field', remove, {
      summary: 'Delete a relation; the field stays',
      graphql: { name: 'delete_relations_item', type: 'delete_relation' },
    }),
  ];
}

function listAll(_: ActionRequest, model: Model): unknown {
  return describeRelations(model);
}

function listOne({ parameters: [collection = ''] }: ActionRequest, model: Model): unknown {
  if (!model.collections.has(collection) && !model.folders.has(collection)) throw forbiddenCollection(collection);
  return describeRelations(model).filter((relation) => relation.collection === collection);
}

function readOne({ parameters: [collection = '', field = ''] }: ActionRequest, model: Model): unknown {
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
