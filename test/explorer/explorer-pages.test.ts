/** The other pages of the Explorer in a real browser: what a person does there, and what the service did. */
import t from 'tap';
import { openPage, skip } from '../support/browser.js';
import { findings, logIn, setPassword } from '../support/explorer.js';
import { connectSql, createLibrary, request, startDatabase, startTestService } from '../support/service.js';

t.setTimeout(180_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'explorer_pages');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql`create table events (id serial primary key, kind text, happened integer)`;
await sql`insert into events (kind, happened) select 'kind ' || n % 5000, n from generate_series(1, 20000) n`;
await sql`analyze events`;
const service = await startTestService({ databaseUrl });
await setPassword(service);

t.test('query: one question in four languages, and its answer', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/query/articles');
  const builder = page.getByRole('complementary', { name: 'Builder' });
  await builder.getByLabel(/^views/).check();
  await builder.getByRole('button', { name: /^author/ }).click();
  await builder.getByLabel(/^name/).check();
  await builder.getByRole('button', { name: 'Sort by' }).first().click();
  await builder.getByLabel('Field').first().selectOption('views');
  const [rest, graphql] = [page.getByRole('textbox', { name: 'REST' }), page.getByRole('textbox', { name: 'GraphQL' })];
  t.match(await rest.inputValue(), 'GET /items/articles?fields=id,title,views,author.name&sort=-views&limit=10');
  await page.getByRole('region', { name: 'Statement' }).getByText('"articles"').first().waitFor();
  await page.getByRole('region', { name: 'Plan', exact: true }).getByText('articles').first().waitFor();
  t.match(
    await page
      .getByText(/^cost [\d.,]+$/)
      .first()
      .innerText(),
    /cost/,
  );
  await page.keyboard.press('Control+Enter');
  const result = page.getByRole('region', { name: 'Result' });
  await result.getByRole('cell', { name: 'Gamma' }).waitFor();
  const expected = await sql`select title from articles order by views desc, id limit 10`;
  const titles = await result.locator('tbody td:nth-child(2)').allInnerTexts();
  t.strictSame(
    titles,
    expected.map(({ title }) => title),
    'the ten most viewed articles',
  );
  t.strictSame(await findings(page), [], 'no serious finding');

  const document = await graphql.inputValue();
  const asked = await request(service, 'POST', '/graphql', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query: document }),
  });
  const { data } = asked.json as { data: { articles: { title: string }[] } };
  t.strictSame(
    data.articles.map(({ title }) => title),
    expected.map(({ title }) => title),
    'the GraphQL document asks the same',
  );
  await graphql.fill(
    '{ comments(filter: { article: { title: { _eq: "Hello World" } } }, limit: 5) { body author { name } } }',
  );
  await page.waitForURL(/query\/comments/);
  const written = await rest.inputValue();
  t.equal(
    written,
    'GET /items/comments?fields=body,author.name&filter={"article":{"title":{"_eq":"Hello%20World"}}}&limit=5',
  );
  t.ok(await builder.getByLabel(/^body/).isChecked(), 'the tree follows');
  await rest.fill('GET /items/tags?fields=name&sort=-name&limit=3');
  await page.waitForURL(/query\/tags/);
  t.match(await graphql.inputValue(), 'tags(sort: ["-name"], limit: 3) {');
  await rest.fill('GET /items/nothing');
  await page.getByText('There is no collection "nothing"').waitFor();
  t.strictSame(complaints, []);
});

t.test('plan: the tree with what it took, and an index that is missing', { skip }, async (t) => {
  const { page, complaints } = await openPage(service, { colorScheme: 'dark' });
  const query = JSON.stringify({ fields: ['id'], filter: { kind: { _eq: 'kind 7' } }, limit: -1 });
  await logIn(service, page, `#/plan/events?q=${encodeURIComponent(query)}`);
  await page.getByText(/No index serves the filter on kind: 20,000 rows of events/).waitFor();
  await page.getByText('create index concurrently on events (kind);').waitFor();
  t.equal(await page.getByText('slowest', { exact: true }).count(), 1);
  t.strictSame(await findings(page), [], 'no serious finding');
  await sql`create index on events (kind)`;
  await page.getByRole('button', { name: 'Run again' }).click();
  await page.getByText('Nothing stands out').waitFor();
  t.strictSame(complaints, []);
});
