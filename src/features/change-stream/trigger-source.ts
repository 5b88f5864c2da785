/**
 * Changes that triggers report by NOTIFY. A notification arrives when its transaction is visible, in the order of commits, and the
 * notifications of one transaction follow each other.
 */

import { randomBytes } from 'node:crypto';
import { asError, propertiesOf } from '../../base/narrow.js';
import { within } from '../../base/time-limit.js';
import { withCatalog } from '../../compiler/sql/catalog-names.js';
import { quoteIdentifier } from '../../compiler/sql/fragment.js';
import type { LoggedChange, LoggedTable, Sources, TableName } from '../../server/changes/change-source.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { TIMELINE } from '../../server/postgres/pools/primary-watch.js';
import type { LogPosition, Session } from '../../server/postgres/pools/sessions.js';
import { positionOf } from '../../server/postgres/wire/log-position.js';
import { type ChangeSource, type Opened, type SourceEvents, TransactionReader } from './change-source.js';
import {
  channelOf,
  hasTriggers,
  inspectTriggers,
  installTriggers,
  notificationObstacle,
  TABLES_CHANGED,
  type TriggeredTables,
  type Written,
} from './live-triggers.js';

const POSITION_AND_CHANNEL = withCatalog(
  'select pg_current_wal_insert_lsn()::text as position, $1 in (select pg_listening_channels()) as heard',
);

/** Milliseconds between two checks of the connection, and for each of its statements. */
const PING_MS = 5_000;
/** Checks of the connection between two checks of the triggers: tables may have lost theirs, and new partitions have none. */
const PINGS_PER_CHECK = 6;

/** Begins the notifications by which an instance finds out how far it is. */
const MARK = 'mark ';
const NOTIFY_MARK = `select pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text as position, ${TIMELINE} as timeline, pg_catalog.pg_notify($1, $2)::pg_catalog.text`;

/** Milliseconds to wait for the lock of a table: its writers wait as well. */
const LOCK_TIMEOUT_MS = 100;

interface Options {
  readonly database: Database;
  readonly tables: () => readonly TableName[];
  /** Whether to install the first triggers. If there are some, tables without triggers always get them. */
  readonly installsFirst: boolean;
  /** Milliseconds between two checks of the connection; tests use less. */
  readonly ping?: number;
}

export class TriggerSource implements ChangeSource {
  readonly kind = 'triggers';
  readonly about = 'changes are reported by triggers';
  #session: Session | null = null;
  #events: SourceEvents | null = null;
  #timer: NodeJS.Timeout | null = null;
  #pings = 0;
  #isComparing = false;
  /** Whether triggers could not be installed at the last attempt, and whether only at that one. */
  #hasFailed = false;
  #retriesSoon = false;
  #written: TriggeredTables['written'] = new Map();
  /** The result of the last check, to compare. */
  #seen = '';
  /** Marks that were sent and have not arrived, and who waits for them. */
  readonly #awaited = new Map<string, (isLost: boolean) => void>();
  readonly #own = randomBytes(6).toString('hex');
  #marks = 0;

  constructor(private readonly options: Options) {}

  async obstacle(): Promise<string | null> {
    const { database, tables, installsFirst } = this.options;
    const obstacle = await notificationObstacle(database);
    if (obstacle !== null) return obstacle;
    if (await hasTriggers(database)) return null;
    const none = 'no triggers are installed: run "lateral live install"';
    if (!installsFirst) return none;
    const { missing } = await inspectTriggers(database, tables());
    return missing.some(({ mayInstall }) => mayInstall) ? null : `${none}, and the role may not`;
  }

  async open(events: SourceEvents, stopping: AbortSignal): Promise<Opened> {
    const notifications = new Notifications(
      events,
      () => this.#written,
      (error) => this.fail(error),
    );
    const { database, ping = PING_MS } = this.options;
    const session: Session = database.listener.open(
      (_, payload) => {
        if (payload === TABLES_CHANGED) events.tablesChanged();
        else if (payload.startsWith(MARK)) {
          notifications.flush();
          this.#awaited.get(payload)?.(false);
        } else notifications.take(payload);
      },
      () => this.#lose(session, new Error('the connection was closed')),
    );
    this.#session = session;
    this.#events = events;
    try {
      await within(session.query(`listen ${quoteIdentifier(channelOf(database.system))}`), PING_MS);
      const position = await this.#check(session);
      // From now on triggers report every write; earlier writes are in every read from now on.
      const sources = await this.refresh();
      if (stopping.aborted || this.#session !== session) throw new Error('the stream was closed');
      this.#timer = setInterval(() => void this.#ping(session), ping).unref();
      return { sources, position };
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  /** A notification of its own arrives behind all that were committed before. */
  async caughtUp(): Promise<LogPosition> {
    const session = this.#session;
    if (session === null) throw new Error('the connection was closed');
    const { database } = this.options;
    const mark = `${MARK}${this.#own}-${++this.#marks}`;
    const arrived = new Promise<boolean>((resolve) => this.#awaited.set(mark, resolve));
    try {
      const sent = database.rows<{ position: string; timeline: number }>(NOTIFY_MARK, [
        channelOf(database.system),
        mark,
      ]);
      const [row] = await within(sent, PING_MS);
      const isLost = await within(arrived, PING_MS);
      if (isLost || row === undefined || this.#session !== session) throw new Error('the connection was closed');
      return { position: positionOf(row.position), timeline: row.timeline };
    } finally {
      this.#awaited.delete(mark);
    }
  }

  async refresh(): Promise<Sources> {
    const { tables } = await this.#install();
    this.#written = tables.written;
    this.#seen = summaryOf(tables);
    return tables.sources;
  }

  /** Installs missing triggers if the role may. Returns the tables before and after. */
  async #install(): Promise<{ readonly found: TriggeredTables; readonly tables: TriggeredTables }> {
    const { database, tables: served, installsFirst } = this.options;
    const found = await inspectTriggers(database, served());
    const allowed = found.missing.filter(({ mayInstall }) => mayInstall);
    const isWanted = allowed.length > 0 && (installsFirst || found.installed > 0);
    const failures = isWanted
      ? await installTriggers(database, allowed, { lockTimeout: LOCK_TIMEOUT_MS, onlyWithOthers: !installsFirst })
      : null;
    const hasFailed = failures !== null && failures.size > 0;
    this.#retriesSoon = hasFailed && !this.#hasFailed;
    this.#hasFailed = hasFailed;
    const tables = failures ? await inspectTriggers(database, served(), failures) : found;
    if (tables.installed === 0) throw new Error([...(failures?.values() ?? [])][0] ?? 'no triggers are installed');
    return { found, tables };
  }

  fail(error: Error): void {
    if (this.#session) this.#lose(this.#session, error);
  }

  async close(): Promise<void> {
    if (this.#session) this.#lose(this.#session, new Error('the stream was closed'));
  }

  /** Triggers stay until they are removed by `lateral live remove`. */
  async release(): Promise<void> {}

  #lose(session: Session, error: Error): void {
    if (this.#session !== session) return;
    this.#session = null;
    if (this.#timer) clearInterval(this.#timer);
    this.#timer = null;
    session.destroy();
    for (const resolve of this.#awaited.values()) resolve(true);
    this.#events?.lost(error);
  }

  /** A half-open connection does not report that it is lost. */
  async #ping(session: Session): Promise<void> {
    try {
      await this.#check(session);
      // A table that was locked is tried again soon, but only once: its writers wait each time.
      const isDue = ++this.#pings % PINGS_PER_CHECK === 0 || this.#retriesSoon;
      if (isDue && !this.#isComparing) await this.#compare();
    } catch (error) {
      this.#lose(session, asError(error));
    }
  }

  async #compare(): Promise<void> {
    this.#isComparing = true;
    try {
      const { found, tables } = await this.#install();
      // While triggers were missing, changes were not reported.
      if ([found, tables].some((each) => summaryOf(each) !== this.#seen)) this.#events?.tablesChanged();
    } finally {
      this.#isComparing = false;
    }
  }

  /** Returns the end of the log. */
  async #check(session: Session): Promise<number> {
    const asked = session.query<{ position: string; heard: boolean }>(POSITION_AND_CHANNEL, [
      channelOf(this.options.database.system),
    ]);
    const [row] = await within(asked, PING_MS);
    if (!row?.heard) throw new Error('notifications do not arrive');
    return positionOf(row.position);
  }
}

/** Equal if the same changes are reported: it says which tables have triggers, but not why others have none. */
function summaryOf({ sources, written }: TriggeredTables): string {
  return JSON.stringify([
    [...sources].map(([served, below]) => [
      served,
      below.map(({ schema, name, unseen }) => [schema, name, unseen === null]),
    ]),
    [...written.keys()],
  ]);
}

/** The payload that sql/server/system/023_live_channels.sql writes. */
interface Notification {
  readonly table: number;
  readonly xid: number;
  /** The changed rows, or null if they are not known. */
  readonly rows: {
    readonly position: number;
    /** Milliseconds since 1970. */
    readonly time: number;
    readonly columns: readonly string[];
    readonly before: readonly Key[];
    readonly after: readonly Key[];
  } | null;
}

type Key = string | readonly string[];

const MAX_TABLES = 10_000;

/** Joins the notifications of a transaction. */
class Notifications {
  readonly #reader: TransactionReader;
  readonly #tables = new Map<string, LoggedTable>();
  /** The transaction whose notifications arrive. */
  #xid: number | null = null;
  #position = 0;
  #time = Number.POSITIVE_INFINITY;
  #flush: NodeJS.Immediate | null = null;

  constructor(
    events: SourceEvents,
    private readonly written: () => TriggeredTables['written'],
    private readonly onFailure: (error: Error) => void,
  ) {
    this.#reader = new TransactionReader(events, true);
  }

  take(payload: string): void {
    const notification = readPayload(payload);
    if (notification === null) return;
    const { xid, table: written, rows } = notification;
    if (xid !== this.#xid) this.#commit();
    if (this.#xid === null) this.#reader.begin(xid);
    this.#xid = xid;
    this.#position = Math.max(this.#position, rows?.position ?? 0);
    this.#time = Math.min(this.#time, rows?.time ?? Date.now());
    for (const table of this.written().get(written) ?? []) this.#change(table, rows);
    // The rest of the transaction may be in the next chunk of the connection: it counts as another transaction then.
    this.#flush ??= setImmediate(() => this.#commit());
  }

  /** Reports all that has arrived. */
  flush(): void {
    this.#commit();
  }

  #commit(): void {
    if (this.#flush) clearImmediate(this.#flush);
    this.#flush = null;
    if (this.#xid === null) return;
    this.#xid = null;
    const time = this.#time;
    this.#time = Number.POSITIVE_INFINITY;
    try {
      this.#reader.commit(this.#position, time);
    } catch (error) {
      // The failure would be lost otherwise: the stream is opened again.
      this.onFailure(asError(error));
    }
  }

  #change({ schema, name, isExact }: Written, rows: Notification['rows']): void {
    const table = this.#tableOf(schema, name, isExact ? (rows?.columns ?? []) : []);
    if (this.#reader.wanted(table) === null) return;
    const report = (action: LoggedChange['action'], before: Key | null, after: Key | null): void =>
      this.#reader.change({ table, action, before: rowOf(before), after: rowOf(after) });
    if (rows === null || !isExact) {
      report('truncate', null, null);
      return;
    }
    // Which old key became which new one is not reported and not needed: rows with either key have changed.
    const former = new Set(rows.before.map(textOf));
    const later = new Set(rows.after.map(textOf));
    for (const key of rows.before) if (!later.has(textOf(key))) report('delete', key, null);
    for (const key of rows.after) report(former.has(textOf(key)) ? 'update' : 'create', null, key);
  }

  /** Returns the same object each time: receivers keep something for each table. */
  #tableOf(schema: string, name: string, columns: readonly string[]): LoggedTable {
    const id = JSON.stringify([schema, name, columns]);
    const known = this.#tables.get(id);
    if (known) return known;
    const table = { schema, name, columns: columns.map((column) => ({ name: column, isKey: true })), isFull: false };
    // Any role may send notifications, even about columns that do not exist.
    if (this.#tables.size >= MAX_TABLES) this.#tables.clear();
    this.#tables.set(id, table);
    return table;
  }
}

function textOf(key: Key): string {
  return typeof key === 'string' ? key : JSON.stringify(key);
}

function rowOf(key: Key | null): readonly string[] | null {
  return typeof key === 'string' ? [key] : key;
}

/** Other code uses transaction numbers of 32 bits. */
const XIDS = 2 ** 32;

/** Returns null for other payloads: any role may send notifications. */
function readPayload(payload: string): Notification | null {
  try {
    const { t: table, x: xid, p, at, a, k, o, n } = propertiesOf(JSON.parse(payload));
    if (!isNumber(table) || !isNumber(xid)) return null;
    if (a === undefined) return { table, xid: xid % XIDS, rows: null };
    if (!isTexts(k) || k.length === 0 || k.length > MAX_COLUMNS) return null;
    if (typeof p !== 'string' || !POSITION.test(p) || typeof at !== 'number') return null;
    const columns = k;
    const after = keysOf(n, columns.length);
    const before = o === undefined && a === 'update' ? after : keysOf(o, columns.length);
    if (before === null || after === null) return null;
    return { table, xid: xid % XIDS, rows: { position: positionOf(p), time: at * 1_000, columns, before, after } };
  } catch {
    return null;
  }
}

const POSITION = /^[0-9A-F]{1,8}\/[0-9A-F]{1,8}$/i;
/** PostgreSQL's limit for an index. */
const MAX_COLUMNS = 32;

/** Returns null if these are not keys with so many columns. */
function keysOf(value: unknown, columns: number): readonly Key[] | null {
  if (value === undefined) return [];
  if (!Array.isArray(value)) return null;
  const isKey = (key: unknown): key is Key =>
    columns === 1 ? typeof key === 'string' : isTexts(key) && key.length === columns;
  return value.every(isKey) ? value : null;
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((each) => typeof each === 'string');
}
