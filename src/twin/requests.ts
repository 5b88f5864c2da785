/**
 * Requests to plan: a recording of `lateral record`, lines of JSON, or lines such as `GET /items/articles?limit=10`. A recording names the
 * caller of each request. In the other files a request without a caller is an administrator's.
 */
import { readFile } from 'node:fs/promises';
import { gunzipSync } from 'node:zlib';
import { StartError } from '../base/errors.js';
import { isRecord } from '../base/narrow.js';

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

const TRAFFIC_FORMAT = 'lateral-traffic';

export async function readRequests(path: string): Promise<readonly RecordedRequest[]> {
  const bytes = await readFile(path).catch(() => {
    throw new StartError(`"${path}" cannot be read`);
  });
  const lines = textOf(bytes, path)
    .split('\n')
    .map((line) => line.trim());
  const [first = ''] = lines;
  const isRecording = first.startsWith('{') && propertyOf(first, path, 1)['format'] === TRAFFIC_FORMAT;
  return lines.flatMap((line, index) => {
    if (line === '' || line.startsWith('#') || (isRecording && index === 0)) return [];
    if (line.startsWith('{')) return readEntry(propertyOf(line, path, index + 1), isRecording) ?? [];
    return [readLine(line, path, index + 1)];
  });
}

function textOf(bytes: Buffer, path: string): string {
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes.toString();
  try {
    return gunzipSync(bytes).toString();
  } catch {
    throw new StartError(`"${path}" is damaged: it cannot be decompressed`);
  }
}

function propertyOf(line: string, path: string, number: number): Readonly<Record<string, unknown>> {
  try {
    const entry: unknown = JSON.parse(line);
    if (isRecord(entry)) return entry;
  } catch {}
  throw new StartError(`"${path}", line ${number}: it is not JSON`);
}

/** Entries without a request, such as those that a later version adds, are left out. */
function readEntry(entry: Readonly<Record<string, unknown>>, isRecording: boolean): RecordedRequest | null {
  const { method, path, body } = entry;
  if (typeof method !== 'string' || typeof path !== 'string') return null;
  const text = (name: string): string | null => (typeof entry[name] === 'string' ? String(entry[name]) : null);
  const isNamed = 'user' in entry || 'role' in entry;
  return {
    method: method.toUpperCase(),
    path,
    body: body === undefined || body === null ? null : typeof body === 'string' ? body : JSON.stringify(body),
    caller: isRecording || isNamed ? { user: text('user'), role: text('role') } : null,
    ms: millisecondsOf(entry['ms']),
  };
}

/** A number, or one for each stage. */
function millisecondsOf(value: unknown): number {
  if (typeof value === 'number') return value;
  if (!isRecord(value)) return 0;
  if (typeof value['total'] === 'number') return value['total'];
  return Object.values(value).reduce<number>((sum, each) => sum + (typeof each === 'number' ? each : 0), 0);
}

function readLine(line: string, path: string, number: number): RecordedRequest {
  const [, method = '', target = '', body = null] = /^(?:([A-Z]+)\s+)?(\/\S*)(?:\s+(\{.*\}))?$/.exec(line) ?? [];
  if (target === '')
    throw new StartError(
      `"${path}", line ${number}: expected a request such as "GET /items/articles?limit=10", found "${line.slice(0, 60)}"`,
    );
  return { method: method === '' ? 'GET' : method, path: target, body, caller: null, ms: 0 };
}
