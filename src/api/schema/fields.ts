/** /fields: the columns of every collection and what is said about them. */
import { forbidden } from '../../base/errors.js';
import { describeField, describeFields, type FieldObject, keyNamesOf } from '../../mirror/describe-model.js';
import type { Model } from '../../mirror/model.js';
import type { Draft, SchemaChanges } from '../../schema/change/change.js';
import { parseField, parseFieldChange, parseFieldChanges } from '../../schema/change/parse.js';
import { requireCollection, requireField } from '../../schema/change/plan-names.js';
import { type ActionRequest, type ActionRoute, actionRoute } from '../action.js';
import { changeSchema, readSchema, type SchemaChangeServices } from './shared.js';

export function fieldsRoutes(services: SchemaChangeServices): ActionRoute[] {
  return [
    actionRoute('GET', '/fields', readSchema(services, 'service_fields', listAll)),
    actionRoute('GET', '/fields/:collection', readSchema(services, 'service_fields', list)),
    actionRoute('GET', '/fields/:collection/:field', readSchema(services, 'service_fields', read)),
    actionRoute('POST', '/fields/:collection', changeSchema(services, create)),
    actionRoute('PATCH', '/fields/:collection', changeSchema(services, updateMany)),
    actionRoute('PATCH', '/fields/:collection/:field', changeSchema(services, update)),
    actionRoute('DELETE', '/fields/:collection/:field', changeSchema(services, remove)),
  ];
}

function listAll(_: ActionRequest, model: Model): unknown {
  return [...model.collections.values()].flatMap(describeFields);
}

function list({ parameters: [collection = ''] }: ActionRequest, model: Model): unknown {
  if (model.folders.has(collection)) return [];
  return describeFields(requireCollection(model, collection));
}

function read({ parameters: [collection = '', field = ''] }: ActionRequest, model: Model): unknown {
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
