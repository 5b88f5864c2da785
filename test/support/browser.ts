/** A real browser, as a person uses it: Chromium, where it is installed. */
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import t from 'tap';
import { chromiumPath } from './chromium.js';

/** Why tests in a browser are left out; false where there is one. */
export const skip: false | string =
  chromiumPath === undefined && 'there is no Chromium here: install it (Debian: chromium) or name it in CHROMIUM';

let browser: Promise<Browser> | null = null;

export interface OpenedPage {
  readonly page: Page;
  /** Requests to anybody but the service, and what the browser complained of. */
  readonly complaints: string[];
}

/** A page of its own, without cookies. */
export async function openPage(
  service: { readonly url: string },
  options: BrowserContextOptions = {},
): Promise<OpenedPage> {
  browser ??= chromium.launch({ executablePath: chromiumPath as string, args: ['--no-sandbox'] });
  const opened = await browser;
  t.teardown(() => opened.close());
  const context = await opened.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const complaints: string[] = [];
  page.on('request', (request) => {
    if (!request.url().startsWith(service.url) && !/^(data|blob):/.test(request.url()))
      complaints.push(`asked ${request.url()}`);
  });
  page.on('console', (message) => {
    const text = message.text();
    // An answer that is an error is reported by the browser too.
    if (message.type() === 'error' && !text.startsWith('Failed to load resource')) complaints.push(text);
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  return { page, complaints };
}
