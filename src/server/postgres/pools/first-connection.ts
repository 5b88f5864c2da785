/**
 * The first contact with the database. A start waits for one that does not answer, and reports it, but fails at once on what waiting
 * cannot change, such as a wrong password. It finds out what is between the service and PostgreSQL: a pooler may give each transaction
 * another backend, or ignore the settings that a connection asks for. Then prepared statements, notifications and settings are those of
 * another client. One connection that works alone cannot see that, so two of them check at the same time.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../../../base/errors.js';
import { messageOf, succeeds } from '../../../base/narrow.js';
import type { Observer } from '../../../base/observe.js';
import { within } from '../../../base/time-limit.js';
import { withCatalog } from '../../../compiler/sql/catalog-names.js';
import { arrayLiteral } from '../../../compiler/sql/literal.js';
import { addressOf, type ConnectionSettings } from '../../config/connection-settings.js';
import { openClient, parametersOf, type ServerOptions, schemasOf, settingsOf } from '../wire/client.js';
import type { DriverClient, Pooler, Settings } from '../wire/connection-options.js';

export interface FirstConnectionOptions extends ServerOptions {
  /** `auto` (the default) finds it out. */
  readonly pooler?: Pooler | 'auto';
  /** Milliseconds; 0 for none. */
  readonly statementTimeout: number;
  /** Whether to check first that each connection is a session of the server. */
  readonly checksSessions?: boolean;
  /** Milliseconds to go on trying. */
  readonly startTimeout?: number;
  readonly observe?: Observer;
  /** Ends the wait. */
  readonly signal?: AbortSignal | undefined;
}

/** Milliseconds between attempts: the first pause, which is doubled each time, and the longest. */
const FIRST_PAUSE_MS = 250;
const MAX_PAUSE_MS = 5_000;

/** Resolves with the result of the first attempt that succeeds. */
export async function connectWithRetries<Result>(
  attempt: () => Promise<Result>,
  target: ConnectionSettings,
  options: FirstConnectionOptions,
): Promise<Result> {
  const { startTimeout = 0, observe = () => {}, signal } = options;
  const start = performance.now();
  for (let count = 0; ; count++) {
    try {
      const result = await attempt();
      if (count > 0) observe({ kind: 'database-reached', milliseconds: performance.now() - start });
      return result;
    } catch (error) {
      if (error instanceof StartError) throw error;
      const reason = describeFailure(error, target);
      const left = startTimeout - (performance.now() - start);
      if (left <= 0 || !mayPass(error)) throw new StartError(`cannot use the database: ${reason}`);
      observe({ kind: 'database-awaited', reason, milliseconds: left });
      const pause = Math.min(FIRST_PAUSE_MS * 2 ** count, MAX_PAUSE_MS, left);
      await sleep(pause, null, signal ? { signal } : {}).catch(() => {
        throw new StartError('the start was stopped while it waited for the database');
      });
    }
  }
}

/** Refused, not found, silent, starting, shutting down, or full. */
const PASSING =
  /^(ECONN|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|EHOSTDOWN|ENETUNREACH|ETIMEDOUT|EPIPE|ENOENT|CONNECT_TIMEOUT|CONNECTION_(CLOSED|FAILED|TIMEOUT|DESTROYED|ENDED)|57P0[123]|53300|08(?!P01))/;

function mayPass(error: unknown): boolean {
  return PASSING.test(codeOf(error));
}

/** The code of the innermost cause that has one. */
function codeOf(error: unknown): string {
  let code = '';
  for (let each = error; each instanceof Error; each = each.cause) if ('code' in each) code = String(each.code);
  return code;
}

function describeFailure(error: unknown, target: ConnectionSettings): string {
  const address = addressOf(target);
  const code = codeOf(error);
  const message = messageOf(error);
  if (code === '28P01' || code === '28000') return `${message} (at ${address})${adviceFor(message)}`;
  if (code === '3D000') return message;
  if (refusesSettings(error))
    return `${message} (a pooler at ${address} refuses session settings: connect to PostgreSQL itself)`;
  if (/^(ECONNREFUSED|ENOTFOUND|EHOSTUNREACH|ETIMEDOUT|CONNECT_TIMEOUT|EAI_AGAIN)/.test(code)) {
    return `nothing answers at ${address} (${code})`;
  }
  return message || code;
}

/** The parameters of the connection string that a server with such a refusal may want. */
function adviceFor(refusal: string): string {
  if (/no encryption|SSL off/.test(refusal)) return '. If it accepts only TLS, set sslmode=require';
  return /client certificate/.test(refusal) ? ': set sslcert and sslkey' : '';
}

/** Whether a pooler refuses the settings that a connection asks for. */
function refusesSettings(error: unknown): boolean {
  return /^unsupported startup parameter/.test(messageOf(error));
}

/** Returns which pooler is in between. */
export async function findPooler(target: ConnectionSettings, options: FirstConnectionOptions): Promise<Pooler> {
  const wanted = options.pooler ?? 'auto';
  const assumed = wanted === 'auto' ? 'none' : wanted;
  const start = (pooler: Pooler): Start => ({
    target,
    pooler,
    parameters: parametersOf(target, pooler, settingsOf(options, options.statementTimeout)),
  });
  const isRefused = await checkServer(start(assumed), options).catch((error: unknown) => {
    if (wanted === 'auto' && refusesSettings(error)) return true;
    throw error;
  });
  if (isRefused) await checkServer(start('session'), options);
  const known = start(isRefused ? 'session' : assumed);
  return options.checksSessions ? tellPooler(known, options) : known.pooler;
}

/** A way to begin sessions that a pooler may not allow. */
interface Start {
  readonly target: ConnectionSettings;
  readonly pooler: Pooler;
  readonly parameters: Settings;
}

/** The version, and a schema of $1 that does not exist. */
const VERSION_AND_MISSING = withCatalog(`
  select current_setting('server_version_num')::int as version, (
    select name from json_array_elements_text($1::json) wanted (name)
    where not exists (select from pg_namespace where nspname = name) limit 1
  ) as missing`);

async function checkServer({ target, parameters }: Start, options: FirstConnectionOptions): Promise<false> {
  const client = openClient(target, parameters);
  try {
    const [row] = await client.unsafe(VERSION_AND_MISSING, [JSON.stringify(schemasOf(options))]);
    if (Number(row?.['version']) < 150_000) throw new StartError('PostgreSQL 15 or newer is needed');
    const missing: unknown = row?.['missing'] ?? null;
    if (missing !== null) {
      const option = schemasOf(options).length > 1 ? 'DATABASE_SCHEMAS' : 'DATABASE_SCHEMA';
      throw new StartError(`${option}: the database has no schema "${missing}"`);
    }
    return false;
  } finally {
    void client.end();
  }
}

/** Throws if the pooler is not the one that was asked for, or cannot be used. `assumed` is a way that connects. */
async function tellPooler(start: Start, options: FirstConnectionOptions): Promise<Pooler> {
  const { target, parameters } = start;
  const clients = [openClient(target, parameters), openClient(target, parameters)] as const;
  // A database that is slow now may answer the next attempt in time.
  const late = { message: 'two connections to it did not answer in time', code: 'CONNECTION_TIMEOUT' };
  try {
    return await within(checkSessions(clients, start, options), options.connectTimeout, late);
  } finally {
    await Promise.all(clients.map((client) => client.end()));
  }
}

/** Where several backends take turns, the same one may come up by chance. */
const ROUNDS = 3;

async function checkSessions(
  [one, other]: readonly [DriverClient, DriverClient],
  { pooler: assumed, parameters }: Start,
  { schema, pooler: wanted }: FirstConnectionOptions,
): Promise<Pooler> {
  for (let round = 0; round < ROUNDS; round++)
    if (!(await areApart(one, other))) {
      if (wanted === 'none' || wanted === 'session') throw new StartError(SHARED);
      if (!(await keepsPrepared(one))) throw new StartError(UNPREPARED);
      return 'transaction';
    }
  if (assumed !== 'none') return assumed;
  const missing = await missingSettings(one, parameters, schema);
  if (missing.length > 0 && wanted === 'none') throw new StartError(ignored(missing));
  return missing.length > 0 ? 'session' : 'none';
}

/** A name that no extension takes. */
const MARK = 'lateral.session';
const CHANNEL = 'lateral_session';

const STATE = withCatalog(`
  select pg_backend_pid() as backend, current_setting('${MARK}', true) as mark,
    '${CHANNEL}' in (select pg_listening_channels()) as listens`);

interface State {
  readonly backend: number;
  readonly mark: string | null;
  readonly listens: boolean;
}

/** A setting of the first client's session must apply to its next statement, and to no other client. */
async function areApart(one: DriverClient, other: DriverClient): Promise<boolean> {
  const mark = randomUUID();
  await one.unsafe(`listen ${CHANNEL}`);
  await one.unsafe(`select pg_catalog.set_config('${MARK}', $1, false)`, [mark]);
  const before = await stateOf(one);
  // A transaction keeps its backend from others: where there are just a few, the first client is given another one now.
  const begun = await succeeds(other.unsafe('begin'));
  // One that knows no transactions ends the connection; a database that is lost meanwhile is lost for the first client too.
  if (!begun) return stateOf(one).then(() => false);
  try {
    const beside = await stateOf(other);
    if (beside.mark === mark || beside.backend === before.backend || beside.listens) return false;
    const after = await stateOf(one);
    return [before, after].every((state) => state.mark === mark && state.listens && state.backend === before.backend);
  } finally {
    await other.unsafe('commit').catch(() => {});
  }
}

async function stateOf(client: DriverClient): Promise<State> {
  const [state] = await client.unsafe<State[]>(STATE);
  if (!state) throw new Error('a statement without a condition gave no row');
  return state;
}

/** Finds itself. */
const PREPARED =
  'select name /* lateral finds itself */ from pg_catalog.pg_prepared_statements where statement operator(pg_catalog.~~) $1';

/** Whether a pooler knows what its clients have prepared: then the name at the server is one of its own. */
async function keepsPrepared(client: DriverClient): Promise<boolean> {
  try {
    const rows = await client.unsafe<{ name: string }[]>(PREPARED, ['%lateral finds itself%'], { prepare: true });
    return rows.some(({ name }) => /^(PGBOUNCER|PGCAT|odyssey)/i.test(name));
  } catch {
    return false;
  }
}

/** Without these values are written, read or looked up otherwise, or statements have no end. */
const NEEDED = [
  'search_path',
  'TimeZone',
  'DateStyle',
  'IntervalStyle',
  'bytea_output',
  'extra_float_digits',
  'quote_all_identifiers',
  'statement_timeout',
] as const;

const SETTINGS = withCatalog(`
  select w.name
  from unnest($1::text[], $2::text[]) as w (name, value)
  left join pg_catalog.pg_settings s on s.name = w.name
  where s.setting::text is distinct from w.value::text
    and not (w.name = 'search_path' and (current_schemas(false))[1] = $3)`);

async function missingSettings(client: DriverClient, parameters: Settings, schema: string): Promise<string[]> {
  // An empty one is not sent: then the default of the database holds.
  const settingNames = NEEDED.filter((name) => parameters[name]);
  const values = settingNames.map((name) => String(parameters[name]));
  const rows = await client.unsafe<{ name: string }[]>(SETTINGS, [
    arrayLiteral(settingNames),
    arrayLiteral(values),
    schema,
  ]);
  return rows.map(({ name }) => name);
}

const SHARED =
  'cannot use the database: a pooler in between gives one session to several clients (as PgBouncer does with ' +
  'pool_mode=transaction), where prepared statements, LISTEN and settings of a session do not work: ' +
  'set DATABASE_POOLER=transaction, connect to PostgreSQL itself, or with pool_mode=session';

const UNPREPARED =
  'cannot use the database: a pooler in between gives one session to several clients (as PgBouncer does with ' +
  'pool_mode=transaction) and does not keep their prepared statements apart: use PgBouncer 1.21 or newer with ' +
  'max_prepared_statements above 0, pool_mode=session, or connect to PostgreSQL itself';

function ignored(names: readonly string[]): string {
  return (
    `cannot use the database: ${names.join(', ')} cannot be set for a session, as behind a pooler that ignores start-up ` +
    'parameters: set DATABASE_POOLER=session, connect to PostgreSQL itself, or set the same with ALTER ROLE'
  );
}
