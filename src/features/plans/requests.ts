/**
 * Requests to plan: a recording of `lateral record`, lines of JSON, or lines such as `GET /items/articles?limit=10`. A recording names the
 * caller of each request. In the other files a request without a caller is an administrator's.
 */

import { open, readFile } from 'node:fs/promises';
import { UsageError } from '../../base/errors.js';
import { isRecord, messageOf } from '../../base/narrow.js';
import { readTraffic, type RecordedRequest as TrafficRequest } from '../traffic/traffic-file.js';

export interface RecordedRequest {
  readonly method: string;
  /** With its query string. */
  readonly path: string;
  readonly body: string | null;
  readonly caller: RecordedCaller;
  /** Milliseconds that it took, or 0 if that is not known. */
  readonly ms: number;
  /** Whether it was recorded without its values: the path is the template of its route. */
  readonly isOmitted?: boolean;
}

/** With neither a user nor a role it is the public; null for an administrator. */
export type RecordedCaller = { readonly user: string | null; readonly role: string | null } | null;

/** Throws if it has none. */
export async function readRequests(path: string): Promise<readonly RecordedRequest[]> {
  const requests = await readAny(path);
  if (requests.length === 0) throw new UsageError(`"${path}" has no requests: make a recording with lateral record`);
  return requests;
}

async function readAny(path: string): Promise<readonly RecordedRequest[]> {
  const begin = await readBegin(path).catch((error: unknown) => {
    throw new UsageError(`"${path}" cannot be read: ${messageOf(error)}`);
  });
  if (begin.startsWith(GZIP_MAGIC) || begin.startsWith('{"format":'))
    return (await readTraffic(path)).recorded.map(recordedRequest);
  const lines = (await readFile(path, 'utf8')).split('\n').map((line) => line.trim());
  return lines.flatMap((line, index) => {
    if (line === '' || line.startsWith('#')) return [];
    return [line.startsWith('{') ? readEntry(line, path, index + 1) : readLine(line, path, index + 1)];
  });
}

const GZIP_MAGIC = '\x1f\x8b';

/** A recording may be too large to be read at once. */
async function readBegin(path: string): Promise<string> {
  const file = await open(path);
  try {
    const { bytesRead, buffer } = await file.read(Buffer.alloc(16));
    return buffer.toString('latin1', 0, bytesRead);
  } finally {
    await file.close();
  }
}

function recordedRequest({ method, path, query, body, user, role, ms, omitted }: TrafficRequest): RecordedRequest {
  const url = query === undefined ? path : `${path}?${query}`;
  const request = { method, path: url, body: body ?? null, caller: { user, role }, ms };
  return omitted === undefined ? request : { ...request, isOmitted: true };
}

function propertyOf(line: string, path: string, number: number): Readonly<Record<string, unknown>> {
  try {
    const entry: unknown = JSON.parse(line);
    if (isRecord(entry)) return entry;
  } catch {}
  throw new UsageError(`"${path}", line ${number}: it is neither a recording of lateral record nor a request in JSON`);
}

function readEntry(line: string, file: string, number: number): RecordedRequest {
  const entry = propertyOf(line, file, number);
  const { method, path, body, ms } = entry;
  if (typeof method !== 'string' || typeof path !== 'string')
    throw new UsageError(`"${file}", line ${number}: it is no recording, and a request needs a "method" and a "path"`);
  const text = (name: string): string | null => (typeof entry[name] === 'string' ? String(entry[name]) : null);
  return {
    method: method.toUpperCase(),
    path,
    body: body === undefined || body === null ? null : typeof body === 'string' ? body : JSON.stringify(body),
    caller: 'user' in entry || 'role' in entry ? { user: text('user'), role: text('role') } : null,
    ms: typeof ms === 'number' ? ms : 0,
  };
}

function readLine(line: string, path: string, number: number): RecordedRequest {
  const [, method = '', target = '', body = null] = /^(?:([A-Z]+)\s+)?(\/\S*)(?:\s+(\{.*\}))?$/.exec(line) ?? [];
  if (target === '')
    throw new UsageError(
      `"${path}", line ${number}: expected a request such as "GET /items/articles?limit=10" (a space in it is %20), found "${line.slice(0, 60)}"`,
    );
  return { method: method === '' ? 'GET' : method, path: target, body, caller: null, ms: 0 };
}
