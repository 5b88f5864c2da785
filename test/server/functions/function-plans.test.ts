/** Indexes serve functions: those of the tables that a stable function reads, and those on a computed field. */
import t from 'tap';
import { createLibrary, get, loadSchemas, startDatabase, startTestService, withSql } from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'function_plans');
await loadSchemas(databaseUrl, ['functions.sql']);
await withSql(databaseUrl, (sql) =>
  sql
    .unsafe(`
      create function weight(articles) returns integer language sql immutable as $$ select $1.views % 1000 $$;
      insert into service_fields (collection, field, special) values ('articles', 'weight', 'computed');
      insert into articles (title, views, author) select 'Article ' || n, n, n % 5 + 1 from generate_series(11, 20000) n;
      create index articles_views on articles (views);
      create index articles_weight on articles (weight(articles));
      create function all_articles() returns setof articles language sql stable as 'select * from articles';
      insert into service_functions (name) values ('all_articles')`)
    .simple(),
);
await withSql(databaseUrl, (sql) => sql`analyze articles`);
const service = await startTestService({ databaseUrl });

async function indexesOf(path: string): Promise<string[]> {
  const answer = await get(service, path, { headers: { prefer: 'explain' } });
  return [...answer.text.matchAll(/"Index Name":"(\w+)"/g)].map(([, name = '']) => name);
}

t.test('a filter, a sort and a limit reach into a stable function', async (t) => {
  t.strictSame(await indexesOf('/rpc/all_articles?fields=id&filter[views]=77'), ['articles_views']);
  t.strictSame(await indexesOf('/rpc/all_articles?fields=id&sort=id&limit=3'), ['articles_pkey']);
  t.strictSame(
    await indexesOf('/rpc/all_articles?fields=id,comments.id&filter[id]=7').then((names) => names.slice(0, 1)),
    ['articles_pkey'],
  );
});

t.test('an index on the function serves a computed field', async (t) => {
  t.strictSame(await indexesOf('/items/articles?fields=id&filter[weight]=7'), ['articles_weight']);
});
