/**
 * One case: what the service does and what PostgreSQL does, in turn, because a shared machine is not the same from one
 * minute to the next. The best of the rounds counts on both sides.
 */
import { type BenchRequest, type Case, isWrite } from './cases.js';
import { type Ceiling, ceiling } from './ceiling.js';
import { type LoadResult, measure } from './load.js';
import { compileWrites } from './writes.js';

export interface Measuring {
  readonly url: string;
  readonly databaseUrl: string;
  readonly token: string;
  /** Of somebody who may not see everything. */
  readonly readerToken: string;
  readonly seconds: number;
  readonly warmUp: number;
  readonly rounds: number;
  readonly connections: number;
  readonly poolSize: number;
  readonly signal: AbortSignal;
}

export interface CaseCeiling extends Ceiling {
  /** With how many connections it was reached, and how far others came. */
  readonly connections: number;
  readonly tried: readonly { readonly connections: number; readonly statementsPerSecond: number }[];
}

export interface CaseResult {
  readonly id: string;
  readonly title: string;
  /** Null when the case could not be measured. */
  readonly service: LoadResult | null;
  /** Null for requests of different shapes. */
  readonly ceiling: CaseCeiling | null;
  readonly ratio: number | null;
  readonly sql: string | null;
  readonly failure: string | null;
}

export async function measureCase(
  each: Case,
  measuring: Measuring,
  report: (message: string) => void,
): Promise<CaseResult> {
  const { id, title } = each;
  try {
    const size = await checkAnswer(each, measuring);
    const statement = each.cold || each.restricted ? null : await readStatement(each, measuring);
    const { service: measured, ceilings } = await measureRounds(each, statement, measuring, report);
    const service = each.streamed ? { ...measured, requestsPerSecond: measured.bytesPerSecond / size } : measured;
    const [best] = [...ceilings].sort((one, other) => other.statementsPerSecond - one.statementsPerSecond);
    const found = best === undefined ? null : { ...best, tried: ceilings.map(withoutTool) };
    const ratio = found === null ? null : service.requestsPerSecond / found.statementsPerSecond;
    const failure = service.errors === 0 ? null : `${service.errors} errors under load`;
    report(`${title}: ${describe(service, found, ratio, each)}${failure === null ? '' : `: FAILED, ${failure}`}`);
    return { id, title, service, ceiling: found, ratio, sql: statement?.text ?? null, failure };
  } catch (error) {
    if (measuring.signal.aborted) throw error;
    const failure = error instanceof Error ? error.message : String(error);
    report(`${title}: FAILED, ${failure}`);
    return { id, title, service: null, ceiling: null, ratio: null, sql: null, failure };
  }
}

interface Statement {
  readonly text: string;
  readonly parameters: readonly (readonly (string | null)[])[];
  readonly exclusive: boolean;
}

interface MeasuredCeiling extends Ceiling {
  readonly connections: number;
}

async function measureRounds(
  each: Case,
  statement: Statement | null,
  measuring: Measuring,
  report: (message: string) => void,
): Promise<{ service: LoadResult; ceilings: readonly MeasuredCeiling[] }> {
  const { url, databaseUrl, seconds, rounds, signal } = measuring;
  const connections = each.connections ?? measuring.connections;
  const loadFor = (length: number, as: Case = each): Promise<LoadResult> => {
    const requests = requestsOf(each);
    const bodies = requests.map((request) => request.body ?? '');
    return measure({
      url,
      paths: requests.map((request) => encodePath(request.path)),
      headers: headersOf(as, measuring),
      connections,
      seconds: length,
      signal,
      ...(each.method === undefined ? {} : { method: each.method, bodies }),
    });
  };
  if (measuring.warmUp > 0) await loadFor(measuring.warmUp);
  let service: LoadResult | null = null;
  let errors = 0;
  const ceilings = new Map<number, MeasuredCeiling>();
  for (let round = 1; round <= rounds; round++) {
    report(`${each.title}: round ${round} of ${rounds}`);
    const measured = await loadFor(seconds);
    errors += measured.errors;
    if (service === null || measured.requestsPerSecond > service.requestsPerSecond) service = measured;
    if (each.restricted) {
      const { restricted: _, ...unrestricted } = each;
      const { requestsPerSecond } = await loadFor(seconds, unrestricted);
      const former = ceilings.get(connections)?.statementsPerSecond ?? 0;
      const reached = Math.max(former, requestsPerSecond);
      ceilings.set(connections, { statementsPerSecond: reached, tool: 'the administrator', connections });
    }
    if (statement === null) continue;
    for (const count of new Set([each.connections ?? measuring.poolSize, connections])) {
      const reached = await ceiling({ databaseUrl, ...statement, connections: count, seconds, signal });
      const former = ceilings.get(count);
      if (former === undefined || reached.statementsPerSecond > former.statementsPerSecond) {
        ceilings.set(count, { ...reached, connections: count });
      }
    }
  }
  if (service === null) throw new Error('there was no round');
  return { service: { ...service, errors }, ceilings: [...ceilings.values()] };
}

/** A case that measures how fast nothing is answered would look good. Answers the size of an answer. */
async function checkAnswer(each: Case, measuring: Measuring): Promise<number> {
  const [request] = requestsOf(each);
  if (request === undefined) throw new Error('there is no request');
  const response = await send(each, request, measuring, {});
  const text = await response.text();
  if (response.status !== 200) throw new Error(`status ${response.status}: ${text.slice(0, 300)}`);
  const { data } = JSON.parse(text) as { data: unknown };
  const isEmpty = data === null || typeof data !== 'object' || Object.keys(data).length === 0;
  if (isEmpty) throw new Error(`an empty answer: ${text.slice(0, 300)}`);
  return Buffer.byteLength(text);
}

/** One text for all requests, or there would be no one ceiling. */
async function readStatement(each: Case, measuring: Measuring): Promise<Statement> {
  const explained = isWrite(each)
    ? await compileWrites(measuring.databaseUrl, requestsOf(each))
    : await explainAll(each, measuring);
  const text = explained[0]?.sql ?? '';
  if (text === '' || explained.some((other) => other.sql !== text)) {
    throw new Error('the requests of the case do not lead to one statement');
  }
  return { text, parameters: explained.map((other) => other.parameters), exclusive: isWrite(each) };
}

/** The service says what it runs. */
async function explainAll(each: Case, measuring: Measuring): Promise<readonly Explained[]> {
  const requests = requestsOf(each);
  const explained: Explained[] = [];
  for (let start = 0; start < requests.length; start += EXPLAINED_AT_ONCE) {
    measuring.signal.throwIfAborted();
    const some = requests.slice(start, start + EXPLAINED_AT_ONCE);
    explained.push(...(await Promise.all(some.map((request) => explain(each, request, measuring)))));
  }
  return explained;
}

const EXPLAINED_AT_ONCE = 8;

export interface Explained {
  readonly sql: string;
  readonly parameters: readonly (string | null)[];
}

async function explain(each: Case, request: BenchRequest, measuring: Measuring): Promise<Explained> {
  const response = await send(each, request, measuring, { Prefer: 'explain' });
  const text = await response.text();
  if (response.status !== 200) throw new Error(`explain: status ${response.status}: ${text.slice(0, 300)}`);
  return (JSON.parse(text) as { data: Explained }).data;
}

function send(
  each: Case,
  { path, body }: BenchRequest,
  measuring: Measuring,
  headers: Record<string, string>,
): Promise<Response> {
  return fetch(`${measuring.url}${encodePath(path)}`, {
    method: each.method ?? 'GET',
    headers: { ...headersOf(each, measuring), ...headers },
    ...(body === undefined ? {} : { body }),
    signal: AbortSignal.any([measuring.signal, AbortSignal.timeout(60_000)]),
  });
}

function headersOf(each: Case, { token, readerToken }: Measuring): Record<string, string> {
  const authorization = { Authorization: `Bearer ${each.restricted ? readerToken : token}` };
  return each.method === undefined ? authorization : { ...authorization, 'Content-Type': 'application/json' };
}

function requestsOf({ requests }: Case): readonly BenchRequest[] {
  return typeof requests === 'function' ? requests() : requests;
}

/** As a browser sends it: brackets stay, what no URL may hold is escaped. */
function encodePath(path: string): string {
  return encodeURI(path).replaceAll('%5B', '[').replaceAll('%5D', ']');
}

function withoutTool({ connections, statementsPerSecond }: MeasuredCeiling): CaseCeiling['tried'][number] {
  return { connections, statementsPerSecond };
}

function describe(service: LoadResult, found: CaseCeiling | null, ratio: number | null, each: Case): string {
  const rate = `${service.requestsPerSecond.toFixed(1)} requests/s`;
  if (each.cold) return `${rate}, ${(1000 / service.requestsPerSecond).toFixed(2)} ms per shape`;
  if (found === null || ratio === null) return rate;
  return `${rate} of ${found.statementsPerSecond.toFixed(1)} (${(ratio * 100).toFixed(0)} %)`;
}
