/** The pages of the documentation: README.md and the other pages at the root, and the Markdown files below docs/. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packagePath } from '../../../src/base/package-files.js';

export interface Page {
  /** From the root of the package: `docs/rest.md`. */
  readonly path: string;
  readonly text: string;
}

export interface Block {
  readonly language: string;
  readonly text: string;
  readonly line: number;
  /** Whether only empty lines separate it from the block before. */
  readonly follows: boolean;
}

const AT_THE_ROOT = ['README.md', 'CONTRIBUTING.md', 'SECURITY.md'];

export async function readPages(): Promise<Page[]> {
  const names = await readdir(packagePath('docs'), { recursive: true });
  const docs = names.filter((name) => name.endsWith('.md')).map((name) => join('docs', name));
  return Promise.all(
    [...AT_THE_ROOT, ...docs.sort()].map(async (path) => ({ path, text: await readFile(packagePath(path), 'utf8') })),
  );
}

/** The fenced blocks of a page, in their order. */
export function blocksOf({ text }: Page): Block[] {
  const lines = text.split('\n');
  const blocks: Block[] = [];
  let end = -3;
  for (let line = 0; line < lines.length; line++) {
    const language = /^```(\w*)$/.exec(lines[line] ?? '')?.[1];
    if (language === undefined) continue;
    const close = lines.indexOf('```', line + 1);
    const follows = lines.slice(end + 1, line).every((each) => each === '') && end >= 0;
    blocks.push({ language, text: lines.slice(line + 1, close).join('\n'), line: line + 1, follows });
    end = close;
    line = close;
  }
  return blocks;
}
