/** The other pages of the Explorer in a real browser: what a person does there, and what the service did. */
import t from 'tap';
import { openPage, skip } from '../../support/browser.js';
import { findings, logIn, PASSWORD, setPassword } from '../../support/explorer.js';
import { connectSql, createLibrary, request, startDatabase, startTestService } from '../../support/service.js';

t.setTimeout(300_000);
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
  await rest.fill('GET /items/tags?fields=name&page=2');
  await page.getByText('The parameter "page" cannot be shown in the tree').waitFor();
  await graphql.click();
  t.match(await rest.inputValue(), 'page=2', 'what cannot be read stays for those who look elsewhere');
  await graphql.fill('{ tags { name } articles { id } }');
  await page.getByText('The query must have one root field').waitFor();
  await graphql.fill('{ tags(offset: 3) { name } }');
  await page.getByText('The argument "offset" cannot be shown in the tree').waitFor();
  await rest.fill('GET /items/articles?aggregate[count]=*,id&aggregate[max]=views&groupBy=status');
  await page.waitForURL(/query\/articles/);
  await page.getByRole('region', { name: 'GraphQL' }).getByRole('textbox').blur();
  t.match(await graphql.inputValue(), /group\n\s*countAll\n\s*count \{ id \}\n\s*max \{ views \}/);
  t.strictSame(complaints, []);
});

t.test('query: the last run is shown, and no rows of another collection', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/query/articles');
  const limit = page.getByLabel('Limit');
  await limit.waitFor();
  let runs = 0;
  let release = (): void => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  await page.route('**/items/articles', async (route) => {
    const isFirst = route.request().headers()['prefer'] === 'timing' && ++runs === 1;
    if (isFirst) await released;
    // The browser may have ended the request.
    await route.continue().catch(() => {});
  });
  await page.keyboard.press('Control+Enter');
  await page.getByRole('button', { name: 'Running' }).waitFor();
  await limit.fill('3');
  await page.keyboard.press('Control+Enter');
  const rows = page.getByRole('region', { name: 'Result' }).locator('tbody tr');
  await rows.nth(2).waitFor();
  release();
  await page.waitForLoadState('networkidle');
  t.equal(await rows.count(), 3, 'the slow first run does not replace the result of the second');
  await page.getByRole('complementary', { name: 'Builder' }).getByLabel('Collection').selectOption('authors');
  await page.getByText('Not run yet').waitFor();
  t.equal(await rows.count(), 0);
  t.strictSame(complaints, []);
});

t.test('plan: the tree with what it took, and an index that is missing', { skip }, async (t) => {
  const { page, complaints } = await openPage(service, { colorScheme: 'dark' });
  const query = JSON.stringify({ fields: ['id'], filter: { kind: { _eq: 'kind 7' } }, limit: -1 });
  await logIn(service, page, `#/plan/events?q=${encodeURIComponent(query)}`);
  await page.getByText(/No index serves the filter on kind: 20,000 rows of events/).waitFor();
  await page.getByText('create index concurrently "events_kind_index" on "public"."events" ("kind");').waitFor();
  t.equal(await page.getByText('slowest', { exact: true }).count(), 1);
  t.strictSame(await findings(page), [], 'no serious finding');
  await sql`create index on events (kind)`;
  await page.getByRole('button', { name: 'Run again' }).click();
  await page.getByText('No problems found').waitFor();
  t.equal(
    await page.getByText(/^(Reads use a generic plan|PostgreSQL plans these reads for their values)/).count(),
    1,
    'how it is run',
  );
  const few = JSON.stringify({ fields: ['id'], limit: 10 });
  await page.goto(`${service.url}/explorer#/plan/events?q=${encodeURIComponent(few)}`);
  await page.getByText(/rows: 10 \(20,000 expected\)/).waitFor();
  t.equal(await page.getByText('times off', { exact: false }).count(), 0, 'a limit is no wrong estimate');
  t.equal(await page.getByText(/^Reads (use|are)/).count(), 0, 'without values there is one plan');
  t.strictSame(complaints, []);
});

t.test('task 15: a field by clicks; a diagram, a new relation', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/model');
  await page.getByRole('button', { name: /^articles\s*id/ }).click();
  const side = page.getByRole('complementary', { name: 'Collection articles' });
  await side.getByText('character varying').first().waitFor();
  t.strictSame(await findings(page), [], 'no serious finding');
  await side.getByRole('button', { name: 'Add field' }).click();
  const add = page.getByRole('dialog').getByRole('button', { name: 'Add field' });
  t.ok(await add.isDisabled(), 'a field has a name');
  await page.keyboard.type('bad name!');
  await add.click();
  await page.getByRole('alert').waitFor();
  await page.getByLabel('Name').fill('subtitle');
  await page.getByLabel('Type').selectOption('text');
  await add.click();
  await side.getByText('subtitle', { exact: true }).waitFor();
  await side.getByRole('button', { name: 'Add relation' }).click();
  await page.getByLabel('Name').fill('editor');
  await page.getByLabel('Related collection').selectOption('authors');
  await page.getByLabel('List on the other side').fill('edited');
  await page.getByRole('button', { name: 'Review' }).click();
  await page.getByRole('button', { name: 'Create relation' }).click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await side.getByText('editor', { exact: true }).waitFor();
  const columns = await sql`select column_name, data_type from information_schema.columns
    where table_name = 'articles' and column_name in ('subtitle', 'editor') order by 1`;
  t.match(columns, [
    { column_name: 'editor', data_type: 'integer' },
    { column_name: 'subtitle', data_type: 'text' },
  ]);
  const key = await sql`select confrelid::regclass::text as target from pg_constraint
    where conrelid = 'articles'::regclass and contype = 'f' and conkey = (select array_agg(attnum) from pg_attribute
      where attrelid = 'articles'::regclass and attname = 'editor')`;
  t.match(key, [{ target: 'authors' }], 'a foreign key');
  t.strictSame(complaints, []);
});

t.test('task 12: why? The public may read published articles, but no draft', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/access');
  await page.getByText('This policy applies to requests without a login.').waitFor();
  await page.getByRole('button', { name: 'read tags: no' }).click();
  await page.getByRole('button', { name: 'Allow' }).click();
  await page.getByRole('button', { name: 'read tags: all' }).waitFor();
  const tags = await request(service, 'GET', '/items/tags?fields=name&limit=1', { token: null });
  t.equal(tags.status, 200, 'the first permission made the policy of the public');
  await page.getByRole('button', { name: 'create tags: no' }).click();
  await page.getByRole('button', { name: 'Add rule' }).click();
  await page.getByLabel('Field', { exact: true }).selectOption('name');
  await page.getByLabel('Operator').selectOption('_istarts_with');
  await page.getByLabel('Value').fill('public ');
  await page.getByRole('button', { name: 'Allow' }).click();
  await page.getByRole('button', { name: 'create tags: by rule' }).waitFor();
  const send = (name: string) =>
    request(service, 'POST', '/items/tags', {
      token: null,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ name }),
    });
  t.equal((await send('private tag')).status, 400, 'what is written is checked');
  t.equal((await send('public tag')).status, 200);
  await page.getByRole('button', { name: 'create comments: no' }).click();
  const rule = page.getByRole('dialog', { name: /create comments$/ });
  for (const [field, text] of [
    ['body', 'said nothing'],
    ['article', '1'],
  ] as const) {
    await rule.getByRole('button', { name: 'Add preset' }).click();
    await rule.getByLabel('Field of the preset').last().selectOption(field);
    await rule.getByLabel(`Preset of ${field}`).fill(text);
  }
  t.strictSame(await findings(page), [], 'no serious finding in the dialog of a rule');
  await rule.getByRole('button', { name: 'Allow' }).click();
  await page.getByRole('button', { name: 'create comments: all' }).click();
  t.equal(await rule.getByLabel('Preset of body').inputValue(), 'said nothing', 'it is shown again');
  t.match(await sql`select presets from service_permissions where collection = 'comments' and action = 'create'`, [
    { presets: { body: 'said nothing', article: 1 } },
  ]);
  for (const field of ['body', 'article']) {
    t.equal(await rule.getByLabel(`Preset of ${field}`).count(), 1);
    await rule.getByRole('group', { name: 'Presets' }).getByRole('button', { name: 'Remove' }).first().click();
  }
  await rule.getByRole('button', { name: 'Save' }).click();
  await rule.waitFor({ state: 'detached' });
  t.match(await sql`select presets from service_permissions where collection = 'comments' and action = 'create'`, [
    { presets: null },
  ]);
  await page.getByRole('button', { name: 'New policy' }).click();
  await page.keyboard.type('Visitors');
  await page.getByLabel('For', { exact: true }).selectOption('public');
  await page.getByRole('dialog').getByRole('button', { name: 'Create' }).click();
  await page.getByRole('button', { name: 'read articles: no' }).click();
  await page.getByRole('button', { name: 'Add rule' }).click();
  await page.getByLabel('Field', { exact: true }).selectOption('status');
  await page.getByLabel('Operator').selectOption('_eq');
  await page.getByLabel('Value').fill('published');
  await page.getByRole('button', { name: 'Allow' }).click();
  await page.getByRole('button', { name: 'read articles: by rule' }).waitFor();
  t.strictSame(await findings(page), [], 'no serious finding');
  const read = await request(service, 'GET', '/items/articles?fields=status&limit=-1', { token: null });
  const [{ count } = {}] = await sql`select count(*)::integer from articles where status = 'published'`;
  const { data } = read.json as { data: { status: string }[] };
  t.equal(data.length, count);

  const [draft] = await sql`select id from articles where status = 'draft' limit 1`;
  await page.getByRole('tab', { name: 'Why?' }).click();
  const ask = async (key: unknown): Promise<string> => {
    await page.getByLabel('with the item of id').fill(String(key));
    await page.getByRole('button', { name: 'Ask' }).click();
    const answer = page.getByRole('region', { name: 'Answer' });
    await answer.waitFor();
    return answer.innerText();
  };
  await page.getByRole('combobox', { name: /^in/ }).selectOption('articles');
  t.match(await ask(draft?.['id']), /No\n.*status is published\s+does not hold/s);
  await page.getByLabel('with the item of id').fill('');
  t.match(await ask(1), /Yes\n.*status is published\s+holds/s);
  t.strictSame(complaints, []);
});

t.test('pulse: what the service does now', { skip }, async (t) => {
  const { page, complaints } = await openPage(service, { viewport: { width: 360, height: 720 } });
  let pass = (): void => {};
  const passed = new Promise<void>((resolve) => {
    pass = resolve;
  });
  await page.route('**/server/metrics', async (route) => {
    await passed;
    await route.continue();
  });
  await logIn(service, page, '#/pulse');
  await page.getByText('Reading the first figures').waitFor();
  await page.getByRole('heading', { level: 1, name: 'Pulse' }).waitFor();
  pass();
  await page.getByRole('figure', { name: /^Requests: all/ }).waitFor();
  await page.getByRole('figure', { name: /^Latency: p50 –, p99 –/ }).waitFor();
  for (let count = 0; count < 20; count++) await request(service, 'GET', '/items/tags/1');
  const row = page.getByRole('row', { name: /GET \/items\/:collection\/:key/ });
  await row.waitFor();
  t.match(await row.innerText(), /\s20\s+0$/);
  t.strictSame(await findings(page), [], 'no serious finding');
  t.equal(await page.evaluate('document.documentElement.scrollWidth - innerWidth'), 0, 'as wide as the phone');
  t.strictSame(complaints, []);
});

t.test('docs: the API of the caller, and others see of all pages what they may', { skip }, async (t) => {
  const permissions = [{ collection: 'tags', action: 'read', fields: ['*'] }];
  const policies = [{ policy: { name: 'Readers', app_access: true, permissions } }];
  const users = [{ email: 'reader@example.com', password: PASSWORD }];
  const made = await request(service, 'POST', '/roles', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'Reader', policies, users }),
  });
  t.equal(made.status, 200, made.text);
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/docs/tags', 'reader@example.com');
  const pages = page.getByRole('navigation', { name: 'Pages' }).getByRole('link');
  t.strictSame(await pages.allInnerTexts(), ['Data', 'Query', 'Boards', 'Model', 'Docs'], 'no pages of administrators');
  const operation = page.getByRole('article', { name: 'GET /items/tags', exact: true });
  await operation.waitFor();
  t.strictSame(await findings(page), [], 'no serious finding');
  t.equal(await page.getByText('could not be read').count(), 0, 'nothing was asked for that they may not read');
  await operation.getByText(/^Response: \d+ fields/).click();
  await operation.getByText('name', { exact: true }).waitFor();
  await operation.getByRole('button', { name: 'Try it' }).click();
  await page.getByLabel(/^Query string/).fill('fields=name&sort=id&limit=1');
  await page.getByRole('button', { name: 'Send' }).click();
  const [first] = await sql`select name from tags order by id limit 1`;
  await page.getByLabel('Body of the response').getByText(String(first?.['name'])).waitFor();
  await page.keyboard.press('Escape');
  t.equal(await page.getByRole('link', { name: 'articles', exact: true }).count(), 0, 'not in their API');

  await pages.first().click();
  await page.getByRole('grid', { name: 'tags' }).waitFor();
  t.equal(await page.getByRole('link', { name: /^articles/ }).count(), 0, 'not in their collections');
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Query' }).click();
  await page.getByText('Only administrators see the statement and its plan.').waitFor();
  t.strictSame(complaints, []);
});
