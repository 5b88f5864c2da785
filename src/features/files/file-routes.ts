/**
 * /files: the rows of files, and their content. The bytes are stored first, then the row is written: a row whose bytes are missing cannot
 * come to be. If the row is refused its bytes are removed; bytes that a crash leaves without a row are found by `lateral files`.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { forbiddenCollection, forbiddenField, invalidPayload, ServiceError } from '../../base/errors.js';
import { parseJson } from '../../base/exact-json.js';
import type { Grant, WriteAction } from '../../compiler/plan/access.js';
import { Guard } from '../../compiler/plan/write/guard.js';
import type { Parsed } from '../../compiler/request/ast.js';
import type { Input } from '../../compiler/request/parse-context.js';
import { parseReadBack, tagged } from '../../compiler/request/rest.js';
import { checkConditions, requireObject } from '../../compiler/request/write.js';
import { UUID_PATTERN } from '../../compiler/sql/codec.js';
import { type ActionRequest, type ActionResult, type ApiRoute, actionRoutes } from '../../server/api/action.js';
import {
  type ItemPath,
  readConditions,
  wantsItems,
  writerOf,
  writtenReply,
} from '../../server/api/items/item-writes.js';
import { resourceRoutes } from '../../server/api/items/items.js';
import { done, data as inEnvelope, object, ok, RECORD, STRING } from '../../server/api/openapi/json-schema.js';
import { write } from '../../server/execute/pipeline.js';
import type { RequestClient } from '../../server/execute/stages.js';
import type { Writer } from '../../server/execute/writer.js';
import { type BodyLimits, openBody } from '../../server/http/body.js';
import type { Exchange } from '../../server/http/exchange.js';
import type { Reply } from '../../server/http/reply.js';
import { isForm } from '../../server/http/router.js';
import { atMost, FORM_BYTES, type FormFile, fetchRemote, readFileForm } from './file-form.js';
import { FILES, type FilesServices, permitFields, readFileSettings, readStorage } from './file-rows.js';
import { MAX_IMAGE_BYTES, wholeFile } from './images.js';

export function filesRoutes(services: FilesServices): ApiRoute[] {
  const pathOf = ({ parameters: [key] }: Exchange): ItemPath => ({ collection: FILES, key: key ?? null });
  const isContent = ({ headers }: Exchange): boolean => isForm(headers.contentType);
  const routes = resourceRoutes('/files', services, pathOf).map((route): ApiRoute => {
    if (route.method === 'POST')
      return {
        ...route,
        streamsBody: 'form',
        handle: (exchange) => (isContent(exchange) ? uploadFiles(exchange, services) : route.handle(exchange)),
      };
    if (route.method === 'PATCH' && route.path.endsWith('/:key'))
      return {
        ...route,
        streamsBody: 'form',
        handle: (exchange) => (isContent(exchange) ? replaceFile(exchange, services) : route.handle(exchange)),
      };
    return route;
  });
  const imports = actionRoutes(services)('POST /files/import', importFile, {
    summary: 'Import a file from a URL',
    body: object({ url: STRING, data: RECORD }, ['url']),
    answers: [ok(inEnvelope(RECORD)), done],
    graphql: { name: 'import_file' },
  });
  return [imports, ...routes];
}

/** Fields that only the content decides. */
const OF_CONTENT = ['id', 'filename_disk', 'filesize', 'uploaded_on'];

/** Fields of a form that contain JSON. */
const JSON_FIELDS = ['tags', 'metadata'];

interface StoredFile {
  readonly row: Input;
  /** Fields that the caller has not given. */
  readonly own: readonly string[];
  readonly storage: string;
  readonly filename: string;
}

async function uploadFiles(exchange: Exchange, services: FilesServices): Promise<Reply> {
  const body = openBody(exchange, bodyLimits(services));
  const stored: StoredFile[] = [];
  return write({
    client: exchange,
    identify: () => identifyWriter(exchange, services, 'create'),
    parse: async () => {
      // A URL or a condition that cannot be read is refused before anything is stored.
      checkConditions(readConditions(exchange), 'several items');
      const [one, many] = [true, false].map((isOne) =>
        parseReadBack(FILES, isOne, exchange.queryString, services.limits),
      );
      await removeOnFailure(stored, services, () =>
        readForm(exchange, body, services, async (file) => void stored.push(await storeNew(file, exchange, services))),
      );
      const isOne = stored.length === 1;
      return {
        kind: 'create' as const,
        collection: FILES,
        many: !isOne,
        items: stored.map(({ row }) => row),
        readBack: wantsItems(exchange) ? ((isOne ? one : many) ?? null) : null,
        idempotencyKey: null,
        onConflict: null,
      };
    },
    execute: (request, writer) =>
      removeOnFailure(stored, services, () =>
        services.writes.run(request, permitted(writer, stored, services), exchange),
      ),
    reply: writtenReply,
  });
}

/** New bytes have a new name: until the row names them, the former ones are its content. */
async function replaceFile(exchange: Exchange, services: FilesServices): Promise<Reply> {
  const body = openBody(exchange, bodyLimits(services));
  const [key = ''] = exchange.parameters;
  const stored: StoredFile[] = [];
  return write({
    client: exchange,
    identify: () => identifyWriter(exchange, services, 'update'),
    parse: async () => {
      const conditions = readConditions(exchange);
      checkConditions(conditions, 'one item');
      const readBack = tagged(parseReadBack(FILES, true, exchange.queryString, services.limits));
      const id = key.toLowerCase();
      if (!/^[0-9a-f-]{36}$/.test(id)) throw forbiddenCollection(FILES);
      const current = await readStorage(id, exchange, services);
      await removeOnFailure(stored, services, () =>
        readForm(exchange, body, services, async (file) => {
          if (stored.length > 0) throw invalidPayload('The form must contain one file');
          stored.push(await storeReplacement(file, id, current, services));
        }),
      );
      return {
        kind: 'update-item' as const,
        collection: FILES,
        key: id,
        data: stored[0]?.row ?? {},
        readBack: wantsItems(exchange) ? readBack : null,
        ifMatch: conditions.ifMatch,
      };
    },
    execute: (request, writer) =>
      removeOnFailure(stored, services, () =>
        services.writes.run(request, permitted(writer, stored, services), exchange),
      ),
    reply: writtenReply,
  });
}

async function importFile(request: ActionRequest, services: FilesServices): Promise<ActionResult> {
  const { client } = request;
  const { config, limits } = services;
  const { url, data = {}, options: _, ...rest } = requireObject(await request.json(parseJson), 'The body');
  const [unknownName] = Object.keys(rest);
  if (unknownName !== undefined) throw invalidPayload(`"${unknownName}" is not allowed`);
  if (typeof url !== 'string') throw invalidPayload('"url" must be a string');
  const fields = requireObject(data, '"data"');
  const readBack = parseReadBack(FILES, true, request.queryString, limits);
  const writer = await identifyWriter(client, services, 'create');
  const remote = await fetchRemote(url, {
    allowed: config.FILES_IMPORT_ALLOW_LIST,
    timeoutMs: config.FILES_IMPORT_TIMEOUT,
  });
  const bytes = atMost(remote.bytes, config.FILES_MAX_UPLOAD_SIZE);
  const file = { ...remote, name: remote.name || 'file', fields, bytes };
  const { body } = await createFile(file, { writer, client, readBack }, services);
  return body ? { data: requireObject(parseJson(String(body)), 'The row')['data'] } : {};
}

interface NewFileBy {
  readonly writer: Writer;
  readonly client: RequestClient;
  readonly readBack: Parsed | null;
}

/** Stores the bytes, then the row; answers the key, and what is read back of the row. */
export async function createFile(
  file: FormFile,
  { writer, client, readBack }: NewFileBy,
  services: FilesServices,
): Promise<{ readonly id: string; readonly body: Buffer | null }> {
  const stored: StoredFile[] = [];
  return removeOnFailure(stored, services, async () => {
    const made = await storeNew(file, client, services);
    stored.push(made);
    const create = { kind: 'create', collection: FILES, items: [made.row], many: false, readBack } as const;
    const body = await services.writes.run(
      { ...create, idempotencyKey: null, onConflict: null },
      permitted(writer, stored, services),
      client,
    );
    return { id: String(made.row['id']), body };
  });
}

/** A caller who may write no file is refused before bytes are taken. The statement checks rows and values. */
export async function identifyWriter(
  exchange: Exchange,
  services: FilesServices,
  action: WriteAction,
): Promise<Writer> {
  if (exchange.headers.idempotencyKey !== '') throw invalidPayload('"Idempotency-Key" does not apply to uploads');
  const writer = writerOf(exchange, await services.identities.identify(exchange));
  grantOf(writer, action, services);
  return writer;
}

/** The grant of the caller, or null for administrators. */
function grantOf(
  { caller }: Writer,
  action: WriteAction,
  { mirror: { model }, policies }: FilesServices,
): Grant | null {
  const collection = model.collections.get(FILES);
  if (!collection) throw forbiddenCollection(FILES);
  const access = policies.accessOf(caller);
  return access && new Guard(access, model).grant(action, collection);
}

/** For a row that is written after the answer: the statement checks the fields again. */
export function checkFields(writer: Writer, fields: Input, services: FilesServices): void {
  const known = services.mirror.model.collections.get(FILES)?.fields;
  const granted = grantOf(writer, 'create', services)?.fields ?? null;
  for (const name of Object.keys(fields)) {
    if (!known?.has(name)) throw invalidPayload(`"${name}" is not a field of a file`);
    if (granted && !granted.has(name)) throw forbiddenField(name, FILES, 'file');
  }
}

function permitted(writer: Writer, stored: readonly StoredFile[], { policies }: FilesServices): Writer {
  const [first, ...others] = stored.map(({ own }) => own);
  const names = (first ?? []).filter((name) => others.every((own) => own.includes(name)));
  return { ...writer, ...permitFields(policies.accessOf(writer.caller), names) };
}

function bodyLimits({ config }: FilesServices): BodyLimits {
  return {
    bytes: config.FILES_MAX_UPLOAD_SIZE + FORM_BYTES,
    option: 'FILES_MAX_UPLOAD_SIZE',
    pauseMs: config.BODY_TIMEOUT,
  };
}

function readForm(
  { headers }: Exchange,
  body: AsyncIterable<Buffer>,
  { config }: FilesServices,
  take: (file: FormFile) => Promise<void>,
): Promise<void> {
  return readFileForm(body, headers.contentType, config.FILES_MAX_UPLOAD_SIZE, take);
}

/** Does the work, and removes the stored files if it fails. */
async function removeOnFailure<Result>(
  stored: readonly StoredFile[],
  { storages }: FilesServices,
  work: () => Promise<Result>,
): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    // The row may be there.
    if (error instanceof ServiceError && error.extensions['outcome'] === 'unknown') throw error;
    // Bytes that cannot be removed either are orphans, which `lateral files` finds.
    await Promise.allSettled(stored.map(({ storage, filename }) => storages.of(storage).remove(filename)));
    throw error;
  }
}

async function storeNew(file: FormFile, client: RequestClient, services: FilesServices): Promise<StoredFile> {
  const { id: given, ...fields } = file.fields;
  const id = given === undefined ? randomUUID() : idOf(given);
  const folder =
    file.fields['folder'] === undefined ? (await readFileSettings(client, services)).storage_default_folder : null;
  // A file with the given id may exist, and keeps its bytes.
  const stored = await store({ ...file, fields }, given === undefined ? id : anotherName(id), services);
  const defaults: Input = {
    id,
    filename_download: nameOf(file.name),
    title: titleOf(file.name),
    ...(folder === null ? {} : { folder }),
  };
  const own = [...stored.own, ...Object.keys(defaults).filter((name) => file.fields[name] === undefined)];
  return { ...stored, row: { ...defaults, ...stored.row }, own };
}

function idOf(given: unknown): string {
  if (typeof given !== 'string' || !UUID_PATTERN.test(given)) throw invalidPayload('"id" must be a UUID');
  return given.toLowerCase();
}

function anotherName(id: string): string {
  return `${id}-${randomBytes(8).toString('hex')}`;
}

/** The name that browsers give to content without one. */
const NO_NAME = 'blob';

/** The name of the former content may have the ending of another type, so the row gets that of the new content, if it has one. */
async function storeReplacement(
  file: FormFile,
  id: string,
  current: string | null,
  services: FilesServices,
): Promise<StoredFile> {
  const stored = await store(file, anotherName(id), services, current);
  if (file.fields['filename_download'] !== undefined || file.name === '' || file.name === NO_NAME) return stored;
  return {
    ...stored,
    row: { ...stored.row, filename_download: nameOf(file.name) },
    own: [...stored.own, 'filename_download'],
  };
}

/** Where a file is stored, and its type. Refuses fields, locations and types that a file cannot have. */
export function placeOf(
  { fields, type: given }: Pick<FormFile, 'fields' | 'type'>,
  { config, storages }: FilesServices,
  current: string | null = null,
): { readonly storage: string; readonly type: string } {
  const fixed = OF_CONTENT.find((each) => fields[each] !== undefined);
  if (fixed !== undefined) throw invalidPayload(`"${fixed}" cannot be set for this upload: the service sets it`);
  const usual = current !== null && storages.has(current) ? current : storages.first;
  const storage = fields['storage'] ?? usual;
  if (typeof storage !== 'string' || !storages.has(storage))
    throw invalidPayload(`"storage" must be one of ${storages.names.join(', ')}`);
  const type = typeOf(given);
  if (!isAllowed(type, config.FILES_MIME_TYPE_ALLOW_LIST))
    throw invalidPayload(`Files of type "${type}" may not be uploaded`, { option: 'FILES_MIME_TYPE_ALLOW_LIST' });
  return { storage, type };
}

/** Stores the bytes and describes them as a row. New content stays in its `current` location if that is configured. */
async function store(
  file: FormFile,
  name: string,
  services: FilesServices,
  current: string | null = null,
): Promise<StoredFile> {
  const { config, storages, images } = services;
  const { fields } = file;
  const { storage, type } = placeOf(file, services, current);
  const row = withJson(fields);
  const filename = `${name}${endingOf(file.name)}`;
  const location = storages.of(storage);
  const size = await location.write(filename, file.bytes);
  const isMeasured = MEASURED.test(type) && size <= MAX_IMAGE_BYTES;
  const read = (): Promise<Buffer> =>
    wholeFile(location.read(filename, { start: 0, end: size - 1 }, AbortSignal.timeout(config.BODY_TIMEOUT)));
  const measured = isMeasured ? await images.sizeOf(read).catch(() => null) : null;
  const content: Input = {
    storage,
    filename_disk: filename,
    type,
    filesize: String(size),
    uploaded_on: new Date().toISOString(),
    width: measured?.width ?? null,
    height: measured?.height ?? null,
  };
  const own = Object.keys(content).filter((each) => fields[each] === undefined);
  return { row: { ...row, ...content }, own, storage, filename };
}

const MEASURED = /^image\/(?:jpeg|png|webp|gif|tiff|avif)$/;

function withJson(fields: Input): Input {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [
      name,
      JSON_FIELDS.includes(name) && typeof value === 'string' ? jsonOf(name, value) : value,
    ]),
  );
}

function jsonOf(name: string, text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    throw invalidPayload(`"${name}" must be JSON`);
  }
}

/** Without parameters. Anything that is not a type becomes `application/octet-stream`. */
function typeOf(text: string): string {
  const type = text.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  return /^[\w.+-]{1,100}\/[\w.+-]{1,100}$/.test(type) ? type : 'application/octet-stream';
}

function isAllowed(type: string, list: string): boolean {
  const [main] = type.split('/', 1);
  return list
    .split(',')
    .map((each) => each.trim().toLowerCase())
    .some((each) => each === '*/*' || each === type || each === `${main}/*`);
}

function endingOf(name: string): string {
  return /\.[a-z0-9]{1,20}$/i.exec(name)?.[0].toLowerCase() ?? '';
}

/** The name of a download, without folders and line breaks. */
function nameOf(name: string): string {
  const plain = name
    .replace(/^.*[/\\]/, '')
    .replace(/\p{Cc}/gu, '')
    .slice(-255);
  return plain === '' ? 'file' : plain;
}

function titleOf(name: string): string {
  const words = nameOf(name)
    .replace(/\.[^.]*$/, '')
    .split(/[\s_-]+/)
    .filter((word) => word !== '');
  return words
    .map((word) => word.slice(0, 1).toUpperCase() + word.slice(1))
    .join(' ')
    .slice(0, 255);
}
