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

/** What axe calls serious or critical. */
export async function findings(page: Page): Promise<string[]> {
  // Evaluated by the browser's debugger: the page's policy lets no script in.
  await page.evaluate(axe.source);
  const found = await page.evaluate(`axe.run().then(({ violations }) => violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => id + ': ' + nodes.map(({ html }) => html).slice(0, 3).join(' ')))`);
  return found as string[];
}
