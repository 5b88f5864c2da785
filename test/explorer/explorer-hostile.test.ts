/** Names, values, notes and errors that look like markup are shown as text on every page of the Explorer, and nobody else is asked. */
import t from 'tap';
import { openPage, skip } from '../support/browser.js';
import { findings, logIn, setPassword, watchForScripts } from '../support/explorer.js';
import { connectSql, createLibrary, request, startDatabase, startTestService } from '../support/service.js';

t.setTimeout(300_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'explorer_hostile');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const MARKUP = '<img src=x onerror=alert(1)>';
await sql`create table ${sql(MARKUP)} (id serial primary key, ${sql(`"><script>alert(2)</script>`)} text, name text)`;
await sql`insert into ${sql(MARKUP)} (${sql(`"><script>alert(2)</script>`)}, name) values (${MARKUP}, ${MARKUP})`;
await sql.unsafe(`comment on table "${MARKUP}" is '${MARKUP}'; comment on column "${MARKUP}".name is '${MARKUP}'`);
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
