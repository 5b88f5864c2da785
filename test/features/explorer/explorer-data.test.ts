/** The Data page in a real browser on relations of every kind, and what it keeps while people look elsewhere. */
import t from 'tap';
import { openPage, skip } from '../../support/browser.js';
import { findings, logIn, PASSWORD, setPassword } from '../../support/explorer.js';
import { connectSql, createLibrary, request, startDatabase, startTestService, waitFor } from '../../support/service.js';

t.setTimeout(300_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'explorer_data');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table shifts (day date, shift text, boss varchar(50), primary key (day, shift));
  insert into shifts values ('2024-05-01', 'ear~ly', 'Ann'), ('2024-05-01', 'late', 'Bob'), ('2024-05-02', 'late', 'Cid');
  create table breaks (id serial primary key, day date not null, shift text not null, minutes integer, foreign key (day, shift) references shifts);
  insert into breaks (day, shift, minutes) values ('2024-05-01', 'ear~ly', 15), ('2024-05-01', 'late', 10);
  create table contracts (id serial primary key, author integer unique references authors, signed date);
  insert into contracts (author, signed) values (1, '2024-01-01');
  create table songs (id serial primary key, title text not null, words tsvector not null);
  create function fill_words() returns trigger language plpgsql as
    'begin new.words = to_tsvector(''simple'', new.title); return new; end';
  create table readings (id serial primary key, note text);
  insert into readings (note) select 'reading ' || n from generate_series(1, 1150) n;
  create trigger words before insert on songs for each row execute function fill_words();
`);
const service = await startTestService({ databaseUrl });
await setPassword(service);
const headers = { 'content-type': 'application/json' };
await request(service, 'POST', '/schema/suggestions', { headers, body: '{}' });

t.test(
  'a reference to a key of several columns opens, is changed and is chosen for a new item',
  { skip },
  async (t) => {
    const { page, complaints } = await openPage(service);
    await logIn(service, page, '#/data/breaks');
    const grid = page.getByRole('grid', { name: 'breaks' });
    await grid.getByRole('button', { name: /^shifts: Ann/ }).click();
    const nested = page.getByRole('grid', { name: /^shifts of/ });
    await nested.getByRole('gridcell', { name: 'Ann', exact: true }).dblclick();
    await page.getByLabel('New value of boss').fill('Anna');
    await page.keyboard.press('Enter');
    await page.keyboard.press('Control+s');
    await page.getByText('One change saved').waitFor();
    t.match(await sql`select boss from shifts where shift = 'ear~ly'`, [{ boss: 'Anna' }], 'the item behind it');

    await grid.getByRole('gridcell', { name: /Bob/ }).dblclick();
    await page.getByRole('option', { name: /Anna\s*2024-05-01~ear\\~ly/ }).click();
    await page.keyboard.press('Control+s');
    await page.getByText('One change saved').nth(1).waitFor();
    t.match(await sql`select shift from breaks where id = 2`, [{ shift: 'ear~ly' }], 'the reference');

    await page.getByRole('button', { name: 'New', exact: true }).click();
    const form = page.getByRole('form', { name: 'New item in breaks' });
    t.equal(await form.getByLabel('day').count(), 0, 'its columns are not asked for');
    await form.getByLabel('minutes').fill('20');
    await page.getByRole('button', { name: 'Create' }).click();
    await form.getByText('is required').waitFor();
    await form.getByLabel('shifts').click();
    await page.getByRole('option', { name: /Cid/ }).click();
    await page.getByRole('button', { name: 'Create' }).click();
    await page.getByText('Item created').waitFor();
    t.match(await sql`select shift, day::text from breaks where minutes = 20`, [{ shift: 'late', day: '2024-05-02' }]);
    await page.goto(`${service.url}/explorer#/access`);
    await page.getByRole('tab', { name: 'Why?' }).click();
    await page.getByRole('combobox', { name: /^in/ }).selectOption('shifts');
    await page.getByLabel('with the item of day').fill('2024-05-01');
    await page.getByLabel('and shift').fill('ear~ly');
    await page.getByRole('button', { name: 'Ask' }).click();
    await page.getByText('No policy allows read in shifts').waitFor();
    await page.getByLabel('and shift').fill('night');
    await page.getByRole('button', { name: 'Ask' }).click();
    await page.getByText('shifts has no item with this key').waitFor();
    await page.getByLabel('and shift').fill('ear~ly');
    await page.getByLabel('May').fill('admin@example.com');
    await page.getByRole('button', { name: 'Ask' }).click();
    await page.getByText('allows everything').waitFor();
    t.strictSame(complaints, []);
  },
);

t.test('a one-to-one relation is one item, and what a trigger fills is not required', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/data/authors?columns=id,name,contracts');
  const grid = page.getByRole('grid', { name: 'authors' });
  await grid.getByRole('button', { name: /^contracts: 1,/ }).click();
  const nested = page.getByRole('grid', { name: /^contracts of/ });
  await nested.getByRole('gridcell', { name: '2024-01-01' }).dblclick();
  await page.getByLabel('New value of signed').fill('2025-02-03');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Control+s');
  await page.getByText('One change saved').waitFor();
  t.match(await sql`select signed::text, author from contracts`, [{ signed: '2025-02-03', author: 1 }]);
  await page.goto(`${service.url}/explorer#/data/songs`);
  await page.getByRole('button', { name: 'New', exact: true }).click();
  const form = page.getByRole('form', { name: 'New item in songs' });
  await form.getByLabel('title').fill('filled by its trigger');
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByText('Item created').waitFor();
  t.equal((await sql`select from songs where words @@ 'trigger'`).length, 1);
  t.strictSame(complaints, []);
});

t.test('changes wait for those who look elsewhere; who logs out leaves nothing behind', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/data/tags');
  const grid = page.getByRole('grid', { name: 'tags' });
  const [tag] = await sql`select id, name from tags order by id limit 1`;
  await grid.getByRole('gridcell', { name: String(tag?.['name']), exact: true }).dblclick();
  await page.getByLabel('New value of name').fill('not saved yet');
  await page.keyboard.press('Enter');
  const list = page.getByRole('complementary', { name: 'Collections' });
  await list.getByRole('link', { name: /^authors/ }).click();
  await page.getByRole('grid', { name: 'authors' }).waitFor();
  t.equal(await page.getByText('not saved', { exact: false }).count(), 0, 'of another collection');
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Query' }).click();
  await page.getByRole('button', { name: 'Run' }).click();
  await page.getByRole('region', { name: 'Result' }).waitFor();
  await page.goto(`${service.url}/explorer#/data/tags`);
  await page.getByText('One change not saved').waitFor();
  await grid.getByText('not saved yet').waitFor();

  // The session ends elsewhere: who logs in again goes on.
  await page.context().clearCookies();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByLabel('Email').fill('admin@example.com');
  await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByText('One change not saved').waitFor();

  await page.getByRole('button', { name: /^Account/ }).click();
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Email').fill('admin@example.com');
  await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
  await page.getByRole('button', { name: 'Log in' }).click();
  await grid.getByRole('gridcell', { name: String(tag?.['name']), exact: true }).waitFor();
  t.equal(await page.getByText('One change not saved').count(), 0);
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Query' }).click();
  t.ok(await page.getByRole('button', { name: 'History' }).isDisabled(), 'no questions of before');
  t.strictSame(complaints, []);
});

t.test('task 23: live grid: rows and answers follow the database, whoever writes', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/data/shifts');
  const grid = page.getByRole('grid', { name: 'shifts' });
  await grid.getByText('Cid').waitFor();
  const live = page.getByRole('button', { name: 'Live' });
  for (const width of [1120, 800, 360]) {
    await page.setViewportSize({ width, height: 800 });
    const cut = `[...document.querySelectorAll('.toolbar, .toolbar h1')].some((each) => each.scrollWidth > each.clientWidth)`;
    t.equal(await page.evaluate(cut), false, `nothing is cut off at ${width} pixels`);
  }
  await page.setViewportSize({ width: 1280, height: 800 });
  await live.click();
  await sql`update shifts set boss = 'Dora' where boss = 'Cid'`;
  await grid.getByText('Dora').waitFor();
  await sql`insert into shifts values ('2024-05-03', 'late', 'Emil')`;
  await grid.getByText('Emil').waitFor();
  await page.getByText('4 items').waitFor();
  await live.click();
  const question = encodeURIComponent(JSON.stringify({ fields: ['boss'], sort: ['boss'], limit: 10 }));
  await page.goto(`${service.url}/explorer#/query/shifts?q=${question}`);
  await live.click();
  const result = page.getByRole('region', { name: 'Result' });
  await result.getByText('Emil').waitFor();
  await sql`update shifts set boss = 'Fritz' where boss = 'Emil'`;
  await result.getByText('Fritz').waitFor();
  await result.getByText(/^changed 1 time,/).waitFor();

  await page.goto(`${service.url}/explorer#/data/readings`);
  const readings = page.getByRole('grid', { name: 'readings' });
  await readings.getByText('reading 1', { exact: true }).waitFor();
  await live.click();
  await readings.focus();
  const last = readings.getByText('reading 1150', { exact: true });
  for (let count = 0; count < 60 && (await last.count()) === 0; count++) {
    await page.keyboard.press('Control+End');
    await page.waitForTimeout(300);
  }
  t.equal(await last.count(), 1, 'also beyond those that are followed');
  await page.waitForTimeout(1_500);
  let asked = 0;
  page.on('request', (request) => {
    if (request.url().endsWith('/items/readings')) asked++;
  });
  await sql`update readings set note = 'changed' where id = 1`;
  await page.waitForTimeout(2_000);
  t.equal(asked, 0, 'a change is sent, not asked for');
  t.equal(await last.count(), 1, 'the place is kept');
  await page.keyboard.press('Control+Home');
  await readings.getByText('changed', { exact: true }).waitFor();
  t.strictSame(complaints, []);
});

t.test('another order keeps widths, the place of the keys and what is open', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/data/authors?columns=id,name,articles');
  const grid = page.getByRole('grid', { name: 'authors' });
  const open = grid.getByRole('button', { name: /^articles: [1-9]/ }).first();
  await open.click();
  const nested = page.getByRole('region', { name: /^articles of/ });
  const heading = await nested.getAttribute('aria-label');
  await page.evaluate(`new MutationObserver(() => {
    if (document.body.innerText.includes('No items yet')) document.body.dataset.flashed = 'true';
  }).observe(document.body, { childList: true, subtree: true })`);
  const name = grid.getByRole('columnheader', { name: 'name' }).first();
  const before = (await name.boundingBox())?.width ?? 0;
  const handle = await name.locator('.resize').boundingBox();
  await page.mouse.move((handle?.x ?? 0) + 2, (handle?.y ?? 0) + 5);
  await page.mouse.down();
  await page.mouse.move((handle?.x ?? 0) + 82, (handle?.y ?? 0) + 5);
  await page.mouse.up();
  await name.getByRole('button').click();
  await page.waitForURL(/sort=name/);
  await name.getByRole('button').click();
  await page.waitForURL(/sort=-name/);
  await nested.waitFor();
  t.equal(await nested.getAttribute('aria-label'), heading, 'below the same item');
  t.ok(((await name.boundingBox())?.width ?? 0) > before + 60, 'as wide as it was made');
  t.equal(await page.evaluate('document.body.dataset.flashed'), undefined, 'never said to be empty');
  t.strictSame(complaints, []);
});

t.test('system collections are found under the names of the family', { skip }, async (t) => {
  const other = await startTestService({ databaseUrl, DIRECTUS_COMPATIBILITY: 'true', WORKERS: '1' });
  const { page, complaints } = await openPage(other);
  await logIn(other, page, '#/data/directus_users');
  await page.getByRole('grid', { name: 'directus_users' }).getByText('admin@example.com').waitFor();
  t.equal(await page.getByText('Collections of the service').count(), 1, 'apart from others');
  t.strictSame(complaints, []);
});

t.test('a nested grid adds, changes, deletes and unlinks, and all of it is one payload', { skip }, async (t) => {
  await sql`insert into authors (id, name) values (901, 'Nested')`;
  await sql`insert into articles (id, title, status, author) values (901, 'With comments', 'draft', 901), (902, 'Unlinked', 'draft', 901)`;
  await sql`insert into comments (id, article, body) values (901, 901, 'stays'), (902, 901, 'goes'), (903, 901, 'returns')`;
  await sql`insert into tags (id, name) values (901, 'linked')`;
  const relation = await request(service, 'GET', '/relations/comments/article');
  const deletes = (relation.json as { data: { meta: { one_deselect_action: string } } }).data.meta.one_deselect_action;
  const { page, complaints } = await openPage(service);
  await logIn(service, page, `#/data/articles?filter=${encodeURIComponent('{"id":{"_eq":901}}')}`);
  await page.getByRole('button', { name: /^comments: 3,/ }).click();
  const nested = page.getByRole('region', { name: /^comments of/ });
  const comments = nested.getByRole('grid');
  const writes: string[] = [];
  page.on('request', (sent) => {
    if (['PATCH', 'POST', 'DELETE'].includes(sent.method())) writes.push(`${sent.method()} ${sent.postData()}`);
  });
  for (const body of ['first new', 'second new', 'never saved']) {
    await nested.getByRole('button', { name: 'Add' }).click();
    const form = page.getByRole('dialog', { name: 'New item in comments' });
    t.equal(await form.getByLabel('article').count(), 0, 'what it belongs to is known');
    await form.getByLabel('body').fill(body);
    await form.getByRole('button', { name: 'Add' }).click();
    await comments.getByText(body).waitFor();
  }
  await comments.getByText('first new').dblclick();
  await page.getByLabel('New value of body').fill('first, changed');
  await page.keyboard.press('Enter');
  await comments.getByText('stays').dblclick();
  await page.getByLabel('New value of body').fill('stays, changed');
  await page.keyboard.press('Enter');
  const select = (text: string): Promise<void> =>
    comments.getByRole('row').filter({ hasText: text }).getByRole('checkbox').check();
  for (const text of ['goes', 'returns', 'never saved']) await select(text);
  await nested.getByRole('button', { name: /^(Delete|Unlink) 3/ }).click();
  t.equal(await comments.getByText('never saved').count(), 0, 'what was not saved is gone at once');
  await comments
    .getByRole('row')
    .filter({ hasText: 'returns' })
    .getByRole('button', { name: /^Keep row/ })
    .click();
  t.strictSame(await findings(page), [], 'no serious finding');
  await page.getByText('4 changes not saved').waitFor();
  t.equal((await sql`select from comments where article = 901`).length, 3, 'nothing is written before it is saved');
  await page.keyboard.press('Control+s');
  await page.getByText('4 changes saved, in one statement').waitFor();
  t.equal(writes.length, 1, 'one request');
  t.match(
    await sql`select body from comments where article = 901 order by body`,
    ['first, changed', 'returns', 'second new', 'stays, changed'].map((body) => ({ body })),
  );
  t.equal((await sql`select from comments where id = 902`).length, deletes === 'delete' ? 0 : 1, deletes);

  await page.getByRole('button', { name: /^tags: 0,/ }).click();
  const tags = page.getByRole('region', { name: /^tags of/ });
  await tags.getByRole('button', { name: 'Add' }).click();
  const form = page.getByRole('dialog', { name: /^Add to/ });
  await form.getByLabel('tags_id').click();
  await form.getByRole('combobox').fill('linked');
  await page.getByRole('option', { name: /^linked/ }).click();
  await form.getByRole('button', { name: 'Add' }).click();
  await tags.getByText('linked').waitFor();
  await page.keyboard.press('Control+z');
  await tags.getByText('No items.').waitFor();
  t.equal(await page.getByText('not saved', { exact: false }).count(), 0, 'undone');
  await tags.getByRole('button', { name: 'Add' }).click();
  await form.getByLabel('tags_id').click();
  await form.getByRole('combobox').fill('linked');
  await page.getByRole('option', { name: /^linked/ }).click();
  await form.getByRole('button', { name: 'Add' }).click();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('One change saved').waitFor();
  t.equal((await sql`select from articles_tags where articles_id = 901 and tags_id = 901`).length, 1, 'a junction row');
  t.strictSame(complaints, []);
});

t.test('the list does not run views to count them', { skip }, async (t) => {
  await sql`create sequence view_runs`;
  await sql`create view counted_slowly as select 1 as one where nextval('view_runs') > 0`;
  await waitFor(async () => (await request(service, 'GET', '/collections/counted_slowly')).status === 200, 20_000);
  const described = await request(service, 'GET', '/collections/counted_slowly');
  t.match(described.json, { data: { schema: { kind: 'view' } } });
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/data/tags');
  const list = page.getByRole('complementary', { name: 'Collections' });
  await list.getByRole('link', { name: /^counted_slowly\s*view$/ }).waitFor();
  await list.getByRole('link', { name: /^shifts\s*\d+$/ }).waitFor();
  t.match(await sql`select is_called from view_runs`, [{ is_called: false }], 'it was not run');
  await list.getByRole('link', { name: /^counted_slowly/ }).click();
  await page.getByText('1 item', { exact: true }).waitFor();
  t.match(await sql`select last_value::integer from view_runs`, [{ last_value: 1 }], 'once for its rows');
  t.strictSame(complaints, []);
});
