/** /checks: the check constraints of collections, created and dropped by administrators. */
import type { SchemaChanger } from '../../schema/change/change.js';
import { createCheck, describeChecks, dropCheck, parseCheck } from '../../schema/change/table-parts.js';
import type { ActionRequest, ActionRoute } from '../action.js';
import { list, object, ref, STRING } from '../openapi/json-schema.js';
import { type SchemaChangeServices, schemaResource } from './definitions.js';

const CHECK = ref('Check');

export function checksRoutes(services: SchemaChangeServices): ActionRoute[] {
  const { inspect, change } = schemaResource(services, 'service_fields');
  return [
    inspect('GET /checks', (_, changes) => listChecks(changes, null), {
      summary: 'Read the check constraints of all collections',
      data: list(CHECK),
    }),
    inspect('GET /checks/:collection', ({ parameters: [name = ''] }, changes) => listChecks(changes, name), {
      summary: 'Read the check constraints of a collection',
      data: list(CHECK),
    }),
    change('POST /checks/:collection', create, {
      summary: 'Create a check constraint',
      body: object({ expression: STRING, name: STRING }, ['expression']),
      data: CHECK,
    }),
    change('DELETE /checks/:collection/:check', drop, { summary: 'Drop a check constraint' }),
  ];
}

function listChecks(schemaChanges: SchemaChanger, collection: string | null): Promise<unknown> {
  return schemaChanges.read((draft) => describeChecks(draft, schemaChanges.model, collection));
}

async function create(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const [collection = ''] = request.parameters;
  const check = parseCheck(await request.json());
  return schemaChanges.change((draft) => createCheck(draft, collection, check));
}

async function drop(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const [collection = '', name = ''] = request.parameters;
  await schemaChanges.change((draft) => dropCheck(draft, collection, name));
  return undefined;
}
