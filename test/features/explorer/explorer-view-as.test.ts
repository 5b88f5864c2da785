/** Explorer: administrators look at its pages as others; Pulse shows the slowest statements; Run says how a read travelled. */
import t from 'tap';
import { openPage, skip } from '../../support/browser.js';
import { makeCaller, makePolicy } from '../../support/callers.js';
import { findings, logIn, setPassword } from '../../support/explorer.js';
import { connectSql, createLibrary, get, startDatabase, startTestService } from '../../support/service.js';

t.setTimeout(300_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'explorer_view_as');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const published = { status: { _eq: 'published' } };
await makePolicy(sql, 'visitors', {
  permissions: [{ collection: 'articles', action: 'read', permissions: published, fields: ['id', 'title', 'status'] }],
});
await makeCaller(sql, 'editor', [
  {
    permissions: [
      { collection: 'articles', action: 'read' },
      { collection: 'articles', action: 'update' },
      { collection: 'tags', action: 'read' },
    ],
  },
]);
// More than any list of them shows.
await sql`insert into service_users (email) select 'person ' || n || '@example.com' from generate_series(1, 5000) n`;
const service = await startTestService({ databaseUrl });
await setPassword(service);

t.test(
  'task 11: view as the public, a role, a user, on every page, and nothing can be changed',
  { skip },
  async (t) => {
    const { page, complaints } = await openPage(service);
    await logIn(service, page, '#/data/articles');
    const pages = page.getByRole('navigation', { name: 'Pages' }).getByRole('link');
    const view = async (typed: string, option: RegExp): Promise<void> => {
      await page.getByRole('button', { name: 'View as', exact: true }).click();
      await page.getByRole('combobox', { name: 'Role or user' }).fill(typed);
      await page.getByRole('option', { name: option }).click();
    };
    const grid = page.getByRole('grid', { name: 'articles' });
    const draft = String(
      (await sql`select title from articles where status = 'draft' order by id limit 1`)[0]?.['title'],
    );
    const open = (await sql`select from articles where status = 'published'`).length;
    const all = (await sql`select from articles`).length;
    await grid.getByText(draft, { exact: true }).first().waitFor();

    const asked: (string | undefined)[] = [];
    page.on('request', (request) => {
      if (request.url().includes('/items/')) asked.push(request.headers()['lateral-view-as']);
    });
    await page.getByRole('button', { name: 'View as', exact: true }).click();
    await page.getByRole('option', { name: /^The public/ }).waitFor();
    t.strictSame(await findings(page), [], 'no serious finding in the list');
    await page.keyboard.press('Escape');
    t.equal(await page.getByRole('combobox', { name: 'Role or user' }).count(), 0, 'Escape closes it');
    await page.keyboard.press('Enter');
    await page.getByRole('option', { name: /^The public/ }).waitFor();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    asked.length = 0;
    await page.getByText(`${open} items`, { exact: true }).waitFor();
    await page.getByRole('status').getByText('You see what the public may see').waitFor();
    t.equal(await page.getByRole('combobox', { name: 'Role or user' }).count(), 0, 'Enter closes the list');
    t.equal(await grid.getByText(draft, { exact: true }).count(), 0, 'no draft');
    t.equal(await page.getByRole('columnheader', { name: 'views' }).count(), 0, 'no field that is not granted');
    t.equal(await page.getByRole('link', { name: /^tags/ }).count(), 0, 'no collection that is not granted');
    t.equal(await page.getByRole('button', { name: 'New' }).count(), 0, 'nothing to create');
    t.equal(await page.getByRole('checkbox', { name: 'Select row 1' }).count(), 0, 'nothing to delete');
    await grid.getByRole('gridcell', { name: 'Hello World', exact: true }).dblclick();
    t.equal(await page.getByLabel('New value of title').count(), 0, 'nothing to change');
    t.ok(asked.length > 0 && asked.every((as) => as === 'public'), 'by the public API');
    t.strictSame(await findings(page), [], 'no serious finding');
    t.strictSame(await pages.allInnerTexts(), ['Data', 'Query', 'Plan', 'Boards', 'Model', 'Docs']);

    await pages.getByText('Query').click();
    const statement = page.getByRole('region', { name: 'Statement' });
    await statement.getByText('"status"').first().waitFor();
    t.match(await statement.innerText(), /-- \$\d = 'published'/, 'the rule is in the statement');
    await page.keyboard.press('Control+Enter');
    const result = page.getByRole('region', { name: 'Result' });
    await result.getByRole('cell', { name: 'Hello World' }).waitFor();
    t.match(await result.innerText(), /sent\s+alone/i);
    await pages.getByText('Plan').click();
    await page.getByText('slowest', { exact: true }).waitFor();
    await pages.getByText('Model').click();
    await page
      .getByRole('button', { name: /^articles/ })
      .first()
      .click();
    t.equal(await page.getByRole('button', { name: 'Add field' }).count(), 0);
    await pages.getByText('Docs').click();
    await page.getByRole('link', { name: 'articles', exact: true }).first().waitFor();
    t.equal(await page.getByRole('link', { name: 'tags', exact: true }).count(), 0, 'their API');

    await pages.getByText('Data').click();
    await view('edi', /^editor\s*role$/);
    await page.getByText(`${all} items`, { exact: true }).waitFor();
    await page.getByRole('status').getByText('You see what the role editor may see').waitFor();
    await view('person 4711@', /^person 4711@example.com/);
    await page.getByRole('status').getByText('You see what person 4711@example.com may see').waitFor();
    await view('EDITOR@', /^editor@example.com/);
    await page.getByRole('status').getByText('You see what editor@example.com may see').waitFor();
    await page.getByRole('link', { name: /^tags/ }).waitFor();
    await page.getByRole('button', { name: 'View as yourself' }).click();
    await page.getByRole('link', { name: /^comments/ }).waitFor();
    t.equal(await page.getByRole('button', { name: 'Operations' }).count(), 1, 'and back');
    await pages.getByText('People').click();
    await page.getByRole('heading', { name: 'People' }).waitFor();
    await view('edi', /^editor\s*role$/);
    await page.waitForURL(/#\/data/);
    await page
      .getByRole('link', { name: /^articles/ })
      .first()
      .waitFor();
    t.strictSame(complaints, []);
  },
);

t.test('pulse: the slowest statements, with their SQL and plan', { skip }, async (t) => {
  for (let count = 0; count < 25; count++) await get(service, '/items/comments?fields=body,article.title&limit=7');
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/pulse');
  for (const name of [/^Requests/, /^Latency/, /^Reads per statement/, /^Statements/, /^Connections/, /^Memory/])
    await page.getByRole('figure', { name }).waitFor();
  const table = page.getByRole('region', { name: 'Slowest statements' });
  const row = table.getByRole('row', { name: /^select comments, articles( .*)? 25 25/ });
  await row.waitFor();
  t.match(await row.innerText(), /\s7\s+generic$/);
  await table.getByRole('button', { name: 'Calls' }).click();
  await table.getByRole('button', { name: 'Calls ↓' }).waitFor();
  t.strictSame(await findings(page), [], 'no serious finding');
  await row.getByRole('button').click();
  const dialog = page.getByRole('dialog', { name: 'Statement' });
  await dialog.getByRole('region', { name: 'Statement' }).getByText('"comments"').first().waitFor();
  await dialog.getByRole('group', { name: 'Plan' }).getByText('comments').first().waitFor();
  t.strictSame(await findings(page), [], 'no serious finding in the dialog');
  t.strictSame(complaints, []);
});
