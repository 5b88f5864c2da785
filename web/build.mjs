/**
 * Bundles the Explorer into dist/web: scripts and styles named by a digest of their content, the page that loads them, and of each
 * a copy compressed with brotli. Does nothing where nothing has changed since the last time.
 */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { brotliCompress, constants } from 'node:zlib';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const target = join(root, 'dist', 'web');
const stampFile = join(target, 'stamp');
const stamp = await stampOf();
if (!existsSync(stampFile) || (await readFile(stampFile, 'utf8')) !== stamp) await bundle();

async function bundle() {
  const { build } = await import('esbuild');
  const { metafile, outputFiles } = await build({
    absWorkingDir: root,
    entryPoints: { app: 'web/src/main.tsx' },
    outdir: target,
    bundle: true,
    splitting: true,
    minify: true,
    write: false,
    metafile: true,
    format: 'esm',
    target: 'es2022',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    tsconfigRaw: {},
    legalComments: 'none',
    entryNames: '[name]-[hash]',
    chunkNames: '[name]-[hash]',
    logLevel: 'warning',
  });
  const files = new Map(outputFiles.map(({ path, contents }) => [basename(path), Buffer.from(contents)]));
  const [entry, { cssBundle = '', imports } = {}] =
    Object.entries(metafile.outputs).find(([, { entryPoint }]) => entryPoint === 'web/src/main.tsx') ?? [];
  const needed = imports.filter(({ kind }) => kind === 'import-statement').map(({ path }) => basename(path));
  // All styles are in that of the entry; those of single pages are made beside it and never loaded.
  for (const name of files.keys()) if (name.endsWith('.css') && name !== basename(cssBundle)) files.delete(name);
  files.set('index.html', Buffer.from(page(basename(entry), basename(cssBundle), needed)));
  files.set('icon.svg', await readFile(join(root, 'web', 'icon.svg')));
  // Made aside and moved: a service that runs meanwhile reads either the old files or the new ones.
  const made = `${target}-${process.pid}`;
  await mkdir(made, { recursive: true });
  for (const [name, content] of files) {
    await writeFile(join(made, name), content);
    await writeFile(join(made, `${name}.br`), await compress(content));
  }
  await writeFile(join(made, 'stamp'), stamp);
  await rm(target, { recursive: true, force: true });
  await rename(made, target);
}

function page(script, style, modules) {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Lateral Explorer</title>
<link rel="icon" href="explorer/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="explorer/${style}">
${modules.map((name) => `<link rel="modulepreload" href="explorer/${name}">\n`).join('')}<script type="module" src="explorer/${script}"></script>
</head>
<body>
<div id="app"><p class="boot">Loading…</p></div>
<noscript>The Explorer needs JavaScript. The API does not: see /server/specs/oas.</noscript>
</body>
</html>
`;
}

/** Level 9 makes nearly as little as 11 in a tenth of the time. */
function compress(content) {
  const params = { [constants.BROTLI_PARAM_QUALITY]: 9, [constants.BROTLI_PARAM_SIZE_HINT]: content.length };
  return promisify(brotliCompress)(content, { params });
}

/** The sources and the versions of the libraries. */
async function stampOf() {
  const digest = createHash('sha256');
  const entries = await readdir(join(root, 'web'), { recursive: true, withFileTypes: true });
  const paths = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  for (const path of [...paths, join(root, 'package-lock.json')].sort()) {
    // A package that was installed has built files, and no lock file.
    const { mtimeMs, size } = existsSync(path) ? await stat(path) : { mtimeMs: 0, size: 0 };
    digest.update(`${path} ${mtimeMs} ${size}\n`);
  }
  return digest.digest('hex');
}
