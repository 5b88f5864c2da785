/**
 * `npm run screenshots`: pictures of the Explorer for the documents, light and dark, on the demo model. Needs Chromium, and says so
 * where there is none.
 */
import { mkdir, mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium, type Page } from 'playwright-core';
import { createObserver } from '../src/base/observe.js';
import { packagePath } from '../src/base/package-files.js';
import { readConfig } from '../src/config/config.js';
import { startService } from '../src/service/start.js';
import { chromiumPath } from './support/chromium.js';

const PASSWORD = 'a-password-for-pictures';
/** A picture that is larger makes the page that shows it slow. */
const MOST_BYTES = 150_000;
const QUESTION = {
  fields: ['title', 'views', 'author.name'],
  sort: ['-views'],
  limit: 10,
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
];

if (chromiumPath === undefined) {
  console.error('screenshots need Chromium: install it (Debian: chromium) or name it in CHROMIUM');
  process.exit(1);
}
await mkdir(packagePath('docs', 'images'), { recursive: true });
const folder = await mkdtemp(join(tmpdir(), 'lateral-pictures-'));
const config = readConfig({ PORT: '0', LOG_LEVEL: 'warn', DATA_DIR: folder, WORKERS: '1', ADMIN_PASSWORD: PASSWORD });
const service = await startService(config, createObserver('warn'), () => {});
const browser = await chromium.launch({ executablePath: chromiumPath, args: ['--no-sandbox'] });
try {
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
      await page.screenshot({ path, animations: 'disabled' });
      const { size } = await stat(path);
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
