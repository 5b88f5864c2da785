/** Packages from npm that only a suite needs. They are installed into a temporary folder; without a registry the tests are skipped. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { makeFolder } from './service.js';

const run = promisify(execFile);

/** The reason to skip a test, or false if the registry has the package. */
export function findRegistry(specifier: string): Promise<string | false> {
  return run('npm', ['view', specifier, 'version'], { timeout: 30_000 }).then(
    () => false,
    () => 'the registry of npm cannot be reached: no package was tried',
  );
}

/** Returns the folder that has them in `node_modules`. */
export async function installPackages(specifiers: readonly string[]): Promise<string> {
  const folder = await makeFolder();
  await writeFile(join(folder, 'package.json'), '{"private":true}');
  const quiet = ['--ignore-scripts', '--legacy-peer-deps', '--no-audit', '--no-fund'];
  await run('npm', ['install', ...quiet, ...specifiers], { cwd: folder, timeout: 600_000 });
  return folder;
}
