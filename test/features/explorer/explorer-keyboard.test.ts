/** The Explorer by keyboard and over several pages: arrows in grids, the order of columns, the history, and pages as they were left. */
import type { Page } from 'playwright-core';
import t from 'tap';
import { openPage, skip } from '../../support/browser.js';
import { logIn, setPassword } from '../../support/explorer.js';
import { createLibrary, startDatabase, startTestService, waitFor } from '../../support/service.js';

t.setTimeout(300_000);
const server = await startDatabase();
const service = await startTestService({ databaseUrl: await createLibrary(server, 'explorer_keyboard'), WORKERS: '1' });
await setPassword(service);

async function activeCell(page: Page): Promise<string> {
  const cell = page.locator('.cell.active').first();
  return `${await cell.getAttribute('data-row')},${await cell.getAttribute('data-column')}`;
}

t.test(
  'arrows, Home, End and pages move in a grid; Space, Enter and Ctrl-Enter act on the cell',
  { skip },
  async (t) => {
    const { page, complaints } = await openPage(service);
    await logIn(service, page, '#/data/articles');
    const grid = page.getByRole('grid', { name: 'articles' });
    await grid.getByRole('gridcell').nth(3).waitFor();
    await grid.focus();
    const columns = (await grid.getByRole('columnheader').count()) - 1;
    for (const [key, place] of [
      ['ArrowDown', '1,0'],
      ['ArrowRight', '1,1'],
      ['ArrowDown', '2,1'],
      ['ArrowUp', '1,1'],
      ['ArrowLeft', '1,0'],
      ['ArrowLeft', '1,0'],
      ['End', `1,${columns - 1}`],
      ['Home', '1,0'],
      ['Control+Home', '0,0'],
      ['ArrowUp', '0,0'],
    ] as const) {
      await page.keyboard.press(key);
      t.equal(await activeCell(page), place, key);
    }
    await page.keyboard.press('PageDown');
    t.not(await activeCell(page), '0,0', 'PageDown');
    await page.keyboard.press('Control+Home');
    await page.keyboard.press('Space');
    t.ok(await page.getByLabel('Select row 1', { exact: true }).isChecked(), 'Space selects the row');
    const headers = await grid.getByRole('columnheader').allInnerTexts();
    const author = headers.findIndex((text) => text.trim() === 'author') - 1;
    for (let count = 0; count < author; count++) await page.keyboard.press('ArrowRight');
    await page.keyboard.press('Control+Enter');
    await page.getByRole('region', { name: /^author of/ }).waitFor();
    await page.keyboard.press('Control+Enter');
    await page.getByRole('region', { name: /^author of/ }).waitFor({ state: 'detached' });
    await page.keyboard.press('Home');
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('Enter');
    await page.getByLabel('New value of title').waitFor();
    await page.keyboard.press('Shift+Tab');
    t.equal(await activeCell(page), '0,0', 'Shift-Tab goes back');
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('Enter');
    await page.getByLabel('New value of title').waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.press('ArrowDown');
    t.equal(await activeCell(page), '1,1', 'Escape leaves the cell, and the keys go on from it');
    await page.keyboard.type('Typed and saved');
    await page.keyboard.press('Control+s');
    await page.getByText('One change saved').waitFor();
    await page.keyboard.press('ArrowDown');
    t.equal(await activeCell(page), '2,1', 'Ctrl-S saves the typed value, and the keys go on from its cell');
    await page.keyboard.press('Enter');
    await page.keyboard.type('x');
    await page.keyboard.press('Enter');
    await page.keyboard.press('Control+s');
    await page.getByText('One change saved').nth(1).waitFor();
    await page.keyboard.press('ArrowUp');
    t.equal(await activeCell(page), '2,1', 'after Ctrl-S in the grid, too');
    t.strictSame(complaints, []);
  },
);

t.test('a dialog that closes returns the focus to the button that opened it', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/data/articles');
  await page.getByRole('gridcell').nth(3).waitFor();
  const focused = () => page.evaluate(`document.activeElement.getAttribute('aria-label')`);
  for (const [address, opener, entry] of [
    ['data/articles', 'More', 'Import a file'],
    ['data/articles/1', 'As request', null],
    ['access', 'read articles: no', null],
    ['model/articles', 'Add field', null],
    ['model', 'Functions', null],
  ] as const) {
    await page.goto(`${service.url}/explorer#/${address}`);
    await page.getByRole('button', { name: opener, exact: true }).press('Enter');
    if (entry !== null) await page.getByRole('button', { name: entry }).press('Enter');
    const dialog = page.locator('dialog');
    await dialog.waitFor();
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
    t.equal(await focused(), opener, `${opener} on ${address}`);
  }
  t.strictSame(complaints, []);
});

t.test('a button that is disabled during its request keeps the focus', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/query/articles');
  const focused = () => page.evaluate('document.activeElement.textContent');
  const isFocused = async (name: string, text: string): Promise<void> => {
    await waitFor(async () => (await focused()) === name, 2_000).catch(() => {});
    t.equal(await focused(), name, text);
  };
  await page.getByRole('button', { name: 'Run' }).press('Enter');
  await page.getByRole('region', { name: 'Result' }).waitFor();
  await isFocused('Run', 'the result is shown');

  await page.goto(`${service.url}/explorer#/model/articles`);
  await page.getByRole('button', { name: 'Add check' }).press('Enter');
  const form = page.getByRole('dialog', { name: 'New check of articles' });
  await form.getByLabel('Condition').fill('no_such_column > 1');
  await form.getByRole('button', { name: 'Review' }).press('Enter');
  await form.getByRole('alert').waitFor();
  await isFocused('Review', 'the request was refused');
  await form.getByLabel('Condition').fill('length(title) >= 0');
  await form.getByRole('button', { name: 'Review' }).focus();
  await page.keyboard.down('Enter');
  await form.getByRole('button', { name: 'Create check' }).waitFor();
  await isFocused('Create check', 'it was replaced');
  await page.keyboard.down('Enter');
  await page.keyboard.up('Enter');
  t.notOk(await form.getByRole('button', { name: 'Create check' }).isDisabled(), 'a key that is held creates nothing');
  await page.keyboard.press('Escape');
  await isFocused('Add check', 'the dialog is closed');

  await page.goto(`${service.url}/explorer#/data/articles/1`);
  await page.locator('#record-title').fill('Saved by a key');
  await page.getByRole('button', { name: 'Save' }).press('Enter');
  await page.getByText('One change saved').waitFor();
  await page.getByRole('button', { name: 'Save' }).waitFor({ state: 'detached' });
  t.not(await page.evaluate('document.activeElement.tagName'), 'BODY', 'it was removed');

  await page.getByRole('button', { name: 'As request' }).focus();
  await page.mouse.click(640, 400);
  await page.evaluate(`{
    const button = [...document.querySelectorAll('button')].find(({ textContent }) => textContent === 'As request');
    document.activeElement.blur();
    button.disabled = true;
    setTimeout(() => { button.disabled = false; button.title = 'enabled'; });
  }`);
  await page.getByTitle('enabled').waitFor();
  t.equal(await page.evaluate('document.activeElement.tagName'), 'BODY', 'a button that the user left gets no focus');
  t.strictSame(complaints, []);
});

t.test('the order of columns is chosen, kept, and put back', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/data/authors');
  const grid = page.getByRole('grid', { name: 'authors' });
  const names = async (): Promise<string[]> =>
    (await grid.getByRole('columnheader').allInnerTexts()).map((text) => text.trim()).filter((text) => text !== '');
  await grid.getByRole('gridcell').nth(3).waitFor();
  const before = await names();
  t.strictSame(before.slice(0, 2), ['id', 'name'], 'the key and the title first');
  await page.getByRole('button', { name: 'Columns' }).click();
  await page.getByRole('button', { name: 'Move name up' }).click();
  await page.keyboard.press('Escape');
  t.strictSame(await names(), ['name', 'id', ...before.slice(2)]);
  await page.goto('about:blank');
  await page.goto(`${service.url}/explorer#/data/authors`);
  await grid.getByRole('gridcell').nth(3).waitFor();
  t.strictSame(await names(), ['name', 'id', ...before.slice(2)], 'the browser keeps it');
  await page.getByRole('button', { name: 'Columns' }).click();
  await page.getByRole('button', { name: 'Show the default columns' }).click();
  await page.keyboard.press('Escape');
  t.strictSame(await names(), before);
  t.strictSame(complaints, []);
});

t.test(
  'a list leads to its question; the history leads back to earlier ones; pages stay as they were',
  { skip },
  async (t) => {
    const { page, complaints } = await openPage(service);
    await logIn(service, page, '#/data/articles');
    const pages = page.getByRole('navigation', { name: 'Pages' });
    const header = page.getByRole('grid', { name: 'articles' }).getByRole('button', { name: /^views/ });
    await header.click();
    await page.waitForURL(/sort=views/);
    await header.click();
    await page.waitForURL(/sort=-views/);
    await page.getByRole('button', { name: 'SQL and API' }).click();
    const rest = page.getByRole('textbox', { name: 'REST' });
    await rest.waitFor();
    t.match(await rest.inputValue(), /^GET \/items\/articles\?fields=id,title,author\.name,.*&sort=-views&limit=10$/);
    const history = page.getByRole('button', { name: 'History' });
    t.ok(await history.isDisabled(), 'nothing was run yet');
    await page.keyboard.press('Control+Enter');
    await page.getByRole('region', { name: 'Result' }).waitFor();
    await rest.fill('GET /items/tags?fields=name&limit=3');
    await page.waitForURL(/query\/tags/);
    await page.getByRole('button', { name: 'Run' }).click();
    await page.getByRole('region', { name: 'Result' }).getByRole('columnheader', { name: 'name' }).waitFor();
    await history.click();
    const entries = page.getByRole('dialog', { name: 'History' }).getByRole('button');
    t.strictSame(
      (await entries.allInnerTexts()).map((text) => /^GET \/items\/\w+/.exec(text)?.[0]),
      ['GET /items/tags', 'GET /items/articles'],
      'the latest first',
    );
    await entries.last().click();
    await page.waitForURL(/query\/articles/);
    t.match(await rest.inputValue(), 'sort=-views');

    await pages.getByRole('link', { name: 'Data' }).click();
    await page.waitForURL(/data\/articles\?sort=-views/);
    await pages.getByRole('link', { name: 'Model' }).click();
    await page.getByRole('complementary', { name: 'Collection articles' }).waitFor();
    await pages.getByRole('link', { name: 'Query' }).click();
    t.match(await rest.inputValue(), 'GET /items/articles');
    t.strictSame(complaints, []);
  },
);
