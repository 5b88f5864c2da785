/**
 * What is between us and PostgreSQL. A pooler may give each transaction another backend, or ignore the settings that a connection
 * asks for: then statements that were prepared, notifications and settings are another client's. That cannot be seen from one
 * connection that works alone, so two of them look at the same time.
 */
import { randomUUID } from 'node:crypto';
import { StartError } from '../../base/errors.js';
import { propertiesOf } from '../../base/narrow.js';
import { withCatalog } from '../../sql/catalog-names.js';
import { arrayLiteral } from '../../sql/literal.js';
import type { DriverClient, Pooler } from '../wire/connection-options.js';

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

/** Where several backends take turns, the same one may come up by chance. */
const ROUNDS = 3;

/** A name that no extension takes. */
const MARK = 'lateral.session';
const CHANNEL = 'lateral_session';

const SETTINGS = withCatalog(`
  select w.name
  from unnest($1::text[], $2::text[]) as w (name, value)
  left join pg_catalog.pg_settings s on s.name = w.name
  where s.setting::text is distinct from w.value::text
    and not (w.name = 'search_path' and (current_schemas(false))[1] = $3)`);
const STATE = withCatalog(`
  select pg_backend_pid() as backend, current_setting('${MARK}', true) as mark,
    '${CHANNEL}' in (select pg_listening_channels()) as listens`);
/** Finds itself. */
const PREPARED =
  'select name /* lateral finds itself */ from pg_catalog.pg_prepared_statements where statement operator(pg_catalog.~~) $1';

interface State {
  readonly backend: number;
  readonly mark: string | null;
  readonly listens: boolean;
}

interface PoolerCheck {
  /** Makes a client with a single connection. */
  readonly open: (pooler: Pooler) => DriverClient;
  readonly schema: string;
  /** What was asked for; `auto` where it is to be found out. */
  readonly wanted: Pooler | 'auto';
  /** Milliseconds. */
  readonly timeout: number;
}

/** Whether a pooler refuses the settings that a connection asks for. */
export function refusesSettings(error: unknown): boolean {
  return /^unsupported startup parameter/.test(String(propertiesOf(error)['message']));
}

/** Answers what is there; throws where it is not what was asked for, or cannot be used. `assumed` is a way that connects. */
export async function findPooler(assumed: Pooler, { open, schema, wanted, timeout }: PoolerCheck): Promise<Pooler> {
  const clients = [open(assumed), open(assumed)] as const;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      // A database that is slow now may answer the next attempt in time.
      () =>
        reject(
          Object.assign(new Error('two connections to it did not answer in time'), { code: 'CONNECTION_TIMEOUT' }),
        ),
      timeout,
    );
  });
  try {
    return await Promise.race([find(...clients, schema, assumed, wanted), late]);
  } finally {
    clearTimeout(timer);
    await Promise.all(clients.map((client) => client.end({ timeout: 0 })));
  }
}

async function find(
  one: DriverClient,
  other: DriverClient,
  schema: string,
  assumed: Pooler,
  wanted: Pooler | 'auto',
): Promise<Pooler> {
  for (let round = 0; round < ROUNDS; round++)
    if (!(await areApart(one, other))) {
      if (wanted === 'none' || wanted === 'session') throw new StartError(SHARED);
      if (!(await keepsPrepared(one))) throw new StartError(UNPREPARED);
      return 'transaction';
    }
  if (assumed !== 'none') return assumed;
  const missing = await missingSettings(one, schema);
  if (missing.length > 0 && wanted === 'none') throw new StartError(ignored(missing));
  return missing.length > 0 ? 'session' : 'none';
}

/** What the first client sets in its session must be there for its next statement, and for no other client. */
async function areApart(one: DriverClient, other: DriverClient): Promise<boolean> {
  const mark = randomUUID();
  await one.unsafe(`listen ${CHANNEL}`);
  await one.unsafe(`select pg_catalog.set_config('${MARK}', $1, false)`, [mark]);
  const before = await stateOf(one);
  // A transaction keeps its backend from others: where there are just a few, the first client is given another one now.
  const begun = await other.unsafe('begin').then(
    () => true,
    () => false,
  );
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

/** Whether a pooler knows what its clients have prepared: then the name at the server is one of its own. */
async function keepsPrepared(client: DriverClient): Promise<boolean> {
  try {
    const rows = await client.unsafe<{ name: string }[]>(PREPARED, ['%lateral finds itself%'], { prepare: true });
    return rows.some(({ name }) => /^(PGBOUNCER|PGCAT|odyssey)/i.test(name));
  } catch {
    return false;
  }
}

async function missingSettings(client: DriverClient, schema: string): Promise<string[]> {
  const connection: Readonly<Record<string, unknown>> = client.options.connection;
  // The driver leaves out what is 0: then the default of the database holds.
  const settingNames = NEEDED.filter((name) => connection[name]);
  const values = settingNames.map((name) => String(connection[name]));
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
