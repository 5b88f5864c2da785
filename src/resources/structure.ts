/** What /fields, /collections and /relations share: who may ask, and how they answer. */
import { build } from 'fast-json-stringify';
import { type Identities, onlyAdministrator } from '../access/identity.js';
import type { Policies } from '../access/policies.js';
import { forbidden } from '../errors.js';
import type { Exchange } from '../http/exchange.js';
import { jsonText, type Reply } from '../http/reply.js';
import type { Handler } from '../http/router.js';
import type { Model } from '../mirror/model.js';
import type { SchemaChanges } from '../schema/change.js';

export interface StructureServices {
  readonly identities: Identities;
  readonly policies: Policies;
  readonly structure: SchemaChanges;
}

/** The structure changes by the hands of administrators alone. */
export function changeSchema(
  services: StructureServices,
  change: (exchange: Exchange, structure: SchemaChanges) => Promise<Reply>,
): Handler {
  return async (exchange) => {
    onlyAdministrator(await services.identities.identify(exchange));
    exchange.staged('identify');
    return change(exchange, services.structure);
  };
}

/** Others who may read the metadata, or use the app, see of the structure what they may see of the items. */
export function readSchema(
  { identities, policies, structure }: StructureServices,
  table: string,
  read: (exchange: Exchange, model: Model) => Reply | Promise<Reply>,
): Handler {
  return async (exchange) => {
    const identity = await identities.identify(exchange);
    const access = policies.accessOf(identity);
    exchange.staged('identify');
    const model = access ? access.view(structure.model) : structure.model;
    if (!identity.application && !model.collections.has(table)) throw forbidden();
    return read(exchange, model);
  };
}

const dataBody = build({ type: 'object', properties: { data: {} } });

export function answer(data: unknown): Reply {
  return jsonText(dataBody({ data }));
}
