/** The form of an upload: files in their order, each with the fields that stand before it. */
import { Readable } from 'node:stream';
import { Busboy, type BusboyFileStream, type BusboyInstance } from '@fastify/busboy';
import { invalidPayload, type ServiceError } from '../../base/errors.js';
import { asError } from '../../base/narrow.js';

export interface FormFile {
  readonly name: string;
  readonly type: string;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly bytes: AsyncIterable<Buffer>;
}

export const MAX_FILES = 100;
const MAX_FIELDS = 1_000;
const MAX_FIELD_BYTES = 65_536;

/** What surrounds the files in the body. */
export const FORM_BYTES = 1_048_576;

/** Hands over one file after the other. Ends when all are taken, or with the first failure: then the rest of the form is not read. */
export function readFileForm(
  body: AsyncIterable<Buffer>,
  contentType: string,
  maxFileBytes: number,
  take: (file: FormFile) => Promise<void>,
): Promise<void> {
  return new Promise((resolve, reject) => {
    let form: BusboyInstance;
    try {
      form = new Busboy({
        headers: { 'content-type': contentType },
        limits: { files: MAX_FILES, fields: MAX_FIELDS, fieldSize: MAX_FIELD_BYTES, fileSize: maxFileBytes },
      });
    } catch {
      reject(unreadable());
      return;
    }
    const source = Readable.from(body);
    let fields: Record<string, unknown> = {};
    let current: BusboyFileStream | null = null;
    const taken: Promise<void>[] = [];
    let failed = false;
    const fail = (error: Error): void => {
      failed = true;
      source.unpipe(form);
      source.destroy();
      current?.destroy(error);
      // What was begun is ended before the caller puts it right.
      void Promise.allSettled(taken).then(() => reject(error));
    };
    form.on('field', (name, value, _, truncated) => {
      if (truncated) return fail(invalidPayload(`"${name}" is longer than ${MAX_FIELD_BYTES} bytes`));
      fields[name] = formValue(value);
    });
    form.on('file', (_, stream, name, __, type) => {
      stream.on('error', () => {});
      // The piece of the body in which the form failed is read to its end: a file that begins there would never end.
      if (failed) {
        stream.resume();
        return;
      }
      if (!name) return fail(invalidPayload('A file of the form has no file name'));
      current = stream;
      const file = { name, type, fields, bytes: bytesOf(stream, maxFileBytes) };
      fields = {};
      taken.push(
        take(file).catch((error: unknown) => {
          fail(asError(error));
          throw error;
        }),
      );
    });
    form.on('filesLimit', () => fail(invalidPayload(`The form has more than ${MAX_FILES} files`)));
    form.on('fieldsLimit', () => fail(invalidPayload(`The form has more than ${MAX_FIELDS} fields`)));
    form.on('error', () => fail(unreadable()));
    form.on('finish', () => {
      if (taken.length === 0) reject(invalidPayload('The form contains no file'));
      else Promise.all(taken).then(() => resolve(), reject);
    });
    source.on('error', fail);
    source.pipe(form);
  });
}

async function* bytesOf(stream: BusboyFileStream, maxBytes: number): AsyncIterable<Buffer> {
  for await (const piece of stream) yield piece as Buffer;
  if (stream.truncated) throw tooLarge(maxBytes);
}

/** For files that come in no form. */
export async function* atMost(bytes: AsyncIterable<Buffer>, maxBytes: number): AsyncIterable<Buffer> {
  let total = 0;
  for await (const piece of bytes) {
    total += piece.length;
    if (total > maxBytes) throw tooLarge(maxBytes);
    yield piece;
  }
}

function tooLarge(limit: number): ServiceError {
  return invalidPayload(`The file is larger than ${limit} bytes`, { option: 'FILES_MAX_UPLOAD_SIZE', limit });
}

function unreadable(): ServiceError {
  return invalidPayload('The form cannot be read');
}

/** A form has texts alone; lists and objects are written as JSON. */
function formValue(text: string): unknown {
  if (text === 'null') return null;
  if (text === 'true' || text === 'false') return text === 'true';
  return text;
}
