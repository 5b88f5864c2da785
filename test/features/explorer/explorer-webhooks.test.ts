/** Webhooks in the Explorer in a real browser, with a real receiver that verifies the signatures. */
import { Webhook } from 'standardwebhooks';
import t from 'tap';
import { openPage, skip } from '../../support/browser.js';
import { findings, logIn, setPassword, watchForScripts } from '../../support/explorer.js';
import { connectSql, createLibrary, request, startDatabase, startTestService, waitFor } from '../../support/service.js';
import { startReceiver } from '../../support/webhook-receiver.js';

t.setTimeout(300_000);
const MARKUP = '<img src=x onerror=alert(1)>';
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'explorer_webhooks');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const service = await startTestService({
  databaseUrl,
  WEBHOOKS_ALLOW_LOCAL: 'true',
  WEBHOOK_RETRY_DELAYS: '100ms',
});
await setPassword(service);

t.test('task 29: a webhook is made, and its receiver gets a signed delivery after a change', { skip }, async (t) => {
  const receiver = await startReceiver();
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/webhooks');
  await page.getByText('There are no webhooks yet').waitFor();
  t.strictSame(await findings(page), [], 'no serious finding without webhooks');
  await page.getByRole('button', { name: 'New webhook' }).click();
  const form = page.getByRole('dialog', { name: 'New webhook' });
  const create = form.getByRole('button', { name: 'Create' });
  await form.getByLabel('Name').fill('Published articles');
  await form.getByLabel('URL').fill('ftp://example.com');
  t.ok(await create.isDisabled(), 'a webhook needs a collection');
  await form.getByRole('group', { name: 'Collections' }).getByLabel('articles', { exact: true }).check();
  await form.getByLabel('Secret').focus();
  await create.click();
  await form.getByRole('alert').waitFor();
  const isVisible = `document.querySelector('dialog [role=alert]').getBoundingClientRect().top > 0`;
  t.ok(await page.evaluate(isVisible), 'the error at the top of a long form is scrolled to');
  t.equal((await sql`select from service_webhooks`).length, 0, 'a wrong URL is reported, and nothing is created');
  await form.getByLabel('URL').fill(`${receiver.url}/hook`);
  await form.getByLabel('truncate').uncheck();
  await form.getByRole('button', { name: 'Add rule' }).click();
  await form.getByLabel('Field', { exact: true }).selectOption('status');
  await form.getByLabel('Operator').selectOption('_eq');
  await form.getByLabel('Value').fill('published');
  await form.getByLabel('Fields').fill('id, title, author.name');
  await form.getByLabel('Headers').fill('X-From: Explorer');
  t.strictSame(await findings(page), [], 'no serious finding in the form');
  await create.click();
  const secretDialog = page.getByRole('dialog', { name: 'Secret of the webhook' });
  const secret = await secretDialog.locator('code').innerText();
  t.match(secret, /^whsec_/);
  t.strictSame(await findings(page), [], 'no serious finding in the dialog of the secret');
  await secretDialog.getByRole('button', { name: 'Done' }).click();
  const stored = () =>
    sql`select id, name, status, url, collections, events, filter, fields, headers, secret from service_webhooks`;
  t.match(await stored(), [
    {
      ...{ name: 'Published articles', status: 'active', url: `${receiver.url}/hook`, secret },
      ...{ collections: ['articles'], events: ['create', 'update', 'delete'], fields: ['id', 'title', 'author.name'] },
      ...{ filter: { status: { _eq: 'published' } }, headers: { 'X-From': 'Explorer' } },
    },
  ]);

  await page.getByRole('button', { name: 'Send a test' }).click();
  await page.getByText(/The receiver accepted the test: status 204/).waitFor();
  const [article] =
    await sql`select id, author from articles where status = 'published' and author is not null limit 1`;
  await sql`update articles set title = 'Sent by SQL' where id = ${article?.['id']}`;
  const [, change] = await receiver.count(2);
  const verified = new Webhook(secret).verify(String(change?.body), change?.headers as Record<string, string>);
  const author = (await sql`select name from authors where id = ${article?.['author']}`)[0]?.['name'];
  t.match(verified, { type: 'articles.update', data: { title: 'Sent by SQL', author: { name: author } } });
  t.equal(change?.headers['x-from'], 'Explorer');
  const deliveries = page.getByRole('region', { name: 'List of deliveries' });
  await deliveries
    .getByRole('row', { name: /delivered articles update/ })
    .getByRole('button')
    .click();
  const sent = page.getByRole('dialog', { name: 'Delivery of articles update' });
  await sent.getByText('Sent by SQL').waitFor();
  t.strictSame(await findings(page), [], 'no serious finding in a delivery');
  await page.keyboard.press('Escape');

  await page.getByRole('button', { name: 'Pause' }).click();
  await page.getByRole('button', { name: 'Resume' }).waitFor();
  t.match(await stored(), [{ status: 'paused' }]);
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.getByRole('button', { name: 'Turn off' }).click();
  await page.getByRole('button', { name: 'Turn on' }).waitFor();
  t.match(await stored(), [{ status: 'inactive' }]);
  await page.getByRole('button', { name: 'Turn on' }).click();
  await page.getByRole('button', { name: 'Turn off' }).waitFor();

  receiver.answer = (_, response) => void response.writeHead(500).end(MARKUP);
  await sql`update articles set title = ${MARKUP} where id = ${article?.['id']}`;
  await page.getByRole('tab', { name: 'Dead 1' }).click();
  await deliveries.getByRole('row', { name: /dead/ }).getByRole('button').click();
  const dead = page.getByRole('dialog', { name: 'Delivery of articles update' });
  await dead.getByRole('region', { name: 'Answer' }).getByText(MARKUP).waitFor();
  receiver.answer = (_, response) => void response.writeHead(204).end();
  await dead.getByRole('button', { name: 'Send again' }).click();
  const isSent = async () => (await sql`select from service_webhook_deliveries where status = 'dead'`).length === 0;
  await waitFor(isSent, 10_000);

  await page.getByRole('button', { name: 'More', exact: true }).click();
  await page.getByRole('button', { name: 'Rotate the secret' }).click();
  await page.getByRole('dialog', { name: 'Rotate the secret' }).getByRole('button', { name: 'Rotate' }).click();
  const rotated = await secretDialog.locator('code').innerText();
  t.not(rotated, secret);
  t.match(await stored(), [{ secret: rotated }]);
  await secretDialog.getByRole('button', { name: 'Done' }).click();
  await page.getByRole('button', { name: 'Edit' }).click();
  const edit = page.getByRole('dialog', { name: 'Edit the webhook' });
  t.equal(await edit.getByLabel('Value').inputValue(), 'published', 'the form has the stored filter');
  await edit.getByLabel('Name').fill('Renamed');
  await edit.getByLabel('Body').fill('{"text": ');
  await edit.getByRole('button', { name: 'Save' }).click();
  await edit.getByText('The body is not valid JSON').waitFor();
  await edit.getByLabel('Body').fill('{"text": "Changed: {{data.title}}"}');
  await edit.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('heading', { name: 'Renamed' }).waitFor();
  t.match(await stored(), [{ name: 'Renamed', filter: { status: { _eq: 'published' } } }]);
  t.match(await sql`select template from service_webhooks`, [{ template: { text: 'Changed: {{data.title}}' } }]);
  await page.getByRole('button', { name: 'More', exact: true }).click();
  await page.getByRole('button', { name: 'Delete the webhook' }).click();
  await page.getByRole('dialog', { name: 'Delete the webhook' }).getByRole('button', { name: 'Delete' }).click();
  await page.getByText('There are no webhooks yet').waitFor();
  t.equal((await sql`select from service_webhooks`).length, 0);
  t.strictSame(complaints, []);
});

t.test('hostile names of webhooks: nothing executes, in both themes and widths', { skip }, async (t) => {
  await sql`create table ${sql(MARKUP)} (id serial primary key, name text)`;
  await request(service, 'POST', '/utils/cache/clear');
  const definition = {
    name: MARKUP,
    url: 'http://127.0.0.1:9/<b>',
    collections: ['articles'],
    headers: { 'X-A': MARKUP },
  };
  const made = await request(service, 'POST', '/webhooks?fields=id', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(definition),
  });
  t.equal(made.status, 200, made.text);
  const { data } = made.json as { data: { id: string } };
  const { page, complaints } = await openPage(service);
  watchForScripts(page, complaints);
  await logIn(service, page, '#/webhooks');
  await page.getByRole('link', { name: MARKUP }).waitFor();
  t.strictSame(await findings(page), [], 'no serious finding in the list');
  await page.goto(`${service.url}/explorer#/webhooks/${data.id}`);
  await page.getByRole('heading', { name: MARKUP }).waitFor();
  await page.getByRole('button', { name: 'Send a test' }).click();
  await page.getByText('The test failed').waitFor();
  t.strictSame(await findings(page), [], 'no serious finding on the page');
  await page.getByRole('button', { name: 'Edit' }).click();
  const edit = page.getByRole('dialog', { name: 'Edit the webhook' });
  await edit.getByLabel(MARKUP, { exact: true }).waitFor();
  t.strictSame(await findings(page), [], 'no serious finding in the form');
  t.equal(await page.locator('img[src="x"], main script, main b').count(), 0, 'names are text');
  t.strictSame(complaints, []);
});
