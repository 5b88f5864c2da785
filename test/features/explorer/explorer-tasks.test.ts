/** Tasks on the Data page that people repeat: lists through a junction, undo and redo, bulk changes, files, keys, and large tables. */
import { readFile } from 'node:fs/promises';
import type { Page } from 'playwright-core';
import t from 'tap';
import { openPage, skip } from '../../support/browser.js';
import { findings, logIn, setPassword } from '../../support/explorer.js';
import { connectSql, createLibrary, request, startDatabase, startTestService } from '../../support/service.js';

t.setTimeout(600_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'explorer_tasks');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const MARKUP = '<img src=x onerror=alert(1)>';
const wide = Array.from({ length: 200 }, (_, at) => `column_${at} ${at % 2 ? 'varchar(50)' : 'integer'}`).join(', ');
await sql.unsafe(`
  create table stock (id serial primary key, name text not null, amount integer not null, state text default 'new', seen date);
  insert into stock (name, amount) select 'thing ' || n, n from generate_series(1, 250) n;
  create table measured (id bigserial primary key, sensor integer not null, value double precision, taken timestamptz);
  insert into measured (sensor, value, taken)
    select n % 100, n / 7.0, timestamptz '2024-01-01' + n * interval '1 second' from generate_series(1, 1000000) n;
  analyze measured;
  create table wide (id serial primary key, ${wide}, parent integer references wide);
  insert into wide (column_0, column_1, column_199) values (1, 'first', 'last');
  create table keyless (line text);
`);
const service = await startTestService({ databaseUrl });
await setPassword(service);
const headers = { 'content-type': 'application/json' };
await request(service, 'POST', '/schema/suggestions', { headers, body: '{}' });

async function cell(page: Page, row: number, column: string, value: string): Promise<void> {
  const names = await page.getByRole('columnheader').allInnerTexts();
  const at = names.map((name) => name.trim()).indexOf(column) - 1;
  await page.locator(`[data-row="${row}"][data-column="${at}"]`).dblclick();
  await page.getByLabel(`New value of ${column}`).fill(value);
  await page.keyboard.press('Enter');
}

t.test(
  'task 3: filter; task 4: sort; task 5: share a link, and another browser shows the same list',
  { skip },
  async (t) => {
    const { page, complaints } = await openPage(service);
    await logIn(service, page, '#/data/stock');
    const grid = page.getByRole('grid', { name: 'stock' });
    await grid.getByText('thing 1', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Filter' }).click();
    await page.getByRole('button', { name: 'Add rule' }).click();
    await page.getByLabel('Field').selectOption('amount');
    await page.getByLabel('Operator').selectOption('_lte');
    await page.getByLabel('Value').fill('3');
    await page.getByText('3 items', { exact: true }).waitFor();
    await page.keyboard.press('Escape');
    await grid.getByRole('button', { name: 'amount', exact: true }).click();
    await page.waitForURL(/sort=amount/);
    await grid.getByRole('button', { name: 'amount', exact: true }).click();
    await page.waitForURL(/sort=-amount/);
    const other = await openPage(service);
    await logIn(service, other.page, new URL(page.url()).hash);
    const names = other.page.getByRole('grid', { name: 'stock' }).getByText(/^thing \d+$/);
    await names.nth(2).waitFor();
    t.strictSame(
      await names.allTextContents(),
      (await sql`select name from stock where amount <= 3 order by amount desc`).map(({ name }) => name),
    );
    t.strictSame([...complaints, ...other.complaints], []);
  },
);

t.test('task 8: undo and redo, with small and capital letters', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/data/stock?sort=id');
  await page.getByRole('grid', { name: 'stock' }).getByText('thing 1', { exact: true }).waitFor();
  await cell(page, 0, 'name', 'first');
  await cell(page, 1, 'amount', '20');
  await page.getByText('2 changes not saved').waitFor();
  await page.keyboard.press('Control+z');
  await page.getByText('One change not saved').waitFor();
  await page.keyboard.press('Control+Z');
  t.equal(await page.getByText('not saved').count(), 0, 'a capital Z without Shift, as with Caps Lock');
  await page.keyboard.press('Control+Shift+Z');
  await page.getByText('One change not saved').waitFor();
  await page.keyboard.press('Control+y');
  await page.getByText('2 changes not saved').waitFor();
  await page.getByRole('button', { name: 'Undo' }).click();
  await page.getByRole('button', { name: 'Redo' }).click();
  await page.keyboard.press('Control+s');
  await page.getByText('2 changes saved').waitFor();
  t.match(await sql`select name, amount from stock where id <= 2 order by id`, [
    { name: 'first', amount: 1 },
    { name: 'thing 2', amount: 20 },
  ]);
  t.strictSame(complaints, []);
});

t.test('task 7: add and read an m2m link: the list shows the names of the other side', { skip }, async (t) => {
  await sql`insert into tags (id, name) values (801, ${MARKUP}), (802, 'second tag')`;
  await sql`insert into articles (id, title) values (801, 'Linked')`;
  await sql`insert into articles_tags (articles_id, tags_id) values (801, 801)`;
  const { page, complaints } = await openPage(service);
  await logIn(service, page, `#/data/articles?filter=${encodeURIComponent('{"id":{"_eq":801}}')}`);
  const grid = page.getByRole('grid', { name: 'articles' });
  await grid.getByText(MARKUP).waitFor();
  await grid.getByRole('button', { name: /^tags: 1,/ }).click();
  const tags = page.getByRole('region', { name: /^tags of/ });
  await tags.getByRole('columnheader', { name: 'tags_id' }).waitFor();
  await tags.getByRole('gridcell', { name: MARKUP }).waitFor();
  await tags.getByRole('button', { name: 'Add' }).click();
  const form = page.getByRole('dialog', { name: 'Add to tags' });
  await form.getByLabel('tags_id').click();
  await form.getByRole('combobox').fill('second');
  await page.getByRole('option', { name: /^second tag/ }).click();
  await form.getByRole('button', { name: 'Add' }).click();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('One change saved').waitFor();
  t.equal((await sql`select from articles_tags where articles_id = 801 and tags_id = 802`).length, 1);
  const both = grid
    .getByRole('button', { name: /^tags: 2,/ })
    .filter({ hasText: MARKUP })
    .filter({ hasText: 'second tag' });
  await both.waitFor();
  await page.reload();
  await both.waitFor();
  t.strictSame(await findings(page), [], 'no serious finding');
  t.strictSame(complaints, []);
});

t.test('bulk edit and delete say how many items they change', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, `#/data/stock?sort=id&filter=${encodeURIComponent('{"amount":{"_gt":100}}')}`);
  const grid = page.getByRole('grid', { name: 'stock' });
  await grid.getByText('thing 101', { exact: true }).waitFor();
  await page.getByLabel('Select row 1', { exact: true }).check();
  await page.getByLabel('Select row 2', { exact: true }).check();
  await page.getByRole('button', { name: 'Edit', exact: true }).click();
  const edit = page.getByRole('dialog', { name: 'Edit items of stock' });
  await edit.getByLabel('Field to change').selectOption('seen');
  await edit.getByRole('textbox', { name: /^seen/ }).fill('tomorrow');
  await edit.getByText('must be a date').waitFor();
  t.ok(await edit.getByRole('button', { name: 'Change 2 items' }).isDisabled(), 'a wrong value');
  await edit.getByRole('textbox', { name: /^seen/ }).fill('2025-01-31');
  t.strictSame(await findings(page), [], 'no serious finding');
  await edit.getByRole('button', { name: 'Change 2 items' }).click();
  await page.getByText('Changed 2 items').waitFor();
  t.match(await sql`select id from stock where seen = '2025-01-31' order by id`, [{ id: 101 }, { id: 102 }]);

  await page.getByRole('button', { name: 'More' }).click();
  await page.getByRole('button', { name: 'Edit all shown items' }).click();
  await edit.getByText('All 150 items that match').waitFor();
  await edit.getByLabel('Field to change').selectOption('state');
  await edit.getByRole('textbox', { name: /^state/ }).fill('old');
  await edit.getByRole('button', { name: 'Change 150 items' }).click();
  await page.getByText('Changed 150 items').waitFor();
  t.match(await sql`select count(*)::integer, min(amount) from stock where state = 'old'`, [{ count: 150, min: 101 }]);

  await page.getByRole('button', { name: 'More' }).click();
  await page.getByRole('button', { name: 'Delete all shown items' }).click();
  const remove = page.getByRole('dialog', { name: 'Delete items of stock' });
  t.ok(await remove.getByRole('button', { name: 'Delete 150 items' }).isDisabled(), 'until it is confirmed');
  await remove.getByLabel(/^Type stock/).fill('stock');
  t.strictSame(await findings(page), [], 'no serious finding');
  await remove.getByRole('button', { name: 'Delete 150 items' }).click();
  await page.getByText('No item matches').waitFor();
  t.match(await sql`select count(*)::integer from stock`, [{ count: 100 }]);
  t.strictSame(complaints, []);
});

t.test('a bulk edit writes null only if the user has chosen it', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, `#/data/stock?sort=id&filter=${encodeURIComponent('{"id":{"_between":[50,52]}}')}`);
  await sql`update stock set seen = '2024-01-01', state = 'kept' where id between 50 and 52`;
  await page.getByRole('grid', { name: 'stock' }).getByText('thing 50', { exact: true }).waitFor();
  const open = async (): Promise<void> => {
    await page.getByRole('button', { name: 'More' }).click();
    await page.getByRole('button', { name: 'Edit all shown items' }).click();
  };
  const stored = () => sql`select distinct seen::text, state from stock where id between 50 and 52`;
  await open();
  const edit = page.getByRole('dialog', { name: 'Edit items of stock' });
  const submit = edit.getByRole('button', { name: 'Change 3 items' });
  await edit.getByText('All 3 items that match').waitFor();
  await edit.getByLabel('Field to change').selectOption('seen');
  await edit.getByText('Enter a value, or set the field to null.').waitFor();
  t.ok(await submit.isDisabled(), 'no value yet');
  const input = edit.getByRole('textbox', { name: /^seen/ });
  await input.fill('2025-01-31');
  t.notOk(await submit.isDisabled());
  await input.fill('');
  t.ok(await submit.isDisabled(), 'the value was deleted');
  await input.press('Enter');
  t.match(await stored(), [{ seen: '2024-01-01', state: 'kept' }]);
  await input.fill('tomorrow');
  const toNull = edit.getByRole('button', { name: 'Set seen to null' });
  await toNull.click();
  t.equal(await input.inputValue(), '', 'null takes the place of a wrong text');
  await edit.getByText('The field will be null.').waitFor();
  await toNull.click();
  t.ok(await submit.isDisabled(), 'not null after all');
  await toNull.click();
  await edit.getByLabel('Field to change').selectOption('state');
  t.ok(await submit.isDisabled(), 'the other field has no value yet');
  await edit.getByRole('button', { name: 'Leave state out' }).click();
  t.strictSame(await findings(page), [], 'no serious finding');
  await submit.click();
  await page.getByText('Changed 3 items').waitFor();
  t.match(await stored(), [{ seen: null, state: 'kept' }], 'chosen explicitly');
  t.strictSame(complaints, []);
});

t.test(
  'task 20: import with errors: columns are mapped, refused rows corrected, and sent again',
  { skip },
  async (t) => {
    const { page, complaints } = await openPage(service);
    await logIn(service, page, '#/data/stock');
    await page.getByRole('button', { name: 'More' }).click();
    await page.getByRole('button', { name: 'Import a file' }).click();
    const dialog = page.getByRole('dialog', { name: 'Import into stock' });
    const text = `Name;how many;comment\n${MARKUP};1;x\nwrong;many;y\n"semi;colon";3;z\n;4;no name\n`;
    await dialog
      .getByLabel('File')
      .setInputFiles({ name: 'stock.csv', mimeType: 'text/csv', buffer: Buffer.from(text) });
    await dialog.getByText('4 rows. Choose the field of each column.').waitFor();
    t.equal(await dialog.getByLabel('Field of the column Name').inputValue(), 'name', 'suggested');
    t.equal(await dialog.getByLabel('Field of the column comment').inputValue(), '', 'left out');
    await dialog.getByLabel('Field of the column how many').selectOption('amount');
    await dialog.getByText('1 value will be refused: “many” in row 2').waitFor();
    t.strictSame(await findings(page), [], 'no serious finding');
    await dialog.getByRole('button', { name: 'Import', exact: true }).click();
    await dialog.getByText('Nothing was imported: 2 rows refused').waitFor();
    t.equal((await sql`select from stock where name = ${MARKUP}`).length, 0, 'all rows or none');
    await dialog.getByLabel('amount of row 2').fill('2');
    await dialog.getByRole('region', { name: 'Row 4' }).getByLabel('Leave out').check();
    t.strictSame(await findings(page), [], 'no serious finding with refused rows');
    await dialog.getByRole('button', { name: 'Try again' }).click();
    await dialog.getByText('Imported 3 rows.').waitFor();
    const [rows] = await sql`select count(*)::int from stock`;
    await page.getByRole('link', { name: `stock ${rows?.['count']}` }).waitFor();
    t.match(
      await sql`select name, amount from stock where name in (${MARKUP}, 'wrong', 'semi;colon') order by amount`,
      [
        { name: MARKUP, amount: 1 },
        { name: 'wrong', amount: 2 },
        { name: 'semi;colon', amount: 3 },
      ],
    );
    t.strictSame(complaints, []);
  },
);

t.test('task 21: export of what is shown; task 30: one million rows: scroll, filter, export', { skip }, async (t) => {
  const { page, complaints } = await openPage(service, { acceptDownloads: true });
  await logIn(service, page, '#/data/measured');
  const grid = page.getByRole('grid', { name: 'measured' });
  await page.getByText('about 1M items').waitFor();
  t.ok((await grid.getByRole('row').count()) < 60, 'only rows in sight are in the document');
  await grid.focus();
  for (let count = 0; count < 5; count++) {
    await page.keyboard.press('Control+End');
    await page.waitForTimeout(200);
  }
  t.ok((await grid.getByRole('row').count()) < 60);
  await page.goto(
    `${service.url}/explorer#/data/measured?sort=-id&filter=${encodeURIComponent('{"sensor":{"_eq":42}}')}`,
  );
  await page.getByText('10,000 items').waitFor();
  await grid.getByRole('gridcell', { name: '999942', exact: true }).waitFor();
  await page.getByRole('button', { name: 'More' }).click();
  const downloading = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Export as CSV' }).click();
  const lines = (await readFile(await (await downloading).path(), 'utf8')).trim().split(/\r?\n/);
  await page.getByText('Exported to measured.csv').waitFor();
  const expected = await sql`select id::text from measured where sensor = 42 order by measured.id desc`;
  t.strictSame(
    lines.slice(1).map((line) => line.split(',')[0]),
    expected.map(({ id }) => id),
    'all rows of the filter, not only the loaded ones, in the order of the list',
  );
  await cell(page, 0, 'value', '12.5');
  await page.keyboard.press('Control+s');
  await page.getByText('One change saved').waitFor();
  t.match(await sql`select value from measured where id = 999942`, [{ value: 12.5 }]);
  t.strictSame(complaints, []);
});

t.test('task 31: 200 columns: relations are shown, and the others are found by name', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/data/wide');
  const grid = page.getByRole('grid', { name: 'wide' });
  await grid.getByText('first', { exact: true }).waitFor();
  await grid.getByRole('columnheader', { name: 'parent' }).waitFor();
  await page.getByRole('button', { name: 'Columns' }).click();
  await page.getByLabel('Search columns').fill('column_199');
  await page.getByRole('checkbox', { name: /^column_199/ }).check();
  await page.keyboard.press('Escape');
  await grid.getByText('last', { exact: true }).waitFor();
  await cell(page, 0, 'column_199', 'changed');
  await page.keyboard.press('Control+s');
  await page.getByText('One change saved').waitFor();
  t.match(await sql`select column_199 from wide`, [{ column_199: 'changed' }]);
  const all = ['id', ...Array.from({ length: 200 }, (_, at) => `column_${at}`)].join(',');
  await page.goto(`${service.url}/explorer#/data/wide?columns=${all}`);
  await page.waitForFunction(`document.querySelectorAll('[role=columnheader]').length === 202`);
  await page.goto(`${service.url}/explorer#/data/wide/1`);
  await page.locator('#record-column_150').fill('15');
  await page.locator('#record-column_152').fill('16');
  await page.keyboard.press('Control+s');
  await page.getByText('2 changes saved').waitFor();
  t.match(await sql`select column_150 from wide`, [{ column_150: 15 }]);
  t.strictSame(complaints, []);
});

t.test('task 33: keyboard only: open an item, change it, save, and go back', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/data/stock?sort=id');
  const grid = page.getByRole('grid', { name: 'stock' });
  await grid.getByText('thing 3', { exact: true }).waitFor();
  await page.keyboard.press('Control+k');
  await page.keyboard.type('stock');
  await page.keyboard.press('Enter');
  const reach = async (selector: string): Promise<void> => {
    for (let count = 0; count < 60; count++) {
      if (await page.evaluate(`document.activeElement?.matches(${JSON.stringify(selector)}) ?? false`)) return;
      await page.keyboard.press('Tab');
    }
    t.fail(`the focus never came to ${selector}`);
  };
  await reach('[role=grid]');
  for (const key of ['ArrowDown', 'ArrowDown', 'Shift+Enter']) await page.keyboard.press(key);
  await page.waitForURL(/data\/stock\/3/);
  await page.getByRole('heading', { name: 'thing 3' }).waitFor();
  await reach('#record-name');
  await page.keyboard.press('Control+a');
  await page.keyboard.type('by keys alone');
  await reach('#record-amount');
  await page.keyboard.press('Control+a');
  await page.keyboard.type('33');
  await page.keyboard.press('Control+s');
  await page.getByText('2 changes saved').waitFor();
  t.match(await sql`select name, amount from stock where id = 3`, [{ name: 'by keys alone', amount: 33 }]);
  await reach('.record-back');
  await page.keyboard.press('Enter');
  await grid.getByText('by keys alone').waitFor();
  t.strictSame(complaints, []);
});

t.test(
  'new tables appear without a reload, and tables without a key or a route offer nothing to create',
  { skip },
  async (t) => {
    const { page, complaints } = await openPage(service);
    await logIn(service, page, '#/data/keyless');
    await page.getByText('No items yet').waitFor();
    t.equal(await page.getByRole('button', { name: 'New', exact: true }).count(), 0);
    t.equal(await page.getByRole('button', { name: 'Create the first one' }).count(), 0);
    await sql`create table made_later (id serial primary key, name text)`;
    const list = page.getByRole('complementary', { name: 'Collections' });
    await list.getByRole('link', { name: /^made_later/ }).waitFor();
    await page.getByLabel('Collections of the service').check();
    await list.getByRole('link', { name: /^service_users/ }).waitFor();
    t.equal(await list.getByRole('link', { name: /^service_(sessions|collections)/ }).count(), 0, 'they have no items');
    t.notMatch(await list.innerText(), /NaN/);
    t.strictSame(complaints, []);
  },
);
