/** /utils: sorting, importing and exporting items, random strings, and what the service remembers. */
import { randomBytes } from 'node:crypto';
import { build } from 'fast-json-stringify';
import { invalidQuery } from '../../base/errors.js';
import { parseJson } from '../../base/exact-json.js';
import { write } from '../../engine/pipeline.js';
import { ImportFailure, importRows } from '../../engine/writes/import.js';
import { openBody } from '../../http/body.js';
import type { Exchange } from '../../http/exchange.js';
import { jsonText, type Reply } from '../../http/reply.js';
import { isForm } from '../../http/router.js';
import { EXPORT_FORMATS } from '../../request/ast.js';
import { formatOf, readRows } from '../../request/import-file.js';
import { parseConflictParameters } from '../../request/on-conflict.js';
import { limitsOf } from '../../request/parse-context.js';
import { checkTransferUrl } from '../../request/rest.js';
import { requireObject } from '../../request/write.js';
import {
  type ActionRequest,
  type ActionResult,
  type ApiRoute,
  actionRoutes,
  type Description,
  route,
} from '../action.js';
import { importLimits, openUpload } from '../files/upload.js';
import { type ExportServices, exportFile } from '../items/export-file.js';
import { writerOf } from '../items/item-writes.js';
import { refuseSystem } from '../items/items.js';
import {
  done,
  empty,
  FORM,
  INTEGER,
  json,
  KEY,
  list,
  object,
  ok,
  oneOf,
  RECORD,
  ref,
  STRING,
} from '../openapi/json-schema.js';
import { EXPORT_MEDIA, queryParameter } from '../openapi/parameters.js';

export interface UtilsServices extends ExportServices {
  /** Reloads users, policies and the schema, for all threads. */
  readonly readAnew: () => Promise<void>;
}

const IMPORT: Description = {
  summary: 'Import a file',
  body: list(RECORD),
  media: { 'application/x-ndjson': { schema: STRING }, 'text/csv': { schema: STRING }, 'multipart/form-data': FORM },
  data: object({ imported: INTEGER }),
};

const EXPORT: Description = {
  summary: 'Export items to a file: the response, or one that is stored where the body has a `file`',
  body: object({ format: oneOf(...EXPORT_FORMATS), query: ref('Query'), file: RECORD }, ['format']),
  answers: [{ ...ok({}), content: { ...json(list(RECORD)), ...EXPORT_MEDIA } }, done],
};

const LONGEST_RANDOM = 500;

export function utilsRoutes(services: UtilsServices): ApiRoute[] {
  const action = actionRoutes(services);
  const randomLength = { ...INTEGER, minimum: 1, maximum: LONGEST_RANDOM, default: 32 };
  return [
    action('POST /utils/sort/:collection', sortItems, {
      summary: 'Move an item to the place of another',
      body: object({ item: KEY, to: KEY }, ['item', 'to']),
      answers: [empty],
      graphql: { name: 'utils_sort' },
      reply: emptyReply,
    }),
    {
      ...route('POST /utils/import/:collection', (exchange) => importItems(exchange, services), IMPORT),
      streamsBody: true,
    },
    {
      ...route(
        'POST /utils/export/:collection',
        (exchange) => {
          const [collection = ''] = exchange.parameters;
          refuseSystem(collection);
          return exportFile(exchange, services, collection);
        },
        EXPORT,
      ),
      mayRead: true,
    },
    action('GET /utils/random/string', randomString, {
      summary: 'A random string',
      parameters: [queryParameter('length', randomLength, 'Its characters.')],
      data: STRING,
      graphql: { name: 'utils_random_string', mutation: true },
    }),
    action('POST /utils/cache/clear', clearCache, {
      summary: 'Reload users, policies and the schema',
      allow: 'administrators',
      answers: [empty],
      graphql: { name: 'utils_cache_clear' },
      reply: emptyReply,
    }),
  ];
}

const emptyReply = (): Reply => ({ status: 200, type: '', body: '' });

async function sortItems(request: ActionRequest, services: UtilsServices): Promise<ActionResult> {
  const { client, parameters } = request;
  const [collection = ''] = parameters;
  refuseSystem(collection);
  const identity = await services.identities.identify(client);
  const body = requireObject(await request.json(parseJson), 'The body');
  await services.writes.sort(collection, body['item'], body['to'], { writer: writerOf(client, identity), client });
  return {};
}

async function importItems(exchange: Exchange, services: UtilsServices): Promise<Reply> {
  const [collection = ''] = exchange.parameters;
  const { config, writes } = services;
  // Opened before the first await: data that arrives without a reader is lost.
  const body = openBody(exchange, importLimits(config));
  return write({
    client: exchange,
    identify: async () => {
      refuseSystem(collection);
      return writerOf(exchange, await services.identities.identify(exchange));
    },
    parse: async () => {
      const { contentType } = exchange.headers;
      const upload = isForm(contentType) ? await openUpload(body, contentType) : { bytes: body, type: contentType };
      const format = formatOf(upload.type);
      checkTransferUrl(exchange.queryString, limitsOf(services.limits, exchange.prefer), 'import');
      const onConflict = parseConflictParameters(exchange.queryString);
      const rows = readRows(upload.bytes, format);
      return { collection, rows, format, maxErrors: config.MAX_IMPORT_ERRORS, onConflict };
    },
    execute: (options, writer) =>
      importRows(writes, options, writer, exchange).catch((error: unknown) => {
        if (error instanceof ImportFailure) return error;
        throw error;
      }),
    reply: (result) =>
      result instanceof ImportFailure
        ? jsonText(failureBody({ errors: result.errors.map(describeRowError) }), 400)
        : jsonText(importedBody({ data: { imported: result } })),
  });
}

function describeRowError({ row, error }: ImportFailure['errors'][number]): unknown {
  const extensions = { ...error.extensions, code: error.code, rows: [row] };
  return { message: `Row ${row}: ${error.message}`, extensions };
}

/** Letters, digits, `-` and `_`: 6 random bits each. */
function randomString({ queryString }: ActionRequest): ActionResult {
  const lengthText = new URLSearchParams(queryString).get('length') ?? '32';
  const length = /^\d{1,9}$/.test(lengthText) ? Number(lengthText) : 0;
  if (length < 1 || length > LONGEST_RANDOM)
    throw invalidQuery(`"length" must be a whole number from 1 to ${LONGEST_RANDOM}`);
  const data = randomBytes(length).toString('base64url').slice(0, length);
  return { data, secret: true };
}

/** Notifications keep caches up to date. This is for databases that were changed without them. */
async function clearCache(_: ActionRequest, { readAnew }: UtilsServices): Promise<ActionResult> {
  await readAnew();
  return {};
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
