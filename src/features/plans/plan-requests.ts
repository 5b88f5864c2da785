/**
 * Plans requests on the twin: each with the compiler of the service, the permissions of its caller and the kind of plan that the service
 * would choose for its values. Requests that differ in values alone have one shape, and one plan for each kind (docs/decisions/plans-per-value.md).
 */

import { createHash } from 'node:crypto';
import { ServiceError } from '../../base/errors.js';
import { parseJson } from '../../base/exact-json.js';
import { isRecord, messageOf } from '../../base/narrow.js';
import { isDatabaseFailure, isUnavailable } from '../../base/sqlstate.js';
import type { Operations } from '../../compiler/graphql/operations.js';
import { parseRead, parseRpc, parseSearch } from '../../compiler/request/rest.js';
import { quoteIdentifier } from '../../compiler/sql/fragment.js';
import type { ReadQuery } from '../../compiler/statements/read.js';
import { isVolatile } from '../../compiler/statements/read.js';
import { cachedIdentity } from '../../server/access/account.js';
import { CLI_IDENTITY, type Identity } from '../../server/access/identity.js';
import { lookUpAccount } from '../../server/accounts/accounts.js';
import { createOperations } from '../../server/api/graphql/create-operations.js';
import { isConstant, parseAsCaller } from '../../server/api/graphql/operation.js';
import type { PlanKind } from '../../server/batching/shape-stats.js';
import { parseLimits } from '../../server/config/parse-limits.js';
import { planKindOf } from '../../server/execute/reads/read-executor.js';
import type { ChosenShape, PreparedRead } from '../../server/execute/reads/reads.js';
import { NO_CLIENT } from '../../server/execute/stages.js';
import { explainCustom, explainGeneric, type PlanNode } from '../../server/postgres/generic-plan.js';
import type { RecordedCaller, RecordedRequest } from './requests.js';
import type { Twin } from './twin.js';

/** The requests of one shape whose values get the same kind of plan. The first one represents them. */
export interface PlannedClass {
  /** A digest of the shape and the role. */
  readonly id: string;
  readonly request: RecordedRequest;
  /** The role, "public" or "administrator". */
  readonly role: string;
  readonly kind: PlanKind;
  readonly read: PreparedRead;
  readonly sent: ChosenShape;
  readonly plan: PlanNode;
  /** The planner's estimate for the values of the request. */
  readonly cost: number;
  readonly calls: number;
  readonly ms: number;
}

export interface UnplannedRequest {
  readonly request: RecordedRequest;
  readonly reason: string;
  readonly calls: number;
}

interface PlannedRequests {
  readonly planned: readonly PlannedClass[];
  readonly unplanned: readonly UnplannedRequest[];
}

/** Different values of one shape that are examined. */
const MAX_VALUES = 100;

/** Requests with the same text. */
interface Repeated {
  readonly request: RecordedRequest;
  calls: number;
  ms: number;
}

export class RequestPlanner {
  readonly #operations: Operations;
  readonly #callers = new Map<string, Promise<Identity>>();
  readonly #roles: ReadonlyMap<string, string>;

  constructor(private readonly twin: Pick<Twin, 'core' | 'config' | 'statistics'>) {
    this.#operations = createOperations(twin.config, []);
    this.#roles = new Map(
      rowsOf(twin.statistics.metadata['service_roles']).map(({ id, name }) => [`${id}`, `${name}`]),
    );
  }

  async planAll(
    requests: readonly RecordedRequest[],
    onProgress: (done: number, all: number) => void = () => {},
  ): Promise<PlannedRequests> {
    const repeated = repetitions(requests);
    const classes = new Map<string, PlannedClass>();
    const values = new Map<string, number>();
    const unplanned: UnplannedRequest[] = [];
    let done = 0;
    for (const each of repeated) {
      onProgress(++done, repeated.length);
      try {
        const read = await this.#prepare(each.request);
        const count = (values.get(read.id) ?? 0) + 1;
        values.set(read.id, count);
        const sent = count > MAX_VALUES ? null : await this.twin.core.reads.chosenShape(read);
        const key = sent
          ? `${read.id} ${planKindOf(sent.shape)}`
          : ([...classes.keys()].find((name) => name.startsWith(read.id)) ?? '');
        const known = classes.get(key);
        if (known) classes.set(key, { ...known, calls: known.calls + each.calls, ms: known.ms + each.ms });
        else if (sent) classes.set(key, { ...(await this.#explain(read, sent)), calls: each.calls, ms: each.ms });
      } catch (error) {
        unplanned.push({ request: each.request, reason: reasonOf(error), calls: each.calls });
      }
    }
    return { planned: [...classes.values()], unplanned };
  }

  /** Throws if the service would refuse the request, or if it is not a read of items. */
  async plan(request: RecordedRequest): Promise<PlannedClass> {
    const read = await this.#prepare(request);
    return { ...(await this.#explain(read, await this.twin.core.reads.chosenShape(read))), calls: 1, ms: request.ms };
  }

  async #explain(read: PreparedRequest, sent: ChosenShape): Promise<Omit<PlannedClass, 'calls' | 'ms'>> {
    const { id, request, role, ...prepared } = read;
    const explained = await explainSent(this.twin, sent);
    return { id, request, role, read: prepared, sent, kind: planKindOf(sent.shape), ...explained };
  }

  async #prepare(request: RecordedRequest): Promise<PreparedRequest> {
    if (request.isOmitted) throw new NotPlanned('it was recorded without its values');
    const caller = await this.#callerOf(request.caller);
    const query = await this.#parse(request, caller);
    const compiled = this.twin.core.reads.compile(query, caller);
    if (isVolatile(compiled)) throw new NotPlanned('it calls a function that may write');
    const role = this.#roleOf(request.caller, caller);
    const id = createHash('sha256').update(`${role} ${query.shape}`).digest('hex').slice(0, 12);
    return { id, request, role, query, caller, compiled };
  }

  #roleOf(recorded: RecordedCaller, { administrator, role }: Identity): string {
    if (recorded === null || administrator) return 'administrator';
    return role === null ? 'public' : (this.#roles.get(role) ?? role);
  }

  /** The twin has no users: one that has sent requests is created with its role. */
  #callerOf(recorded: RecordedCaller): Promise<Identity> {
    if (recorded === null) return Promise.resolve(CLI_IDENTITY);
    const key = JSON.stringify(recorded);
    const known = this.#callers.get(key) ?? this.#findCaller(recorded);
    this.#callers.set(key, known);
    return known;
  }

  async #findCaller({ user, role }: NonNullable<RecordedCaller>): Promise<Identity> {
    const unknown = [user, role].find((id) => id !== null && !UUID.test(id));
    if (unknown) throw new NotPlanned(`a caller is named by ids of users and roles, and "${unknown}" is no UUID`);
    const { database } = this.twin.core;
    if (user !== null) {
      const users = `${quoteIdentifier(database.system)}.service_users`;
      await database.own.use((session) =>
        session.transaction(async () => {
          await session.query("set local session_replication_role = 'replica'");
          await session.query(`insert into ${users} (id, role) values ($1::uuid, $2::uuid) on conflict do nothing`, [
            user,
            role,
          ]);
        }),
      );
    }
    const account = await lookUpAccount(
      database,
      user !== null
        ? { kind: 'user', user, session: null }
        : role !== null
          ? { kind: 'role', role }
          : { kind: 'public' },
    );
    if (!account) throw new NotPlanned(`the statistics do not know the role ${role}`);
    const { identity } = cachedIdentity(account, { session: null, expires: Number.POSITIVE_INFINITY, staleness: 0 });
    return typeof identity === 'function' ? identity('127.0.0.1') : identity;
  }

  async #parse(request: RecordedRequest, caller: Identity): Promise<ReadQuery> {
    const { method, path } = request;
    const limits = parseLimits(this.twin.config);
    const [route = '', queryString = ''] = path.split(/\?(.*)/s);
    const [, kind, name = '', key] = /^\/(items|rpc)\/([^/]+)(?:\/([^/]+))?$/.exec(route) ?? [];
    if (/^\/graphql(\/system)?$/.test(route)) return this.#parseDocument(request, queryString, caller);
    const isGet = method === 'GET' || method === 'HEAD';
    if (kind === 'items' && isGet)
      return parseRead(
        decodeURIComponent(name),
        key === undefined ? null : decodeURIComponent(key),
        queryString,
        limits,
      );
    if (kind === 'items' && method === 'SEARCH')
      return parseSearch(decodeURIComponent(name), parseJson(request.body ?? '{}'), queryString, limits);
    if (kind === 'rpc' && isGet) return parseRpc(decodeURIComponent(name), undefined, queryString, limits);
    throw new NotPlanned(isGet || method === 'SEARCH' ? 'it is not a read of items' : 'it is a write');
  }

  async #parseDocument({ path, body }: RecordedRequest, queryString: string, caller: Identity): Promise<ReadQuery> {
    const { policies, mirror, reads } = this.twin.core;
    const sent = body === null ? Object.fromEntries(new URLSearchParams(queryString)) : parseJson(body);
    const { query, variables, operationName } = isRecord(sent) ? sent : {};
    if (typeof query !== 'string') throw new NotPlanned('it has no GraphQL document');
    const given = typeof variables === 'string' ? parseJson(variables) : variables;
    const document = await parseAsCaller(
      {
        text: query,
        operationName: typeof operationName === 'string' ? operationName : null,
        variables: isRecord(given) ? { ...given } : {},
        safe: false,
        scope: path.startsWith('/graphql/system') ? 'system' : 'items',
      },
      caller,
      NO_CLIENT,
      { operations: this.#operations, policies, mirror, reads },
    );
    if (document.kind === 'mutation') throw new NotPlanned('it is a write');
    if (document.kind !== 'query' || isConstant(document.parsed)) throw new NotPlanned('it is not a read of items');
    return document.parsed;
  }
}

interface PreparedRequest extends PreparedRead {
  readonly id: string;
  readonly request: RecordedRequest;
  readonly role: string;
}

/**
 * The plan as the service would have it made: once for all values, or for these. The generic plan of a fenced read is used for rare values
 * alone, so that its cost is estimated for the values.
 */
export async function explainSent(
  { core: { database } }: Pick<Twin, 'core'>,
  { shape, values }: ChosenShape,
): Promise<{ readonly plan: PlanNode; readonly cost: number }> {
  const { text, parameters } = shape.statement;
  const isForValues = shape.isPlannedPerRead === true || shape.isUnprepared === true;
  const custom = isForValues || shape.isFenced ? await explainCustom(database, text, values) : null;
  const plan = custom !== null && isForValues ? custom : await explainGeneric(database, { text, parameters });
  return { plan, cost: (custom ?? plan)['Total Cost'] };
}

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** A request that is no read of items. */
class NotPlanned extends Error {}

/** The messages of errors as GraphQL reports them. */
function messagesOf(errors: unknown): string {
  const list: readonly unknown[] = Array.isArray(errors) ? errors : [errors];
  return list.map((each) => messageOf(each)).join('; ');
}

/** Why a request has no plan. Throws an error that is not about the request, such as a lost connection. */
export function reasonOf(error: unknown): string {
  if (error instanceof NotPlanned) return error.message;
  if (isUnavailable(error)) throw error;
  if (error instanceof ServiceError) return `the service refuses it: ${error.message}`;
  // E.g. a value that does not fit its type, or a function that does not exist.
  if (isDatabaseFailure(error)) return `PostgreSQL refuses it: ${messageOf(error)}`;
  if (error instanceof SyntaxError || error instanceof URIError) return `it cannot be read: ${error.message}`;
  if (error instanceof Error && 'errors' in error) return `the service refuses it: ${messagesOf(error.errors)}`;
  throw error;
}

function repetitions(requests: readonly RecordedRequest[]): readonly Repeated[] {
  const found = new Map<string, Repeated>();
  for (const request of requests) {
    const key = JSON.stringify([request.method, request.path, request.body, request.caller]);
    const known = found.get(key);
    if (known) {
      known.calls++;
      known.ms += request.ms;
    } else found.set(key, { request, calls: 1, ms: request.ms });
  }
  return [...found.values()];
}

function rowsOf(text: string | undefined): readonly Readonly<Record<string, unknown>>[] {
  const rows: unknown = JSON.parse(text ?? '[]');
  return Array.isArray(rows) ? rows.filter(isRecord) : [];
}
