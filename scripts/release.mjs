/**
 * Makes the files of a release in dist/release: the package, its SBOM (CycloneDX) and their checksums. Publishes nothing. It refuses if
 * something is not committed, the changelog or the Helm chart is of another version, or a field of package.json is still a placeholder.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const read = (...path) => readFileSync(join(root, ...path), 'utf8');
const run = (command, ...words) => execFileSync(command, words, { cwd: root, encoding: 'utf8', maxBuffer: 64_000_000 });
const manifest = JSON.parse(read('package.json'));
const { version } = manifest;
/** Fields of package.json that name the publisher. A clone has OWNER in their place. */
const OF_PUBLISHER = ['name', 'author', 'homepage', 'repository', 'bugs'];

const problems = [
  !process.argv.includes('--dirty') && run('git', 'status', '--porcelain') !== '' && 'something is not committed',
  /^## (\S+)/m.exec(read('CHANGELOG.md'))?.[1] !== version && `CHANGELOG.md does not begin with ${version}`,
  JSON.parse(read('package-lock.json')).version !== version && `package-lock.json is not of ${version}`,
  ...OF_PUBLISHER.map(
    (name) =>
      /^undefined$|owner/i.test(JSON.stringify(manifest[name]) ?? 'undefined') &&
      `"${name}" in package.json is a placeholder: set it to your own`,
  ),
  ...['version', 'appVersion'].map(
    (name) =>
      !read('deploy', 'helm', 'lateral', 'Chart.yaml').includes(`\n${name}: ${version}\n`) &&
      `Chart.yaml has another ${name}`,
  ),
].filter(Boolean);
if (problems.length > 0) {
  console.error(`No release of ${version}:\n${problems.map((each) => `- ${each}`).join('\n')}`);
  process.exit(1);
}

const folder = join(root, 'dist', 'release');
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
const [{ filename }] = JSON.parse(run('npm', 'pack', '--json', '--silent', '--pack-destination', folder));
const bill = `lateral-${version}.cdx.json`;
writeFileSync(join(folder, bill), run('npm', 'run', '--silent', 'sbom'));
const digest = (name) => createHash('sha256').update(readFileSync(join(folder, name))).digest('hex');
writeFileSync(join(folder, 'SHA256SUMS'), [filename, bill].map((name) => `${digest(name)}  ${name}\n`).join(''));
console.log(`dist/release has ${filename}, ${bill} and SHA256SUMS. What is left:
  git tag v${version} && git push origin v${version}
  npm publish --access public dist/release/${filename}
  attach the files of dist/release to the release
  docker build -f deploy/Dockerfile -t lateral:${version} .`);
