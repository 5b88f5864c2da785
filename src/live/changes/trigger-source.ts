/**
 * Changes as triggers of the tables tell them, by notifications. A notification arrives when its transaction is visible, in the order of
 * commits, and those of one transaction follow each other.
 */
import { asError, propertiesOf } from '../../base/narrow.js';
import {
  channelOf,
  hasTriggers,
  inspectTriggers,
  installTriggers,
  notificationObstacle,
  TABLES_CHANGED,
  type TriggeredTables,
  type Written,
} from '../../postgres/changes/live-triggers.js';
import { type LoggedChange, type LoggedTable, positionOf } from '../../postgres/changes/pgoutput.js';
import type { TableName } from '../../postgres/changes/publication.js';
import type { Database } from '../../postgres/pools/database.js';
import type { Session } from '../../postgres/pools/sessions.js';
import { within } from '../../postgres/wire/time-limit.js';
import { withCatalog } from '../../sql/catalog-names.js';
import { quoteIdentifier } from '../../sql/fragment.js';
import type { ChangeSource, Opened, SourceEvents, Sources } from './change-source.js';
import { TransactionReader } from './transaction-reader.js';

const POSITION_AND_CHANNEL = withCatalog(
  'select pg_current_wal_insert_lsn()::text as position, $1 in (select pg_listening_channels()) as heard',
);

/** Milliseconds between two looks at the connection, and for each of its statements. */
const BEAT_MS = 5_000;
/** Looks at the connection between two looks for tables that have lost their triggers, and for partitions without any. */
const BEATS_PER_LOOK = 6;

/** Milliseconds that a table which is in use is waited for: whoever writes to it waits as well. */
const LOCK_TIMEOUT_MS = 100;

interface Options {
  readonly database: Database;
  readonly tables: () => readonly TableName[];
  /** Whether to install the first ones too: where there are some, tables without any get them in any case. */
  readonly installsFirst: boolean;
  /** Milliseconds between two looks at the connection; a test does not wait for so long. */
  readonly beat?: number;
}

export class TriggerSource implements ChangeSource {
  readonly kind = 'triggers';
  readonly about = 'changes are told by triggers';
  readonly #database: Database;
  readonly #tables: () => readonly TableName[];
  readonly #installsFirst: boolean;
  readonly #installing: Parameters<typeof installTriggers>[2];
  readonly #beatMs: number;
  #session: Session | null = null;
  #events: SourceEvents | null = null;
  #timer: NodeJS.Timeout | null = null;
  #beats = 0;
  #isLooking = false;
  /** Whether triggers could not be installed at the last attempt, and whether only at that one. */
  #hasFailed = false;
  #retriesSoon = false;
  #written: TriggeredTables['written'] = new Map();
  /** What was seen at the last look, to compare. */
  #seen = '';

  constructor({ database, tables, installsFirst, beat = BEAT_MS }: Options) {
    this.#database = database;
    this.#tables = tables;
    this.#installsFirst = installsFirst;
    this.#installing = { lockTimeout: LOCK_TIMEOUT_MS, besideOthers: !installsFirst };
    this.#beatMs = beat;
  }

  async obstacle(): Promise<string | null> {
    const obstacle = await notificationObstacle(this.#database);
    if (obstacle !== null) return obstacle;
    if (await hasTriggers(this.#database)) return null;
    const none = 'no triggers are installed: "lateral live install" does that';
    if (!this.#installsFirst) return none;
    const { missing } = await inspectTriggers(this.#database, this.#tables());
    return missing.some(({ mayInstall }) => mayInstall) ? null : `${none}, and the role may not`;
  }

  async open(events: SourceEvents, stopping: AbortSignal): Promise<Opened> {
    const notifications = new Notifications(
      events,
      () => this.#written,
      (error) => this.fail(error),
    );
    const session: Session = this.#database.listener.open(
      (_, payload) => {
        if (payload === TABLES_CHANGED) events.tablesChanged();
        else notifications.take(payload);
      },
      () => this.#lose(session, new Error('the connection was closed')),
    );
    this.#session = session;
    this.#events = events;
    try {
      await within(session.query(`listen ${quoteIdentifier(channelOf(this.#database.system))}`), BEAT_MS);
      const position = await this.#look(session);
      // Triggers that are there now tell whoever writes later; what was written before is in what is read from now on.
      const sources = await this.refresh();
      if (stopping.aborted || this.#session !== session) throw new Error('the stream was closed');
      this.#timer = setInterval(() => void this.#beat(session), this.#beatMs).unref();
      return { sources, position };
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  async refresh(): Promise<Sources> {
    const { tables } = await this.#bringInStep();
    this.#written = tables.written;
    this.#seen = summaryOf(tables);
    return tables.sources;
  }

  /** Installs what is missing where the role may: how it was found, and how it is. */
  async #bringInStep(): Promise<{ readonly found: TriggeredTables; readonly tables: TriggeredTables }> {
    const found = await inspectTriggers(this.#database, this.#tables());
    const allowed = found.missing.filter(({ mayInstall }) => mayInstall);
    const isWanted = allowed.length > 0 && (this.#installsFirst || found.installed > 0);
    const failures = isWanted ? await installTriggers(this.#database, allowed, this.#installing) : null;
    const hasFailed = failures !== null && failures.size > 0;
    this.#retriesSoon = hasFailed && !this.#hasFailed;
    this.#hasFailed = hasFailed;
    const tables = failures ? await inspectTriggers(this.#database, this.#tables(), failures) : found;
    if (tables.installed === 0) throw new Error([...(failures?.values() ?? [])][0] ?? 'no triggers are installed');
    return { found, tables };
  }

  fail(error: Error): void {
    if (this.#session) this.#lose(this.#session, error);
  }

  async close(): Promise<void> {
    if (this.#session) this.#lose(this.#session, new Error('the stream was closed'));
  }

  /** Triggers stay: who has them installed takes them away. */
  async release(): Promise<void> {}

  #lose(session: Session, error: Error): void {
    if (this.#session !== session) return;
    this.#session = null;
    if (this.#timer) clearInterval(this.#timer);
    this.#timer = null;
    session.destroy();
    this.#events?.lost(error);
  }

  /** A half-open connection reports nothing by itself. */
  async #beat(session: Session): Promise<void> {
    try {
      await this.#look(session);
      // A table that was in use for a moment need not wait for long; one that stays so would let its writers wait each time.
      const isDue = ++this.#beats % BEATS_PER_LOOK === 0 || this.#retriesSoon;
      if (isDue && !this.#isLooking) await this.#compare();
    } catch (error) {
      this.#lose(session, asError(error));
    }
  }

  async #compare(): Promise<void> {
    this.#isLooking = true;
    try {
      const { found, tables } = await this.#bringInStep();
      // Where triggers were missing for a while, changes were not told.
      if ([found, tables].some((each) => summaryOf(each) !== this.#seen)) this.#events?.tablesChanged();
    } finally {
      this.#isLooking = false;
    }
  }

  /** Answers how far the log reaches. */
  async #look(session: Session): Promise<number> {
    const asked = session.query<{ position: string; heard: boolean }>(POSITION_AND_CHANNEL, [
      channelOf(this.#database.system),
    ]);
    const [row] = await within(asked, BEAT_MS);
    if (!row?.heard) throw new Error('notifications do not arrive');
    return positionOf(row.position);
  }
}

/** What live queries depend on: a reason that a table is not seen counts, an attempt to install triggers that fails again does not. */
function summaryOf({ sources, written }: TriggeredTables): string {
  return JSON.stringify([
    [...sources].map(([served, below]) => [
      served,
      below.map(({ schema, name, unseen }) => [schema, name, unseen === null]),
    ]),
    [...written.keys()],
  ]);
}

/** What sql/system/023_live_channels.sql writes. */
interface Told {
  readonly table: number;
  readonly xid: number;
  /** Null where nobody knows which rows. */
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
export class Notifications {
  readonly #reader: TransactionReader;
  readonly #written: () => TriggeredTables['written'];
  readonly #onFailure: (error: Error) => void;
  readonly #tables = new Map<string, LoggedTable>();
  /** The transaction whose notifications arrive. */
  #xid: number | null = null;
  #position = 0;
  #time = Number.POSITIVE_INFINITY;
  #flush: NodeJS.Immediate | null = null;

  constructor(events: SourceEvents, written: () => TriggeredTables['written'], onFailure: (error: Error) => void) {
    this.#reader = new TransactionReader(events, true);
    this.#written = written;
    this.#onFailure = onFailure;
  }

  take(payload: string): void {
    const told = readPayload(payload);
    if (told === null) return;
    if (told.xid !== this.#xid) this.#commit();
    if (this.#xid === null) this.#reader.begin(told.xid);
    this.#xid = told.xid;
    this.#position = Math.max(this.#position, told.rows?.position ?? 0);
    this.#time = Math.min(this.#time, told.rows?.time ?? Date.now());
    for (const table of this.#written().get(told.table) ?? []) this.#change(table, told);
    // The rest of the transaction may be in the next chunk of the connection: it is told as another one then.
    this.#flush ??= setImmediate(() => this.#commit());
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
      // Nobody else would hear of it: the stream begins anew.
      this.#onFailure(asError(error));
    }
  }

  #change({ schema, name, isExact }: Written, { rows }: Told): void {
    const table = this.#tableOf(schema, name, isExact ? (rows?.columns ?? []) : []);
    if (this.#reader.wanted(table) === null) return;
    const tell = (action: LoggedChange['action'], before: Key | null, after: Key | null): void =>
      this.#reader.change({ table, action, before: rowOf(before), after: rowOf(after) });
    if (rows === null || !isExact) {
      tell('truncate', null, null);
      return;
    }
    // Which row has become which is not told, and need not be: who has the key before and after has changed in either case.
    const former = new Set(rows.before.map(textOf));
    const later = new Set(rows.after.map(textOf));
    for (const key of rows.before) if (!later.has(textOf(key))) tell('delete', key, null);
    for (const key of rows.after) tell(former.has(textOf(key)) ? 'update' : 'create', null, key);
  }

  /** The same one each time: who listens keeps something for each. */
  #tableOf(schema: string, name: string, columns: readonly string[]): LoggedTable {
    const id = JSON.stringify([schema, name, columns]);
    const known = this.#tables.get(id);
    if (known) return known;
    const table = { schema, name, columns: columns.map((column) => ({ name: column, isKey: true })), isFull: false };
    // Everybody may notify, of columns that there are not.
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

/** Transactions have numbers of 32 bits elsewhere. */
const XIDS = 2 ** 32;

/** Null for what is no notification of ours: everybody may notify. */
export function readPayload(payload: string): Told | null {
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
/** Of an index of PostgreSQL. */
const MAX_COLUMNS = 32;

/** Null for what are no keys of so many columns. */
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
