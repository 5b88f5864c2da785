/**
 * /indexes and /checks: the indexes of collections with their size and use, and their check constraints, created and dropped by
 * administrators.
 */
import type { SchemaChanger } from '../../schema/change/change.js';
import {
  createCheck,
  createIndex,
  describeChecks,
  describeIndexes,
  dropCheck,
  dropIndex,
  parseCheck,
  parseIndex,
} from '../../schema/change/table-parts.js';
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
