/** /server/specs: the API in the words of its tools, as far as the caller may see it. */
import { build } from 'fast-json-stringify';
import { schemaAccessOf } from '../access/graphql-access.js';
import type { Identities, Identity } from '../access/identity.js';
import type { Policies } from '../access/policies.js';
import { forbidden, routeNotFound } from '../errors.js';
import type { Operations } from '../graphql/operations.js';
import { describeSchema } from '../graphql/schema.js';
import type { RootScope } from '../graphql/schema-access.js';
import type { Exchange } from '../http/exchange.js';
import { jsonText, type Reply } from '../http/reply.js';
import type { Route } from '../http/router.js';
import type { Mirror } from '../mirror/watch.js';
import { describeApi } from './openapi/document.js';

export interface SpecsServices {
  readonly identities: Identities;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly operations: () => Operations;
  /** Whether the schema of GraphQL may be known. */
  readonly introspection: boolean;
  readonly routes: () => readonly Route[];
  readonly publicUrl: () => string;
}

export function specsRoutes(services: SpecsServices): Route[] {
  return [
    { method: 'GET', path: '/server/specs/oas', handle: (exchange) => openApi(exchange, services) },
    { method: 'GET', path: '/server/specs/graphql', handle: (exchange) => schemaText(exchange, services) },
    { method: 'GET', path: '/server/specs/graphql/:scope', handle: (exchange) => schemaText(exchange, services) },
  ];
}

const anything = build({});

async function openApi(exchange: Exchange, services: SpecsServices): Promise<Reply> {
  const { readable } = await sight(exchange, services);
  return jsonText(anything(describeApi(services.routes(), readable, services.publicUrl())));
}

async function schemaText(exchange: Exchange, services: SpecsServices): Promise<Reply> {
  const [scope = 'items'] = exchange.parameters;
  if (!isScope(scope)) throw routeNotFound(exchange.path);
  if (!services.introspection) throw forbidden();
  const seen = await sight(exchange, services);
  const body = await describeSchema(services.operations().schemas.get(seen, scope));
  const headers = { 'Content-Disposition': `attachment; filename="${scope}.graphql"` };
  return { status: 200, type: 'text/plain; charset=utf-8', body, headers };
}

function isScope(name: string): name is RootScope {
  return name === 'items' || name === 'system';
}

async function sight(exchange: Exchange, { identities, policies, mirror }: SpecsServices) {
  const identity: Identity = await identities.identify(exchange);
  return schemaAccessOf(policies.accessOf(identity), mirror.model);
}
