/**
 * Compares the binaries of uWebSockets that Lateral uses with the tags of the upstream project, by the digests of git.
 *
 *   git clone --filter=blob:none --no-checkout https://github.com/uNetworking/uWebSockets.js uws
 *   node scripts/uws-binaries.mjs uws
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const { files } = JSON.parse(readFileSync(join(root, 'src', 'server', 'http', 'uws-binaries.json'), 'utf8'));
const [repository] = process.argv.slice(2);
if (repository === undefined) throw new Error('Usage: node scripts/uws-binaries.mjs CLONE');

for (const [name, { sha256, gitBlob, upstreamTag }] of Object.entries(files)) {
  const bytes = readFileSync(join(root, 'node_modules', 'uWebSockets.js', name));
  const digest = (kind, ...parts) =>
    parts.reduce((hash, part) => hash.update(part), createHash(kind)).digest('hex');
  const [, , upstream = 'missing'] = execFileSync('git', ['-C', repository, 'ls-tree', upstreamTag, name], {
    encoding: 'utf8',
  }).split(/\s+/);
  const isSame = {
    'uws-binaries.json': digest('sha256', bytes) === sha256 && gitBlob === upstream,
    [upstreamTag]: digest('sha1', `blob ${bytes.length}\0`, bytes) === upstream,
  };
  console.log(`${name}  ${Object.entries(isSame).map(([where, same]) => `${same ? 'as in' : 'NOT as in'} ${where}`).join(', ')}`);
  if (Object.values(isSame).includes(false)) process.exitCode = 1;
}
