/** Dialogs, menus and forms that no other test of the Explorer opens: axe finds nothing serious in any theme and width. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import t, { type Test } from 'tap';
import { encode } from 'uqr';
import { openPage, skip } from '../../support/browser.js';
import { findings, logIn, PASSWORD, setPassword } from '../../support/explorer.js';
import {
  connectSql,
  createLibrary,
  makeFolder,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';
import { codeOf } from '../../support/users.js';

t.setTimeout(600_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'explorer_dialogs');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql`create table rooms (id serial primary key, name text)`;
await sql`create table beds (id serial primary key, width integer, room integer references rooms)`;
const service = await startTestService({ databaseUrl });
await setPassword(service);
const headers = { 'content-type': 'application/json' };
const send = (method: string, path: string, body: unknown) =>
  request(service, method, path, { headers, body: JSON.stringify(body) });

type Act = (page: Page) => Promise<void>;

const click =
  (...names: (string | RegExp)[]): Act =>
  async (page) => {
    for (const name of names) await page.getByRole('button', { name, exact: true }).first().click();
  };
const dialog = (page: Page) => page.getByRole('dialog').last().waitFor();

/** Opens an address, then a dialog or menu there, and checks it. */
async function check(t: Test, page: Page, scenes: readonly (readonly [string, string, Act])[]): Promise<void> {
  for (const [what, address, open] of scenes) {
    await page.goto('about:blank');
    await page.goto(`${service.url}/explorer#/${address}`);
    await page.getByRole('navigation', { name: 'Pages' }).waitFor();
    await open(page);
    await dialog(page);
    t.strictSame(await findings(page), [], `no serious finding: ${what}`);
  }
}

t.test('Data', { skip }, async (t) => {
  const file = join(await makeFolder(), 'tags.csv');
  await writeFile(file, 'name,nothing\nfirst,1\nsecond,2\n');
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/data/articles');
  await check(t, page, [
    ['filter', 'data/articles', click('Filter', 'Add rule')],
    ['columns', 'data/articles', click('Columns')],
    ['more', 'data/articles', click('More')],
    [
      'import',
      'data/tags',
      async (page) => {
        await click('More', 'Import a file')(page);
        await page.getByLabel('File').setInputFiles(file);
        await page.getByText('nothing').first().waitFor();
      },
    ],
    ['palette', 'data/articles', (page) => page.keyboard.press('Control+k')],
    ['account menu', 'data/articles', click(/^Account/)],
    ['list of pages', 'data/articles', click('Operations')],
  ]);
  t.strictSame(complaints, []);
});

t.test('the page of an item', { skip }, async (t) => {
  await send('PATCH', '/collections/articles', { meta: { versioning: true } });
  await send('PATCH', '/items/articles/1', { views: 5 });
  await send('PATCH', '/items/articles/1', { views: 6 });
  await send('POST', '/versions', { collection: 'articles', item: '1', key: 'draft', name: 'Draft' });
  await send('POST', '/comments', { collection: 'articles', item: '1', comment: 'A comment' });
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/data/articles/1');
  await check(t, page, [
    ['as request', 'data/articles/1', click('As request')],
    ['delete', 'data/articles/1', click('More', 'Delete')],
    ['restore a revision', 'data/articles/1?tab=revisions', click('Restore')],
    ['new version', 'data/articles/1?tab=versions', click('New version')],
    ['new item of a list', 'data/articles/1', click('Add')],
  ]);
  for (const tab of ['comments', 'access', 'versions']) {
    await page.goto(`${service.url}/explorer#/data/articles/1?tab=${tab}`);
    await page.locator('.record-body').waitFor();
    t.strictSame(await findings(page), [], `no serious finding: ${tab}`);
  }
  await page.goto(`${service.url}/explorer#/data/articles?new=1`);
  await page.getByRole('form', { name: 'New item in articles' }).waitFor();
  t.strictSame(await findings(page), [], 'no serious finding: new item');
  t.strictSame(complaints, []);
});

t.test('Model, with a check constraint by clicks', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/model');
  await check(t, page, [
    ['new collection', 'model', click('New collection')],
    ['suggested relations', 'model', click(/^Suggested relations/)],
    ['functions', 'model', click('Functions')],
    ['new field', 'model/beds', click('Add field')],
    ['new relation', 'model/beds', click('Add relation')],
    ['new index', 'model/beds', click('Add index')],
    ['menu of a field', 'model/beds', click('Change width')],
    ['change a field', 'model/beds', click('Change width', 'Type, default, note')],
    ['change a relation', 'model/beds', click('Change room', 'Relation')],
    ['delete a field', 'model/beds', click('Change width', 'Delete the field')],
    ['change a collection', 'model/beds', click('Change beds', 'Note, singleton')],
    ['delete a collection', 'model/beds', click('Change beds', 'Delete the collection')],
  ]);
  await page.goto(`${service.url}/explorer#/model/beds`);
  // The dialog before it is still open: the address is the same.
  await page.reload();
  await click('Add check')(page);
  const form = page.getByRole('dialog', { name: 'New check of beds' });
  t.ok(await form.getByRole('button', { name: 'Review' }).isDisabled());
  await form.getByLabel('Condition').fill('length > 1');
  await form.getByRole('button', { name: 'Review' }).click();
  await form.getByRole('alert').getByText('"length" is not a column').waitFor();
  await form.getByLabel('Condition').fill('width between 70 and 200');
  t.strictSame(await findings(page), [], 'no serious finding: new check');
  await form.getByRole('button', { name: 'Review' }).click();
  await form.getByText('check (width between 70 and 200)').waitFor();
  t.strictSame(await findings(page), [], 'no serious finding: review of a check');
  const checks = () => sql`select conname from pg_constraint where conrelid = 'beds'::regclass and contype = 'c'`;
  t.equal((await checks()).length, 0, 'nothing has run');
  await form.getByRole('button', { name: 'Create check' }).click();
  const list = page.getByRole('region', { name: 'Checks' });
  await list.getByText('width >= 70 AND width <= 200').waitFor();
  t.match(await checks(), [{ conname: 'beds_width_check' }]);
  await list.getByRole('button', { name: 'Drop beds_width_check' }).click();
  await page.getByRole('dialog', { name: 'Drop beds_width_check?' }).waitFor();
  t.strictSame(await findings(page), [], 'no serious finding: drop a check');
  await page.getByRole('dialog').getByRole('button', { name: 'Drop', exact: true }).click();
  await list.getByText('No checks.').waitFor();
  t.equal((await checks()).length, 0);
  t.strictSame(complaints, []);
});

t.test('People and Access', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/people');
  await check(t, page, [
    ['invite a user', 'people', click('Invite user')],
    ['new role', 'people/roles', click('New role')],
    ['delete a role', 'people/roles', click('Actions of Administrator', 'Delete')],
    ['new policy', 'people/policies', click('New policy')],
    ['assign a policy', 'people/policies', click('Actions of Administrator', 'Assign')],
    ['duplicate a policy', 'people/policies', click('Actions of Administrator', 'Duplicate')],
    ['delete a policy', 'people/policies', click('Actions of Administrator', 'Delete')],
    ['new policy for a role', 'access', click('New policy')],
  ]);
  t.strictSame(complaints, []);
});

t.test('your account: the second factor on and off', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/data');
  await click(/^Account/, 'Your account')(page);
  const account = page.getByRole('dialog', { name: 'Your account' });
  await account.getByText('Off.').waitFor();
  t.strictSame(await findings(page), [], 'no serious finding: account');
  await account.getByRole('button', { name: 'Turn on' }).click();
  const turnOn = page.getByRole('dialog', { name: 'Turn on the second factor' });
  await turnOn.getByLabel('Your password').fill('wrong');
  await turnOn.getByRole('button', { name: 'Continue' }).click();
  await turnOn.getByRole('alert').waitFor();
  t.strictSame(await findings(page), [], 'no serious finding: password');
  await turnOn.getByLabel('Your password').fill(PASSWORD);
  await turnOn.getByRole('button', { name: 'Continue' }).click();
  const secret = (await turnOn.locator('code').innerText()).replaceAll(' ', '');
  const drawn = await turnOn.getByRole('img', { name: 'Key to scan' }).locator('path').getAttribute('d');
  const { data } = encode(String(await turnOn.getByRole('link').getAttribute('href')), { ecc: 'M', border: 3 });
  t.equal(drawn?.split('M').length, data.flat().filter(Boolean).length + 1, 'the code has the address of the link');
  t.strictSame(await findings(page), [], 'no serious finding: key');
  const stored = () => sql`select tfa_secret from service_users where email = 'admin@example.com'`;
  t.match(await stored(), [{ tfa_secret: null }], 'it is off until a code was right');
  await turnOn.getByLabel('Code').fill('000000');
  await turnOn.getByRole('button', { name: 'Turn on' }).click();
  await turnOn.getByRole('alert').waitFor();
  await turnOn.getByLabel('Code').fill(codeOf(secret));
  await turnOn.getByRole('button', { name: 'Turn on' }).click();
  await page.getByText('The second factor is on').waitFor();
  t.match(await stored(), [{ tfa_secret: String }]);
  await account.getByRole('button', { name: 'Turn off' }).click();
  const turnOff = page.getByRole('dialog', { name: 'Turn off the second factor' });
  t.strictSame(await findings(page), [], 'no serious finding: turn off');
  // A code is valid once.
  await turnOff.getByLabel('Code').fill(codeOf(secret, 1));
  await turnOff.getByRole('button', { name: 'Turn off' }).click();
  await page.getByText('The second factor is off').waitFor();
  t.match(await stored(), [{ tfa_secret: null }]);
  t.strictSame(complaints, []);
});
