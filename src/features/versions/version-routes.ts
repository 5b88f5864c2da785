/** /versions beyond its items: saving changes, comparing them with the item, promoting them. */

import { invalidPayload } from '../../base/errors.js';
import { parseJson, writeJson } from '../../base/exact-json.js';
import { isFalse } from '../../compiler/request/query-parameters.js';
import { requireObject } from '../../compiler/request/write.js';
import type { Identities } from '../../server/access/identities.js';
import type { Identity } from '../../server/access/identity.js';
import { type ActionRequest, type ActionResult, type ApiRoute, actionRoutes } from '../../server/api/action.js';
import { readBody } from '../../server/api/body-fields.js';
import { writerOf } from '../../server/api/items/item-writes.js';
import { BOOLEAN, list, object, RECORD, STRING } from '../../server/api/openapi/json-schema.js';
import type { WrittenBy } from '../../server/execute/writer.js';
import { jsonText, type Reply } from '../../server/http/reply.js';
import { compareVersion, promoteVersion, saveVersion, type VersionServices } from './content-versions.js';

interface VersionRouteServices extends VersionServices {
  readonly identities: Identities;
}

export function versionsRoutes(services: VersionRouteServices): ApiRoute[] {
  const action = actionRoutes(services);
  return [
    action('GET /versions/:key/compare', compare, {
      summary: 'Compare a content version with its item',
      allow: 'identified',
      data: object({ outdated: BOOLEAN, mainHash: STRING, current: RECORD, main: RECORD }),
      reply: exactReply,
    }),
    action('POST /versions/:key/save', save, {
      summary: 'Save changes of an item to a content version',
      allow: 'identified',
      body: RECORD,
      data: RECORD,
      reply: exactReply,
    }),
    action('POST /versions/:key/promote', promote, {
      summary: 'Update the item with the changes of a content version',
      allow: 'identified',
      body: object({ mainHash: STRING, fields: list(STRING) }, ['mainHash']),
      data: STRING,
      reply: exactReply,
    }),
  ];
}

async function compare(request: ActionRequest<Identity>, services: VersionRouteServices): Promise<ActionResult> {
  const { client, caller } = request;
  // It is read in a transaction of a write, and writes nothing.
  const writer = writerOf(client, { ...caller, isView: false });
  return { data: await compareVersion(idOf(request), { writer: { ...writer, caller }, client }, services) };
}

async function save(request: ActionRequest<Identity>, services: VersionRouteServices): Promise<ActionResult> {
  const by = writtenBy(request);
  const data = requireObject(await request.json(parseJson), 'The body');
  const flag = new URLSearchParams(request.queryString).get('patchRevision');
  return { data: await saveVersion(idOf(request), { data, joins: flag !== null && !isFalse(flag) }, by, services) };
}

async function promote(request: ActionRequest<Identity>, services: VersionRouteServices): Promise<ActionResult> {
  const by = writtenBy(request);
  const { mainHash = null, fields } = readBody((await request.json()) ?? {});
  if (mainHash !== null && typeof mainHash !== 'string') throw invalidPayload('"mainHash" must be a string');
  if (fields !== undefined && fields !== null && !isNames(fields))
    throw invalidPayload('"fields" must be a list of names');
  const promotion = { mainHash, fields: isNames(fields) ? fields : null };
  return { data: await promoteVersion(idOf(request), promotion, by, services) };
}

function writtenBy({ client, caller }: ActionRequest<Identity>): WrittenBy {
  return { writer: writerOf(client, caller), client };
}

function isNames(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((each) => typeof each === 'string');
}

function idOf({ parameters: [id = ''] }: ActionRequest): string {
  return id;
}

/** Numbers keep their digits. */
function exactReply({ data }: ActionResult): Reply {
  return jsonText(writeJson({ data }));
}
