/**
 * /indexes and /checks: the indexes of collections with their size and use, and their check constraints. `GET /schema/functions`: functions
 * of the database.
 */
import type { ActionRequest, ActionRoute } from '../../server/api/action.js';
import { BOOLEAN, list, object, orNull, ref, STRING } from '../../server/api/openapi/json-schema.js';
import { type SchemaChangeServices, schemaResource } from '../../server/api/schema/definitions.js';
import type { SchemaChanger } from '../../server/schema/change/change.js';
import { describeFunctions } from './functions.js';
import {
  createCheck,
  createIndex,
  describeChecks,
  describeIndexes,
  dropCheck,
  dropIndex,
  parseCheck,
  parseIndex,
} from './table-parts.js';

export function objectRoutes(services: SchemaChangeServices): readonly ActionRoute[] {
  return [...indexesRoutes(services), ...checksRoutes(services), ...functionsRoutes(services)];
}

const INDEX = ref('Index');

function indexesRoutes(services: SchemaChangeServices): ActionRoute[] {
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
    change('POST /indexes/:collection', addIndex, {
      summary: 'Create an index',
      body: object({ fields: list(STRING), is_unique: BOOLEAN }, ['fields']),
      data: INDEX,
    }),
    change('DELETE /indexes/:collection/:index', removeIndex, { summary: 'Drop an index' }),
  ];
}

function listIndexes(schemaChanges: SchemaChanger, collection: string | null): Promise<unknown> {
  return schemaChanges.read((draft) => describeIndexes(draft, schemaChanges.model, collection));
}

async function addIndex(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const [collection = ''] = request.parameters;
  const index = parseIndex(await request.json());
  return schemaChanges.change((draft) => createIndex(draft, collection, index));
}

async function removeIndex(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const [collection = '', name = ''] = request.parameters;
  await schemaChanges.change((draft) => dropIndex(draft, collection, name));
  return undefined;
}

const CHECK = ref('Check');

function checksRoutes(services: SchemaChangeServices): ActionRoute[] {
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
    change('POST /checks/:collection', addCheck, {
      summary: 'Create a check constraint',
      body: object({ expression: STRING, name: STRING }, ['expression']),
      data: CHECK,
    }),
    change('DELETE /checks/:collection/:check', removeCheck, { summary: 'Drop a check constraint' }),
  ];
}

function listChecks(schemaChanges: SchemaChanger, collection: string | null): Promise<unknown> {
  return schemaChanges.read((draft) => describeChecks(draft, schemaChanges.model, collection));
}

async function addCheck(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const [collection = ''] = request.parameters;
  const check = parseCheck(await request.json());
  return schemaChanges.change((draft) => createCheck(draft, collection, check));
}

async function removeCheck(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const [collection = '', name = ''] = request.parameters;
  await schemaChanges.change((draft) => dropCheck(draft, collection, name));
  return undefined;
}

const DATABASE_FUNCTION = object({
  name: STRING,
  schema: orNull(STRING),
  arguments: STRING,
  returns: STRING,
  writes: BOOLEAN,
  note: orNull(STRING),
});

function functionsRoutes(services: SchemaChangeServices): ActionRoute[] {
  const { inspect } = schemaResource(services, 'service_functions');
  return [
    inspect('GET /schema/functions', (_, changes) => changes.read((draft) => describeFunctions(draft, changes.model)), {
      summary: 'Read the functions of the database that can be made callable',
      data: list(DATABASE_FUNCTION),
    }),
  ];
}
