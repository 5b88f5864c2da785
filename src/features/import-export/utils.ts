/**
 * /utils: sorting, importing and exporting items, random strings, and what the service remembers. An export is the response, or is stored
 * if the body names a `file`. A stored export is answered with 204 at once; a notification says when it is ready, or why it failed.
 */
import { randomBytes } from 'node:crypto';
import { PassThrough } from 'node:stream';
import { build } from 'fast-json-stringify';
import { invalidPayload, invalidQuery, ServiceError, serviceUnavailable } from '../../base/errors.js';
import { isObject, parseJson } from '../../base/exact-json.js';
import type { Observer } from '../../base/observe.js';
import { EXPORT_FORMATS, type Parsed } from '../../compiler/request/ast.js';
import { parseConflictParameters } from '../../compiler/request/on-conflict.js';
import { type Input, limitsOf } from '../../compiler/request/parse-context.js';
import { checkTransferUrl, parseExport } from '../../compiler/request/rest.js';
import { requireObject } from '../../compiler/request/write.js';
import { CLI_IDENTITY } from '../../server/access/identity.js';
import {
  type ActionRequest,
  type ActionResult,
  type ApiRoute,
  actionRoutes,
  type Description,
  dataReply,
  route,
} from '../../server/api/action.js';
import { writerOf } from '../../server/api/items/item-writes.js';
import { refuseSystem } from '../../server/api/items/items.js';
import {
  done,
  EXPORT_MEDIA,
  empty,
  FORM,
  INTEGER,
  json,
  KEY,
  list,
  object,
  ok,
  oneOf,
  queryParameter,
  RECORD,
  ref,
  STRING,
} from '../../server/api/openapi/json-schema.js';
import { read, write } from '../../server/execute/pipeline.js';
import type { PreparedRead } from '../../server/execute/reads/reads.js';
import { NO_CLIENT, type RequestClient } from '../../server/execute/stages.js';
import type { Writer } from '../../server/execute/writer.js';
import { openBody } from '../../server/http/body.js';
import type { Exchange } from '../../server/http/exchange.js';
import { jsonText, noContent, type Produce, publicError, type Reply } from '../../server/http/reply.js';
import { isForm } from '../../server/http/router.js';
import { exportItems } from '../export-formats/export-formats.js';
import { atMost, importLimits, openUpload } from '../files/file-form.js';
import { checkFields, createFile, identifyWriter, placeOf } from '../files/file-routes.js';
import { FILES, type FilesServices } from '../files/file-rows.js';
import type { FilesConfig } from '../files/options.js';
import { ImportFailure, importRows } from './import.js';
import { formatOf, readRows } from './import-file.js';
import type { ImportExportConfig } from './options.js';

interface UtilsServices extends ExportServices {
  readonly config: FilesConfig & ImportExportConfig;
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
        : dataReply({ data: { imported: result } }),
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

interface ExportServices extends FilesServices {
  readonly observe: Observer;
}

/** Per thread. */
const MAX_STORED_AT_ONCE = 8;
let running = 0;

async function exportFile(exchange: Exchange, services: ExportServices, collection: string): Promise<Reply> {
  const { identities, limits, reads } = services;
  let fields: Input | null = null;
  return read(
    {
      client: exchange,
      identify: () => identities.identify(exchange),
      parse: async () => {
        const body = await exchange.json(parseJson);
        fields = fieldsOf(body);
        const checked = limitsOf(limits, exchange.prefer);
        checkTransferUrl(exchange.queryString, checked, 'export');
        return parseExport(collection, body, checked);
      },
      execute: (prepared: PreparedRead<Parsed>): Reply | Promise<Reply> => {
        const { format } = prepared.query;
        if (!format) throw new Error('an export has a format');
        if (fields) return storeExport(exchange, prepared, fields, services);
        return exportItems(prepared, format, reads, exchange).reply;
      },
    },
    reads,
  );
}

function fieldsOf(body: unknown): Input | null {
  const { file = null } = isObject(body) ? body : {};
  if (file !== null && !isObject(file)) throw invalidPayload('"file" must be an object');
  return file;
}

/** Everything that can be refused before the items are read is refused now. */
async function storeExport(
  exchange: Exchange,
  prepared: PreparedRead<Parsed>,
  fields: Input,
  services: ExportServices,
): Promise<Reply> {
  const { request, format } = prepared.query;
  if (!format) throw new Error('an export has a format');
  const writer = await identifyWriter(exchange, services, 'create');
  checkFields(writer, fields, services);
  const { reply, extension } = exportItems(prepared, format, services.reads, NO_CLIENT);
  const name = `export-${request.collection}-${timestamp()}.${extension}`;
  placeOf({ fields, type: reply.type }, services);
  if (running >= MAX_STORED_AT_ONCE)
    throw serviceUnavailable('exports', 'Too many exports are being stored: try again');
  const client: RequestClient = { ...NO_CLIENT, address: exchange.address };
  const bytes = atMost(piecesOf(reply.body, client.address), services.config.FILES_MAX_UPLOAD_SIZE);
  const { collection } = request;
  const { id, method, path } = exchange;
  running++;
  createFile({ name, type: reply.type, fields, bytes }, { writer, client, readBack: null }, services)
    .then((file) => notify(writer, { subject: `Your export of ${collection} is ready`, item: file.id }, services))
    .catch(async (error: unknown) => {
      const { message, status } = publicError(error);
      const unavailable = status === 503;
      if (status >= 500) services.observe({ kind: 'request-failed', id, method, path, error, unavailable });
      await notify(writer, { subject: `Your export of ${collection} failed`, message, item: null }, services);
    })
    .catch((error: unknown) =>
      services.observe({ kind: 'request-failed', id, method, path, error, unavailable: error instanceof ServiceError }),
    )
    .finally(() => {
      running--;
    });
  return noContent;
}

interface Notice {
  readonly subject: string;
  readonly message?: string;
  readonly item: string | null;
}

/** Written by the service itself: the caller needs no permission for it. */
async function notify({ caller, author }: Writer, { item, ...notice }: Notice, services: FilesServices): Promise<void> {
  const recipient = caller.user;
  if (recipient === null) return;
  const about = item === null ? {} : { collection: FILES, item };
  await services.writes.run(
    {
      ...{ kind: 'create', collection: 'service_notifications', many: false },
      items: [{ ...notice, ...about, recipient, sender: recipient }],
      ...{ readBack: null, idempotencyKey: null, onConflict: null },
    },
    { caller: CLI_IDENTITY, author },
    NO_CLIENT,
  );
}

/** As in `20261117-140530`. */
function timestamp(): string {
  const [date = '', time = ''] = new Date().toISOString().replace(/[-:]/g, '').split(/[T.]/);
  return `${date}-${time}`;
}

const HELD_BYTES = 262_144;

async function* piecesOf(produce: Produce, address: string): AsyncIterable<Buffer> {
  const pipe = new PassThrough({ highWaterMark: HELD_BYTES });
  const whenClosed = new Set<() => void>();
  pipe.on('close', () => {
    for (const listener of whenClosed) listener();
  });
  const write = (piece: Buffer): boolean | Promise<boolean> => {
    if (pipe.destroyed) return false;
    if (pipe.write(piece)) return true;
    return new Promise((resolve) => {
      const settle = (): void => {
        pipe.off('drain', settle);
        whenClosed.delete(settle);
        resolve(!pipe.destroyed);
      };
      pipe.on('drain', settle);
      whenClosed.add(settle);
    });
  };
  const sink = { address, write, onAbort: (listener: () => void) => void whenClosed.add(listener) };
  produce(sink).then(
    () => {
      whenClosed.clear();
      pipe.end();
    },
    // An error of the database would otherwise count as one of the storage.
    (error: unknown) => pipe.destroy(publicError(error)),
  );
  for await (const piece of pipe) yield piece as Buffer;
}
