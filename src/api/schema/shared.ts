/** What /fields, /collections and /relations share: who may ask, and how they answer. */
import { SCHEMA_TABLES } from '../../access/describe-permissions.js';
import type { Identities } from '../../access/identities.js';
import { onlyAdministrator } from '../../access/identity.js';
import type { Policies } from '../../access/policies.js';
import { forbidden } from '../../base/errors.js';
import type { Model } from '../../mirror/model.js';
import type { SchemaChanges } from '../../schema/change/change.js';
import type { ActionRequest, RouteAction } from '../action.js';

export interface SchemaChangeServices {
  readonly identities: Identities;
  readonly policies: Policies;
  readonly schemaChanges: SchemaChanges;
}

/** Only administrators change the schema. */
export function changeSchema(
  services: SchemaChangeServices,
  change: (request: ActionRequest, schemaChanges: SchemaChanges) => Promise<unknown>,
): RouteAction {
  return async (request) => {
    onlyAdministrator(await services.identities.identify(request.client));
    request.client.staged('identify');
    return { data: await change(request, services.schemaChanges) };
  };
}

/** Others who may read the metadata, or use the app, see of the schema what they may see of the items; so do who view as others. */
export function readSchema(
  { identities, policies, schemaChanges }: SchemaChangeServices,
  table: string,
  read: (request: ActionRequest, model: Model) => unknown,
): RouteAction {
  return async (request) => {
    const identity = await identities.identify(request.client);
    const access = policies.accessOf(identity);
    request.client.staged('identify');
    const model = access ? access.view(schemaChanges.model) : schemaChanges.model;
    if (!identity.application && !identity.isView && !model.collections.has(table)) throw forbidden();
    const isUserOfApp = access !== null && identity.application;
    return { data: await read(request, isUserOfApp ? withSchemaTables(model, schemaChanges.model) : model) };
  };
}

/** The tables that the routes read are described to all of their readers. Their rows stay hidden: other routes do not see this model. */
function withSchemaTables(view: Model, { collections }: Model): Model {
  const tables = SCHEMA_TABLES.flatMap((name) => collections.get(name) ?? []);
  return { ...view, collections: new Map([...view.collections, ...tables.map((each) => [each.name, each] as const)]) };
}
