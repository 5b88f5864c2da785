/** Names, values, notes and errors that look like markup are shown as text on every page of the Explorer, and nobody else is asked. */
import t from 'tap';
import { openPage, skip } from '../../support/browser.js';
import { findings, logIn, PASSWORD, setPassword, watchForScripts } from '../../support/explorer.js';
import { connectSql, createLibrary, request, startDatabase, startTestService } from '../../support/service.js';

t.setTimeout(300_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'explorer_hostile');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const MARKUP = '<img src=x onerror=alert(1)>';
await sql`create table ${sql(MARKUP)} (id serial primary key, ${sql(`"><script>alert(2)</script>`)} text, name text)`;
await sql`insert into ${sql(MARKUP)} (${sql(`"><script>alert(2)</script>`)}, name) values (${MARKUP}, ${MARKUP})`;
await sql.unsafe(`comment on table "${MARKUP}" is '${MARKUP}'; comment on column "${MARKUP}".name is '${MARKUP}'`);
await sql.unsafe(`alter table "${MARKUP}" add constraint "${MARKUP}" check (name <> '${MARKUP}!');
  create index "${MARKUP}!" on "${MARKUP}" (name);
  create function "${MARKUP}"("${MARKUP}" text) returns text language sql stable as 'select $1';
  comment on function "${MARKUP}" is '${MARKUP}'`);
await sql`update service_relations set one_allowed_collections = one_allowed_collections || ',' || ${MARKUP}
  where many_collection = 'articles_blocks' and many_field = 'item'`;
await sql`insert into articles_blocks (articles_id, item, collection, sort) values (1, '1', ${MARKUP}, 9)`;
await sql`create table log_lines (line text)`;
await sql`insert into log_lines select ${MARKUP} || n from generate_series(1, 250) n`;
const service = await startTestService({ databaseUrl });
await setPassword(service);
const body = JSON.stringify({ name: MARKUP, description: MARKUP, permissions: [] });
await request(service, 'POST', '/policies', { headers: { 'content-type': 'application/json' }, body });

t.test('every page', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  watchForScripts(page, complaints);
  await logIn(service, page, '#/data');
  const name = encodeURIComponent(MARKUP);
  const question = encodeURIComponent(
    JSON.stringify({ fields: ['name'], filter: { name: { _eq: MARKUP } }, limit: 10 }),
  );
  for (const address of [
    `data/${name}`,
    `query/${name}?q=${question}`,
    `plan/${name}?q=${question}`,
    `model/${name}`,
    'access',
    'pulse',
    'docs',
    `docs/${name}`,
    `docs?view=graphql&document=${name}`,
    `${name}/${name}`,
  ]) {
    await page.goto(`${service.url}/explorer#/${address}`);
    const shown =
      address === 'pulse' || address === 'docs' ? page.locator('main *') : page.locator('main').getByText(MARKUP);
    if (address === `docs/${name}`) await page.getByRole('article').first().waitFor();
    if (address.startsWith('docs?')) {
      await page.getByRole('textbox', { name: 'GraphQL document' }).press('Control+Enter');
      await page.getByRole('region', { name: 'Body of the response' }).getByText('errors').waitFor();
    } else if (address.startsWith(name)) await page.getByText('There is no such page').waitFor();
    else await shown.first().waitFor({ state: 'attached' });
    t.equal(await page.locator('img[src="x"], main script').count(), 0, `${address} shows text`);
    t.strictSame(await findings(page), [], `no serious finding on ${address}`);
  }
  t.strictSame(complaints, [], 'no script ran, and no request left the origin');
});

t.test('checks, indexes and functions in Model', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  watchForScripts(page, complaints);
  await logIn(service, page, `#/model/${encodeURIComponent(MARKUP)}`);
  await page.getByRole('region', { name: 'Indexes' }).getByText(`${MARKUP}!`).waitFor();
  const checks = page.getByRole('region', { name: 'Checks' });
  await checks.getByText(MARKUP, { exact: true }).waitFor();
  await checks.getByText(`'${MARKUP}!'::text`).waitFor();
  await checks.getByRole('button', { name: `Drop ${MARKUP}` }).click();
  const drop = page.getByRole('dialog', { name: `Drop ${MARKUP}?` });
  await drop.getByText(`'${MARKUP}!'::text`).waitFor();
  t.strictSame(await findings(page), [], 'no serious finding: drop a check');
  await drop.getByRole('button', { name: 'Cancel' }).click();
  await checks.getByRole('button', { name: 'Add check' }).click();
  const form = page.getByRole('dialog', { name: `New check of ${MARKUP}` });
  await form.getByLabel('Condition').fill(MARKUP);
  await form.getByRole('button', { name: 'Review' }).click();
  await form.getByRole('alert').waitFor();
  await form.getByLabel('Condition').fill(`name <> '${MARKUP}'`);
  await form.getByLabel('Name').fill(`"><script>alert(3)</script>`);
  await form.getByRole('button', { name: 'Review' }).click();
  await form.getByText('<script>alert(3)</script>').first().waitFor();
  t.strictSame(await findings(page), [], 'no serious finding: review of a check');
  t.equal(await page.locator('img[src="x"], main script, dialog script').count(), 0, 'checks are text');
  await page.goto(`${service.url}/explorer#/model`);
  await page.reload();
  await page.getByRole('button', { name: 'Functions' }).click();
  const functions = page.getByRole('dialog', { name: 'Functions' });
  await functions.getByRole('button', { name: `Make ${MARKUP} callable` }).dblclick();
  await functions.getByRole('button', { name: `Call ${MARKUP}` }).waitFor();
  const label = `document.activeElement.getAttribute('aria-label')`;
  t.equal(await page.evaluate(label), `Call ${MARKUP}`, 'the focus follows the function to the list');
  t.equal(await functions.getByRole('alert').count(), 0, 'a second click changes nothing');
  await page.keyboard.press('Enter');
  await functions.getByLabel(MARKUP, { exact: true }).fill(MARKUP);
  await page.setViewportSize({ width: 360, height: 800 });
  t.ok(await functions.getByText('Run', { exact: true }).isVisible(), 'a dialog shows labels on a phone too');
  await functions.getByRole('button', { name: 'Run' }).click();
  await functions.getByText(`"${MARKUP}"`).waitFor();
  t.strictSame(await findings(page), [], 'no serious finding: call of a function');
  t.equal(await page.locator('img[src="x"], main script, dialog script').count(), 0, 'functions are text');
  t.strictSame(complaints, [], 'no script ran, and no request left the origin');
});

t.test('a many-to-any list on the page of an item', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  watchForScripts(page, complaints);
  await logIn(service, page, '#/data/articles/1');
  const list = page.getByRole('region', { name: /^blocks of/ });
  await list.getByText(MARKUP).first().waitFor();
  await list.getByRole('button', { name: 'Add' }).click();
  const form = page.getByRole('dialog', { name: 'Add to blocks' });
  await form.locator('#new-collection').selectOption(MARKUP);
  await form.locator('#new-item').click();
  // The options of the choice of a collection have the same text.
  await page.locator('[role="option"]').filter({ hasText: MARKUP }).first().click();
  t.strictSame(await findings(page), [], 'no serious finding: form');
  await form.getByRole('button', { name: 'Add', exact: true }).click();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('One change saved').waitFor();
  t.equal((await sql`select from articles_blocks where collection = ${MARKUP}`).length, 2);
  t.strictSame(await findings(page), [], 'no serious finding: list');
  t.equal(await page.locator('img[src="x"], main script, dialog script').count(), 0);
  t.strictSame(complaints, [], 'no script ran, and no request left the origin');
});

t.test('the account of a user whose name is markup', { skip }, async (t) => {
  const email = 'markup@example.com';
  await sql`insert into service_users (id, email, first_name, password, role, status)
    select gen_random_uuid(), ${email}, ${MARKUP}, password, role, status from service_users where email = 'admin@example.com'`;
  await sql`update service_settings set project_name = ${MARKUP}`;
  const { page, complaints } = await openPage(service);
  watchForScripts(page, complaints);
  await logIn(service, page, '#/data', email);
  await page.getByRole('button', { name: `Account: ${email}` }).click();
  await page.getByRole('button', { name: 'Your account' }).click();
  const account = page.getByRole('dialog', { name: 'Your account' });
  await account.getByText(email).waitFor();
  t.strictSame(await findings(page), [], 'no serious finding: account');
  await account.getByRole('button', { name: 'Turn on' }).click();
  const turnOn = page.getByRole('dialog', { name: 'Turn on the second factor' });
  await turnOn.getByLabel('Your password').fill(PASSWORD);
  await turnOn.getByRole('button', { name: 'Continue' }).click();
  await turnOn.getByLabel('Code').fill(MARKUP);
  await turnOn.getByRole('button', { name: 'Turn on' }).click();
  await turnOn.getByRole('alert').waitFor();
  t.match(await turnOn.getByRole('link').getAttribute('href'), /^otpauth:\/\/totp\//);
  t.strictSame(await findings(page), [], 'no serious finding: key');
  t.equal(await page.locator('img[src="x"], main script, dialog script').count(), 0);
  t.strictSame(complaints, [], 'no script ran, and no request left the origin');
});

t.test('a table without a key is listed as it is scrolled', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/data/log_lines');
  const grid = page.getByRole('grid', { name: 'log_lines' });
  await grid.getByText(`${MARKUP}1`, { exact: true }).waitFor();
  await grid.focus();
  const last = grid.getByText(`${MARKUP}250`, { exact: true });
  for (let count = 0; count < 20 && (await last.count()) === 0; count++) {
    await page.keyboard.press('Control+End');
    await page.waitForTimeout(300);
  }
  t.equal(await last.count(), 1);
  t.strictSame(complaints, []);
});
