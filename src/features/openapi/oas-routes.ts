/** GET /server/specs/oas: the OpenAPI document, as far as the caller may see the API. */
import { parseOwnJson } from '../../base/narrow.js';
import { runInSlices } from '../../base/time-slices.js';
import { type ActionRequest, type ApiRoute, actionRoutes } from '../../server/api/action.js';
import { ok, RECORD } from '../../server/api/openapi/json-schema.js';
import { type SightServices, SpecTexts, sightOf } from '../../server/api/server/spec-texts.js';
import type { Exchange } from '../../server/http/exchange.js';
import { jsonText } from '../../server/http/reply.js';
import { writeJsonInSlices } from '../../server/node/turns.js';
import { describeApi } from './document.js';

interface OpenApiServices extends SightServices {
  readonly routes: () => readonly ApiRoute[];
  readonly publicUrl: () => string;
}

export function openApiRoutes(services: OpenApiServices): ApiRoute[] {
  const action = actionRoutes(services);
  const texts = new SpecTexts();
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
  ];
}

/** Paths and schemas are three levels deep. */
const DEPTH = 3;

async function openApiText(client: Exchange, services: OpenApiServices, texts: SpecTexts): Promise<string> {
  const { readable, key, model } = await sightOf(client, services);
  const url = services.publicUrl();
  return texts.get(model.version, `oas ${url} ${key}`, async () =>
    writeJsonInSlices(await runInSlices(describeApi(services.routes(), readable, url)), DEPTH),
  );
}
