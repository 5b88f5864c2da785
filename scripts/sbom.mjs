/** Prints the SBOM (CycloneDX) of the package: its dependencies, and the binaries of uWebSockets that it contains. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const read = (...path) => JSON.parse(readFileSync(join(root, ...path), 'utf8'));
const words = ['sbom', '--package-lock-only', '--omit=dev', '--sbom-format=cyclonedx', '--sbom-type=application'];
const bill = JSON.parse(execFileSync('npm', words, { cwd: root, encoding: 'utf8', maxBuffer: 64_000_000 }));
// npm takes the name of the folder.
bill.metadata.component.name = read('package.json').name;

const { upstream, licence, package: source, files } = read('src', 'server', 'http', 'uws-binaries.json');
const [, name, version] = /^(.+)@(.+)$/.exec(source);
bill.components.push({
  'bom-ref': 'uWebSockets.js',
  type: 'library',
  name: 'uWebSockets.js',
  version,
  description: `Binaries in dist/uws, from the package ${source} of npm`,
  licenses: [{ license: { id: licence } }],
  purl: `pkg:npm/${name}@${version}`,
  externalReferences: [{ type: 'vcs', url: upstream }],
  components: Object.entries(files)
    .filter(([, { published }]) => published)
    .map(([file, { sha256, upstreamTag }]) => ({
      type: 'file',
      name: `dist/uws/${file}`,
      version: upstreamTag,
      hashes: [{ alg: 'SHA-256', content: sha256 }],
    })),
});
console.log(JSON.stringify(bill, null, 2));
