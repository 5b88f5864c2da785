/**
 * `npm run screenshots`: pictures of the Explorer for the documents, light and dark, on the demo model. Needs Chromium, and says so
 * where there is none.
 */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium, type Page } from 'playwright-core';
import sharp from 'sharp';
import { openLog, readConfig } from '../src/app/options.js';
import { startService } from '../src/app/start.js';
import { packagePath } from '../src/base/package-files.js';
import { chromiumPath } from './support/chromium.js';

const PASSWORD = 'a-password-for-pictures';
/** A picture that is larger makes the page that shows it slow. */
const MOST_BYTES = 70_000;
const QUESTION = {
  fields: ['title', 'views', 'author.name'],
  sort: ['-views'],
  limit: 10,
};
const COUNT = { collection: 'articles', query: { aggregate: { count: ['*'] } }, live: true };
const BY_STATUS = { collection: 'articles', query: { aggregate: { count: ['*'] }, groupBy: ['status'] } };
const BY_AUTHOR = { collection: 'articles', query: { aggregate: { sum: ['views'] }, groupBy: ['author.name'] } };
const BY_MONTH = {
  collection: 'articles',
  query: { aggregate: { sum: ['views'] }, groupBy: ['year(published_at)', 'month(published_at)'] },
};
const BOARD = {
  name: 'Newsroom',
  note: 'Articles and their readers',
  panels: [
    { name: 'Articles', type: 'metric', position_x: 1, position_y: 1, width: 4, height: 6, options: COUNT },
    { name: 'By status', type: 'bar-chart', position_x: 5, position_y: 1, width: 8, height: 6, options: BY_STATUS },
    {
      name: 'Views by month',
      type: 'line-chart',
      position_x: 1,
      position_y: 7,
      width: 6,
      height: 6,
      options: BY_MONTH,
    },
    {
      name: 'Views by author',
      type: 'bar-chart',
      position_x: 7,
      position_y: 7,
      width: 6,
      height: 6,
      options: BY_AUTHOR,
    },
  ],
};

const PICTURES: readonly (readonly [string, string, (page: Page) => Promise<void>])[] = [
  [
    'query',
    `#/query/articles?q=${encodeURIComponent(JSON.stringify(QUESTION))}`,
    async (page) => {
      await page.getByRole('region', { name: 'Statement' }).getByText('"articles"').first().waitFor();
      await page.keyboard.press('Control+Enter');
      await page.getByRole('region', { name: 'Result' }).getByRole('cell').first().waitFor();
    },
  ],
  ['data', '#/data/articles', async (page) => page.getByRole('gridcell').nth(20).waitFor()],
  [
    'model',
    '#/model/articles',
    async (page) => page.getByRole('complementary', { name: 'Collection articles' }).waitFor(),
  ],
  [
    'item',
    '#/data/articles/1',
    async (page) =>
      page
        .getByRole('region', { name: /^blocks of/ })
        .getByRole('gridcell')
        .first()
        .waitFor(),
  ],
  [
    'board',
    '#/boards',
    async (page) => {
      await page.getByRole('link', { name: /Newsroom/ }).click();
      await page.getByRole('img', { name: /^Views by author/ }).waitFor();
    },
  ],
];

async function createBoard(url: string, email: string): Promise<void> {
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify({ email, password: PASSWORD });
  const login = await fetch(`${url}/auth/login`, { method: 'POST', headers, body });
  const { data } = (await login.json()) as { readonly data: { readonly access_token: string } };
  const made = await fetch(`${url}/dashboards`, {
    method: 'POST',
    headers: { ...headers, authorization: `Bearer ${data.access_token}` },
    body: JSON.stringify(BOARD),
  });
  if (!made.ok) throw new Error(await made.text());
}

if (chromiumPath === undefined) {
  console.error('screenshots need Chromium: install it (Debian: chromium) or name it in CHROMIUM');
  process.exit(1);
}
await mkdir(packagePath('docs', 'images'), { recursive: true });
const folder = await mkdtemp(join(tmpdir(), 'lateral-pictures-'));
const config = readConfig({ PORT: '0', LOG_LEVEL: 'warn', DATA_DIR: folder, WORKERS: '1', ADMIN_PASSWORD: PASSWORD });
const service = await startService(config, openLog('warn'), () => {});
const browser = await chromium.launch({ executablePath: chromiumPath, args: ['--no-sandbox'] });
try {
  await createBoard(service.url, config.ADMIN_EMAIL);
  for (const colorScheme of ['light', 'dark'] as const) {
    const context = await browser.newContext({ viewport: { width: 1120, height: 680 }, colorScheme });
    const page = await context.newPage();
    await page.goto(`${service.url}/explorer`);
    await page.getByLabel('Email').fill(config.ADMIN_EMAIL);
    await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByRole('navigation', { name: 'Pages' }).waitFor();
    for (const [name, address, ready] of PICTURES) {
      await page.goto(`${service.url}/explorer${address}`);
      await ready(page);
      const path = packagePath('docs', 'images', `explorer-${name}-${colorScheme}.png`);
      const taken = await page.screenshot({ animations: 'disabled' });
      const { size } = await sharp(taken).png({ palette: true, colours: 128, effort: 10 }).toFile(path);
      if (size > MOST_BYTES) throw new Error(`${path} has ${size} bytes, more than ${MOST_BYTES}`);
      console.log(`${path} ${size}`);
    }
    await context.close();
  }
} finally {
  await browser.close();
  await service.stop();
  await rm(folder, { recursive: true, force: true });
}
