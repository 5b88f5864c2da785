/** The consistency of reads from replicas and from memory: what a caller has written, in memory that all threads share. */
import { callerName, type Identity } from '../../server/access/identity.js';
import {
  type Consistency,
  type ConsistencyLevel,
  positionText,
  type ReadNeed,
  readPosition,
} from '../../server/execute/consistency.js';
import type { RequestClient } from '../../server/execute/stages.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { type LogPosition, NO_POSITION, UNKNOWN_POSITION } from '../../server/postgres/pools/sessions.js';
import { type CallerWrites, hashOf } from '../cache/caller-writes.js';
import type { Replicas } from '../replicas/replicas.js';

export class SessionConsistency implements Consistency {
  /** How often the primary has been replaced, as far as it was seen here. */
  #primaries: number;

  /** `replicas` is null if there are none, `writes` if no reads are served from memory. */
  constructor(
    private readonly database: Database,
    private readonly replicas: Replicas | null,
    private readonly writes: CallerWrites | null,
  ) {
    this.#primaries = replicas?.board.primaries ?? 0;
  }

  needOf(
    client: RequestClient,
    caller: Identity,
    consistency: ConsistencyLevel,
  ): ReadNeed | null | Promise<ReadNeed | null> {
    const board = this.replicas?.board;
    const requested = readPosition(client.position);
    const timeline = Math.max(requested.timeline, board?.writtenTimeline ?? 0);
    let need: ReadNeed | null = null;
    if (board && consistency !== 'strong') {
      const callerHash = hashOf(callerName(caller, client));
      const written = consistency === 'session' ? board.written(callerHash) : 0;
      need = { position: Math.max(requested.position, written), timeline, callerHash };
    }
    const { primary } = this.database;
    return primary && timeline > primary.timeline ? primary.reach(timeline).then(() => need) : need;
  }

  committed(client: RequestClient, caller: Identity): void | Promise<void> {
    const position = this.database.committed;
    const primaries = this.replicas?.board.primaries ?? 0;
    if (position === null || primaries !== this.#primaries) return this.askAgain(client, caller);
    this.#note(position, client, caller);
  }

  mayHaveCommitted(client: RequestClient, caller: Identity): void {
    this.#note(null, client, caller);
  }

  async askAgain(client: RequestClient, caller: Identity): Promise<void> {
    const database = this.database;
    const primaries = this.replicas?.board.primaries ?? 0;
    const position = await database.position().catch(() => null);
    if (position !== null) {
      if (primaries !== this.#primaries) database.committed = NO_POSITION;
      this.#primaries = primaries;
      database.follow(position);
    }
    this.#note(position, client, caller);
  }

  #note(position: LogPosition | null, client: RequestClient, caller: Identity): void {
    const name = callerName(caller, client);
    this.writes?.wrote(name);
    if (this.replicas) {
      const { board } = this.replicas;
      board.raiseWrittenTimeline(position?.timeline ?? this.database.primary?.timeline ?? 0);
      board.raiseWritten(hashOf(name), position?.position ?? UNKNOWN_POSITION);
    }
    if (position) client.wrote(positionText(position));
  }
}
