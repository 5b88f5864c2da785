/**
 * Copies the pages of the repository to site/pages, where the generator finds its own packages. The first page of a folder is its README on
 * disk, and its index in the site.
 */
import { cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const site = dirname(fileURLToPath(import.meta.url));
const repository = dirname(site);
const pages = join(site, 'pages');

await rm(pages, { recursive: true, force: true });
const roots = ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md', 'LICENSE'];
const folders = ['docs', 'bench'];
const found = await Promise.all(
  folders.map(async (folder) => {
    const names = await readdir(join(repository, folder), { recursive: true });
    return names.map((name) => join(folder, name)).filter((name) => /\.(md|svg|png)$/.test(name));
  }),
);
for (const name of [...roots, ...found.flat()]) {
  const target = join(pages, dirname(name), basename(name) === 'README.md' ? 'index.md' : basename(name));
  await mkdir(dirname(target), { recursive: true });
  if (!name.endsWith('.md')) await cp(join(repository, name), target);
  else {
    const text = await readFile(join(repository, name), 'utf8');
    await writeFile(target, text.replaceAll(/(\]\((?:[^)\s:]*\/)?)README\.md(?=[#)])/g, '$1index.md'));
  }
}
// A link to it is one to a file, not to a page.
await mkdir(join(pages, 'public'), { recursive: true });
await cp(join(pages, 'LICENSE'), join(pages, 'public', 'LICENSE'));
