/**
 * Requests to plan: a recording of `lateral record`, lines of JSON, or lines such as `GET /items/articles?limit=10`. A recording names the
 * caller of each request. In the other files a request without a caller is an administrator's.
 */

import { readFile } from 'node:fs/promises';
import { UsageError } from '../base/errors.js';
import { isRecord } from '../base/narrow.js';
import { readTraffic, type RecordedRequest as TrafficRequest } from '../traffic/traffic-file.js';

export interface RecordedRequest {
  readonly method: string;
  /** With its query string. */
  readonly path: string;
  readonly body: string | null;
  readonly caller: RecordedCaller;
  /** Milliseconds that it took, or 0 if that is not known. */
  readonly ms: number;
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
  const bytes = await readFile(path).catch(() => {
    throw new UsageError(`"${path}" cannot be read`);
  });
  const isCompressed = bytes[0] === 0x1f && bytes[1] === 0x8b;
  const lines = isCompressed
    ? []
    : bytes
        .toString()
        .split('\n')
        .map((line) => line.trim());
  if (isCompressed || lines[0]?.startsWith('{"format":'))
    return (await readTraffic(path)).recorded.map(recordedRequest);
  return lines.flatMap((line, index) => {
    if (line === '' || line.startsWith('#')) return [];
    return [line.startsWith('{') ? readEntry(line, path, index + 1) : readLine(line, path, index + 1)];
  });
}

/** A request that was recorded without its values has the template of its route as its path. */
function recordedRequest({ method, path, query, body, user, role, ms }: TrafficRequest): RecordedRequest {
  const url = query === undefined ? path : `${path}?${query}`;
  return { method, path: url, body: body ?? null, caller: { user, role }, ms };
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
