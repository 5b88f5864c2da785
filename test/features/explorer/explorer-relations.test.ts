/** Relations of every kind in a real browser: the dialog shows tables and SQL, and the database has them afterwards, or nothing. */
import type { Page } from 'playwright-core';
import t from 'tap';
import { openPage, skip } from '../../support/browser.js';
import { findings, logIn, setPassword } from '../../support/explorer.js';
import { connectSql, createLibrary, request, startDatabase, startTestService } from '../../support/service.js';

t.setTimeout(300_000);
const server = await startDatabase();
const service = await startTestService({ databaseUrl: await createLibrary(server, 'explorer_relations') });
await setPassword(service);
const sql = connectSql(service.databaseUrl);
t.teardown(() => sql.end());

async function send(method: string, path: string, body?: unknown): Promise<unknown> {
  const headers = { 'content-type': 'application/json' };
  const { json } = await request(service, method, path, body ? { headers, body: JSON.stringify(body) } : {});
  return (json as { data: unknown }).data;
}

async function openForm(page: Page, collection: string): Promise<void> {
  await page.goto(`${service.url}/explorer#/model/${collection}`);
  const side = page.getByRole('complementary', { name: `Collection ${collection}` });
  await side.getByRole('button', { name: 'Add relation' }).click();
}

const dialogOf = (page: Page) => page.getByRole('dialog', { name: /^New relation of / });
const review = (page: Page): Promise<void> => dialogOf(page).getByRole('button', { name: 'Review' }).click();
const create = (page: Page): Promise<void> => dialogOf(page).getByRole('button', { name: 'Create relation' }).click();

t.test('task 16: a many-to-many relation, with its junction and SQL shown before', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/model');
  await openForm(page, 'articles');
  const dialog = dialogOf(page);
  await dialogOf(page).getByLabel('Kind').selectOption('m2m');
  await dialogOf(page).getByLabel('Related collection').selectOption('authors');
  t.equal(await dialogOf(page).getByLabel('Junction table').inputValue(), 'articles_authors', 'names are suggested');
  await dialogOf(page).getByLabel('Name', { exact: true }).fill('reviewers');
  await dialogOf(page).getByLabel('List on the other side').fill('reviews');
  await dialogOf(page).getByLabel('items have an order').check();
  t.strictSame(await findings(page), [], 'no serious finding in the form');
  await review(page);
  const tables = dialog.getByRole('list', { name: 'Tables and fields' });
  await tables.getByText('articles_authors', { exact: false }).first().waitFor();
  t.match(
    await tables.textContent(),
    /articles_authors new table.*articles_id integer, → articles.*authors_id integer, → authors/,
  );
  t.match(await dialog.getByRole('region', { name: 'SQL' }).textContent(), /create table "public"."articles_authors"/);
  t.strictSame(await findings(page), [], 'no serious finding in the review');
  t.match(await sql`select to_regclass('articles_authors')::text as name`, [{ name: null }], 'nothing has run');
  await dialog.getByRole('button', { name: 'Back' }).click();
  t.equal(await dialogOf(page).getByLabel('Name', { exact: true }).inputValue(), 'reviewers', 'the form is as it was');
  await review(page);
  await create(page);
  await page.getByText('reviewers was added').waitFor();
  t.match(
    await sql`select conname, confdeltype from pg_constraint where conrelid = 'articles_authors'::regclass and contype = 'f' order by 1`,
    [{ confdeltype: 'c' }, { confdeltype: 'c' }],
  );
  t.match(
    await sql`select many_field, one_collection, one_field, junction_field, sort_field from service_relations
      where many_collection = 'articles_authors' order by many_field`,
    [
      { many_field: 'articles_id', one_field: 'reviewers', junction_field: 'authors_id', sort_field: 'sort' },
      { many_field: 'authors_id', one_collection: 'authors', one_field: 'reviews', junction_field: 'articles_id' },
    ],
  );
  const [author] = await sql`select id from authors order by id limit 1`;
  await send('PATCH', '/items/articles/1', { reviewers: [{ authors_id: author?.['id'] }] });
  t.match(await send('GET', '/items/articles/1?fields=reviewers.authors_id.id'), {
    reviewers: [{ authors_id: { id: author?.['id'] } }],
  });
  await page.goto(`${service.url}/explorer#/data`);
  await page
    .getByRole('link', { name: /^articles_authors/ })
    .first()
    .waitFor();
  t.strictSame(complaints, []);
});

t.test('task 17: a many-to-any relation', { skip }, async (t) => {
  const { page, complaints } = await openPage(service, { colorScheme: 'dark', viewport: { width: 360, height: 740 } });
  await logIn(service, page, '#/model');
  await openForm(page, 'articles');
  await dialogOf(page).getByLabel('Kind').selectOption('m2a');
  t.ok(await dialogOf(page).getByRole('button', { name: 'Review' }).isDisabled(), 'it leads somewhere');
  await dialogOf(page).getByLabel('authors', { exact: true }).check();
  await dialogOf(page).getByLabel('service_files', { exact: true }).check();
  await dialogOf(page).getByLabel('Name', { exact: true }).fill('mentions');
  t.strictSame(await findings(page), [], 'no serious finding in the form');
  await review(page);
  await dialogOf(page)
    .getByText(/→ authors, service_files/)
    .waitFor();
  t.strictSame(await findings(page), [], 'no serious finding in the review');
  await create(page);
  await page.getByText('mentions was added').waitFor();
  t.match(
    await sql`select many_field, one_field, junction_field, one_collection_field, one_allowed_collections from service_relations
      where many_collection = 'articles_mentions' order by many_field`,
    [
      { many_field: 'articles_id', one_field: 'mentions', junction_field: 'item' },
      { many_field: 'item', one_collection_field: 'collection', one_allowed_collections: 'authors,service_files' },
    ],
  );
  const [author] = await sql`select id, name from authors order by id limit 1`;
  await send('PATCH', '/items/articles/1', { mentions: [{ collection: 'authors', item: author?.['id'] }] });
  t.match(await send('GET', '/items/articles/1?fields=mentions.collection,mentions.item:authors.name'), {
    mentions: [{ collection: 'authors', item: { name: author?.['name'] } }],
  });
  t.match(await sql`select collection, item from articles_mentions`, [
    { collection: 'authors', item: String(author?.['id']) },
  ]);

  await page.goto(`${service.url}/explorer#/data/articles/1`);
  const list = page.getByRole('region', { name: /^mentions of/ });
  await list.getByRole('gridcell', { name: String(author?.['name']), exact: true }).waitFor();
  await list.getByRole('button', { name: 'Add' }).click();
  const form = page.getByRole('dialog', { name: 'Add to mentions' });
  await form.getByText('Choose collection first').waitFor();
  t.ok(await form.locator('#new-item').isDisabled());
  await form.locator('#new-collection').selectOption('authors');
  await form.locator('#new-item').click();
  const [second] = await sql`select id, name from authors order by id offset 1 limit 1`;
  await form.getByRole('combobox', { name: 'Search in authors' }).fill(String(second?.['name']));
  await page.getByRole('option', { name: String(second?.['name']) }).click();
  t.strictSame(await findings(page), [], 'no serious finding in the form of an item');
  await form.getByRole('button', { name: 'Add', exact: true }).click();
  await list.getByRole('gridcell', { name: String(second?.['name']), exact: true }).waitFor();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('One change saved').waitFor();
  t.match(await sql`select collection, item from articles_mentions order by id`, [
    { collection: 'authors', item: String(author?.['id']) },
    { collection: 'authors', item: String(second?.['id']) },
  ]);
  t.strictSame(complaints, []);
});

t.test('relations to users, one-to-one and one-to-many; a refused one leaves nothing', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/model');
  await openForm(page, 'articles');
  await dialogOf(page).getByLabel('Related collection').selectOption('service_users');
  t.equal(await dialogOf(page).getByLabel('Name', { exact: true }).inputValue(), 'user');
  await dialogOf(page).getByLabel('Name', { exact: true }).fill('editor');
  await review(page);
  await create(page);
  await page.getByText('editor was added').waitFor();
  const targets = async (table: string): Promise<readonly unknown[]> =>
    await sql`select pg_get_constraintdef(oid) as said from pg_constraint where conrelid = ${table}::regclass and contype in ('f', 'u') order by 1`;
  t.match(JSON.stringify(await targets('articles')), /\(editor\) REFERENCES service_users\(id\) ON DELETE SET NULL/);

  await openForm(page, 'authors');
  await dialogOf(page).getByLabel('Kind').selectOption('o2o');
  await dialogOf(page).getByLabel('Related collection').selectOption('service_users');
  await dialogOf(page).getByLabel('Name', { exact: true }).fill('account');
  await dialogOf(page).getByLabel('Field on the other side').fill('id');
  await review(page);
  await page.getByRole('alert').waitFor();
  t.match(
    await sql`select count(*)::integer from pg_attribute where attname = 'account'`,
    [{ count: 0 }],
    'nothing is left',
  );
  await dialogOf(page).getByLabel('Field on the other side').fill('');
  await review(page);
  await create(page);
  await page.getByText('account was added').waitFor();
  t.match(JSON.stringify(await targets('authors')), /UNIQUE \(account\)/);

  await openForm(page, 'authors');
  await dialogOf(page).getByLabel('Kind').selectOption('o2m');
  await dialogOf(page).getByLabel('Related collection').selectOption('tags');
  await dialogOf(page).getByLabel('Name', { exact: true }).fill('own_tags');
  await dialogOf(page).getByLabel('When the other item is deleted').selectOption('CASCADE');
  await dialogOf(page).getByLabel('Column of tags').fill('owner');
  await page.keyboard.press('Enter');
  await create(page);
  await page.getByText('own_tags was added').waitFor();
  t.match(JSON.stringify(await targets('tags')), /\(owner\) REFERENCES authors\(id\) ON DELETE CASCADE/);
  t.match(await sql`select one_field from service_relations where many_collection = 'tags' and many_field = 'owner'`, [
    { one_field: 'own_tags' },
  ]);
  t.strictSame(complaints, []);
});

t.test('an index is created and dropped', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/model/articles');
  const list = page.getByRole('region', { name: 'Indexes' });
  await list.getByText('articles_pkey').waitFor();
  await list.getByRole('button', { name: 'Add index' }).click();
  const dialog = page.getByRole('dialog', { name: 'New index of articles' });
  await dialog.getByLabel('status', { exact: true }).check();
  await dialog.getByLabel('views', { exact: true }).check();
  t.strictSame(await findings(page), [], 'no serious finding');
  await dialog.getByRole('button', { name: 'Review' }).click();
  await dialog.getByText(/create index .* \("status", "views"\)/).waitFor();
  const found = async (): Promise<readonly unknown[]> =>
    await sql`select from pg_indexes where tablename = 'articles' and indexdef like '%(status, views)'`;
  t.equal((await found()).length, 0, 'nothing has run');
  await dialog.getByRole('button', { name: 'Create index' }).click();
  await list.getByText('status, views').waitFor();
  t.equal((await found()).length, 1);
  await list.getByText('never used').first().waitFor();
  await list.getByRole('button', { name: /^Drop articles_status/ }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Drop', exact: true }).click();
  await page.getByText(/was dropped/).waitFor();
  t.equal((await found()).length, 0);
  t.strictSame(complaints, []);
});

t.test('task 26: a function is called', { skip }, async (t) => {
  await sql`create function retitle(article integer, title text default 'Untitled') returns text language sql volatile
    as 'update articles set title = $2 where id = $1 returning title'`;
  await sql`comment on function retitle is '<img src=x onerror=alert(1)>'`;
  const { page, complaints } = await openPage(service, { colorScheme: 'dark' });
  await logIn(service, page, '#/model');
  await page.getByRole('button', { name: 'Functions' }).click();
  const dialog = page.getByRole('dialog', { name: 'Functions' });
  await sql`insert into service_functions (name) values ('retitel')`;
  await page.reload();
  await page.getByRole('button', { name: 'Functions' }).click();
  await dialog.getByText('The database has no function of this name that can be called.').waitFor();
  await dialog.getByRole('button', { name: 'Remove retitel' }).click();
  await dialog.getByRole('button', { name: 'Remove retitel' }).waitFor({ state: 'detached' });
  const offered = dialog.getByRole('region', { name: 'Functions of the database' });
  await offered.getByText("retitle(article integer, title text DEFAULT 'Untitled'::text) → text").waitFor();
  await offered.getByLabel('Find a function').fill('retitel');
  await offered.getByText('No other function has this name').waitFor();
  await offered.getByLabel('Find a function').fill('titl');
  await offered.getByRole('button', { name: 'Make retitle callable' }).click();
  await offered.getByText('retitle(').waitFor({ state: 'detached' });
  await dialog.getByText(/^retitle\(article: integer, title\?: string\)/).waitFor();
  await dialog.getByText('may write: <img src=x onerror=alert(1)>').waitFor();
  await dialog.getByRole('button', { name: 'Call retitle' }).click();
  t.ok(await dialog.getByRole('button', { name: 'Run' }).isDisabled(), 'an argument is required');
  await dialog.getByLabel('article', { exact: true }).fill('one');
  await dialog.getByRole('button', { name: 'Run' }).click();
  await dialog.getByRole('alert').waitFor();
  await dialog.getByLabel('article', { exact: true }).fill('1');
  await dialog.getByLabel('title', { exact: true }).fill('Called by a form');
  await dialog.getByRole('button', { name: 'Run' }).click();
  await dialog.getByRole('region', { name: 'Result' }).getByText('"Called by a form"').waitFor();
  t.strictSame(await findings(page), [], 'no serious finding');
  t.match(await sql`select title from articles where id = 1`, [{ title: 'Called by a form' }]);
  t.strictSame(complaints, []);
});
