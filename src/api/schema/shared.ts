/** The common part of /fields, /collections, /relations and /schema/suggestions: their callers and answers. */
import { SCHEMA_TABLES } from '../../access/describe-permissions.js';
import type { Identities } from '../../access/identities.js';
import type { Identity } from '../../access/identity.js';
import type { Policies } from '../../access/policies.js';
import { forbidden } from '../../base/errors.js';
import type { Model } from '../../mirror/model.js';
import type { SchemaChanges } from '../../schema/change/change.js';
import {
  type ActionRequest,
  type ActionResult,
  type ActionRoute,
  actionRoutes,
  type Description,
  type MethodAndPath,
} from '../action.js';

export interface SchemaChangeServices {
  readonly identities: Identities;
  readonly policies: Policies;
  readonly schemaChanges: SchemaChanges;
}

type Read = (request: ActionRequest, model: Model) => unknown;
type Change = (request: ActionRequest, schemaChanges: SchemaChanges) => Promise<unknown>;

/** Makes the routes of a resource of the schema, which is stored in the given table. */
export function schemaResource(services: SchemaChangeServices, table: string) {
  const action = actionRoutes(services);

  /** Only administrators change the schema. */
  function change(methodAndPath: MethodAndPath, change: Change, description: Description): ActionRoute {
    const act = async (request: ActionRequest): Promise<ActionResult> => {
      request.client.staged('identify');
      return { data: await change(request, services.schemaChanges) };
    };
    return action(methodAndPath, act, { ...description, allow: 'administrators' });
  }

  /** Callers see of the schema what they may see of the items, if they may read the table, use the app or are a view. */
  function read(methodAndPath: MethodAndPath, read: Read, description: Description): ActionRoute {
    const act = async (request: ActionRequest<Identity>): Promise<ActionResult> => {
      const { application, isView } = request.caller;
      const whole = services.schemaChanges.model;
      const access = services.policies.accessOf(request.caller);
      request.client.staged('identify');
      const model = access ? access.view(whole) : whole;
      if (!application && !isView && !model.collections.has(table)) throw forbidden();
      const isUserOfApp = access !== null && application;
      return { data: await read(request, isUserOfApp ? withSchemaTables(model, whole) : model) };
    };
    return action(methodAndPath, act, { ...description, allow: 'identified' });
  }

  return { read, change };
}

/** The tables that the routes read are described to all of their readers. Their rows stay hidden: other routes do not see this model. */
function withSchemaTables(view: Model, { collections }: Model): Model {
  const tables = SCHEMA_TABLES.flatMap((name) => collections.get(name) ?? []);
  return { ...view, collections: new Map([...view.collections, ...tables.map((each) => [each.name, each] as const)]) };
}
