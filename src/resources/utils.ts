/** /utils: sorting and importing items. */
import { build } from 'fast-json-stringify';
import type { Identities, Identity } from '../access/identity.js';
import type { Config } from '../config.js';
import { invalidPayload } from '../errors.js';
import { ImportFailure, importRows } from '../execute/import.js';
import type { Writes } from '../execute/writes.js';
import { openBody } from '../http/body.js';
import type { Exchange } from '../http/exchange.js';
import { jsonText, type Reply } from '../http/reply.js';
import type { Route } from '../http/router.js';
import { formatOf, readRows } from '../request/import.js';
import { readItem } from '../request/write.js';
import { writerOf } from './item-writes.js';
import { refuseSystem } from './items.js';
import { openUpload } from './upload.js';

export interface UtilsServices {
  readonly config: Config;
  readonly identities: Identities;
  readonly writes: Writes;
}

export function utilsRoutes(services: UtilsServices): Route[] {
  return [
    { method: 'POST', path: '/utils/sort/:collection', handle: (exchange) => sortItems(exchange, services) },
    {
      method: 'POST',
      path: '/utils/import/:collection',
      handle: (exchange) => importItems(exchange, services),
      streamsBody: true,
    },
  ];
}

async function identify(exchange: Exchange, { identities }: UtilsServices): Promise<Identity> {
  const [collection = ''] = exchange.parameters;
  refuseSystem(collection);
  return identities.identify(exchange);
}

const EMPTY: Reply = { status: 200, type: '', body: '' };

async function sortItems(exchange: Exchange, services: UtilsServices): Promise<Reply> {
  const [collection = ''] = exchange.parameters;
  const identity = await identify(exchange, services);
  const { item, to } = readItem(await exchange.json(), 'The body');
  const isKey = (key: unknown): key is string | number => typeof key === 'string' || typeof key === 'number';
  if (!isKey(item) || !isKey(to)) throw invalidPayload('"item" and "to" have to be keys');
  await services.writes.sort(collection, item, to, identity);
  return EMPTY;
}

async function importItems(exchange: Exchange, services: UtilsServices): Promise<Reply> {
  const [collection = ''] = exchange.parameters;
  const { config, writes } = services;
  // Before anything is awaited: data that nobody takes is lost.
  const body = openBody(exchange, { bytes: config.IMPORT_MAX_FILE_SIZE, pause: config.BODY_TIMEOUT });
  const identity = await identify(exchange, services);
  const { contentType } = exchange.headers;
  const upload = /^multipart\/form-data/i.test(contentType)
    ? await openUpload(body, contentType)
    : { bytes: body, type: contentType };
  const rows = readRows(upload.bytes, formatOf(upload.type));
  try {
    const writer = writerOf(exchange, identity);
    const count = await importRows(writes, { collection, rows, maxErrors: config.MAX_IMPORT_ERRORS }, writer);
    return jsonText(importedBody({ data: { imported: count } }));
  } catch (error) {
    if (!(error instanceof ImportFailure)) throw error;
    return jsonText(failureBody({ errors: error.errors.map(describe) }), 400);
  }
}

function describe({ row, error }: ImportFailure['errors'][number]): unknown {
  const extensions = { ...error.extensions, code: error.code, rows: [row] };
  return { message: `Row ${row}: ${error.message}`, extensions };
}

const importedBody = build({
  type: 'object',
  properties: { data: { type: 'object', properties: { imported: { type: 'integer' } } } },
});

const failureBody = build({
  type: 'object',
  properties: {
    errors: {
      type: 'array',
      items: {
        type: 'object',
        properties: { message: { type: 'string' }, extensions: { type: 'object', additionalProperties: true } },
      },
    },
  },
});
