/** /indexes: the indexes of collections with their size and use, created and dropped by administrators. */
import type { SchemaChanger } from '../../schema/change/change.js';
import { createIndex, describeIndexes, dropIndex, parseIndex } from '../../schema/change/table-parts.js';
import type { ActionRequest, ActionRoute } from '../action.js';
import { BOOLEAN, list, object, ref, STRING } from '../openapi/json-schema.js';
import { type SchemaChangeServices, schemaResource } from './definitions.js';

const INDEX = ref('Index');

export function indexesRoutes(services: SchemaChangeServices): ActionRoute[] {
  const { inspect, change } = schemaResource(services, 'service_fields');
  return [
    inspect('GET /indexes', (_, changes) => listIndexes(changes, null), {
      summary: 'Read the indexes of all collections, with size and use',
      data: list(INDEX),
    }),
    inspect('GET /indexes/:collection', ({ parameters: [name = ''] }, changes) => listIndexes(changes, name), {
      summary: 'Read the indexes of a collection, with size and use',
      data: list(INDEX),
    }),
    change('POST /indexes/:collection', create, {
      summary: 'Create an index',
      body: object({ fields: list(STRING), is_unique: BOOLEAN }, ['fields']),
      data: INDEX,
    }),
    change('DELETE /indexes/:collection/:index', drop, { summary: 'Drop an index' }),
  ];
}

function listIndexes(schemaChanges: SchemaChanger, collection: string | null): Promise<unknown> {
  return schemaChanges.read((draft) => describeIndexes(draft, schemaChanges.model, collection));
}

async function create(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const [collection = ''] = request.parameters;
  const index = parseIndex(await request.json());
  return schemaChanges.change((draft) => createIndex(draft, collection, index));
}

async function drop(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const [collection = '', name = ''] = request.parameters;
  await schemaChanges.change((draft) => dropIndex(draft, collection, name));
  return undefined;
}
