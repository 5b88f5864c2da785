/**
 * Determines how recent the cache of reads is. The stream of changes is compared with the database again and again: when everything that
 * was committed before a comparison has been reported, answers in memory are at most as old as that comparison.
 */

import { performance } from 'node:perf_hooks';
import { StartError } from '../../base/errors.js';
import { withCatalog } from '../../compiler/sql/catalog-names.js';
import type { Changes } from '../../server/changes/changes.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { describeTransactions } from './open-transactions.js';
import type { ReadCache } from './read-cache.js';

/**
 * Changes with each table that is created, rewritten, truncated or dropped, and with grants, roles, memberships of roles, policies,
 * labels of enums, casts and their functions, and the configurations and dictionaries of text search. Statistics that VACUUM and ANALYZE write do not change
 * it. The service reads it several times a second, so it is shorter than the fingerprint of the schema (sql/server/fingerprint.sql), which is read
 * rarely and covers the whole model. `inherited` changes if a table of any schema starts or stops inheriting from another.
 */
const CATALOG = withCatalog(`select concat_ws(' ',
  (select concat_ws(':', count(*), sum(xmin::text::bigint)) from pg_class where relkind in ('r', 'p') and relpersistence = 'p'),
  (select concat_ws(':', count(*), sum(xmin::text::bigint)) from pg_inherits),
  (select concat_ws(':', count(*), sum(xmin::text::bigint)) from pg_attribute where attacl is not null),
  (select concat_ws(':', count(*), sum(xmin::text::bigint)) from pg_auth_members),
  (select sum(hashtext(concat_ws(' ', oid, rolname, rolsuper, rolinherit, rolbypassrls))) from pg_roles),
  (select concat_ws(':', count(*), sum(xmin::text::bigint)) from pg_policy),
  (select concat_ws(':', count(*), sum(xmin::text::bigint)) from pg_enum),
  (select concat_ws(':', count(*), sum(xmin::text::bigint)) from pg_ts_config_map),
  (select concat_ws(':', count(*), sum(xmin::text::bigint)) from pg_ts_dict),
  (select concat_ws(':', count(*), sum(xmin::text::bigint)) from pg_cast),
  (select sum(p.xmin::text::bigint) from pg_cast c join pg_proc p on p.oid = c.castfunc where c.oid >= 16384),
  (select concat_ws(':', count(*), sum(xmin::text::bigint)) from pg_namespace where not starts_with(nspname::text, 'pg_'))) as digest,
  (select concat_ws(':', count(*), sum(i.xmin::text::bigint)) from pg_inherits i join pg_class p on p.oid = i.inhparent
    where p.relkind = 'r') as inherited`);

/** Comparisons within the allowed lag. */
const COMPARISONS = 4;
/** Milliseconds between two comparisons after writes. */
const SHORTEST_MS = 5;
/** Milliseconds between two questions whether commits are visible: the first pause, which doubles each time, and the longest. */
const FIRST_PAUSE_MS = 2;
const MAX_PAUSE_MS = 100;
/** Milliseconds between two questions which transactions are still open. */
const HOLDERS_MS = 1_000;

export class Freshness {
  readonly #comparison: Repeated;
  readonly #settling: Repeated;
  #pause = FIRST_PAUSE_MS;
  readonly #interval: number;
  #catalog = '';
  /** Null before it was read: the tables below others may have been read earlier. */
  #inherited: string | null = null;
  /** By the clock of `performance`. */
  #catalogReadAt = Number.NEGATIVE_INFINITY;
  /** By the clock of `performance`. */
  #holdersReadAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly database: Database,
    private readonly changes: Changes,
    private readonly cache: ReadCache,
  ) {
    const interval = cache.limits.maxLag / COMPARISONS;
    this.#interval = interval;
    this.#comparison = new Repeated(() => this.#compare().then(() => interval));
    this.#settling = new Repeated(() => this.#settle());
    cache.writes.onWrite = () => this.#comparison.soon(SHORTEST_MS);
    cache.onUnsettled = () => {
      this.#pause = FIRST_PAUSE_MS;
      this.#settling.soon(FIRST_PAUSE_MS);
    };
  }

  /** Opens the stream of changes, and keeps it open. Throws if there is none. */
  async start(): Promise<void> {
    const obstacle = await this.changes.obstacle();
    if (obstacle !== null) throw new StartError(`READ_CACHE_SIZE needs live queries: ${obstacle}`);
    this.changes.add(this.cache);
    await this.changes.hold(this.cache);
    this.#comparison.soon(0);
  }

  stop(): void {
    this.#comparison.stop();
    this.#settling.stop();
    this.cache.lost();
  }

  async #compare(): Promise<void> {
    const at = performance.now();
    const written = this.cache.writes.last;
    if (this.changes.stream.state !== 'open') return;
    if (at - this.#catalogReadAt > this.#interval / 2 && !(await this.#compareCatalog(at))) return;
    const position = await this.changes.stream.caughtUp().catch(() => null);
    // An answer is as recent as the older of the two questions.
    if (position !== null) this.cache.caughtUp(this.#catalogReadAt, position, written);
  }

  /** The stream does not report changes of the catalog. Returns whether it was read. */
  async #compareCatalog(at: number): Promise<boolean> {
    const [row] = await this.database.rows<{ digest: string; inherited: string }>(CATALOG).catch(() => []);
    if (row === undefined) return false;
    if (row.digest !== this.#catalog) this.cache.clear();
    // Rows of other tables may be shown from now on, and their changes are not reported.
    if (row.inherited !== this.#inherited) this.changes.stream.tablesChanged();
    this.#catalog = row.digest;
    this.#inherited = row.inherited;
    this.#catalogReadAt = at;
    return true;
  }

  /** Returns when to ask again, or null if all commits are visible. */
  async #settle(): Promise<number | null> {
    const { pending } = this.cache;
    if (!pending.isUnsettled) return null;
    const askedAt = performance.now();
    const known = await (pending.awaitsRunning
      ? this.changes.visibility.runningNow()
      : this.changes.visibility.knownNow());
    if (known) pending.settle(known, askedAt);
    if (!pending.isUnsettled) return null;
    if (pending.heldMs > HOLDERS_MS && askedAt - this.#holdersReadAt > HOLDERS_MS) await this.#nameHolders(askedAt);
    this.#pause = Math.min(this.#pause * 2, MAX_PAUSE_MS);
    return this.#pause;
  }

  /** They may stay for days: administrators have to end them. */
  async #nameHolders(askedAt: number): Promise<void> {
    this.#holdersReadAt = askedAt;
    const { pending } = this.cache;
    const named = await describeTransactions(this.database, pending.older).catch(() => '');
    if (pending.heldMs > 0 && named !== '') pending.holders = named;
  }
}

/** Work that is done again and again, never twice at the same time. */
class Repeated {
  #timer: NodeJS.Timeout | null = null;
  #dueAt = Number.POSITIVE_INFINITY;
  #beganAt = Number.NEGATIVE_INFINITY;
  #isRunning = false;
  #isStopped = false;

  /** `work` resolves with the milliseconds until it is due again, or with null if it is not. */
  constructor(private readonly work: () => Promise<number | null>) {}

  /** Does it soon, at least so many milliseconds after it was begun last. */
  soon(leastMs: number): void {
    if (this.#isStopped) return;
    const now = performance.now();
    const dueAt = Math.max(now, this.#beganAt + leastMs);
    if (dueAt >= this.#dueAt) return;
    this.#dueAt = dueAt;
    if (!this.#isRunning) this.#arm();
  }

  stop(): void {
    this.#isStopped = true;
    if (this.#timer) clearTimeout(this.#timer);
  }

  #arm(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#isStopped || this.#dueAt === Number.POSITIVE_INFINITY) return;
    this.#timer = setTimeout(() => void this.#run(), this.#dueAt - performance.now()).unref();
  }

  async #run(): Promise<void> {
    this.#timer = null;
    this.#isRunning = true;
    this.#beganAt = performance.now();
    this.#dueAt = Number.POSITIVE_INFINITY;
    const pause = await this.work();
    this.#isRunning = false;
    if (pause !== null) this.#dueAt = Math.min(this.#dueAt, performance.now() + pause);
    this.#arm();
  }
}
