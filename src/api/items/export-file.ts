/**
 * POST /utils/export: the items as a file, which is the response, or is stored if the body names a `file`. A stored export is answered
 * with 204 at once; a notification says when it is ready, or why it failed.
 */

import { PassThrough } from 'node:stream';
import { CLI_IDENTITY } from '../../access/identity.js';
import { invalidPayload, ServiceError, serviceUnavailable } from '../../base/errors.js';
import { isObject, parseJson } from '../../base/exact-json.js';
import type { Observer } from '../../base/observe.js';
import { read } from '../../engine/pipeline.js';
import type { PreparedRead } from '../../engine/reads/reads.js';
import { NO_CLIENT, type RequestClient } from '../../engine/stages.js';
import type { Writer } from '../../engine/writer.js';
import type { Exchange } from '../../http/exchange.js';
import { noContent, type Produce, publicError, type Reply } from '../../http/reply.js';
import type { Parsed } from '../../request/ast.js';
import { type Input, limitsOf } from '../../request/parse-context.js';
import { checkTransferUrl, parseExport } from '../../request/rest.js';
import { atMost } from '../files/file-form.js';
import { FILES, type FilesServices } from '../files/file-rows.js';
import { checkFields, createFile, identifyWriter, placeOf } from '../files/files.js';
import { exportItems } from './export-formats.js';

export interface ExportServices extends FilesServices {
  readonly observe: Observer;
}

/** Per thread. */
const MAX_STORED_AT_ONCE = 8;
let running = 0;

export async function exportFile(exchange: Exchange, services: ExportServices, collection: string): Promise<Reply> {
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

export async function* piecesOf(produce: Produce, address: string): AsyncIterable<Buffer> {
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
