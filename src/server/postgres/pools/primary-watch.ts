/**
 * Finds the primary among several servers, and checks every second that it still accepts writes. As soon as another server is the
 * primary, all connections are closed and new ones are opened there. A former primary that does not know of the promotion has an older
 * timeline, because each promotion begins a new one. Servers of another cluster or database are never used.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { asError, codeOf, elementAt } from '../../../base/narrow.js';
import type { Observer } from '../../../base/observe.js';
import { within } from '../../../base/time-limit.js';
import { withCatalog } from '../../../compiler/sql/catalog-names.js';
import { addressOf, type ConnectionSettings, type SessionTarget, withHost } from '../../config/connection-settings.js';
import { openClient, startParameters } from '../wire/client.js';
import { isLostOnTheWay } from '../wire/connection-errors.js';
import type { DriverClient } from '../wire/connection-options.js';
import { DATABASE, differenceOf, isDenied, type ServerIdentity, SYSTEM } from './server-identity.js';

export interface Role extends ServerIdentity {
  readonly standby: boolean;
  /** Whether transactions are read-only unless they say otherwise. */
  readonly readonly: boolean;
  /** The timeline of a primary, or null for a standby. */
  readonly timeline: number | null;
}

/** The timeline of a primary. */
export const TIMELINE = withCatalog(`('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int`);

const roleWith = (system: string): string =>
  withCatalog(`
  select pg_is_in_recovery() as standby, current_setting('default_transaction_read_only') = 'on' as readonly,
    case when not pg_is_in_recovery() then ${TIMELINE} end as timeline, ${system} as system,
    ${DATABASE} as database`);
const ROLE = roleWith(SYSTEM);
const ROLE_ALONE = roleWith('null');

/** Milliseconds that a server may take to answer, between two rounds, and between two while there is no primary. */
const ANSWER_MS = 1_000;
const ROUND_MS = 1_000;
const LOST_ROUND_MS = 200;

/** While the primary answers, the other servers are checked only every fifth round: there may be a second primary. */
const QUIET_ROUNDS = 5;

/** Milliseconds that a read whose connection was lost waits for a new primary. */
const REPEAT_WAIT_MS = 3_000;

export interface WatchedServer {
  /** The database that is wanted, if another thread has found it. */
  readonly identity?: ServerIdentity | null;
}

/** Returns null if any server will do. `leave` ends all connections. */
export function watchPrimary(
  settings: ConnectionSettings,
  { identity = null }: WatchedServer,
  leave: () => void,
  observe: Observer,
): PrimaryWatch | null {
  const { hosts, target } = settings;
  if (target === 'any') return null;
  const servers = hosts.map((host) => withHost(settings, host));
  // Sends few settings, because a pooler may refuse them and the checks do not depend on them.
  const open = (server: ConnectionSettings): DriverClient => openClient(server, startParameters(server));
  return new PrimaryWatch({ servers, target, identity, open, leave, observe });
}

interface PrimaryWatchOptions {
  /** Each with one host. */
  readonly servers: readonly ConnectionSettings[];
  readonly target: SessionTarget;
  /** The database that is wanted; that of the first host that answers when absent. */
  readonly identity?: ServerIdentity | null;
  /** A client with one connection, opened when it is used. */
  readonly open: (server: ConnectionSettings) => DriverClient;
  /** Ends all connections. */
  readonly leave: () => void;
  readonly observe: Observer;
}

export class PrimaryWatch {
  readonly #leaving = new Set<() => void>();
  #current: ConnectionSettings;
  #client: DriverClient | null = null;
  #timeline = 0;
  #identity: ServerIdentity | null;
  /** Why a host is not used: it is of another cluster or another database. */
  readonly #foreign = new Map<ConnectionSettings, string>();
  #rounds = 0;
  #failures = 0;
  #isLost = false;
  #round: Promise<void> | null = null;
  #search: Promise<void> | null = null;
  /** The next search for a timeline that was not found starts no earlier (`performance.now()`). */
  #nextSearch = 0;
  #timer: NodeJS.Timeout | null = null;
  #isClosed = false;

  constructor(private readonly options: PrimaryWatchOptions) {
    this.#identity = options.identity ?? null;
    this.#current = elementAt(options.servers, 0);
  }

  /** Where connections are to be opened. */
  get server(): ConnectionSettings {
    return this.#current;
  }

  /** The last known timeline of the primary. */
  get timeline(): number {
    return this.#timeline;
  }

  /** The database that the service started with; null before it was found. */
  get identity(): ServerIdentity | null {
    return this.#identity;
  }

  /** Hosts that are not used because they are of another cluster or another database, each with the reason. */
  get foreign(): readonly string[] {
    return [...this.#foreign].map(([server, reason]) => `${addressOf(server)}: ${reason}`);
  }

  /** Fails if no server will do, with the reason of each. */
  async find(wanted: ServerIdentity | null = this.options.identity ?? null): Promise<void> {
    const answers = await this.#askAll(this.options.servers);
    const first = answers.find(({ role }) => role !== null)?.role;
    this.#identity = wanted ?? (first ? plainIdentity(first) : null);
    const best = this.#best(answers);
    if (best) {
      this.#current = best.server;
      this.#follow(best);
      return;
    }
    const [denied] = answers.flatMap(({ error }) => (error && isRefusal(error) ? [error] : []));
    if (denied) throw denied;
    const reasons = answers.map(
      ({ server, role, error }) => `${addressOf(server)}: ${this.#foreign.get(server) ?? describe(role, error)}`,
    );
    throw Object.assign(new Error(`no server takes writes (${reasons.join('; ')})`), { code: 'CONNECTION_FAILED' });
  }

  /** From now on, until it is closed. */
  start(): void {
    if (this.options.servers.length > 1) this.#schedule(ROUND_MS);
  }

  close(): void {
    this.#isClosed = true;
    if (this.#timer) clearTimeout(this.#timer);
    this.#drop();
  }

  /** Ends a connection whose server is not the one that is wanted. */
  async accept(client: DriverClient): Promise<void> {
    const role = await askRole(client);
    const difference = this.#reasonAgainst(role);
    // One address leads to one server: if it was moved to another cluster, that is the wanted one.
    const isReplaced = this.options.servers.length === 1 && difference !== null;
    const timeline = role.timeline ?? this.#timeline;
    if (this.#suits(role) && (isReplaced || (difference === null && timeline >= this.#timeline))) {
      if (isReplaced) this.#identity = plainIdentity(role);
      return this.#follow({ ...role, timeline });
    }
    this.suspect();
    throw Object.assign(new Error(difference ?? describe(role, null)), { code: 'CONNECTION_STANDBY' });
  }

  /** To be called when the server is left, before another connection is opened. Returns how to forget it. */
  onLeave(listener: () => void): () => void {
    this.#leaving.add(listener);
    return () => this.#leaving.delete(listener);
  }

  /** The server may have lost its role as primary: it is asked at once. */
  suspect(): void {
    if (this.#round || this.#isClosed || this.options.servers.length === 1) return;
    this.#schedule(0);
  }

  /** A write has seen a later promotion: resolves when all servers were asked for it, found or not. */
  reach(timeline: number): Promise<void> {
    if (this.#timeline >= timeline || this.options.servers.length === 1 || this.#isClosed) return Promise.resolve();
    if (this.#search === null && performance.now() < this.#nextSearch) return Promise.resolve();
    this.#search ??= this.#searchAll().finally(() => {
      this.#search = null;
      this.#nextSearch = performance.now() + ROUND_MS;
    });
    return this.#search;
  }

  async #searchAll(): Promise<void> {
    await this.#round;
    if (this.#isClosed) return;
    if (this.#timer) clearTimeout(this.#timer);
    this.#rounds = QUIET_ROUNDS - 1;
    await this.#begin();
  }

  /** After a connection was lost: whether there is a primary, the same or another, within a while. */
  async recovers(): Promise<boolean> {
    if (this.options.servers.length === 1) return false;
    const deadline = performance.now() + REPEAT_WAIT_MS;
    do {
      this.suspect();
      await sleep(LOST_ROUND_MS / 4);
      await this.#round;
      if (this.#failures === 0) return true;
      await sleep(LOST_ROUND_MS / 2);
    } while (performance.now() < deadline && !this.#isClosed);
    return false;
  }

  #schedule(milliseconds: number): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#begin(), milliseconds).unref();
  }

  #begin(): Promise<void> {
    this.#timer = null;
    this.#round = this.#look()
      .catch((error: unknown) => this.#fail(error))
      .finally(() => {
        this.#round = null;
        if (!this.#isClosed) this.#schedule(this.#failures > 0 ? LOST_ROUND_MS : ROUND_MS);
      });
    return this.#round;
  }

  async #look(): Promise<void> {
    const answer = await this.#askCurrent();
    const { role } = answer;
    const difference = role && this.#reasonAgainst(role);
    const isFine = role !== null && !difference && this.#suits(role) && (role.timeline ?? 0) >= this.#timeline;
    if (isFine && this.#failures === 0 && ++this.#rounds % QUIET_ROUNDS !== 0) return;
    const others = await this.#askAll(this.options.servers.filter((server) => server !== this.#current));
    if (this.#isClosed) return;
    const best = this.#best([answer, ...others]);
    if (best && best.server !== this.#current) this.#move(best);
    else if (best) this.#return(best);
    else {
      // Connections that are open may lead there too, through a pooler: a new one is refused.
      if (difference) this.#leave();
      this.#fail(answer.error ?? new Error(difference ?? describe(role, null)));
    }
  }

  /** A closed connection does not mean that the primary is down, so a new one is tried. A missing answer does. */
  async #askCurrent(): Promise<RoleAnswer> {
    const server = this.#current;
    for (let isNew = this.#client === null; ; isNew = true) {
      this.#client ??= this.options.open(server);
      try {
        return { server, role: await within(askRole(this.#client), ANSWER_MS), error: null };
      } catch (error) {
        this.#drop();
        if (isNew || !isLostOnTheWay(error)) return { server, role: null, error: asError(error) };
      }
    }
  }

  #askAll(servers: readonly ConnectionSettings[]): Promise<RoleAnswer[]> {
    return Promise.all(
      servers.map(async (server): Promise<RoleAnswer> => {
        const client = this.options.open(server);
        try {
          return { server, role: await within(askRole(client), ANSWER_MS), error: null };
        } catch (error) {
          return { server, role: null, error: asError(error) };
        } finally {
          void client.end();
        }
      }),
    );
  }

  /** The primary that was promoted last, or the present one if there is no difference. */
  #best(answers: readonly RoleAnswer[]): Primary | null {
    let best: Primary | null = null;
    for (const { server, role } of answers) {
      if (role === null) continue;
      this.#note(server, this.#reasonAgainst(role));
      const { timeline } = role;
      if (!this.#suits(role) || this.#foreign.has(server) || (timeline ?? 0) < this.#timeline) continue;
      if (best === null || (timeline ?? 0) > best.timeline) best = { ...role, server, timeline: timeline ?? 0 };
    }
    return best;
  }

  #reasonAgainst(role: Role): string | null {
    const difference = this.#identity && differenceOf(this.#identity, role);
    return difference && `it is another ${difference} than the one that the service uses`;
  }

  #note(server: ConnectionSettings, reason: string | null): void {
    if (reason === null) return void this.#foreign.delete(server);
    if (this.#foreign.get(server) === reason) return;
    this.#foreign.set(server, reason);
    this.options.observe({ kind: 'host-refused', host: addressOf(server), reason });
  }

  #follow({ timeline, system }: Omit<Primary, 'server'>): void {
    this.#timeline = timeline;
    if (this.#identity) this.#identity = { ...this.#identity, system: this.#identity.system ?? system };
  }

  #suits({ standby, readonly: isReadonly }: Role): boolean {
    if (this.options.target === 'any') return true;
    return !standby && !(isReadonly && this.options.target === 'read-write');
  }

  /** Once is no sign: it may be busy. */
  #fail(error: unknown): void {
    if (++this.#failures !== 2) return;
    this.#isLost = true;
    this.options.observe({ kind: 'primary-lost', host: addressOf(this.#current), error });
  }

  #return(primary: Primary): void {
    this.#failures = 0;
    this.#follow(primary);
    if (!this.#isLost) return;
    this.#isLost = false;
    this.options.observe({ kind: 'primary-found', host: addressOf(this.#current), former: null });
  }

  #move(primary: Primary): void {
    const { server } = primary;
    const former = this.#current;
    this.#current = server;
    this.#follow(primary);
    this.#failures = 0;
    this.#isLost = false;
    this.#drop();
    this.options.observe({ kind: 'primary-found', host: addressOf(server), former: addressOf(former) });
    this.#leave();
  }

  #leave(): void {
    for (const leave of [...this.#leaving]) leave();
    this.options.leave();
  }

  #drop(): void {
    void this.#client?.end();
    this.#client = null;
  }
}

type Primary = ServerIdentity & { readonly server: ConnectionSettings; readonly timeline: number };

interface RoleAnswer {
  readonly server: ConnectionSettings;
  readonly role: Role | null;
  readonly error: Error | null;
}

async function askRole(client: DriverClient): Promise<Role> {
  const [role] = await client.unsafe<Role[]>(ROLE).catch((error: unknown) => {
    if (!isDenied(error)) throw error;
    return client.unsafe<Role[]>(ROLE_ALONE);
  });
  if (!role) throw new Error('a statement without a condition gave no row');
  return role;
}

function plainIdentity({ system, database }: Role): ServerIdentity {
  return { system, database };
}

/** A wrong password, database or privilege: waiting does not help. */
function isRefusal(error: Error): boolean {
  return /^(28|3D|42)/.test(codeOf(error));
}

function describe(role: Role | null, error: Error | null): string {
  if (role?.standby) return 'it is a standby';
  if (role?.readonly) return 'it is read-only';
  return role ? 'another server was promoted' : (error?.message ?? 'it does not answer');
}
