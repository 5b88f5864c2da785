/** The IDE in a real browser: it loads from this service alone, runs a query and shows its result. */
import { existsSync } from 'node:fs';
import { chromium } from 'playwright-core';
import t from 'tap';
import { ADMIN_TOKEN, createLibrary, get, startDatabase, startTestService } from '../../support/service.js';

t.setTimeout(180_000);
const server = await startDatabase();
const service = await startTestService({ databaseUrl: await createLibrary(server, 'ide') });
const BROWSER = { headers: { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' }, token: null };

t.test('browsers get a page, and everything that it names', async (t) => {
  for (const path of ['/graphql', '/graphql/system']) {
    const page = await get(service, path, BROWSER);
    t.match(page, { status: 200, headers: { 'content-type': 'text/html; charset=utf-8' } });
    t.match(page.headers['content-security-policy'], /connect-src 'self'/);
    t.notMatch(page.text, /https?:\/\//, 'nothing is loaded from elsewhere');
    for (const [, name] of page.text.matchAll(/(?:src|href)="([\w./-]+\.\w+)"/g)) {
      const file = await get(service, `/graphql/ide/${name}`, { token: null });
      t.equal(file.status, 200, String(name));
      const again = await get(service, `/graphql/ide/${name}`, {
        token: null,
        headers: { 'if-none-match': file.headers.etag ?? '' },
      });
      t.equal(again.status, file.headers.etag ? 304 : 200);
    }
  }
  t.match((await get(service, '/graphql?query={__typename}', BROWSER)).json, { data: { __typename: 'Query' } });
  for (const path of [
    'nope.js',
    '..%2fpackage.json',
    '%2e%2e/%2e%2e/package.json',
    'assets',
    '__proto__',
    'main.js/x',
  ]) {
    t.equal((await get(service, `/graphql/ide/${path}`)).status, 404, path);
  }
});

t.test('without introspection there is no page', async (t) => {
  const closed = await startTestService({ databaseUrl: service.databaseUrl, GRAPHQL_INTROSPECTION: 'false' });
  t.equal((await get(closed, '/graphql', BROWSER)).status, 400);
  t.equal((await get(closed, '/graphql/ide/main.js', BROWSER)).status, 404);
});

const browserPath = [
  process.env['CHROMIUM'],
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
].find((path) => path !== undefined && existsSync(path));
const skip =
  browserPath === undefined && 'there is no Chromium here: install it (Debian: chromium) or name it in CHROMIUM';

t.test('a query runs and shows its result', { skip }, async (t) => {
  const browser = await chromium.launch({ executablePath: browserPath as string, args: ['--no-sandbox'] });
  t.teardown(() => browser.close());
  const page = await browser.newPage();
  page.setDefaultTimeout(60_000);
  const foreign: string[] = [];
  const refused: string[] = [];
  page.on('request', (request) => {
    if (!request.url().startsWith(service.url) && !/^(data|blob):/.test(request.url())) foreign.push(request.url());
  });
  page.on('console', (message) => {
    if (/Content Security Policy/.test(message.text())) refused.push(message.text());
  });
  await page.setExtraHTTPHeaders({ authorization: `Bearer ${ADMIN_TOKEN}` });
  await page.goto(`${service.url}/graphql`, { waitUntil: 'load' });
  // The first editor is that of the address.
  const editor = page.locator('.cm-content').nth(1);
  await editor.waitFor({ timeout: 60_000 });
  await editor.click();
  await page.keyboard.press('Control+A');
  await page.keyboard.insertText('{ articles_by_id(id: 1) { title author { name } } }');
  await page.keyboard.press('Control+Enter');
  await page.getByText('Ada Lovelace').first().waitFor({ timeout: 60_000 });
  t.match(await page.locator('body').innerText(), /Hello World/);
  t.strictSame(foreign, [], 'nobody else was asked');
  t.strictSame(refused, [], 'the policy suits the page');
});
