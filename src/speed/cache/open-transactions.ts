/** Names open transactions for an administrator who wants to end them. */

import { withCatalog } from '../../compiler/sql/catalog-names.js';
import { arrayLiteral } from '../../compiler/sql/literal.js';
import type { Database } from '../../server/postgres/pools/database.js';

/** Every role may read these views, also for sessions of other roles and databases. */
const HOLDERS = withCatalog(`
  select 'prepared transaction' as kind, gid::text as name, database::text as database
    from pg_prepared_xacts where transaction::text = any($1)
  union all
  select 'session', pid::text, (select a.datname::text from pg_stat_activity a where a.pid = l.pid)
    from pg_locks l
    where locktype = 'transactionid' and mode = 'ExclusiveLock' and pid is not null and transactionid::text = any($1)
  order by kind, name`);

const MOST_NAMED = 5;

interface Holder {
  readonly kind: 'prepared transaction' | 'session';
  readonly name: string;
  readonly database: string | null;
}

/** E.g. `prepared transaction "import" of database "shop"`. Returns '' if all of them have ended. */
export async function describeTransactions(database: Database, xids: Iterable<number>): Promise<string> {
  const holders = await database.rows<Holder>(HOLDERS, [arrayLiteral([...xids].map(String))]);
  const names = holders.slice(0, MOST_NAMED).map(({ kind, name, database }) => {
    const who = kind === 'session' ? `session ${name}` : `prepared transaction ${JSON.stringify(name)}`;
    return database === null ? who : `${who} of database ${JSON.stringify(database)}`;
  });
  const others = holders.length - names.length;
  return [...names, ...(others > 0 ? [`${others} others`] : [])].join(', ');
}
