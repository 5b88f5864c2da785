/** What tests of the Explorer share: the way in, and what axe finds on a page. */
import axe from 'axe-core';
import type { Page } from 'playwright-core';
import { request } from './service.js';

export const PASSWORD = 'a-password-for-the-explorer';

interface Served {
  readonly url: string;
}

/** The administrator of the test databases has a password that nobody knows. */
export async function setPassword(service: Served): Promise<void> {
  const headers = { 'content-type': 'application/json' };
  await request(service, 'PATCH', '/users/me', { headers, body: JSON.stringify({ password: PASSWORD }) });
}

export async function logIn(service: Served, page: Page, hash: string, email = 'admin@example.com'): Promise<void> {
  await page.goto(`${service.url}/explorer${hash}`);
  await page.getByLabel('Email').fill(email);
  await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('navigation', { name: 'Pages' }).waitFor();
}

const WIDTHS = [1400, 360];
const THEMES = ['light', 'dark'] as const;

/** What axe calls serious or critical, and parts that are wider than the screen, in both themes, on a desktop and on a phone. */
export async function findings(page: Page): Promise<string[]> {
  const size = page.viewportSize();
  const theme = await page.evaluate(`matchMedia('(prefers-color-scheme: dark)').matches`);
  const found: string[] = [];
  // Evaluated by the browser's debugger: the page's policy lets no script in.
  await page.evaluate(axe.source);
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: size?.height ?? 800 });
    for (const colorScheme of THEMES) {
      // Colours that change slowly would be measured on their way.
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      found.push(...(await findingsAsShown(page)).map((each) => `${width} ${colorScheme}: ${each}`));
    }
  }
  await page.emulateMedia({ colorScheme: theme ? 'dark' : 'light', reducedMotion: null });
  if (size) await page.setViewportSize(size);
  return found;
}

async function findingsAsShown(page: Page): Promise<string[]> {
  const found = await page.evaluate(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))
    .then(() => axe.run())
    .then(({ violations }) => violations
      .filter(({ impact }) => impact === 'serious' || impact === 'critical')
      .map(({ id, nodes }) => id + ': ' + nodes.map(({ html }) => html).slice(0, 3).join(' ')))
    .then((found) => {
      const excess = document.documentElement.scrollWidth - innerWidth;
      return excess > 0 ? [...found, 'the page is ' + excess + ' pixels wider than the screen'] : found;
    })`);
  return found as string[];
}

/** A script of the data that runs opens a dialog of the browser: it becomes a complaint. */
export function watchForScripts(page: Page, complaints: string[]): void {
  page.on('dialog', (dialog) => {
    complaints.push(`a script ran: ${dialog.message()}`);
    void dialog.dismiss();
  });
}
