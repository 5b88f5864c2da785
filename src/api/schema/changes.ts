/** POST /schema/changes: collections, fields and relations that belong together, created in one transaction. */

import type { SchemaChanger } from '../../schema/change/change.js';
import { parseCreations } from '../../schema/change/parse.js';
import type { ActionRequest, ActionRoute } from '../action.js';
import { ref } from '../openapi/json-schema.js';
import {
  collectionObject,
  fieldObject,
  relationObject,
  type SchemaChangeServices,
  schemaResource,
} from './definitions.js';

const CHANGES = ref('SchemaChanges');

export function changesRoutes(services: SchemaChangeServices): ActionRoute[] {
  const { change } = schemaResource(services, 'service_relations');
  return [
    change('POST /schema/changes', create, {
      summary: 'Create collections, fields and relations in one transaction',
      body: CHANGES,
      data: CHANGES,
    }),
  ];
}

async function create(request: ActionRequest, schemaChanges: SchemaChanger): Promise<unknown> {
  const creations = parseCreations(await request.json());
  return schemaChanges.change(async (draft) => {
    for (const creation of creations) await draft.apply(creation);
    const model = await draft.model();
    return {
      collections: creations.flatMap((each) =>
        each.kind === 'create-collection' ? [collectionObject(model, each.collection)] : [],
      ),
      fields: creations.flatMap((each) =>
        each.kind === 'create-field' ? [fieldObject(model, each.collection, each.definition.field)] : [],
      ),
      relations: creations.flatMap((each) =>
        each.kind === 'create-relation' ? [relationObject(model, each.collection, each.field)] : [],
      ),
    };
  });
}
