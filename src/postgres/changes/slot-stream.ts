/** A temporary slot and the connection that reads it: both end together. */
import { randomBytes } from 'node:crypto';
import { quoteIdentifier } from '../../sql/fragment.js';
import type { Database } from '../pools/database.js';
import { LogDecoder, type LogHandler, positionOf } from './pgoutput.js';
import { PUBLICATIONS, SLOT_PREFIX, slotGone } from './publication.js';
import { ReplicationConnection } from './replication.js';

/** Milliseconds for a command that waits for nobody. */
const COMMAND_TIMEOUT_MS = 10_000;

export class SlotStream {
  readonly name = `${SLOT_PREFIX}${randomBytes(8).toString('hex')}`;
  readonly #connection: ReplicationConnection;
  /** In the log, in bytes: PostgreSQL keeps the log from here on. */
  restart = 0;
  /** In the log, in bytes: PostgreSQL sends transactions that are committed behind it. */
  consistent = 0;
  /** Bytes of log beyond which PostgreSQL gives the slot up (`max_slot_wal_keep_size`); negative if it never does. */
  serverLimit = -1;
  /** By the clock of `performance`. */
  createdAt = 0;
  isStarted = false;
  isOver = false;

  /** `onLost` is called once, also after `stop`. */
  constructor(
    private readonly database: Database,
    handler: LogHandler,
    onLost: (error: Error) => void,
  ) {
    const { replication } = database;
    if (replication === null) throw new Error('the log cannot be read');
    const decoder = new LogDecoder(handler);
    this.#connection = new ReplicationConnection(replication, {
      take: (message) => decoder.take(message),
      lost: (error) => {
        this.isOver = true;
        onLost(error);
      },
    });
  }

  /** How far the log has arrived, in bytes: all that was committed before it has been passed on. */
  get received(): number {
    return this.#connection.received;
  }

  /** Waits for all transactions that write when it is called, so many milliseconds at most. */
  async create(timeoutMs: number): Promise<void> {
    const connection = this.#connection;
    await connection.open();
    // Also holds if the server cannot be told that nobody waits any more.
    await connection.query(`set lock_timeout = ${timeoutMs}`, COMMAND_TIMEOUT_MS);
    const [created] = await connection.query(
      `CREATE_REPLICATION_SLOT ${quoteIdentifier(this.name)} TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT`,
      timeoutMs,
    );
    this.consistent = positionOf(String(created?.['consistent_point']));
    const [slot] = await connection.query(
      `select restart_lsn::text as restart, pg_catalog.pg_size_bytes(pg_catalog.current_setting('max_slot_wal_keep_size'))::text as most
       from pg_catalog.pg_replication_slots where slot_name operator(pg_catalog.=) '${this.name}'`,
      COMMAND_TIMEOUT_MS,
    );
    this.restart = positionOf(String(slot?.['restart']));
    this.serverLimit = Number(slot?.['most']);
    this.createdAt = performance.now();
  }

  /** From here on the log arrives. */
  async start(): Promise<void> {
    const options = `proto_version '1', publication_names '${PUBLICATIONS.join(',')}'`;
    const command = `START_REPLICATION SLOT ${quoteIdentifier(this.name)} LOGICAL 0/0 (${options})`;
    await this.#connection.start(command, COMMAND_TIMEOUT_MS);
    this.isStarted = true;
    this.ask();
  }

  /** Asks how far the server has read the log. */
  ask(): void {
    this.#connection.ask();
  }

  fail(error: Error): void {
    this.#connection.fail(error);
  }

  stop(): Promise<void> {
    return this.#connection.stop();
  }

  /** Resolves when the slot no longer exists, at the latest after some seconds. */
  gone(): Promise<void> {
    return slotGone(this.database, this.name).catch(() => {});
  }
}
