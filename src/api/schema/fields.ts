/** /fields: the columns of every collection and what is said about them. */
import { forbidden } from '../../base/errors.js';
import { describeField, describeFields, type FieldObject, keyNamesOf } from '../../mirror/describe-model.js';
import type { Model } from '../../mirror/model.js';
import type { Draft, SchemaChanges } from '../../schema/change/change.js';
import { parseField, parseFieldChange, parseFieldChanges } from '../../schema/change/parse.js';
import { requireCollection, requireField } from '../../schema/change/plan-names.js';
import type { ActionRequest, ActionRoute } from '../action.js';
import { list, ref } from '../openapi/json-schema.js';
import { type SchemaChangeServices, schemaResource } from './shared.js';

const FIELD = ref('Field');

export function fieldsRoutes(services: SchemaChangeServices): ActionRoute[] {
  const { read, change } = schemaResource(services, 'service_fields');
  return [
    read('GET /fields', listAll, { summary: 'Read fields', data: list(FIELD), graphql: { name: 'fields' } }),
    read('GET /fields/:collection', listOne, {
      summary: 'Read the fields of a collection',
      data: list(FIELD),
      graphql: { name: 'fields_in_collection' },
    }),
    read('GET /fields/:collection/:field', readOne, {
      summary: 'Read a field',
      data: FIELD,
      graphql: { name: 'fields_by_name' },
    }),
    change('POST /fields/:collection', create, {
      summary: 'Create a field',
      body: FIELD,
      data: FIELD,
      graphql: { name: 'create_fields_item', input: 'create_service_fields_input!' },
    }),
    change('PATCH /fields/:collection', updateMany, {
      summary: 'Update fields',
      body: list(FIELD),
      data: list(FIELD),
      graphql: { name: 'update_fields_items', input: '[update_service_fields_input!]!' },
    }),
    change('PATCH /fields/:collection/:field', update, {
      summary: 'Update a field',
      body: FIELD,
      data: FIELD,
      graphql: { name: 'update_fields_item', input: 'update_service_fields_input!' },
    }),
    change('DELETE /fields/:collection/:field', remove, {
      summary: 'Delete a field with its values',
      graphql: { name: 'delete_fields_item', type: 'delete_field' },
    }),
  ];
}

function listAll(_: ActionRequest, model: Model): unknown {
  return [...model.collections.values()].flatMap(describeFields);
}

function listOne({ parameters: [collection = ''] }: ActionRequest, model: Model): unknown {
  if (model.folders.has(collection)) return [];
  return describeFields(requireCollection(model, collection));
}

function readOne({ parameters: [collection = '', field = ''] }: ActionRequest, model: Model): unknown {
  if (model.folders.has(collection)) throw forbidden();
  return fieldObject(model, collection, field);
}

async function create(request: ActionRequest, schemaChanges: SchemaChanges): Promise<unknown> {
  const [collection = ''] = request.parameters;
  const definition = parseField(await request.json());
  return schemaChanges.change(async (draft) => {
    await draft.apply({ kind: 'create-field', collection, definition });
    return fieldObject(await draft.model(), collection, definition.field);
  });
}

async function update(request: ActionRequest, schemaChanges: SchemaChanges): Promise<unknown> {
  const [collection = '', field = ''] = request.parameters;
  const definition = parseFieldChange(await request.json(), field);
  return schemaChanges.change(async (draft) => {
    await draft.apply({ kind: 'update-field', collection, definition });
    return fieldObject(await draft.model(), collection, field);
  });
}

async function updateMany(request: ActionRequest, schemaChanges: SchemaChanges): Promise<unknown> {
  const [collection = ''] = request.parameters;
  const changes = parseFieldChanges(await request.json());
  const change = async (draft: Draft): Promise<FieldObject[]> => {
    requireCollection(await draft.model(), collection);
    for (const definition of changes) await draft.apply({ kind: 'update-field', collection, definition });
    const model = await draft.model();
    return changes.map(({ field }) => fieldObject(model, collection, field));
  };
  return schemaChanges.change(change);
}

async function remove(request: ActionRequest, schemaChanges: SchemaChanges): Promise<void> {
  const [collection = '', field = ''] = request.parameters;
  await schemaChanges.change((draft) => draft.apply({ kind: 'delete-field', collection, field }));
}

function fieldObject(model: Model, collection: string, field: string): FieldObject {
  const described = requireCollection(model, collection);
  return describeField(requireField(described, field), keyNamesOf(described));
}
