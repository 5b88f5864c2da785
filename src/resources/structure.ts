/** What /fields, /collections and /relations share: who may ask, and how they answer. */
import { build } from 'fast-json-stringify';
import { type Identities, onlyAdministrator } from '../access/identity.js';
import type { Structure } from '../execute/structure.js';
import type { Exchange } from '../http/exchange.js';
import { jsonText, type Reply } from '../http/reply.js';
import type { Handler } from '../http/router.js';

export interface StructureServices {
  readonly identities: Identities;
  readonly structure: Structure;
}

export type StructureHandler = (exchange: Exchange, services: StructureServices) => Reply | Promise<Reply>;

export function forAdministrators(handle: StructureHandler, services: StructureServices): Handler {
  return async (exchange) => {
    onlyAdministrator(await services.identities.identify(exchange));
    exchange.staged('identify');
    return handle(exchange, services);
  };
}

const dataBody = build({ type: 'object', properties: { data: {} } });

export function answer(data: unknown): Reply {
  return jsonText(dataBody({ data }));
}
