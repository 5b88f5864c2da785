/** Changes as PostgreSQL's log has them, read through a slot that ends with its connection. */
import { randomBytes } from 'node:crypto';
import type { Database } from '../postgres/database.js';
import { LogDecoder, positionOf } from '../postgres/pgoutput.js';
import {
  logObstacle,
  PUBLICATIONS,
  publish,
  SLOT_PREFIX,
  slotGone,
  type TableName,
  unpublish,
} from '../postgres/publication.js';
import { ReplicationConnection } from '../postgres/replication.js';
import { quoteIdentifier } from '../sql/fragment.js';
import type { ChangeSource, Opened, SourceEvents, Sources } from './change-source.js';
import { TransactionReader } from './transaction-reader.js';

/** Milliseconds for a command; a slot waits for all transactions that write when it is asked for. */
const COMMAND_TIMEOUT_MS = 10_000;
const SLOT_TIMEOUT_MS = 60_000;

export class LogSource implements ChangeSource {
  readonly kind = 'logical';
  readonly about = 'changes are read from the log';
  readonly #database: Database;
  readonly #tables: () => readonly TableName[];
  #connection: ReplicationConnection | null = null;
  /** The slot of the attempt that runs, or of the last one. */
  #slot = '';

  constructor(database: Database, tables: () => readonly TableName[]) {
    this.#database = database;
    this.#tables = tables;
  }

  obstacle(): Promise<string | null> {
    return logObstacle(this.#database);
  }

  async open(events: SourceEvents, stopping: AbortSignal): Promise<Opened> {
    const { replication } = this.#database;
    if (replication === null) throw new Error('the log cannot be read');
    await publish(this.#database, this.#tables());
    const decoder = new LogDecoder(new TransactionReader(events, false));
    const connection = new ReplicationConnection(replication, {
      take: (message) => decoder.take(message),
      lost: (error) => events.lost(error),
    });
    this.#connection = connection;
    this.#slot = `${SLOT_PREFIX}${randomBytes(8).toString('hex')}`;
    const slot = quoteIdentifier(this.#slot);
    try {
      if (stopping.aborted) throw new Error('the stream was closed');
      await connection.open();
      // Also where the server cannot be told that nobody waits any more.
      await connection.query(`set lock_timeout = ${SLOT_TIMEOUT_MS}`, COMMAND_TIMEOUT_MS);
      const [created] = await connection.query(
        `CREATE_REPLICATION_SLOT ${slot} TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT`,
        SLOT_TIMEOUT_MS,
      );
      const options = `proto_version '1', publication_names '${PUBLICATIONS.join(',')}'`;
      await connection.start(`START_REPLICATION SLOT ${slot} LOGICAL 0/0 (${options})`, COMMAND_TIMEOUT_MS);
      // Whoever read the log last may have dropped the publication before the slot was there.
      const { sources, isChanged } = await publish(this.#database, this.#tables());
      if (isChanged) throw new Error('the publication was changed while the log was opened');
      if (stopping.aborted) throw new Error('the stream was closed');
      return { sources, position: positionOf(String(created?.['consistent_point'])) };
    } catch (error) {
      await connection.stop();
      await slotGone(this.#database, this.#slot).catch(() => {});
      throw error;
    }
  }

  async refresh(): Promise<Sources> {
    const { sources } = await publish(this.#database, this.#tables());
    return sources;
  }

  fail(error: Error): void {
    this.#connection?.fail(error);
  }

  async close(): Promise<void> {
    await this.#connection?.stop();
  }

  /** The publication goes with the last stream. */
  async release(): Promise<void> {
    // Its own slot would be taken for that of another reader.
    await slotGone(this.#database, this.#slot).catch(() => {});
    await unpublish(this.#database).catch(() => {});
  }
}
