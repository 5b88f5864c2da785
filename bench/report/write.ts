/** Writes both files of the report. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Live } from '../live.js';
import type { Documents, Origin } from '../results.js';
import type { ServersResult } from '../servers.js';
import { liveSection, writeHtml } from './html.js';
import { liveText, serversText, writeMarkdown } from './markdown.js';

export async function writeReport(documents: Documents, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'report.html'), writeHtml(documents));
  await writeFile(join(folder, 'report.md'), writeMarkdown(documents));
}

/** Replaces the live queries of an existing report by those of a separate run, and keeps its other numbers. */
export async function renewLive(live: Origin & Live, folder: string): Promise<void> {
  await replaceIn(join(folder, 'report.html'), /<h2>Live queries<\/h2>.*?(?=\n<h2>)/s, liveSection(live));
  await replaceIn(join(folder, 'report.md'), /## Live queries\n.*?(?=\n\n## |\n*$)/s, liveText(live));
}

/** Replaces the comparison of the servers in an existing report, or adds it. */
export async function renewServers(servers: Origin & ServersResult, folder: string): Promise<void> {
  const path = join(folder, 'report.md');
  const before = (await readFile(path, 'utf8')).replace(/\n## Servers: .*?(?=\n## |$)/s, '');
  await writeFile(path, `${before.trimEnd()}\n\n${serversText(servers)}\n`);
}

async function replaceIn(path: string, section: RegExp, text: string): Promise<void> {
  const before = await readFile(path, 'utf8');
  if (!section.test(before)) throw new Error(`${path} has no section of live queries: run the whole bench first`);
  await writeFile(
    path,
    before.replace(section, () => text),
  );
}
