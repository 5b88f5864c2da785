/** Reads of one moment: all of them see the same transactions, and it is said which. */
import type { Database } from '../../postgres/pools/database.js';
import type { BoundStatement } from '../../postgres/wire/wire-query.js';

export interface Moment {
  readonly bodies: readonly (Buffer | null)[];
  /** As PostgreSQL writes it. */
  readonly snapshot: string;
}

export function readMoment(database: Database, statements: readonly BoundStatement[]): Promise<Moment> {
  return database.transaction(async (session) => {
    const snapshot = String(await session.cell('select pg_current_snapshot()::text', []));
    const bodies: (Buffer | null)[] = [];
    for (const { text, parameters, prepare } of statements) bodies.push(await session.cell(text, parameters, prepare));
    return { bodies, snapshot };
  }, 'begin isolation level repeatable read, read only');
}
