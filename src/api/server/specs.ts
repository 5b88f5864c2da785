/** /server/specs: the API for tools, as an OpenAPI document and as a GraphQL schema, as far as the caller may see it. */

import { LRUCache } from 'lru-cache';
import { schemaAccessOf } from '../../access/graphql-access.js';
import type { Identities } from '../../access/identities.js';
import type { Identity } from '../../access/identity.js';
import type { Policies } from '../../access/policies.js';
import { forbidden, routeNotFound } from '../../base/errors.js';
import { parseOwnJson } from '../../base/narrow.js';
import { runInSlices, writeJsonInSlices } from '../../base/time-slices.js';
import type { Operations } from '../../graphql/operations.js';
import { describeSchema } from '../../graphql/schema.js';
import type { RootScope } from '../../graphql/schema-access.js';
import type { Exchange } from '../../http/exchange.js';
import { jsonText, type Reply } from '../../http/reply.js';
import type { Mirror } from '../../mirror/watch.js';
import { type ActionRequest, type ActionResult, type ApiRoute, actionRoutes } from '../action.js';
import { describeApi } from '../openapi/document.js';
import { ok, RECORD, TEXT } from '../openapi/json-schema.js';

interface SpecsServices {
  readonly identities: Identities;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly operations: () => Operations;
  /** Whether callers may read the GraphQL schema. */
  readonly introspection: boolean;
  readonly routes: () => readonly ApiRoute[];
  readonly publicUrl: () => string;
  /** The media type of a GraphQL schema. */
  readonly sdlType: string;
}

export function specsRoutes(services: SpecsServices): ApiRoute[] {
  const action = actionRoutes(services);
  const texts = new SpecTexts();
  const reply = (result: ActionResult): Reply => textReply(result, services.sdlType);
  const schema = (request: ActionRequest): Promise<ActionResult> => schemaText(request, services, texts);
  const openApi = ({ client }: Pick<ActionRequest, 'client'>): Promise<string> => openApiText(client, services, texts);
  return [
    {
      ...action('GET /server/specs/oas', async (request) => ({ data: parseOwnJson<unknown>(await openApi(request)) }), {
        summary: 'This document',
        answers: [ok(RECORD)],
        graphql: { name: 'server_specs_oas' },
      }),
      handle: async (client) => jsonText(await openApi({ client })),
    },
    action('GET /server/specs/graphql', schema, { summary: 'The GraphQL schema of the items', answers: [TEXT], reply }),
    action('GET /server/specs/graphql/:scope', schema, {
      summary: 'A GraphQL schema: items or system',
      answers: [TEXT],
      graphql: { name: 'server_specs_graphql', type: 'String' },
      reply,
    }),
  ];
}

/** Paths and schemas are three levels deep. */
const DEPTH = 3;

async function openApiText(client: Exchange, services: SpecsServices, texts: SpecTexts): Promise<string> {
  const { readable, key, model } = await sight(client, services);
  const url = services.publicUrl();
  return texts.get(model.version, `oas ${url} ${key}`, async () =>
    writeJsonInSlices(await runInSlices(describeApi(services.routes(), readable, url)), DEPTH),
  );
}

async function schemaText(
  { client, parameters }: ActionRequest,
  services: SpecsServices,
  texts: SpecTexts,
): Promise<ActionResult> {
  const [scope = 'items'] = parameters;
  if (!isScope(scope)) throw routeNotFound(`/server/specs/graphql/${scope}`);
  if (!services.introspection) throw forbidden();
  const seen = await sight(client, services);
  const data = await texts.get(seen.model.version, `${scope} ${seen.key}`, () =>
    describeSchema(services.operations().schemas.get(seen, scope)),
  );
  const headers = { 'Content-Disposition': `attachment; filename="${scope}.graphql"` };
  return { data, headers };
}

function textReply({ data, headers = {} }: ActionResult, type: string): Reply {
  return { status: 200, type: `${type}; charset=utf-8`, body: String(data), headers };
}

function isScope(name: string): name is RootScope {
  return name === 'items' || name === 'system';
}

async function sight(exchange: Exchange, { identities, policies, mirror }: SpecsServices) {
  const identity: Identity = await identities.identify(exchange);
  return schemaAccessOf(policies.accessOf(identity), mirror.model);
}

/** Characters: a document of 3,000 tables has twenty million. */
const CAPACITY = 64 * 1024 * 1024;

class SpecTexts {
  readonly #known = new LRUCache<string, string>({ maxSize: CAPACITY, sizeCalculation: ({ length }) => length + 1 });
  readonly #underway = new Map<string, Promise<string>>();
  #version = 0;

  /** `version` is that of the model; `write` makes the text. */
  async get(version: number, key: string, write: () => Promise<string>): Promise<string> {
    if (version !== this.#version) {
      this.#known.clear();
      this.#underway.clear();
      this.#version = version;
    }
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const waiting = this.#underway.get(key);
    if (waiting) return waiting;
    const writing = write();
    this.#underway.set(key, writing);
    try {
      const text = await writing;
      if (version === this.#version) this.#known.set(key, text);
      return text;
    } finally {
      if (this.#underway.get(key) === writing) this.#underway.delete(key);
    }
  }
}
