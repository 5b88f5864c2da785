/** Loads the modules of EXTENSIONS. */
import { watch } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, extname, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { StartError } from '../../base/errors.js';
import { asError, messageOf } from '../../base/narrow.js';
import type { Observer } from '../../base/observe.js';
import type { Extension } from '../../server/execute/hooks/definition.js';
import type { StartContext } from '../../server/feature/feature.js';
import { Extensions } from './extensions.js';
import type { ExtensionLogEvent } from './log-events.js';
import type { ExtensionConfig, OPTIONS } from './options.js';

const SCRIPTS: readonly string[] = ['.js', '.mjs'];
const TYPED_SCRIPTS: readonly string[] = ['.ts', '.mts'];

/** Milliseconds: an editor may write a file in several steps. */
const RELOAD_DELAY_MS = 200;

/** The extensions, or null if there are none. `given` are those of the program. */
export async function openExtensions(
  config: ExtensionConfig,
  given: readonly Extension[],
  observe: Observer<ExtensionLogEvent>,
): Promise<Extensions | null> {
  const files = (await Promise.all(config.EXTENSIONS.map(filesOf))).flat();
  if (files.length + given.length === 0) return null;
  const loaded = await loadAll(files, 0);
  const extensions = new Extensions([...given, ...loaded], config.EXTENSION_TIMEOUT, observe);
  observe({ kind: 'extensions-loaded', names: extensions.all.map(({ name }) => name) });
  if (config.EXTENSIONS_AUTO_RELOAD) reloadOnChange(files, given, extensions, observe);
  return extensions;
}

/** A promise of an extension that nobody awaits must not end the process. */
export function surviveRejections({ config, observe }: StartContext<typeof OPTIONS, ExtensionLogEvent>): void {
  if (config.EXTENSIONS.length === 0) return;
  process.on('unhandledRejection', (error) => {
    observe({
      kind: 'extension-failed',
      extension: '',
      hook: 'a promise that was not awaited',
      collection: null,
      error,
    });
  });
}

/** The modules of a folder, a file, or the module that a package exports. */
async function filesOf(entry: string): Promise<readonly string[]> {
  const path = resolve(entry);
  const found = await stat(path).catch(() => null);
  if (found?.isDirectory()) {
    const names = (await readdir(path)).filter(isModule).sort();
    if (names.length === 0)
      throw new StartError(`EXTENSIONS: the folder "${entry}" has no modules (.js, .mjs, .ts, .mts)`);
    return names.map((name) => join(path, name));
  }
  if (found) return [path];
  try {
    return [createRequire(join(process.cwd(), 'package.json')).resolve(entry)];
  } catch {
    throw new StartError(`EXTENSIONS: "${entry}" is neither a file, nor a folder, nor an installed package`);
  }
}

function isModule(name: string): boolean {
  return (
    [...SCRIPTS, ...TYPED_SCRIPTS].includes(extname(name)) && !/\.d\.m?ts$/.test(name) && !/\.test\.m?[jt]s$/.test(name)
  );
}

async function loadAll(files: readonly string[], version: number): Promise<Extension[]> {
  const loaded: Extension[] = [];
  for (const file of files) loaded.push(await load(file, version));
  return loaded;
}

/** The version makes Node read a module again that has changed. */
async function load(file: string, version: number): Promise<Extension> {
  const stripsTypes = 'typescript' in process.features && Boolean(process.features.typescript);
  if (TYPED_SCRIPTS.includes(extname(file)) && !stripsTypes)
    throw new StartError(
      `EXTENSIONS: "${file}" is TypeScript, which Node ${process.versions.node} does not run. Use Node 22.18 or newer, or compile it to JavaScript`,
    );
  const { href } = pathToFileURL(file);
  try {
    const module: { readonly default?: Extension } = await import(version === 0 ? href : `${href}?version=${version}`);
    if (module.default !== undefined) return module.default;
  } catch (error) {
    throw new StartError(`EXTENSIONS: "${file}" could not be loaded: ${asError(error).stack ?? messageOf(error)}`);
  }
  throw new StartError(`EXTENSIONS: "${file}" has no default export: export default defineExtension({ ... })`);
}

/** For development. Routes keep their paths until the next start; a module that cannot be loaded leaves the former one. */
function reloadOnChange(
  files: readonly string[],
  given: readonly Extension[],
  extensions: Extensions,
  observe: Observer<ExtensionLogEvent>,
): void {
  let version = 0;
  let timer: NodeJS.Timeout | null = null;
  const reload = async (): Promise<void> => {
    try {
      extensions.replace([...given, ...(await loadAll(files, ++version))]);
      observe({ kind: 'extensions-loaded', names: extensions.all.map(({ name }) => name) });
    } catch (error) {
      observe({ kind: 'extension-failed', extension: '', hook: 'reload', collection: null, error });
    }
  };
  for (const folder of new Set(files.map((file) => dirname(file))))
    watch(folder, { persistent: false }, () => {
      if (timer) clearTimeout(timer);
      timer = setTimeout(() => void reload(), RELOAD_DELAY_MS).unref();
    });
}
