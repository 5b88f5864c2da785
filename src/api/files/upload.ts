/** The file of a multipart form, as it arrives. */
import { PassThrough, Readable } from 'node:stream';
import { invalidPayload } from '../../base/errors.js';
import type { Config } from '../../config/config.js';
import type { BodyLimits } from '../../http/body.js';
import { openForm, unreadable } from './file-form.js';

export interface Upload {
  readonly bytes: AsyncIterable<Buffer>;
  readonly type: string;
}

export function importLimits({ IMPORT_MAX_FILE_SIZE, BODY_TIMEOUT }: Config): BodyLimits {
  return { bytes: IMPORT_MAX_FILE_SIZE, option: 'IMPORT_MAX_FILE_SIZE', pauseMs: BODY_TIMEOUT };
}

/** Resolves at the first file; its bytes follow as they are read. */
export function openUpload(body: AsyncIterable<Buffer>, contentType: string): Promise<Upload> {
  return new Promise((resolve, reject) => {
    const form = openForm(contentType);
    const bytes = new PassThrough();
    // A reader of the bytes gets the failure there; before that the promise is rejected.
    bytes.on('error', () => {});
    let hasFile = false;
    const fail = (error: Error): void => {
      reject(error);
      bytes.destroy(error);
    };
    form.on('file', (_, file, name, ...[, type]) => {
      if (hasFile) {
        file.resume();
        return;
      }
      hasFile = true;
      file.on('error', fail);
      file.pipe(bytes);
      resolve({ bytes, type: typeOf(type, name) });
    });
    form.on('error', () => fail(unreadable()));
    form.on('finish', () => {
      if (!hasFile) reject(invalidPayload('The form contains no file'));
    });
    const source = Readable.from(body);
    source.on('error', fail);
    source.pipe(form);
  });
}

/** Browsers and tools often send a general type: then the ending of the name says more. */
function typeOf(type: string, name: string): string {
  if (type !== 'application/octet-stream' && type !== 'text/plain') return type;
  const ending = /\.(json|ndjson|jsonl|csv)$/i.exec(name)?.[1]?.toLowerCase();
  return ending === 'csv'
    ? 'text/csv'
    : ending === 'json'
      ? 'application/json'
      : ending
        ? 'application/x-ndjson'
        : type;
}
