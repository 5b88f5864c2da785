/**
 * The requests of a case, and the one statement that the service compiles from them: the ceiling runs this text with the values of all
 * requests.
 */
import postgres from 'postgres';
import { type BenchRequest, type Case, isWrite, requestsOf } from './case.js';
import { type LoadResult, measure } from './load.js';
import type { OpenLoopOptions } from './open-loop.js';
import { compileWrites, type Explained } from './writes.js';

/** A server under load: the service, a service of another revision, or a peer. */
export interface Address {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

export interface Statement {
  readonly text: string;
  readonly parameters: readonly (readonly (string | null)[])[];
  /** The statement without values that follows it in the same transaction. */
  readonly after?: string;
  /** Two that change the same rows would wait for each other. */
  readonly exclusive: boolean;
}

export type Question = Pick<Case, 'method' | 'requests' | 'prepare'>;

export interface Load {
  readonly connections: number;
  readonly seconds: number;
  readonly signal: AbortSignal;
}

export function putUnderLoad(question: Question, { url, headers }: Address, load: Load): Promise<LoadResult> {
  const requests = requestsOf(question);
  const bodies = requests.map((request) => request.body ?? '');
  return measure({
    url,
    paths: requests.map((request) => encodePath(request.path)),
    headers: headersFor(question, headers),
    ...load,
    ...(question.method === undefined ? {} : { method: question.method, bodies }),
  });
}

/** Runs the SQL that a case needs before each of its measurements. */
export async function prepareRows({ prepare }: Pick<Case, 'prepare'>, databaseUrl: string): Promise<void> {
  if (prepare === undefined) return;
  const sql = postgres(databaseUrl, { max: 1, fetch_types: false, onnotice: () => undefined });
  await sql
    .unsafe(prepare)
    .simple()
    .finally(() => sql.end({ timeout: 5 }));
}

/** All requests as they are sent. */
export function sentTo(
  question: Question,
  { url, headers }: Address,
): Pick<OpenLoopOptions, 'url' | 'method' | 'headers' | 'requests'> {
  return {
    url,
    method: question.method ?? 'GET',
    headers: headersFor(question, headers),
    requests: requestsOf(question).map((request) => ({ ...request, path: encodePath(request.path) })),
  };
}

/** The first request of a case and its response, null for 204. Without this check, a case with quick errors would look fast. */
export async function readAnswer(
  question: Question,
  address: Address,
  signal: AbortSignal,
): Promise<{ readonly document: unknown; readonly bytes: number }> {
  const [request] = requestsOf(question);
  if (request === undefined) throw new Error('there is no request');
  const response = await send(question, request, address, signal);
  const text = await response.text();
  if (!response.ok) throw new Error(`status ${response.status}: ${text.slice(0, 300)}`);
  const document: unknown = response.status === NO_CONTENT ? null : JSON.parse(text);
  return { document, bytes: Buffer.byteLength(text) };
}

const NO_CONTENT = 204;

/** One text for all requests, or there would be no single ceiling. */
export async function readStatement(
  each: Case,
  address: Address,
  databaseUrl: string,
  signal: AbortSignal,
): Promise<Statement> {
  // Without values there is nothing that two of them could both change.
  if (each.plain) return { ...each.plain, exclusive: each.plain.parameters.length > 0 };
  if (!isWrite(each)) return { ...sameStatement(await explainAll(each, address, signal)), exclusive: false };
  const writes = await compileWrites(databaseUrl, requestsOf(each));
  const after = writes[0]?.readBack ?? null;
  return { ...sameStatement(writes), ...(after === null ? {} : { after }), exclusive: true };
}

function sameStatement(explained: readonly Explained[]): Pick<Statement, 'text' | 'parameters'> {
  const text = explained[0]?.sql ?? '';
  if (text === '' || explained.some((other) => other.sql !== text)) {
    throw new Error('the requests of the case do not lead to one statement');
  }
  return { text, parameters: explained.map((other) => other.parameters) };
}

const EXPLAINED_AT_ONCE = 8;
const MOST_EXPLAINED = 1_000;

/** The service shows its statement. If there are more requests, the first ones are enough to vary the values. */
async function explainAll(each: Case, address: Address, signal: AbortSignal): Promise<readonly Explained[]> {
  const requests = requestsOf(each).slice(0, MOST_EXPLAINED);
  const explained: Explained[] = [];
  for (let start = 0; start < requests.length; start += EXPLAINED_AT_ONCE) {
    signal.throwIfAborted();
    const some = requests.slice(start, start + EXPLAINED_AT_ONCE);
    explained.push(...(await Promise.all(some.map((request) => explain(each, request, address, signal)))));
  }
  return explained;
}

async function explain(
  question: Question,
  request: BenchRequest,
  { url, headers }: Address,
  signal: AbortSignal,
): Promise<Explained> {
  const response = await send(question, request, { url, headers: { ...headers, Prefer: 'explain' } }, signal);
  const text = await response.text();
  if (response.status !== 200) throw new Error(`explain: status ${response.status}: ${text.slice(0, 300)}`);
  return (JSON.parse(text) as { data: Explained }).data;
}

function send(
  question: Question,
  { path, body }: BenchRequest,
  { url, headers }: Address,
  signal: AbortSignal,
): Promise<Response> {
  return fetch(`${url}${encodePath(path)}`, {
    method: question.method ?? 'GET',
    headers: headersFor(question, headers),
    ...(body === undefined ? {} : { body }),
    signal: AbortSignal.any([signal, AbortSignal.timeout(60_000)]),
  });
}

function headersFor({ method }: Question, headers: Address['headers']): Record<string, string> {
  return method === undefined ? { ...headers } : { ...headers, 'Content-Type': 'application/json' };
}

/** As a browser sends it: brackets stay, and characters that are invalid in a URL are escaped. */
function encodePath(path: string): string {
  return encodeURI(path).replaceAll('%5B', '[').replaceAll('%5D', ']');
}
