/** /versions beyond its items: saving changes, comparing them with the item, promoting them. */
import type { Identities } from '../../access/identities.js';
import { invalidPayload } from '../../base/errors.js';
import { parseJson, writeJson } from '../../base/exact-json.js';
import {
  compareVersion,
  promoteVersion,
  saveVersion,
  type VersionServices,
} from '../../engine/system-collections/content-versions.js';
import type { WrittenBy } from '../../engine/writer.js';
import { jsonText, type Reply } from '../../http/reply.js';
import type { Route } from '../../http/router.js';
import { isFalse } from '../../request/query-parameters.js';
import { requireObject } from '../../request/write.js';
import { type ActionRequest, type ActionResult, actionRoute } from '../action.js';
import { readBody } from '../body-fields.js';
import { writerOf } from './item-writes.js';

export interface VersionRouteServices extends VersionServices {
  readonly identities: Identities;
}

export function versionsRoutes(services: VersionRouteServices): Route[] {
  const writtenBy = async ({ client }: ActionRequest): Promise<WrittenBy> => ({
    writer: writerOf(client, await services.identities.identify(client)),
    client,
  });
  return [
    actionRoute('GET', '/versions/:key/compare', compare, exactReply),
    actionRoute('POST', '/versions/:key/save', save, exactReply),
    actionRoute('POST', '/versions/:key/promote', promote, exactReply),
  ];

  async function compare(request: ActionRequest): Promise<ActionResult> {
    const { client } = request;
    const caller = await services.identities.identify(client);
    // It is read in a transaction of a write, and writes nothing.
    const writer = writerOf(client, { ...caller, isView: false });
    return { data: await compareVersion(idOf(request), { writer: { ...writer, caller }, client }, services) };
  }

  async function save(request: ActionRequest): Promise<ActionResult> {
    const by = await writtenBy(request);
    const data = requireObject(await request.json(parseJson), 'The body');
    const flag = new URLSearchParams(request.queryString).get('patchRevision');
    return { data: await saveVersion(idOf(request), { data, joins: flag !== null && !isFalse(flag) }, by, services) };
  }

  async function promote(request: ActionRequest): Promise<ActionResult> {
    const by = await writtenBy(request);
    const { mainHash = null, fields } = readBody((await request.json()) ?? {});
    if (mainHash !== null && typeof mainHash !== 'string') throw invalidPayload('"mainHash" must be a string');
    if (fields !== undefined && fields !== null && !isNames(fields))
      throw invalidPayload('"fields" must be a list of names');
    const promotion = { mainHash, fields: isNames(fields) ? fields : null };
    return { data: await promoteVersion(idOf(request), promotion, by, services) };
  }
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
