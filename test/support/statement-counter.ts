/**
 * Counts the statements of a database with pg_stat_statements. Answers leave while their statement still ends: what has not
 * ended is not counted yet, and would be counted with what comes after it.
 */
import t from 'tap';
import { connectSql, type TestServer, waitFor } from './service.js';

export interface Count {
  readonly id: string;
  readonly query: string;
  readonly calls: number;
}

/** What connections do at their beginning and to see whether they are alive, and what is asked once per table: it belongs to no request. */
const UPKEEP = [
  'set idle_in_transaction_session_timeout%',
  // Behind a pooler, in front of each transaction.
  'select set_config(%, $1, %), set_config(%, $2, %',
  // What a new connection to a pooler asks first, and what PgBouncer says to a session that it gives to another one.
  'select $1',
  'set application_name=%',
  'discard all',
  '%pg_listening_channels()%',
  '%from pg_stats p%',
];

export class StatementCounter {
  readonly #sql: ReturnType<typeof connectSql>;
  readonly #database: string;

  private constructor(sql: ReturnType<typeof connectSql>, database: string) {
    this.#sql = sql;
    this.#database = database;
  }

  /** To be called before the service of the database starts. */
  static async of(server: TestServer, database: string): Promise<StatementCounter> {
    const sql = connectSql(server.url);
    t.teardown(() => sql.end());
    await sql`create extension if not exists pg_stat_statements`;
    const name = server.prefix + database;
    const [shared] = await sql`select where current_setting('pg_stat_statements.track') = 'none'`;
    if (shared) {
      await sql`alter database ${sql(name)} set pg_stat_statements.track = 'top'`;
      const early =
        await sql`select from pg_stat_activity where datname = ${name} and application_name like 'lateral%'`;
      if (early.length > 0)
        throw new Error('connections that are open already are not counted: start the service later');
    }
    return new StatementCounter(sql, name);
  }

  /** Runs the work; answers it with the statements that ran meanwhile, ordered by their text. */
  async count<Result>(work: () => Promise<Result>): Promise<{ answer: Result; counts: Count[] }> {
    await this.#settle();
    await this.#sql`
      select pg_stat_statements_reset(0, oid, 0) from pg_database where datname = ${this.#database}`;
    const answer = await work();
    await this.#settle();
    const counts = await this.#sql<Count[]>`
      select queryid::text as id, query, calls::int from pg_stat_statements
      where dbid = (select oid from pg_database where datname = ${this.#database}) and query not ilike all (${UPKEEP})
      order by query`;
    return { answer, counts: [...counts] };
  }

  async #settle(): Promise<void> {
    await waitFor(async () => {
      const [row] = await this.#sql<{ active: number }[]>`
        select count(*)::int as active from pg_stat_activity
        where datname = ${this.#database} and backend_type = 'client backend' and state = 'active'`;
      return row?.active === 0;
    }, 10_000);
  }
}
