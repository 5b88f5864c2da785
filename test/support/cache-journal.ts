/**
 * What has been written, and when the writer learned that it is committed: it dates answers. A trigger numbers every version of a row
 * with a stamp from one sequence while it holds the lock of the row, so the stamps of a row have the order of its commits. Keys are
 * never used again.
 */
export const TABLES = ['teams', 'people', 'notes', 'bulk', 'flash'] as const;
export type Table = (typeof TABLES)[number];

export interface Row {
  readonly id: number;
  readonly stamp: number;
  readonly level: number | null;
  readonly owner: string | null;
}

interface Version {
  /** Null as long as it is not known. */
  stamp: number | null;
  /** Null if it was deleted, undefined as long as it is not known. */
  row: Row | null | undefined;
  readonly sentAt: number;
  /** Infinite as long as nobody knows that it is committed. */
  ackedAt: number;
  readonly by: string;
}

/** A read, to say which versions it must show. */
export interface Moment {
  readonly caller: string;
  /** All writes that were acknowledged until then must be seen, and those of the caller until it was sent. */
  readonly bound: number;
  readonly sentAt: number;
  readonly answeredAt: number;
}

/** Milliseconds after which no read is under way that began before. */
const HISTORY_MS = 30_000;

export interface Written {
  readonly table: Table;
  readonly rows?: readonly Row[];
  readonly deleted?: readonly number[];
}

export class Journal {
  readonly #rows = new Map<Table, Map<number, Version[]>>(TABLES.map((table) => [table, new Map()]));
  /** Writes of rows that are not known before. */
  readonly #wide: { readonly table: Table; readonly sentAt: number; endedAt: number }[] = [];
  stamps = 0;

  /** Keys of rows that are not known to be deleted. */
  keys(table: Table): number[] {
    return [...this.#of(table)].flatMap(([id, versions]) => (versions.some(({ row }) => row === null) ? [] : [id]));
  }

  begin(by: string): Write {
    return new Write(this, by);
  }

  add(table: Table, id: number, version: Version): void {
    const rows = this.#of(table);
    const versions = rows.get(id) ?? [];
    const before = performance.now() - HISTORY_MS;
    const last = versions.findLast(({ ackedAt, row }) => ackedAt < before && row !== undefined);
    rows.set(id, [...versions.filter((each) => each === last || each.ackedAt >= before), version]);
  }

  remove(table: Table, id: number, version: Version): void {
    const versions = this.#of(table).get(id) ?? [];
    this.#of(table).set(
      id,
      versions.filter((each) => each !== version),
    );
  }

  /** A write that may concern any row of the table. */
  widen(table: Table): { endedAt: number } {
    const wide = { table, sentAt: performance.now(), endedAt: Number.POSITIVE_INFINITY };
    this.#wide.push(wide);
    return wide;
  }

  /** The stamp that a row must have at least, and whether it must be gone. */
  required(table: Table, id: number, moment: Moment): { readonly stamp: number; readonly isDeleted: boolean } {
    let stamp = 0;
    let isDeleted = false;
    for (const version of this.#of(table).get(id) ?? []) {
      if (!isDue(version, moment)) continue;
      if (version.row === null) isDeleted = true;
      stamp = Math.max(stamp, version.stamp ?? 0);
    }
    return { stamp, isDeleted };
  }

  /** The rows that an answer must show in this state if it shows them: no other write of them is possible. */
  *certain(table: Table, moment: Moment): Iterable<Row> {
    if (this.#isWide(table, moment)) return;
    for (const versions of this.#of(table).values()) {
      let latest: Version | null = null;
      let isCertain = true;
      for (const version of versions) {
        if (version.sentAt > moment.answeredAt) continue;
        if (!isDue(version, moment) || version.row === undefined) isCertain = false;
        else if (version.row === null) isCertain = false;
        else if (latest === null || (version.stamp ?? 0) > (latest.stamp ?? 0)) latest = version;
      }
      if (isCertain && latest?.row) yield latest.row;
    }
  }

  isKnown(table: Table, id: number): boolean {
    return this.#of(table).has(id);
  }

  /** Whether every write of the table is known for this moment. */
  isQuiet(table: Table, moment: Moment): boolean {
    if (this.#isWide(table, moment)) return false;
    for (const versions of this.#of(table).values())
      for (const version of versions)
        if (version.sentAt <= moment.answeredAt && (!isDue(version, moment) || version.row === undefined)) return false;
    return true;
  }

  /** Takes the state of a table at rest. Returns rows that are older than acknowledged writes: then this journal is wrong. */
  settle(table: Table, found: readonly Row[]): string[] {
    const now = performance.now();
    const moment = { caller: '', bound: now, sentAt: now, answeredAt: now };
    const wrong = found.flatMap(({ id, stamp }) => {
      const required = this.required(table, id, moment);
      return required.isDeleted || stamp < required.stamp ? [`${table} ${id}: ${stamp}, not ${required.stamp}`] : [];
    });
    const rows = this.#of(table);
    const isLeft = new Set(found.map(({ id }) => id));
    for (const id of rows.keys()) if (!isLeft.has(id)) rows.set(id, [version(null, now)]);
    for (const row of found) rows.set(row.id, [version(row, now)]);
    this.#wide.splice(0);
    return wrong;
  }

  #of(table: Table): Map<number, Version[]> {
    const rows = this.#rows.get(table);
    if (!rows) throw new Error(table);
    return rows;
  }

  #isWide(table: Table, { bound, answeredAt }: Moment): boolean {
    return this.#wide.some((wide) => wide.table === table && wide.sentAt <= answeredAt && wide.endedAt >= bound);
  }
}

function version(row: Row | null, at: number): Version {
  return { stamp: row?.stamp ?? null, row, sentAt: at, ackedAt: at, by: '' };
}

function isDue({ ackedAt, by }: Version, { bound, sentAt, caller }: Moment): boolean {
  return ackedAt <= bound || (by === caller && by !== '' && ackedAt <= sentAt);
}

/** A write under way: a row that it may change has a version that is not known yet. */
export class Write {
  readonly #touched: { readonly table: Table; readonly id: number; readonly version: Version }[] = [];
  readonly #wide: { endedAt: number }[] = [];

  constructor(
    private readonly journal: Journal,
    private readonly by: string,
  ) {}

  touch(table: Table, ids: readonly number[]): void {
    for (const id of ids) {
      const touched: Version = {
        stamp: null,
        row: undefined,
        sentAt: performance.now(),
        ackedAt: Number.POSITIVE_INFINITY,
        by: this.by,
      };
      this.journal.add(table, id, touched);
      this.#touched.push({ table, id, version: touched });
    }
  }

  widen(table: Table): void {
    this.#wide.push(this.journal.widen(table));
  }

  /** It was acknowledged. */
  done(written: readonly Written[]): void {
    const ackedAt = performance.now();
    for (const { table, rows = [], deleted = [] } of written) {
      for (const row of rows) {
        this.#versionOf(table, row.id, { stamp: row.stamp, row, ackedAt });
        this.journal.stamps++;
      }
      for (const id of deleted) this.#versionOf(table, id, { stamp: null, row: null, ackedAt });
    }
    for (const { table, id, version: left } of this.#touched)
      if (left.ackedAt === Number.POSITIVE_INFINITY) this.journal.remove(table, id, left);
    for (const wide of this.#wide) wide.endedAt = ackedAt;
  }

  /** Nothing of it is committed. */
  undone(): void {
    this.done([]);
  }

  #versionOf(table: Table, id: number, known: Pick<Version, 'stamp' | 'row' | 'ackedAt'>): void {
    const touched = this.#touched.find((each) => each.table === table && each.id === id);
    if (touched) Object.assign(touched.version, known);
    else this.journal.add(table, id, { ...known, sentAt: 0, by: this.by });
  }
}
