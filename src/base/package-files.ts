/** Paths and version of the installed package. */
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder that holds package.json: the compiled files lie below it at a depth that depends on how they were installed. */
export const packageRoot: string = findRoot(dirname(fileURLToPath(import.meta.url)));

export const packageVersion: string = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')).version;

export function packagePath(...segments: string[]): string {
  return join(packageRoot, ...segments);
}

function findRoot(directory: string): string {
  if (existsSync(join(directory, 'package.json'))) return directory;
  const parent = dirname(directory);
  if (parent === directory) throw new Error('package.json not found above the compiled files');
  return findRoot(parent);
}
