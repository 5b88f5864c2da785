/** The clusters of the tests: a standby follows its primary, and can take its place. */
import t from 'tap';
import { caughtUp, pidOf, promote, startPrimary, startStandby } from '../../support/cluster.js';
import { withSql } from '../../support/service.js';

t.test('a standby follows its primary, and takes its place', async (t) => {
  const primary = await startPrimary();
  const standby = await startStandby(primary);
  await withSql(primary.url, (sql) => sql`create table seen (id int)`);
  await caughtUp(primary, standby);
  const seen = await withSql(standby.url, (sql) => sql`select pg_is_in_recovery() as follows, count(*)::int from seen`);
  t.same(seen, [{ follows: true, count: 0 }]);
  process.kill(await pidOf(primary), 'SIGKILL');
  await promote(standby);
  await withSql(standby.url, (sql) => sql`insert into seen values (1)`);
});
