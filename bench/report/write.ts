/** Writes both files of the report. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Documents } from '../results.js';
import { writeHtml } from './html.js';
import { writeMarkdown } from './markdown.js';

export async function writeReport(documents: Documents, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'report.html'), writeHtml(documents));
  await writeFile(join(folder, 'report.md'), writeMarkdown(documents));
}
