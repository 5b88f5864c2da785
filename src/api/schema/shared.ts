/** The common part of /fields, /collections, /relations and /schema/suggestions: their callers and answers. */
import { SCHEMA_TABLES } from '../../access/describe-permissions.js';
import type { Identities } from '../../access/identities.js';
import type { Policies } from '../../access/policies.js';
import { forbidden } from '../../base/errors.js';
import type { Model } from '../../mirror/model.js';
import type { SchemaChanges } from '../../schema/change/change.js';
import { type ActionRequest, type ActionRoute, actionRoutes, type Description } from '../action.js';

export interface SchemaChangeServices {
  readonly identities: Identities;
  readonly policies: Policies;
  readonly schemaChanges: SchemaChanges;
}

type Path = `${string} /${string}`;

/** Makes the routes of a resource of the schema, which is stored in the given table. */
export function schemaResource(services: SchemaChangeServices, table: string) {
  const route = actionRoutes(services);
  return {
    /** Only administrators change the schema. */
    change: (
      path: Path,
      description: Description,
      change: (request: ActionRequest, schemaChanges: SchemaChanges) => Promise<unknown>,
    ): ActionRoute =>
      route(path, { ...description, allow: 'administrators' }, async (request, { schemaChanges }) => {
        request.client.staged('identify');
        return { data: await change(request, schemaChanges) };
      }),
    /** Callers see as much of the schema as they may see of the items. They must be able to read the table, use the app or view as others. */
    read: (
      path: Path,
      description: Description,
      read: (request: ActionRequest, model: Model) => unknown,
    ): ActionRoute =>
      route(path, { ...description, allow: 'identified' }, async (request, { policies, schemaChanges }) => {
        const { application, isView } = request.caller;
        const access = policies.accessOf(request.caller);
        request.client.staged('identify');
        const model = access ? access.view(schemaChanges.model) : schemaChanges.model;
        if (!application && !isView && !model.collections.has(table)) throw forbidden();
        const isUserOfApp = access !== null && application;
        return { data: await read(request, isUserOfApp ? withSchemaTables(model, schemaChanges.model) : model) };
      }),
  };
}

/** The tables that the routes read are described to all of their readers. Their rows stay hidden: other routes do not see this model. */
function withSchemaTables(view: Model, { collections }: Model): Model {
  const tables = SCHEMA_TABLES.flatMap((name) => collections.get(name) ?? []);
  return { ...view, collections: new Map([...view.collections, ...tables.map((each) => [each.name, each] as const)]) };
}
