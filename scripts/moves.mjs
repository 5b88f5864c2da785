/**
 * Counts how often the work of one request goes from a file to another: the entries of functions whose file is not that of the entry
 * before. Fewer moves are easier to follow. It works on a copy of the sources in which each function reports its entry.
 * For a caller with a row rule and a field rule it also counts the files behind the first request and behind a later one.
 *
 *   node scripts/moves.mjs [FOLDER]    of this checkout, or of another one with its node_modules
 */
import { execFileSync, fork } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import typescript from 'typescript-api';

const ROOT = resolve(process.argv[2] ?? dirname(dirname(fileURLToPath(import.meta.url))));
const WARM_UP = 50;
const REQUESTS = 50;
const TOKEN = 'the-token-of-the-count-of-moves';

/** Runs in the service: counts between two messages. */
const COUNTER = `
let last = -1, moves = 0, files = new Set(), counting = false;
globalThis.enter = (file) => {
  if (!counting) return;
  files.add(file);
  if (file !== last) moves++;
  last = file;
};
process.on('message', (message) => {
  if (message === 'start') [last, moves, files, counting] = [-1, 0, new Set(), true];
  else { counting = false; process.send({ moves, files: [...files] }); }
});
`;

const folder = mkdtempSync(join(tmpdir(), 'lateral-moves-'));
const paths = [];
try {
  copy();
  const service = await start();
  try {
    const get = await count(service, () => ask(service, '/items/articles/1'));
    const title = { title: 'Moves', status: 'draft' };
    const post = await count(service, () => ask(service, '/items/articles', { method: 'POST', body: JSON.stringify(title) }));
    report('GET /items/articles/1', get);
    report('POST /items/articles', post);
    const token = await createReader(service);
    const restricted = () => ask(service, '/items/articles?fields=id,title,author.name', { token });
    // Another request before, because the first of a caller also looks up the user.
    await ask(service, '/items/articles/1?fields=id', { token });
    reportFiles('restricted GET, cold', await count(service, restricted, { warmUp: 0, requests: 1 }));
    reportFiles('restricted GET, warm', await count(service, restricted));
  } finally {
    service.child.kill('SIGTERM');
    await new Promise((done) => service.child.once('exit', done));
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

/** The sources with a report at the beginning of each function. */
function copy() {
  for (const name of ['src', 'sql', 'package.json', 'package-lock.json', 'tsconfig.json', 'build.mjs'])
    cpSync(join(ROOT, name), join(folder, name), { recursive: true });
  for (const name of ['dist', 'test', 'bench']) mkdirSync(join(folder, name));
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  for (const entry of readdirSync(join(folder, 'src'), { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (!entry.isFile() || !path.endsWith('.ts') || path.endsWith('.d.ts')) continue;
    paths.push(path.slice(folder.length + 1));
    writeFileSync(path, reporting(readFileSync(path, 'utf8'), paths.length - 1));
  }
  writeFileSync(join(folder, 'counter.mjs'), COUNTER);
  execFileSync(process.execPath, [join(folder, 'build.mjs'), '--package'], { cwd: folder, stdio: 'inherit' });
  // A package has no binary for Node 20, and the counts are those of uWebSockets.
  const binary = `uws_${process.platform}_${process.arch}_${process.versions.modules}.node`;
  const source = join(ROOT, 'node_modules', 'uWebSockets.js', binary);
  if (existsSync(source)) cpSync(source, join(folder, 'dist', 'uws', binary));
}

function reporting(text, file) {
  const source = typescript.createSourceFile('source.ts', text, typescript.ScriptTarget.Latest, true);
  const added = [];
  const visit = (node) => {
    const { body } = node;
    if (body && typescript.isFunctionLike(node)) {
      if (!typescript.isBlock(body)) added.push([body.getStart(), `(globalThis.enter?.(${file}), `], [body.end, ')']);
      // Nothing may come before the call of the constructor above.
      else if (!typescript.isConstructorDeclaration(node)) added.push([body.getStart() + 1, `globalThis.enter?.(${file});`]);
    }
    typescript.forEachChild(node, visit);
  };
  visit(source);
  return added
    .sort(([one], [other]) => other - one)
    .reduce((changed, [at, piece]) => changed.slice(0, at) + piece + changed.slice(at), text);
}

async function start() {
  const environment = {
    PATH: process.env.PATH,
    DATA_DIR: join(folder, 'data'),
    DEMO_DATA: 'true',
    PORT: '0',
    ADMIN_TOKEN: TOKEN,
    ADMIN_PASSWORD: TOKEN,
    RATE_LIMITER_ENABLED: 'false',
  };
  const execArgv = ['--import', join(folder, 'counter.mjs')];
  const child = fork(join(folder, 'dist', 'src', 'main.js'), ['start'], { env: environment, execArgv, silent: true });
  const url = await new Promise((done, fail) => {
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (piece) => {
        output += piece;
        const found = /is ready at (http:\S+)/.exec(output);
        if (found) done(found[1]);
      });
    child.once('exit', () => fail(new Error(`the service did not start:\n${output}`)));
  });
  return { child, url };
}

async function ask({ url }, path, { token = TOKEN, ...options } = {}) {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const response = await fetch(url + path, { ...options, headers });
  const text = await response.text();
  if (!response.ok) throw new Error(`${path}: ${response.status} ${text}`);
  return text === '' ? null : JSON.parse(text).data;
}

/** A user that may read some fields of published articles. Returns the token. */
async function createReader(service) {
  const post = (path, body) => ask(service, path, { method: 'POST', body: JSON.stringify(body) });
  const token = `${TOKEN}-reader`;
  const policy = await post('/policies', { name: 'Moves' });
  const read = { action: 'read', policy: policy.id };
  await post('/permissions', [
    { ...read, collection: 'articles', fields: ['id', 'title', 'author'], permissions: { status: { _eq: 'published' } } },
    { ...read, collection: 'authors', fields: ['id', 'name'], permissions: {} },
  ]);
  await post('/users', { email: 'moves@example.com', token, policies: [{ policy: policy.id }] });
  return token;
}

async function count({ child }, request, { warmUp = WARM_UP, requests = REQUESTS } = {}) {
  for (let done = 0; done < warmUp; done++) await request();
  child.send('start');
  for (let done = 0; done < requests; done++) await request();
  const counted = new Promise((done) => child.once('message', done));
  child.send('stop');
  return counted;
}

function report(name, { moves, files }) {
  console.log(`${name}: ${Math.round(moves / REQUESTS)} moves between ${files.length} files`);
  list(files);
}

function reportFiles(name, { files }) {
  console.log(`${name}: ${files.length} files`);
  list(files);
}

function list(files) {
  if (process.env.FILES) for (const file of files) console.log(`  ${paths[file]}`);
}
