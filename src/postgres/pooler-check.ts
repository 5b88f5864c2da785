/**
 * Whether connections are sessions. A pooler in between may give each transaction another backend, or ignore the settings that a
 * connection asks for: then statements that were prepared, notifications and settings are another client's. That cannot be
 * seen from one connection that works alone, so two of them look at the same time.
 */
import { randomUUID } from 'node:crypto';
import { StartError } from '../errors.js';
import { arrayLiteral } from '../sql/literal.js';
import type { DriverClient } from './connection-options.js';

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

const SETTINGS = `
  select w.name
  from unnest($1::text[], $2::text[]) as w (name, value)
  left join pg_catalog.pg_settings s on s.name = w.name
  where s.setting is distinct from w.value
    and not (w.name = 'search_path' and (current_schemas(false))[1] = $3)`;
const STATE = `
  select pg_backend_pid() as backend, current_setting('${MARK}', true) as mark,
    '${CHANNEL}' in (select pg_listening_channels()) as listens`;

interface State {
  readonly backend: number;
  readonly mark: string | null;
  readonly listens: boolean;
}

/** `open` makes a client with a single connection, `timeout` in milliseconds. Throws where something is missing that we need. */
export async function checkSessions(open: () => DriverClient, schema: string, timeout: number): Promise<void> {
  const clients = [open(), open()] as const;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new StartError('cannot use the database: a second connection to it was not answered in time')),
      timeout,
    );
  });
  try {
    await Promise.race([check(...clients, schema), late]);
  } finally {
    clearTimeout(timer);
    await Promise.all(clients.map((client) => client.end({ timeout: 0 })));
  }
}

async function check(one: DriverClient, other: DriverClient, schema: string): Promise<void> {
  for (let round = 0; round < ROUNDS; round++) if (!(await areApart(one, other))) throw new StartError(SHARED);
  const missing = await missingSettings(one, schema);
  if (missing.length > 0) throw new StartError(ignored(missing));
}

/** What the first client leaves in its session has to be there for its next statement, and for nobody else. */
async function areApart(one: DriverClient, other: DriverClient): Promise<boolean> {
  const mark = randomUUID();
  await one.unsafe(`listen ${CHANNEL}`);
  await one.unsafe(`select set_config('${MARK}', $1, false)`, [mark]);
  const before = await stateOf(one);
  // A transaction keeps its backend from others: where there are just a few, the first client is given another one now.
  const begun = await other.unsafe('begin').then(
    () => true,
    () => false,
  );
  // One that knows no transactions ends the connection; a database that is lost meanwhile is lost for the first client too.
  if (!begun) return stateOf(one).then(() => false);
  const beside = await stateOf(other);
  if (beside.mark === mark || beside.backend === before.backend || beside.listens) return false;
  const after = await stateOf(one);
  await other.unsafe('commit');
  return [before, after].every((state) => state.mark === mark && state.listens && state.backend === before.backend);
}

async function stateOf(client: DriverClient): Promise<State> {
  const [state] = await client.unsafe<State[]>(STATE);
  if (!state) throw new Error('a statement without a condition gave no row');
  return state;
}

async function missingSettings(client: DriverClient, schema: string): Promise<string[]> {
  const connection: Readonly<Record<string, unknown>> = client.options.connection;
  // The driver leaves out what is 0: then the default of the database holds.
  const wanted = NEEDED.filter((name) => connection[name]);
  const values = wanted.map((name) => String(connection[name]));
  const rows = await client.unsafe<{ name: string }[]>(SETTINGS, [arrayLiteral(wanted), arrayLiteral(values), schema]);
  return rows.map(({ name }) => name);
}

const SHARED =
  'cannot use the database: a pooler in between gives one session to several clients (as PgBouncer does with ' +
  'pool_mode=transaction), where prepared statements, LISTEN and settings of a session do not work: ' +
  'connect to PostgreSQL itself, or with pool_mode=session';

function ignored(names: readonly string[]): string {
  return (
    `cannot use the database: ${names.join(', ')} cannot be set for a session, as behind a pooler that ignores start-up ` +
    'parameters: connect to PostgreSQL itself, or set the same with ALTER ROLE'
  );
}
