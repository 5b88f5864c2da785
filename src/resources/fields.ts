/** /fields: the columns of every collection and what is said about them. */
import { forbidden } from '../errors.js';
import type { Exchange } from '../http/exchange.js';
import { noContent, type Reply } from '../http/reply.js';
import type { Route } from '../http/router.js';
import { describeField, describeFields, type FieldObject } from '../mirror/describe.js';
import type { Model } from '../mirror/model.js';
import type { Draft, SchemaChanges } from '../schema/change.js';
import { parseField, parseFieldChange, parseFieldChanges } from '../schema/parse.js';
import { knownCollection, knownField } from '../schema/plan-names.js';
import { answer, changeSchema, readSchema, type StructureServices } from './structure.js';

export function fieldsRoutes(services: StructureServices): Route[] {
  return [
    { method: 'GET', path: '/fields', handle: readSchema(services, 'service_fields', listAll) },
    { method: 'GET', path: '/fields/:collection', handle: readSchema(services, 'service_fields', list) },
    { method: 'GET', path: '/fields/:collection/:field', handle: readSchema(services, 'service_fields', read) },
    { method: 'POST', path: '/fields/:collection', handle: changeSchema(services, create) },
    { method: 'PATCH', path: '/fields/:collection', handle: changeSchema(services, updateMany) },
    { method: 'PATCH', path: '/fields/:collection/:field', handle: changeSchema(services, update) },
    { method: 'DELETE', path: '/fields/:collection/:field', handle: changeSchema(services, remove) },
  ];
}

function listAll(_: Exchange, model: Model): Reply {
  return answer([...model.collections.values()].flatMap(describeFields));
}

function list({ parameters: [collection = ''] }: Exchange, model: Model): Reply {
  if (model.folders.has(collection)) return answer([]);
  return answer(describeFields(knownCollection(model, collection)));
}

function read({ parameters: [collection = '', field = ''] }: Exchange, model: Model): Reply {
  if (model.folders.has(collection)) throw forbidden();
  return answer(fieldObject(model, collection, field));
}

async function create(exchange: Exchange, structure: SchemaChanges): Promise<Reply> {
  const [collection = ''] = exchange.parameters;
  const definition = parseField(await exchange.json());
  return answer(
    await structure.change(async (draft) => {
      await draft.apply({ kind: 'create-field', collection, definition });
      return fieldObject(await draft.model(), collection, definition.field);
    }),
  );
}

async function update(exchange: Exchange, structure: SchemaChanges): Promise<Reply> {
  const [collection = '', field = ''] = exchange.parameters;
  const definition = parseFieldChange(await exchange.json(), field);
  return answer(
    await structure.change(async (draft) => {
      await draft.apply({ kind: 'update-field', collection, definition });
      return fieldObject(await draft.model(), collection, field);
    }),
  );
}

async function updateMany(exchange: Exchange, structure: SchemaChanges): Promise<Reply> {
  const [collection = ''] = exchange.parameters;
  const changes = parseFieldChanges(await exchange.json());
  const change = async (draft: Draft): Promise<FieldObject[]> => {
    knownCollection(await draft.model(), collection);
    for (const definition of changes) await draft.apply({ kind: 'update-field', collection, definition });
    const model = await draft.model();
    return changes.map(({ field }) => fieldObject(model, collection, field));
  };
  return answer(await structure.change(change));
}

async function remove(exchange: Exchange, structure: SchemaChanges): Promise<Reply> {
  const [collection = '', field = ''] = exchange.parameters;
  await structure.change((draft) => draft.apply({ kind: 'delete-field', collection, field }));
  return noContent;
}

function fieldObject(model: Model, collection: string, field: string): FieldObject {
  return describeField(knownField(knownCollection(model, collection), field));
}
