/** The log: code reports events. The table in this file, and those of features, decide how each is logged. */

import { pino } from 'pino';
import { debug, describeError, type Failure, failure, info, type Line, logError, repeated, warn } from './log-line.js';
import { groupBy, messageOf, parseOwnJson, propertiesOf } from './narrow.js';

/** A schema that is not served. */
export interface OtherSchema {
  readonly schema: string;
  readonly tables: number;
}

interface Served {
  readonly schemas: readonly string[];
  readonly collections: readonly { readonly name: string; readonly key: readonly unknown[] }[];
  readonly refused: ReadonlyMap<string, string>;
  readonly others: readonly OtherSchema[];
}

interface FailedRequest {
  readonly id: string;
  readonly method: string;
  readonly path: string;
  readonly error: unknown;
  /** Whether the cause is the database, or another server that the service needs. */
  readonly unavailable: boolean;
}

interface CompletedRequest {
  readonly id: string;
  readonly method: string;
  /** The path of the route, because clients may put secrets into the path of a request, or null if no route was found. */
  readonly route: string | null;
  readonly status: number;
  readonly ms: number;
}

interface PoolerFound {
  readonly pooler: string;
  readonly hears: boolean;
  /** Milliseconds. */
  readonly poll: number;
}

interface Duration {
  readonly milliseconds: number;
}

/** Each kind of event: its fields, and its lines in the log. */
const EVENTS = {
  listening: ({ url }: { readonly url: string }) => info(`listening on ${url}`),
  'admin-listening': ({ url }: { readonly url: string }) => info(`serving health checks and metrics on ${url}`),
  'server-replaced': ({ obstacle }: { readonly obstacle: string }) =>
    warn(`requests are served by node:http, which is slower (SERVER=node hides this line): ${obstacle}`),
  'environment-read': ({ path, names }: { readonly path: string; readonly names: readonly string[] }) =>
    info(names.length === 0 ? `${path} sets nothing that the environment lacks` : `${path} sets ${listed(names)}`),
  'option-misspelt': ({ name, meant }: { readonly name: string; readonly meant: string }) =>
    warn(`there is no option ${name}: did you mean ${meant}?`),
  /** Options of the first administrator, at a later start. */
  'administrator-exists': ({ unused }: { readonly unused: readonly string[] }) =>
    warn(
      `without effect: ${unused.join(', ')}. The first start has created the administrator, so remove them, or change the user (see docs/accounts.md, First administrator)`,
    ),
  stopping: ({ reason }: { readonly reason: string }) => info(`stopping: ${reason}`),
  stopped: () => info('stopped'),
  migrated: ({ file }: { readonly file: string }) => info(`applied migration ${file}`),
  'model-loaded': ({ collections, refused }: { readonly collections: number } & Pick<Served, 'refused'>) => [
    ...Array.from(refused, ([name, reason]) => debug(`"${name}" is not served: it ${reason}`)),
    info(`loaded the schema: ${collections} collections, ${refused.size} tables and views not served`),
  ],
  /** Once, when the service starts. */
  'collections-served': (served: Served, hasAllNames: boolean) => describeServed(served, hasAllNames),
  /** Tables of features that the service does not have, and how many triggers use them. */
  'tables-left': ({ tables, triggers }: { readonly tables: readonly string[]; readonly triggers: number }) =>
    warn(
      `${tables.join(', ')} belong to features that this service does not have: they stay hidden${triggers === 0 ? '' : `, but triggers still use them: ${triggers} (see lateral doctor)`}`,
    ),
  'model-failed': ({ error }: Failure) => failure(error, 'could not load the schema; still using the previous one'),
  'policies-failed': ({ error }: Failure) =>
    failure(error, 'could not load the policies; still using the previous ones'),
  'watch-lost': ({ error }: Failure) => failure(error, 'cannot watch the database for schema changes'),
  'database-awaited': ({ reason, milliseconds }: { readonly reason: string } & Duration) =>
    warn(`waiting for the database (at most ${Math.ceil(milliseconds / 1_000)} s more): ${reason}`),
  'database-reached': ({ milliseconds }: Duration) =>
    info(`connected to the database after ${Math.round(milliseconds)} ms`),
  'database-replaced': ({ obstacle }: { readonly obstacle: string | null }) =>
    obstacle === null
      ? info('the database is served again')
      : warn(`the database cannot be served, requests are answered with 503: ${obstacle}`),
  'replica-left': ({ server, reason }: { readonly server: string; readonly reason: string }) =>
    warn(`replica ${server} gets no reads: ${reason}`),
  'replica-ready': ({ server }: { readonly server: string }) => info(`replica ${server} gets reads`),
  'listening-lost': ({ error }: Failure) => warn(`lost the LISTEN connection, reconnecting: ${messageOf(error)}`),
  'listening-again': ({ milliseconds }: Duration) =>
    info(`LISTEN connection restored after ${Math.round(milliseconds)} ms; reloading schema, policies and users`),
  /** Changes cannot be read from the log: the service reads live queries again every second. */
  'changes-lost': ({ error }: Failure) =>
    warn(`cannot read changes from the log, trying again; live queries are polled: ${messageOf(error)}`),
  'primary-lost': ({ host, error }: { readonly host: string } & Failure) =>
    repeated(`lost the primary ${host}, looking for another: ${messageOf(error)}`),
  /** Reported by each thread. `former` is null if it is the primary that was lost. */
  'primary-found': ({ host, former }: { readonly host: string; readonly former: string | null }) =>
    former === null
      ? repeated(`the primary ${host} is back`)
      : repeated(`${host} is the primary now, no longer ${former}; reconnecting`),
  /** The host belongs to another cluster or another database. */
  'host-refused': ({ host, reason }: { readonly host: string; readonly reason: string }) =>
    repeated(`host ${host} of DATABASE_URL is not used: ${reason}`),
  'pooler-found': ({ pooler, hears, poll }: PoolerFound) => [
    info(`connecting through a pooler (DATABASE_POOLER=${pooler})`),
    ...(hears
      ? []
      : [
          warn(
            `LISTEN does not work there: changes by others are looked for every ${poll} ms (SCHEMA_POLL_INTERVAL); set DATABASE_DIRECT_URL to hear of them at once`,
          ),
        ]),
  ],
  /** Parameters of DATABASE_URL that have no effect. */
  'parameters-unused': ({ unused }: { readonly unused: readonly string[] }) =>
    repeated(
      `parameters of the connection string that have no effect: ${unused.join(', ')}. Settings of PostgreSQL belong into "options": options=-c%20name=value`,
    ),
  'limit-store-lost': ({ store, error }: { readonly store: string } & Failure) =>
    warn(`RATE_LIMITER_STORE=${store} does not answer; this instance counts in memory: ${messageOf(error)}`),
  'limit-store-back': ({ store, milliseconds }: { readonly store: string } & Duration) =>
    info(`RATE_LIMITER_STORE=${store} answers again after ${Math.round(milliseconds)} ms`),
  'traces-failed': ({ error }: Failure) =>
    repeated(`could not send traces to OTEL_EXPORTER_OTLP_ENDPOINT: ${messageOf(error)}`),
  'shape-compiled': ({ shape, text, milliseconds }: { readonly shape: string; readonly text: string } & Duration) =>
    debug('compiled a statement', { shape, text, milliseconds }),
  /** The service's role lacks a privilege, or a materialized view was never filled: once for each. */
  'database-refused': ({ detail }: { readonly detail: string }) =>
    warn('PostgreSQL refused the statement of a request', { detail }),
  /** With DATABASE_CALLER=role, administrators without a database role have the privileges of the login. */
  'login-unprivileged': ({ tables }: { readonly tables: readonly string[] }) =>
    warn(
      `administrators without a database role may not read ${tables.length} tables, such as ${tables[0]}: set database_role of their role, or grant the login the privileges (lateral doctor prints the SQL)`,
    ),
  /** An administrator begins to read with the permissions of another. */
  'viewed-as': ({ administrator, as }: { readonly administrator: string | null; readonly as: string }) =>
    info('an administrator reads with the permissions of another caller', { administrator, as }),
  'secret-made-up': () =>
    warn('SECRET is not set: a random one is used, so tokens become invalid on restart and on other instances'),
  'secret-short': () => warn('SECRET is too short to be safe: use at least 32 random characters'),
  'mail-logged': ({ to, link }: { readonly to: string; readonly link: string }) =>
    warn('EMAIL_TRANSPORT is not set: the e-mail with this link was not sent', { to, link }),
  'mail-failed': ({ to, error }: { readonly to: string } & Failure) =>
    logError('could not send an e-mail', { to, error: describeError(error) }),
  'request-completed': ({ method, route, status, ms, id }: CompletedRequest) =>
    info('request', { method, route, status, ms, id }),
  'request-failed': ({ id, method, path, error, unavailable }: FailedRequest) =>
    unavailable
      ? repeated(`answered a request with 503: ${messageOf(error)}`)
      : logError('request failed', { id, method, path, error: describeError(error) }),
};

/** Each kind of event, as a function that returns its lines. */
export type EventTable = Readonly<Record<string, (fields: never, hasAllNames: boolean) => Line | readonly Line[]>>;

type FieldsOf<Describe extends EventTable[string]> =
  Parameters<Describe> extends [infer Fields, ...unknown[]] ? Fields : object;

export type EventOf<Table extends EventTable> = {
  [Kind in keyof Table]: { readonly kind: Kind } & FieldsOf<Table[Kind]>;
}[keyof Table];

export type Event = EventOf<typeof EVENTS>;

/** Reports events of the service, and `More` of a feature. */
export type Observer<More = never> = (event: Event | More) => void;

/** `more` are the events of features. */
export function createObserver(level: string, more: EventTable = {}): Observer {
  const events: EventTable = { ...EVENTS, ...more };
  const stderr = pino.destination({ dest: 2, sync: true });
  const readable = { write: (line: string) => void stderr.write(readableLine(line)) };
  const logger = pino({ level, base: null }, process.stderr.isTTY ? readable : stderr);
  const repeatedLines = new RepeatedLines((text) => logger.warn(text));
  const hasAllNames = logger.isLevelEnabled('debug');
  return (event) => {
    for (const { level, text, fields } of linesOf(events, event, hasAllNames)) {
      if (level === 'repeated') repeatedLines.write(text);
      else logger[level](fields, text);
    }
  };
}

/** An event of a table that was not given is logged by its kind: a report must not fail the work that it is about. */
function linesOf(events: EventTable, event: Event, hasAllNames: boolean): readonly Line[] {
  const { kind, ...fields } = event;
  const describe = events[kind] as ((event: Event, hasAllNames: boolean) => Line | readonly Line[]) | undefined;
  return describe === undefined ? [warn(kind, fields)] : [describe(event, hasAllNames)].flat();
}

/** An observer that also counts, by kind. */
export function countEvents(observe: Observer): {
  readonly observe: Observer;
  readonly counts: ReadonlyMap<string, number>;
} {
  const counts = new Map<string, number>();
  return {
    counts,
    observe: (event) => {
      counts.set(event.kind, (counts.get(event.kind) ?? 0) + 1);
      observe(event);
    },
  };
}

/** The same line is only counted for this long. */
const REPEAT_AFTER_MS = 10_000;
const MAX_LINES = 100;

/** While the database is unreachable every request fails for the same reason: one line stands for all of them. */
class RepeatedLines {
  readonly #lines = new Map<string, { until: number; more: number }>();

  constructor(private readonly send: (text: string) => void) {}

  write(text: string): void {
    const now = performance.now();
    const line = this.#lines.get(text);
    if (line && now < line.until) {
      line.more++;
      return;
    }
    if (this.#lines.size >= MAX_LINES) this.#lines.clear();
    this.#lines.set(text, { until: now + REPEAT_AFTER_MS, more: 0 });
    this.send(line && line.more > 0 ? `${text} (repeated ${line.more} times)` : text);
  }
}

/** Names in a line of the log, and lines about tables and views that are not served; more of them at the level debug. */
const MAX_NAMES = 20;
const MAX_REFUSALS = 10;

function describeServed(served: Served, hasAllNames: boolean): readonly Line[] {
  const { schemas, refused, others } = served;
  const collections = served.collections.map(({ name }) => name).sort();
  const keyless = served.collections.flatMap(({ name, key }) => (key.length === 0 ? [name] : [])).sort();
  const shown = hasAllNames ? collections : collections.slice(0, MAX_NAMES);
  const more = collections.length - shown.length;
  const otherSchemas = others.map(({ schema, tables }) => `${schema} (${tables})`).join(', ');
  const advised = [...(collections.length > 0 ? schemas : []), ...others.map(({ schema }) => schema)];
  const advice = `set DATABASE_SCHEMAS=${advised.join(',')}`;
  const lines: Line[] = [];
  if (collections.length > 0)
    lines.push(info(`serving ${shown.join(', ')}${more > 0 ? ` and ${more} more (LOG_LEVEL=debug shows all)` : ''}`));
  if (keyless.length > 0)
    lines.push(info(`without a key, so that items can be listed but not named or written: ${listed(keyless)}`));
  lines.push(...describeRefused(refused));
  if (keyless.length + refused.size > 0)
    lines.push(info('lateral doctor shows how keys are declared, and all that is not served'));
  if (collections.length === 0) lines.push(describeNothingServed(served, `${otherSchemas}; ${advice}`));
  else if (others.length > 0)
    lines.push(info(`schemas with tables that are not served: ${otherSchemas}; to serve them ${advice}`));
  return lines;
}

/** One line for all that are refused for the same reason: a database may have many views. */
function describeRefused(refused: Served['refused']): Line[] {
  const reasons = groupBy([...refused], ([, reason]) => reason);
  return [...reasons].slice(0, MAX_REFUSALS).map(([reason, entries]) => {
    const names = entries.map(([name]) => name);
    return names.length === 1
      ? info(`"${names[0]}" is not served: it ${reason}`)
      : info(`${names.length} are not served: ${listed(names)}; each ${reason}`);
  });
}

function describeNothingServed({ schemas, refused, others }: Served, advice: string): Line {
  const where = `${schemas.length === 1 ? 'schema' : 'schemas'} ${schemas.join(', ')}`;
  const empty =
    refused.size > 0 ? `none of the ${refused.size} tables of ${where} can be served` : `${where} has no tables`;
  const hint =
    others.length > 0
      ? `other schemas with tables: ${advice}`
      : 'set DATABASE_SCHEMAS to the schemas that contain your tables, or create one';
  return warn(`there is nothing to serve: ${empty}; ${hint}`);
}

function listed(names: readonly string[]): string {
  const more = names.length > MAX_NAMES ? ` and ${names.length - MAX_NAMES} more` : '';
  return `${names.slice(0, MAX_NAMES).join(', ')}${more}`;
}

/** For events that cross threads: errors may have parts that cannot be cloned, so only the message and the stack are sent. */
export function withPlainError(event: Event): Event {
  if (!('error' in event)) return event;
  return { ...event, error: event.error instanceof Error ? describeError(event.error) : String(event.error) };
}

/** Names of levels for a person who reads the log in a terminal; files and collectors get the JSON as it is. */
const LEVELS: Readonly<Record<number, string>> = {
  10: 'TRACE',
  20: 'DEBUG',
  30: 'INFO',
  40: 'WARN',
  50: 'ERROR',
  60: 'FATAL',
};

/** `2026-01-31 12:00:00.000 INFO  message name=value`, from a line of JSON; a stack trace follows in separate lines. */
export function readableLine(json: string): string {
  const { level, time, msg, ...fields } = parseOwnJson<Record<string, unknown>>(json);
  const at = new Date(Number(time)).toISOString().replace('T', ' ').replace('Z', '');
  const stack = stackOf(fields['error']);
  const pairs = Object.entries(stack === null ? fields : { ...fields, error: undefined }).flatMap(([name, value]) =>
    value === undefined ? [] : `${name}=${readableValue(value)}`,
  );
  const line = [at, (LEVELS[Number(level)] ?? String(level)).padEnd(5), printable(String(msg)), ...pairs].join(' ');
  return stack === null
    ? `${line}\n`
    : `${line}\n${stack
        .split('\n')
        .map((each) => `    ${printable(each)}`)
        .join('\n')}\n`;
}

function stackOf(error: unknown): string | null {
  const { stack } = propertiesOf(error);
  return typeof stack === 'string' ? stack : null;
}

function readableValue(value: unknown): string {
  return printable(typeof value === 'string' && /^[^\s"]+$/.test(value) ? value : JSON.stringify(value));
}

/** Control characters of a client, or of the database, would move the cursor of the terminal. */
function printable(text: string): string {
  return text.replace(/\p{Cc}/gu, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
