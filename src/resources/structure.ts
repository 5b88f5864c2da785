/** What /fields, /collections and /relations share: who may ask, and how they answer. */
import { type Identities, onlyAdministrator } from '../access/identity.js';
import type { Policies } from '../access/policies.js';
import { forbidden } from '../errors.js';
import type { Model } from '../mirror/model.js';
import type { SchemaChanges } from '../schema/change.js';
import type { Action, ActionRequest } from './action.js';

export interface StructureServices {
  readonly identities: Identities;
  readonly policies: Policies;
  readonly structure: SchemaChanges;
}

/** Only administrators change the schema. */
export function changeSchema(
  services: StructureServices,
  change: (request: ActionRequest, structure: SchemaChanges) => Promise<unknown>,
): Action {
  return async (request) => {
    onlyAdministrator(await services.identities.identify(request.client));
    request.client.staged('identify');
    return { data: await change(request, services.structure) };
  };
}

/** Others who may read the metadata, or use the app, see of the schema what they may see of the items. */
export function readSchema(
  { identities, policies, structure }: StructureServices,
  table: string,
  read: (request: ActionRequest, model: Model) => unknown,
): Action {
  return async (request) => {
    const identity = await identities.identify(request.client);
    const access = policies.accessOf(identity);
    request.client.staged('identify');
    const model = access ? access.view(structure.model) : structure.model;
    if (!identity.application && !model.collections.has(table)) throw forbidden();
    return { data: await read(request, model) };
  };
}
