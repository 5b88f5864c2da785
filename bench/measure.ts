/**
 * Measures one case: the service, PostgreSQL and each peer in turn, because the speed of a shared machine varies from minute to minute.
 * The best of the rounds counts on every side.
 */
import { propertiesOf } from '../src/base/narrow.js';
import type { Case } from './case.js';
import { findCase } from './cases.js';
import { type Ceiling, ceiling } from './ceiling.js';
import { ADMINISTRATOR } from './environment.js';
import type { LoadResult } from './load.js';
import { isSameData } from './peers/answers.js';
import type { Peer, PeerId } from './peers/peer.js';
import { READER } from './reader.js';
import {
  type Address,
  prepareRows,
  putUnderLoad,
  type Question,
  readAnswer,
  readStatement,
  type Statement,
} from './statement.js';
import { countStatements, type StatementCount, waitUntilIdle } from './statement-count.js';

export interface Measuring {
  readonly url: string;
  readonly databaseUrl: string;
  /** A service whose connections to PostgreSQL are encrypted, and the URL that encrypts them. */
  readonly secure?: { readonly url: string; readonly databaseUrl: string } | undefined;
  readonly seconds: number;
  readonly warmUp: number;
  readonly rounds: number;
  readonly connections: number;
  readonly poolSize: number;
  readonly signal: AbortSignal;
}

/** The best of all attempts. */
export interface CaseCeiling extends Ceiling {
  /** The number of pgbench's clients. */
  readonly connections: number;
  readonly tried: readonly { readonly connections: number; readonly statementsPerSecond: number }[];
}

export interface PeerResult {
  readonly load: LoadResult | null;
  /** The reason why there is no figure. */
  readonly reason: string | null;
  readonly statements?: StatementCount | null;
}

export interface CaseResult {
  readonly id: string;
  readonly title: string;
  readonly connections: number;
  /** The result, or null if the case could not be measured. */
  readonly service: LoadResult | null;
  /** The ceiling, or null if the requests have different shapes. */
  readonly ceiling: CaseCeiling | null;
  readonly ratio: number | null;
  /** The case that it is compared with, measured in the same rounds. */
  readonly beside: { readonly as: string; readonly requestsPerSecond: number; readonly ratio: number } | null;
  readonly target: number | null;
  readonly peers: Readonly<Partial<Record<PeerId, PeerResult>>>;
  /** The statements that PostgreSQL counted, or null if it could not. */
  readonly statements: StatementCount | null;
  /** An example of a request. */
  readonly request: string;
  readonly sql: string | null;
  readonly failure: string | null;
}

/** Puts a server under load for the given number of seconds. */
export type Contender = (seconds: number) => Promise<LoadResult>;

export async function measureCase(
  each: Case,
  peers: readonly Peer[],
  measuring: Measuring,
  report: (message: string) => void,
): Promise<CaseResult> {
  const connections = connectionsOf(each, measuring);
  const result = {
    id: each.id,
    title: each.title,
    connections,
    service: null,
    ceiling: null,
    ratio: null,
    beside: null,
    target: each.target ?? null,
    peers: {},
    statements: null,
    request: describeRequest(each),
    sql: null,
    failure: null,
  };
  try {
    const measured = await measureRounds(each, peers, measuring, report);
    const { service, found, beside, statement, statements } = measured;
    const ratio = found === null ? null : service.requestsPerSecond / found.statementsPerSecond;
    const failure = service.errors === 0 ? null : `${service.errors} errors under load`;
    report(`${each.title}: ${describe(service, found, ratio)}${failure === null ? '' : `: FAILED, ${failure}`}`);
    const sql = statement?.text ?? null;
    return { ...result, service, ceiling: found, ratio, beside, peers: measured.peers, statements, sql, failure };
  } catch (error) {
    if (measuring.signal.aborted) throw error;
    const failure = error instanceof Error ? error.message : String(error);
    report(`${each.title}: FAILED, ${failure}`);
    return { ...result, failure };
  }
}

export function connectionsOf(each: Case, measuring: Pick<Measuring, 'connections'>): number {
  return each.connections ?? measuring.connections;
}

/** In a shorter time no response may complete, and wrk counts only bytes of complete ones. */
const LEAST_FOR_STREAMS = 3;

/** Checks that there is a response before anything is measured. */
export async function makeContender(
  each: Question & Pick<Case, 'streamed'>,
  address: Address,
  { connections, databaseUrl, signal }: Pick<Measuring, 'connections' | 'databaseUrl' | 'signal'>,
): Promise<Contender> {
  await prepareRows(each, databaseUrl);
  const { document, bytes } = await readAnswer(each, address, signal);
  const { data } = propertiesOf(document);
  const isEmpty = typeof data !== 'object' || data === null || Object.keys(data).length === 0;
  if (isEmpty && each.method !== 'DELETE')
    throw new Error(`an empty answer: ${JSON.stringify(document).slice(0, 300)}`);
  return async (asked) => {
    await prepareRows(each, databaseUrl);
    const seconds = each.streamed ? Math.max(asked, LEAST_FOR_STREAMS) : asked;
    const measured = await putUnderLoad(each, address, { connections, seconds, signal });
    return each.streamed ? { ...measured, requestsPerSecond: measured.bytesPerSecond / bytes } : measured;
  };
}

export function addressOf(each: Pick<Case, 'restricted'>, url: string): Address {
  return { url, headers: { Authorization: `Bearer ${each.restricted ? READER : ADMINISTRATOR.token}` } };
}

/** PostgreSQL runs small statements most often with few clients, and waiting ones with many. */
const CLIENTS: readonly number[] = [8, 32];

/** The numbers of pgbench's clients; empty if there is no ceiling. */
export function clientsOf(each: Case): readonly number[] {
  return each.cold || each.restricted ? [] : (each.clients ?? CLIENTS);
}

/** A long response may not complete within so short a time. Its errors show in the measurement. */
export async function warm(contender: Contender, seconds: number, signal: AbortSignal): Promise<void> {
  try {
    if (seconds > 0) await contender(seconds);
  } catch {
    signal.throwIfAborted();
  }
}

/** Errors of all rounds count. Otherwise a round full of quick errors would be the best. */
export function betterOf(former: LoadResult | undefined, latter: LoadResult): LoadResult {
  const errors = (former?.errors ?? 0) + latter.errors;
  const best = former !== undefined && former.requestsPerSecond > latter.requestsPerSecond ? former : latter;
  return { ...best, errors };
}

interface Measured {
  readonly service: LoadResult;
  readonly found: CaseCeiling | null;
  readonly beside: CaseResult['beside'];
  readonly peers: CaseResult['peers'];
  readonly statement: Statement | null;
  readonly statements: StatementCount | null;
}

async function measureRounds(
  each: Case,
  peers: readonly Peer[],
  measuring: Measuring,
  report: (message: string) => void,
): Promise<Measured> {
  const { seconds, warmUp, rounds, signal } = measuring;
  const { url, databaseUrl } = each.tls ? secureOf(measuring) : measuring;
  const connections = connectionsOf(each, measuring);
  const clients = clientsOf(each);
  const statement = clients.length > 0 ? await readStatement(each, addressOf(each, url), databaseUrl, signal) : null;
  const load = { connections, databaseUrl, signal };
  const service = await makeContender(each, addressOf(each, url), load);
  const other = each.beside === undefined ? undefined : findCase(each.beside.id);
  const neighbour = other && (await makeContender(other, addressOf(other, measuring.url), load));
  const invited = await invitePeers(each, peers, url, load);
  const contenders = new Map<string, Contender>([
    ['service', service],
    ...(neighbour === undefined ? [] : ([['beside', neighbour]] as const)),
    ...invited.contenders,
  ]);
  const best = new Map<string, LoadResult>();
  const runAll = async (): Promise<void> => {
    for (const [name, contender] of contenders) {
      try {
        best.set(name, betterOf(best.get(name), await contender(seconds)));
      } catch (error) {
        signal.throwIfAborted();
        // A peer that fails leaves its cell empty, and the case continues.
        if (!invited.contenders.has(name as PeerId)) throw error;
        contenders.delete(name);
        best.delete(name);
        invited.absent[name] = { load: null, reason: error instanceof Error ? error.message : String(error) };
      }
    }
  };
  for (const contender of contenders.values()) await warm(contender, warmUp, signal);
  const reached = new Map<number, Ceiling>();
  for (let round = 1; round <= rounds; round++) {
    report(`${each.title}: round ${round} of ${rounds}`);
    await runAll();
    if (statement === null) continue;
    for (const count of clients) {
      await prepareRows(each, databaseUrl);
      const latest = await ceiling({ databaseUrl, ...statement, connections: count, seconds, signal });
      reached.set(count, higherOf(reached.get(count), latest));
    }
  }
  const own = best.get('service');
  if (own === undefined) throw new Error('there was no round');
  const rate = best.get('beside')?.requestsPerSecond;
  const count = (question: Question, address: Address): Promise<StatementCount | null> =>
    countOrNull(question, address, { ...measuring, connections }, report);
  const judged: [PeerId, PeerResult][] = [];
  for (const peer of peers) {
    const question = invited.contenders.has(peer.id) ? peer.questionOf(each) : null;
    if (question === null) continue;
    const statements = contenders.has(peer.id) ? await count(question, peer) : null;
    judged.push([peer.id, { ...judgePeer(best.get(peer.id)), statements }]);
  }
  return {
    service: own,
    found: chooseCeiling(reached),
    beside:
      each.beside === undefined || rate === undefined
        ? null
        : { as: each.beside.as, requestsPerSecond: rate, ratio: own.requestsPerSecond / rate },
    peers: { ...Object.fromEntries(judged), ...invited.absent },
    statement,
    statements: await count(each, addressOf(each, url)),
  };
}

function secureOf({ secure }: Measuring): { readonly url: string; readonly databaseUrl: string } {
  if (secure === undefined) throw new Error('PostgreSQL could not be given a certificate: is openssl there?');
  return secure;
}

/** If counting fails, only its cell stays empty. */
async function countOrNull(
  question: Question,
  address: Address,
  { connections, databaseUrl, signal }: Measuring,
  report: (message: string) => void,
): Promise<StatementCount | null> {
  try {
    return await countStatements(question, address, { connections, databaseUrl, signal });
  } catch (error) {
    signal.throwIfAborted();
    report(`statements were not counted: ${error instanceof Error ? error.message : error}`);
    return null;
  }
}

export function higherOf(former: Ceiling | undefined, latter: Ceiling): Ceiling {
  return former !== undefined && former.statementsPerSecond > latter.statementsPerSecond ? former : latter;
}

/** By the number of clients: the higher rate counts. */
export function chooseCeiling(reached: ReadonlyMap<number, Ceiling>): CaseCeiling | null {
  const found = [...reached].map(([connections, each]) => ({ connections, ...each }));
  const [best] = found.toSorted((one, other) => other.statementsPerSecond - one.statementsPerSecond);
  if (best === undefined) return null;
  return {
    ...best,
    tried: found.map(({ connections, statementsPerSecond }) => ({ connections, statementsPerSecond })),
  };
}

/** Measures only the peers that can express the request and return the same data. */
async function invitePeers(
  each: Case,
  peers: readonly Peer[],
  url: string,
  { connections, databaseUrl, signal }: Pick<Measuring, 'connections' | 'databaseUrl' | 'signal'>,
): Promise<{ contenders: Map<PeerId, Contender>; absent: Record<string, PeerResult> }> {
  const contenders = new Map<PeerId, Contender>();
  const absent: Record<string, PeerResult> = {};
  const asked = peers.map((peer) => [peer, peer.questionOf(each)] as const);
  if (asked.every(([, question]) => question === null)) {
    return { contenders, absent: Object.fromEntries(peers.map((peer) => [peer.id, CANNOT])) };
  }
  const { document } = await readAnswer(each, addressOf(each, url), signal);
  for (const [peer, question] of asked) {
    if (question === null) {
      absent[peer.id] = CANNOT;
      continue;
    }
    try {
      const answer = await readAnswer(question, peer, signal);
      if (!isSameData(document, answer.document)) {
        throw new Error(`answers with other data: ${JSON.stringify(answer.document).slice(0, 200)}`);
      }
      contenders.set(peer.id, (seconds) =>
        putUnderLoad(question, peer, { connections, seconds, signal }).finally(() => waitUntilIdle(databaseUrl)),
      );
    } catch (error) {
      signal.throwIfAborted();
      absent[peer.id] = { load: null, reason: error instanceof Error ? error.message : String(error) };
    }
  }
  return { contenders, absent };
}

const CANNOT: PeerResult = { load: null, reason: 'cannot be asked this' };

function judgePeer(load: LoadResult | undefined): PeerResult {
  if (load === undefined) return { load: null, reason: 'was not measured' };
  return load.errors === 0 ? { load, reason: null } : { load: null, reason: `${load.errors} errors under load` };
}

const LONGEST_BODY = 600;

function describeRequest(each: Case): string {
  const request = typeof each.requests === 'function' ? undefined : each.requests[0];
  if (request === undefined) return '';
  const { path, body = '' } = request;
  const shown = body.length > LONGEST_BODY ? `${body.slice(0, LONGEST_BODY)} …` : body;
  return `${each.method ?? 'GET'} ${path}${shown && `\n${shown}`}`;
}

function describe(service: LoadResult, found: CaseCeiling | null, ratio: number | null): string {
  const rate = `${service.requestsPerSecond.toFixed(1)} requests/s`;
  if (found === null || ratio === null) return rate;
  return `${rate} of ${found.statementsPerSecond.toFixed(1)} (${(ratio * 100).toFixed(0)} %)`;
}
