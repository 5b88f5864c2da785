/**
 * Runs the samples of the README and of docs/ as a reader would, page by page, each on a database of its own with the demo
 * model; pages that only read share one. A block of `sh` goes through one shell per page, a block of `sql` to the database. A block of `json`, `csv` or `text`
 * right below a block of `sh` is its answer, where "..." in JSON stands for anything. Blocks of other languages are not run.
 * TEST_SERVER_URL names another PostgreSQL to do so on, as a superuser: they have to work on every version that is supported.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import type { Service } from '../../src/app/start.js';
import { packagePath } from '../../src/base/package-files.js';
import { runCommand } from '../support/command.js';
import { ADMIN_TOKEN, makeFolder, request, startDatabase, startTestService, withSql } from '../support/service.js';
import { type Block, blocksOf, type Page, readPages } from './docs/pages.js';

const TEMPLATE = 'lateral_demo';
const ADMIN_PASSWORD = 'the-password-of-the-test-administrator';
/** The samples say nothing of time: they have to work on a busy machine too. */
const PATIENCE = { DATABASE_CONNECT_TIMEOUT: '60s', DATABASE_WAIT_TIMEOUT: '60s' };
const ANSWERS = ['json', 'csv', 'text'];
/** The parameters of curl that send data, and the program. */
const WRITES = /\s(-[dFTX]|--data|--request|--form)|\blateral\b/;
/** Ends the output of each block; no sample prints it. */
const MARK = '\u001e';

const { TEST_SERVER_URL } = process.env;
const server = TEST_SERVER_URL ? { url: TEST_SERVER_URL } : await startDatabase({ own: true });
await makeTemplate();
const missing = await findMissing(['bash', 'curl']);

for (const page of await readPages()) {
  const blocks = blocksOf(page);
  if (!blocks.some(({ language }) => language === 'sh' || language === 'sql')) continue;
  const run = blocks.some(({ language }) => language === 'sh') ? runPage : runStatements;
  t.test(`the samples of ${page.path} work`, { skip: missing }, async (t) => run(t, page, blocks));
}

async function makeTemplate(): Promise<void> {
  const url = await makeDatabase(TEMPLATE);
  const service = await startTestService({ databaseUrl: url, ADMIN_PASSWORD, WORKERS: '1', ...PATIENCE });
  await service.stop();
  await withSql(url, async (sql) =>
    sql.unsafe(await readFile(packagePath('sql', 'server', 'demo.sql'), 'utf8')).simple(),
  );
}

/** Anew: a server that is not ours may have it from an earlier run. */
async function makeDatabase(name: string, template = 'template1'): Promise<string> {
  await withSql(server.url, async (sql) => {
    await sql`drop database if exists ${sql(name)}`;
    await sql`create database ${sql(name)} template ${sql(template)}`;
  });
  const url = new URL(server.url);
  url.pathname = `/${name}`;
  return url.href;
}

function databaseName(page: string): string {
  return `lateral_${page.replaceAll(/\W/g, '_').toLowerCase()}`;
}

interface Place {
  readonly url: string;
  readonly service: Service;
}

let reading: Promise<Place> | null = null;

/** The page sends no data, and its samples change no table. */
function onlyReads(blocks: readonly Block[]): boolean {
  return blocks.every(({ language, text }) => language !== 'sql' && !(language === 'sh' && WRITES.test(text)));
}

async function openPlace(name: string): Promise<Place> {
  const url = await makeDatabase(databaseName(name), TEMPLATE);
  // As the page about streams asks for.
  const storage = { STORAGE_LOCAL_ROOT: await makeFolder() };
  const service = await startTestService({ databaseUrl: url, COMPRESSION: 'brotli,gzip', ...PATIENCE, ...storage });
  return { url, service };
}

/** Of a page without requests. */
async function runStatements(t: Test, page: Page, blocks: readonly Block[]): Promise<void> {
  const url = await makeDatabase(databaseName(page.path), TEMPLATE);
  for (const { language, text, line } of blocks) {
    if (language !== 'sql') continue;
    await withSql(url, (sql) => sql.unsafe(text).simple());
    t.pass(`${page.path}, line ${line}`);
  }
}

async function runPage(t: Test, page: Page, blocks: readonly Block[]): Promise<void> {
  const isReading = onlyReads(blocks);
  if (isReading) reading ??= openPlace('reading');
  const { url, service } = await (isReading && reading ? reading : openPlace(page.path));
  const run = await openShell(t, { service: service.url, database: url, program: await findProgram(t, page) });
  for (const [index, block] of blocks.entries()) {
    const place = `${page.path}, line ${block.line}`;
    if (block.language === 'sql') {
      await withSql(url, (sql) => sql.unsafe(block.text).simple());
      // The service hears of it by itself within a moment; samples below must not depend on when.
      await request(service, 'POST', '/utils/cache/clear');
    }
    if (block.language !== 'sh') continue;
    const output = await run(block.text);
    const next = blocks[index + 1];
    const isAnswered = next?.follows && ANSWERS.includes(next.language);
    if (isAnswered && next.language === 'text' && process.env['UPDATE_GOLDEN'])
      await rewrite(page.path, next.text, output);
    else if (isAnswered) checkAnswer(t, output, next, place);
    else t.notMatch(output, /"errors":|^lateral: /m, place);
  }
  if (!isReading) await service.stop();
}

async function rewrite(page: string, text: string, output: string): Promise<void> {
  const path = packagePath(page);
  const content = await readFile(path, 'utf8');
  await writeFile(
    path,
    content.replace(text.trim(), () => output.trim()),
  );
}

function checkAnswer(t: Test, output: string, { language, text }: Block, place: string): void {
  if (language !== 'json') {
    t.equal(output.trim(), text.trim(), place);
    return;
  }
  const found = parse(output);
  if (!fits(found, parse(text))) t.strictSame(found, parse(text), `${place}: ${output.slice(0, 2_000)}`);
  else t.pass(place);
}

/** One document, or one on each line. */
function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    try {
      return text
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line));
    } catch {
      return text;
    }
  }
}

function fits(found: unknown, expected: unknown): boolean {
  if (expected === '...') return found !== undefined;
  if (Array.isArray(expected)) {
    if (!Array.isArray(found)) return false;
    const open = expected.at(-1) === '...';
    const given = open ? expected.slice(0, -1) : expected;
    if (open ? found.length < given.length : found.length !== given.length) return false;
    return given.every((each, index) => fits(found[index], each));
  }
  if (typeof expected === 'object' && expected !== null) {
    if (typeof found !== 'object' || found === null) return false;
    const names = new Set([...Object.keys(found), ...Object.keys(expected)]);
    return [...names].every((name) => fits((found as Fields)[name], (expected as Fields)[name]));
  }
  return found === expected;
}

type Fields = Readonly<Record<string, unknown>>;

const MAIN = `${process.execPath} ${packagePath('dist', 'src', 'main.js')}`;

/** The program on the page about it. On other pages its commands run in this process, since a new one would take longer than most commands. */
async function findProgram(t: Test, { path }: Page): Promise<string> {
  if (path === 'docs/command-line.md') return MAIN;
  const server = createServer((incoming, outgoing) => void answerCommand(incoming, outgoing));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => server.close());
  const file = join(await makeFolder(), 'lateral');
  const { port } = server.address() as AddressInfo;
  await writeFile(file, bridgeTo(`http://127.0.0.1:${port}`), { mode: 0o755 });
  return file;
}

/** Sends the folder, the database and the words, prints the output, and ends with the code of the first line. */
function bridgeTo(url: string): string {
  return `#!/bin/bash
reply=$(printf '%s\\0' "$PWD" "$DATABASE_URL" "$@" | curl -s --data-binary @- ${url}; printf .)
code=\${reply%%$'\\n'*}
output=\${reply#*$'\\n'}
printf '%s' "\${output%.}"
exit "$code"
`;
}

async function answerCommand(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  const text = Buffer.concat(await incoming.toArray()).toString();
  const [folder = '', DATABASE_URL = '', ...words] = text.split('\0').slice(0, -1);
  const before = process.cwd();
  process.chdir(folder);
  const { code, output, complaints } = await runCommand(words, { DATABASE_URL, LOG_LEVEL: 'silent', ...PATIENCE });
  process.chdir(before);
  if (code !== 0) t.comment(complaints);
  outgoing.end(`${code}\n${output}`);
}

interface Sample {
  readonly service: string;
  readonly database: string;
  /** What the shell calls for `npm run --silent lateral --`. */
  readonly program: string;
}

/** A shell that keeps functions and variables from block to block, and ends with the first command that fails. */
async function openShell(t: Test, { service, database, program }: Sample): Promise<(block: string) => Promise<string>> {
  const shell = spawn('bash', ['-e', '-o', 'pipefail'], {
    cwd: await makeFolder(),
    env: {
      PATH: process.env['PATH'] ?? '',
      TOKEN: ADMIN_TOKEN,
      PASSWORD: ADMIN_PASSWORD,
      DATABASE_URL: database,
      LOG_LEVEL: 'silent',
      ...PATIENCE,
    },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  t.teardown(() => shell.kill('SIGKILL'));
  // The service hears of a change by a command within a moment, as it does of SQL.
  const reload = `curl -s -X POST -H "Authorization: Bearer $TOKEN" ${service}/utils/cache/clear > /dev/null`;
  const lines = createInterface({ input: shell.stdout });
  const complaints: Buffer[] = [];
  shell.stderr.on('data', (piece: Buffer) => complaints.push(piece));
  const closed = once(shell, 'close');
  // A shell that has ended is reported by its block.
  shell.stdin.on('error', () => {});
  return async (block) => {
    const text = block
      .replaceAll('http://127.0.0.1:8055', service)
      .replaceAll('npm run --silent lateral --', program)
      .replaceAll(/^lateral .* --apply .*$/gm, (line) => `${line}\n${reload}`);
    const output: string[] = [];
    const end = new Promise<void>((resolve, reject) => {
      lines.on('line', (line) => {
        if (line === MARK) resolve();
        else output.push(line);
      });
      void closed.then(() => reject(new Error(`${block}\n${output.join('\n')}\n${Buffer.concat(complaints)}`)));
    });
    shell.stdin.write(`${text}\nprintf '\\n${MARK}\\n'\n`);
    try {
      await end;
    } finally {
      lines.removeAllListeners('line');
    }
    return output.join('\n');
  };
}

async function findMissing(programs: readonly string[]): Promise<string | false> {
  for (const program of programs) {
    const found = await promisify(execFile)(program, ['--version']).then(
      () => true,
      () => false,
    );
    if (!found) return `${program} is not installed here`;
  }
  return false;
}
