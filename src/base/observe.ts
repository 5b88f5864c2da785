/** One union of events: code says what happened, this file alone decides what is logged. */

import { type Logger, pino } from 'pino';
import { assertNever } from './assert-never.js';
import { propertiesOf } from './narrow.js';
import { readableLine } from './readable-log.js';
import { isUnavailable } from './sqlstate.js';

/** A schema that is not served. */
export interface OtherSchema {
  readonly schema: string;
  readonly tables: number;
}

export type Event =
  | { readonly kind: 'listening'; readonly url: string }
  | { readonly kind: 'option-renamed'; readonly former: string; readonly name: string }
  | { readonly kind: 'admin-listening'; readonly url: string }
  | { readonly kind: 'stopping'; readonly reason: string }
  | { readonly kind: 'stopped' }
  | { readonly kind: 'migrated'; readonly file: string }
  | {
      readonly kind: 'model-loaded';
      readonly collections: number;
      readonly refused: ReadonlyMap<string, string>;
    }
  /** Once, when the service starts. */
  | {
      readonly kind: 'collections-served';
      readonly schemas: readonly string[];
      readonly collections: readonly { readonly name: string; readonly key: readonly unknown[] }[];
      readonly refused: ReadonlyMap<string, string>;
      readonly others: readonly OtherSchema[];
    }
  | { readonly kind: 'model-failed'; readonly error: unknown }
  | { readonly kind: 'policies-failed'; readonly error: unknown }
  | { readonly kind: 'watch-lost'; readonly error: unknown }
  | { readonly kind: 'database-awaited'; readonly reason: string; readonly milliseconds: number }
  | { readonly kind: 'database-reached'; readonly milliseconds: number }
  | { readonly kind: 'embedded-restarted'; readonly message: string }
  | { readonly kind: 'listening-lost'; readonly error: unknown }
  | { readonly kind: 'listening-again'; readonly milliseconds: number }
  /** What changes is not read from the log: live queries are read again every second. */
  | { readonly kind: 'changes-lost'; readonly error: unknown }
  | { readonly kind: 'primary-lost'; readonly host: string; readonly error: unknown }
  /** It is of another cluster or another database. */
  | { readonly kind: 'host-refused'; readonly host: string; readonly reason: string }
  /** `former` is null where it is the one that was lost. */
  | { readonly kind: 'primary-found'; readonly host: string; readonly former: string | null }
  /** `poll` in milliseconds. */
  | { readonly kind: 'pooler-found'; readonly pooler: string; readonly hears: boolean; readonly poll: number }
  | { readonly kind: 'limit-store-lost'; readonly store: string; readonly error: unknown }
  | { readonly kind: 'limit-store-back'; readonly store: string; readonly milliseconds: number }
  | { readonly kind: 'traces-failed'; readonly error: unknown }
  | { readonly kind: 'replica-left'; readonly server: string; readonly reason: string }
  | { readonly kind: 'replica-ready'; readonly server: string }
  | { readonly kind: 'shape-compiled'; readonly shape: string; readonly text: string; readonly milliseconds: number }
  /** A right that the service's role lacks, or a view that was never filled: once for each. */
  | { readonly kind: 'database-refused'; readonly detail: string }
  /** An administrator begins to read with the permissions of another. */
  | { readonly kind: 'viewed-as'; readonly administrator: string | null; readonly as: string }
  | { readonly kind: 'secret-made-up' }
  | { readonly kind: 'secret-short' }
  | { readonly kind: 'mail-logged'; readonly to: string; readonly link: string }
  | { readonly kind: 'registration-refused'; readonly role: string | null }
  | { readonly kind: 'mail-failed'; readonly to: string; readonly error: unknown }
  | { readonly kind: 'files-not-removed'; readonly error: unknown }
  | {
      readonly kind: 'request-completed';
      readonly id: string;
      readonly method: string;
      /** As the route names its path: what clients put into it may be a secret. Null where no route was found. */
      readonly route: string | null;
      readonly status: number;
      readonly ms: number;
    }
  | {
      readonly kind: 'request-failed';
      readonly id: string;
      readonly method: string;
      readonly path: string;
      readonly error: unknown;
      /** Whether it is the database, or whatever else the service stands on, that is to blame. */
      readonly unavailable: boolean;
    };

export type Observer = (event: Event) => void;

export function createObserver(level: string): Observer {
  const stderr = pino.destination({ dest: 2, sync: true });
  const readable = { write: (line: string) => void stderr.write(readableLine(line)) };
  const logger = pino({ level, base: null }, process.stderr.isTTY ? readable : stderr);
  const repeated = new RepeatedLines((text) => logger.warn(text));
  return (event) => log(logger, repeated, event);
}

/** An observer that also counts, by kind. */
export function countEvents(observe: Observer): {
  readonly observe: Observer;
  readonly counts: ReadonlyMap<Event['kind'], number>;
} {
  const counts = new Map<Event['kind'], number>();
  return {
    counts,
    observe: (event) => {
      counts.set(event.kind, (counts.get(event.kind) ?? 0) + 1);
      observe(event);
    },
  };
}

/** For this long the same line is not repeated, but counted. */
const REPEAT_AFTER_MS = 10_000;
const MAX_LINES = 100;

/** While the database is away every request fails for the same reason: one line stands for all of them. */
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

function log(logger: Logger, repeated: RepeatedLines, event: Event): void {
  switch (event.kind) {
    case 'listening':
      logger.info(`listening on ${event.url}`);
      break;
    case 'option-renamed':
      logger.warn(`option ${event.former} was renamed to ${event.name}; the old name still works`);
      break;
    case 'admin-listening':
      logger.info(`serving health checks and metrics on ${event.url}`);
      break;
    case 'stopping':
      logger.info(`stopping: ${event.reason}`);
      break;
    case 'stopped':
      logger.info('stopped');
      break;
    case 'migrated':
      logger.info(`applied migration ${event.file}`);
      break;
    case 'model-loaded':
      for (const [name, reason] of event.refused) logger.debug(`"${name}" is not served: it ${reason}`);
      logger.info(
        `loaded the schema: ${event.collections} collections, ${event.refused.size} tables and views not served`,
      );
      break;
    case 'collections-served':
      tellServed(logger, event);
      break;
    case 'model-failed':
      fail(logger, repeated, event.error, 'could not load the schema; still using the previous one');
      break;
    case 'policies-failed':
      fail(logger, repeated, event.error, 'could not load the policies; still using the previous ones');
      break;
    case 'watch-lost':
      fail(logger, repeated, event.error, 'cannot watch the database for schema changes');
      break;
    case 'database-awaited':
      logger.warn(
        `waiting for the database (at most ${Math.ceil(event.milliseconds / 1_000)} s more): ${event.reason}`,
      );
      break;
    case 'database-reached':
      logger.info(`connected to the database after ${Math.round(event.milliseconds)} ms`);
      break;
    case 'embedded-restarted':
      logger.warn(event.message);
      break;
    case 'replica-left':
      logger.warn(`replica ${event.server} gets no reads: ${event.reason}`);
      break;
    case 'replica-ready':
      logger.info(`replica ${event.server} gets reads`);
      break;
    case 'listening-lost':
      logger.warn(`lost the LISTEN connection, reconnecting: ${messageOf(event.error)}`);
      break;
    case 'changes-lost':
      logger.warn(`cannot read changes from the log, trying again; live queries are polled: ${messageOf(event.error)}`);
      break;
    case 'listening-again':
      logger.info(
        `LISTEN connection restored after ${Math.round(event.milliseconds)} ms; reloading schema, policies and users`,
      );
      break;
    case 'primary-lost':
      repeated.write(`lost the primary ${event.host}, looking for another: ${messageOf(event.error)}`);
      break;
    case 'primary-found':
      // Each thread finds it.
      if (event.former === null) repeated.write(`the primary ${event.host} is back`);
      else repeated.write(`${event.host} is the primary now, no longer ${event.former}; reconnecting`);
      break;
    case 'host-refused':
      repeated.write(`host ${event.host} of DATABASE_URL is not used: ${event.reason}`);
      break;
    case 'pooler-found':
      logger.info(`connecting through a pooler (DATABASE_POOLER=${event.pooler})`);
      if (!event.hears)
        logger.warn(
          `LISTEN does not work there: changes by others are looked for every ${event.poll} ms (SCHEMA_POLL_INTERVAL); set DATABASE_DIRECT_URL to hear of them at once`,
        );
      break;
    case 'limit-store-lost':
      logger.warn(
        `RATE_LIMITER_STORE=${event.store} does not answer; this instance counts in memory: ${messageOf(event.error)}`,
      );
      break;
    case 'limit-store-back':
      logger.info(`RATE_LIMITER_STORE=${event.store} answers again after ${Math.round(event.milliseconds)} ms`);
      break;
    case 'traces-failed':
      repeated.write(`could not send traces to OTEL_EXPORTER_OTLP_ENDPOINT: ${messageOf(event.error)}`);
      break;
    case 'shape-compiled':
      logger.debug({ shape: event.shape, text: event.text, milliseconds: event.milliseconds }, 'compiled a statement');
      break;
    case 'database-refused':
      logger.warn({ detail: event.detail }, 'PostgreSQL refused the statement of a request');
      break;
    case 'viewed-as':
      logger.info(
        { administrator: event.administrator, as: event.as },
        'an administrator reads with the permissions of another caller',
      );
      break;
    case 'secret-made-up':
      logger.warn(
        'SECRET is not set: a random one is used, so tokens become invalid on restart and on other instances',
      );
      break;
    case 'secret-short':
      logger.warn('SECRET is too short to be safe: use at least 32 random characters');
      break;
    case 'mail-logged':
      logger.warn(
        { to: event.to, link: event.link },
        'EMAIL_TRANSPORT is not set: the e-mail with this link was not sent',
      );
      break;
    case 'registration-refused':
      logger.warn({ role: event.role }, 'refused a registration: public_registration_role has admin access');
      break;
    case 'mail-failed':
      logger.error({ to: event.to, error: describeError(event.error) }, 'could not send an e-mail');
      break;
    case 'files-not-removed':
      logger.error(
        { error: describeError(event.error) },
        'could not remove the bytes of deleted files: will try again',
      );
      break;
    case 'request-completed': {
      const { method, route, status, ms, id } = event;
      logger.info({ method, route, status, ms, id }, 'request');
      break;
    }
    case 'request-failed':
      if (event.unavailable) repeated.write(`answered a request with 503: ${messageOf(event.error)}`);
      else
        logger.error(
          { id: event.id, method: event.method, path: event.path, error: describeError(event.error) },
          'request failed',
        );
      break;
    default:
      assertNever(event);
  }
}

/** Names in a line of the log, and lines about tables and views that are not served; more of them at the level debug. */
const MAX_NAMES = 20;
const MAX_REFUSALS = 10;

/** One line for all that are refused for the same reason: a database may have many views. */
function tellRefused(logger: Logger, refused: ReadonlyMap<string, string>): void {
  const reasons = new Map<string, string[]>();
  for (const [name, reason] of refused) reasons.set(reason, [...(reasons.get(reason) ?? []), name]);
  for (const [reason, names] of [...reasons].slice(0, MAX_REFUSALS)) {
    logger.info(
      names.length === 1
        ? `"${names[0]}" is not served: it ${reason}`
        : `${names.length} are not served: ${listed(names)}; each ${reason}`,
    );
  }
}

function listed(names: readonly string[]): string {
  const more = names.length > MAX_NAMES ? ` and ${names.length - MAX_NAMES} more` : '';
  return `${names.slice(0, MAX_NAMES).join(', ')}${more}`;
}

function tellServed(logger: Logger, event: Event & { kind: 'collections-served' }): void {
  const { schemas, refused, others } = event;
  const collections = event.collections.map(({ name }) => name).sort();
  const keyless = event.collections.flatMap(({ name, key }) => (key.length === 0 ? [name] : [])).sort();
  const all = logger.isLevelEnabled('debug');
  const shown = all ? collections : collections.slice(0, MAX_NAMES);
  const more = collections.length - shown.length;
  if (collections.length > 0)
    logger.info(`serving ${shown.join(', ')}${more > 0 ? ` and ${more} more (LOG_LEVEL=debug shows all)` : ''}`);
  if (keyless.length > 0)
    logger.info(`without a key, so that items can be listed but not named or written: ${listed(keyless)}`);
  tellRefused(logger, refused);
  if (keyless.length + refused.size > 0)
    logger.info('lateral doctor shows how keys are declared, and all that is not served');
  const advice = `set DATABASE_SCHEMAS=${[...(collections.length > 0 ? schemas : []), ...others.map(({ schema }) => schema)].join(',')}`;
  const otherSchemas = others.map(({ schema, tables }) => `${schema} (${tables})`).join(', ');
  if (collections.length > 0) {
    if (others.length > 0)
      logger.info(`schemas with tables that are not served: ${otherSchemas}; to serve them ${advice}`);
    return;
  }
  const where = `${schemas.length === 1 ? 'schema' : 'schemas'} ${schemas.join(', ')}`;
  const empty =
    refused.size > 0 ? `none of the ${refused.size} tables of ${where} can be served` : `${where} has no tables`;
  const hint =
    others.length > 0
      ? `; other schemas with tables: ${otherSchemas}; ${advice}`
      : '; set DATABASE_SCHEMAS to the schemas that contain your tables, or create one';
  logger.warn(`there is nothing to serve: ${empty}${hint}`);
}

function fail(logger: Logger, repeated: RepeatedLines, error: unknown, text: string): void {
  if (isUnavailable(error)) repeated.write(`${text}: ${messageOf(error)}`);
  else logger.error({ error: describeError(error) }, text);
}

/** For events that cross threads: of an error only its text arrives, and some of its parts would not travel at all. */
export function withPlainError(event: Event): Event {
  if (!('error' in event)) return event;
  return { ...event, error: event.error instanceof Error ? describeError(event.error) : String(event.error) };
}

function messageOf(error: unknown): string {
  const { message } = propertiesOf(error);
  return typeof message === 'string' ? message : String(error);
}

/** The stack of a broken invariant belongs in the log; the driver's query text and parameters do not. */
function describeError(error: unknown): unknown {
  return error instanceof Error ? { message: error.message, stack: error.stack } : error;
}
