/**
 * Starting and stopping the real program as users do: from an empty folder to the first answer, every way to end it, what
 * a former run left behind, and starts that cannot work.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chown, cp, lstat, mkdir, readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import postgres from 'postgres';
import t from 'tap';
import { readMemory } from '../../bench/memory.js';
import { options } from '../../src/app/options.js';
import { packagePath, packageVersion } from '../../src/base/package-files.js';
import { canReach, type OsUser } from '../../src/features/embedded/os-user.js';
import { topicsOf } from '../../src/server/config/option-topics.js';
import { runCommand } from '../support/command.js';
import {
  type Answer,
  createDatabase,
  databaseUrl,
  get,
  makeFolder,
  request,
  startDatabase,
  ways,
} from '../support/service.js';

const START_WITHIN = 60_000;
const REFUSE_WITHIN = 10_000;

interface Launch {
  readonly words?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly account?: OsUser | undefined;
  readonly program?: string;
}

interface Run {
  readonly child: ChildProcessByStdio<null, Readable, Readable>;
  readonly output: () => string;
  readonly complaints: () => string;
  /** The exit code, or the signal that ended it. */
  readonly ended: Promise<number | string>;
}

const nobody = await findNobody();
/** As whoever runs the tests and, where that is root, as an ordinary user too. */
const accounts: readonly (OsUser | undefined)[] = process.getuid?.() === 0 ? [undefined, nobody] : [undefined];

/** Of the service that the first test starts and stops. */
let madeFolder = '';

for (const account of accounts) {
  t.test(`from an empty folder to an answer and back, as ${account?.name ?? 'the current user'}`, async (t) => {
    const program = account ? await findProgramFor(account) : mainFile();
    const directory = join(await makeFolderFor(account), 'data');
    if (!account) madeFolder = directory;
    const start = (): Run => launch({ environment: { DATA_DIR: directory, PORT: '0' }, account, program });

    const first = start();
    const url = await ready(first);
    t.match(first.output(), /email +admin@example\.com\n +password +[\w-]{16}\n +token +[\w-]{32}\n/);
    const printed = await runCurl(first.output());
    t.match(printed, { status: 200, json: { data: Object } }, 'the printed line works');
    t.not(Object.keys((printed.json as { data: object }).data).length, 0, 'and shows something');
    const token = /token +(\S+)/.exec(first.output())?.[1] ?? '';
    t.match(await get({ url }, '/server/info', { token }), { status: 200 });

    const fields = 'title,author.name,comments.body,comments.author.name';
    const demo = await get({ url }, `/items/articles?fields=${fields}&sort=id&limit=3`, { token });
    t.match(demo, { status: 200, json: { data: { length: 3 } } });
    t.match(demo.json, { data: [{ title: /./, author: { name: /./ }, comments: [{ body: /./ }] }] });
    const model = ['authors', 'articles', 'comments', 'tags', 'articles_tags', 'articles_blocks'];
    for (const name of [...model, 'block_text', 'block_image', 'block_quote']) {
      const rows = (await get({ url }, `/items/${name}?limit=-1`, { token })).json as { data: unknown[] };
      t.ok(rows.data.length >= 3, `${name} has ${rows.data.length} rows`);
    }
    const memory = await readMemory(first.child.pid as number);
    // With the optimizing compiler of WebAssembly it would be 55 more.
    t.ok(memory < 140 * Number(ways()['WORKERS'] || 1), `it takes ${Math.round(memory)} MiB`);
    const postmaster = await readPostmaster(directory);
    const { uid } = await lstat(join(directory, 'postgres'));
    if (account) t.equal(uid, account.uid, 'the server runs as the same user');
    else t.not(uid, 0, 'the server never runs as root');
    first.child.kill('SIGTERM');
    t.equal(await first.ended, 0, 'SIGTERM ends it well');
    t.equal(isAlive(postmaster), false, 'PostgreSQL ended with it');
    await t.rejects(get({ url }, '/server/ping'), { code: 'ECONNREFUSED' });

    const second = start();
    const again = await ready(second);
    t.notMatch(second.output(), /password|token/, 'credentials are shown once');
    t.match(await runCurl(second.output()), { status: 200, text: 'pong' });
    const kept = await get({ url: again }, `/items/articles?fields=${fields}&sort=id&limit=3`, { token });
    t.equal(kept.text, demo.text, 'data and token are kept');
    second.child.kill('SIGINT');
    t.equal(await second.ended, 0, 'SIGINT ends it well');
    t.equal(second.complaints().includes('lateral:'), false);
  });
}

t.test('the folder of a killed run is taken over; a living one keeps its folder', async (t) => {
  const directory = join(await makeFolder(), 'data');
  const chosen = { ADMIN_TOKEN: 'a-token-of-our-own-choice', ADMIN_PASSWORD: 'a-password-of-our-own-choice' };
  const environment = { DATA_DIR: directory, PORT: '0', ...chosen };
  const killed = launch({ environment });
  const url = await ready(killed);
  t.match(
    killed.output(),
    /email +admin@example\.com\n +password +that of ADMIN_PASSWORD\n +token +that of ADMIN_TOKEN\n/,
  );
  t.notMatch(killed.output() + killed.complaints(), /of-our-own-choice/, 'what the operator has set is not printed');
  const refused = launch({ environment });
  t.equal(await refused.ended, 1);
  t.match(complaintLines(refused), [
    new RegExp(`^lateral: DATA_DIR ${directory} is in use by process ${killed.child.pid}$`),
  ]);
  t.match(await get({ url }, '/server/ping'), { text: 'pong' }, 'the first one did not notice');
  const command = launch({ environment, words: ['relations', 'suggest'] });
  t.equal(await command.ended, 0, 'a command uses the database beside the service');
  const before = await get({ url }, '/items/authors', { token: environment.ADMIN_TOKEN });
  killed.child.kill('SIGKILL');
  t.equal(await killed.ended, 'SIGKILL');

  const next = launch({ environment });
  const nextUrl = await ready(next);
  const after = await get({ url: nextUrl }, '/items/authors', { token: environment.ADMIN_TOKEN });
  t.match(after, { status: 200, text: before.text });
  const postmaster = await readPostmaster(directory);
  next.child.kill('SIGTERM');
  t.equal(await next.ended, 0);
  t.equal(isAlive(postmaster), false);

  const taken = await listenSomewhere();
  t.teardown(() => taken.close());
  const busy = launch({ environment: { ...environment, PORT: String(taken.port) } });
  t.equal(await busy.ended, 1, 'a start that fails late');
  t.equal(isAlive(await readPostmaster(directory)), false, 'stops what it had started');
});

t.test('a signal during the start ends it as well', async (t) => {
  const directory = join(await makeFolder(), 'data');
  const run = launch({ environment: { DATA_DIR: directory, PORT: '0' } });
  await once(run.child.stdout, 'data');
  run.child.kill('SIGINT');
  t.equal(await run.ended, 0);
  t.equal(isAlive(await readPostmaster(directory)), false);
});

t.test('commands make no database, and use the embedded one that is there', async (t) => {
  const directory = join(await makeFolder(), 'data');
  const environment = { DATA_DIR: directory, PORT: '0' };
  const explained = ['explain', 'GET /items/authors?fields=name'];
  for (const words of [explained, ['types'], ['schema', 'snapshot']]) {
    const { code, lines } = await refuse(words, environment);
    t.equal(code, 1, words.join(' '));
    t.match(lines, [/^lateral: there is no database: set --database-url or DATABASE_URL/]);
    await t.rejects(lstat(directory), { code: 'ENOENT' }, 'nothing was made');
  }
  const run = launch({ words: explained, environment: { DATA_DIR: madeFolder } });
  t.equal(await run.ended, 0, run.complaints());
  t.match(run.output(), /from "?public"?\."?authors/);
});

t.test('a start that cannot work says why in one line', async (t) => {
  const server = await startDatabase();
  const free = await createDatabase(server, 'bad_starts');
  const taken = await listenSomewhere();
  t.teardown(() => taken.close());
  const closed = await listenSomewhere();
  await closed.close();
  const wrong = databaseUrl(server, 'bad_starts', { user: 'lateral', password: 'wrong' });
  const unknownUser = databaseUrl(server, 'bad_starts', { user: 'somebody', password: 'x' });
  const cases: readonly (readonly [name: string, launch: Launch, line: RegExp])[] = [
    [
      'nothing listens there',
      { environment: { DATABASE_URL: `postgres://u:p@127.0.0.1:${closed.port}/d`, DATABASE_START_TIMEOUT: '0' } },
      new RegExp(`nothing answers at 127\\.0\\.0\\.1:${closed.port} \\(ECONNREFUSED\\)$`),
    ],
    [
      'no such host',
      { environment: { DATABASE_URL: 'postgres://u:p@no-such-host.invalid/d', DATABASE_START_TIMEOUT: '0' } },
      /no-such-host\.invalid:5432/,
    ],
    ['wrong password', { environment: { DATABASE_URL: wrong } }, /password authentication failed for user "lateral"/],
    [
      'unknown user',
      { environment: { DATABASE_URL: unknownUser } },
      /password authentication failed for user "somebody"/,
    ],
    [
      'unknown database',
      { environment: { DATABASE_URL: databaseUrl(server, 'nowhere') } },
      /database "\w*nowhere" does not exist$/,
    ],
    [
      'unknown schema',
      { environment: { DATABASE_URL: free, DATABASE_SCHEMA: 'Nowhere' } },
      /DATABASE_SCHEMA: the database has no schema "Nowhere"$/,
    ],
    [
      'port in use',
      { environment: { DATABASE_URL: free, PORT: String(taken.port) } },
      new RegExp(`cannot listen on 127\\.0\\.0\\.1:${taken.port}: the port is in use`),
    ],
    [
      'an address of somebody else',
      { environment: { DATABASE_URL: free, HOST: '192.0.2.1' } },
      /cannot listen on 192\.0\.2\.1:/,
    ],
    ['bad value', { environment: { PORT: 'eighty' } }, /PORT: must be a whole number from 0 to 65535, not "eighty"$/],
    ['bad flag value', { words: ['start', '--port', '65536'] }, /PORT: must be a whole number/],
    ['bad address', { environment: { DATABASE_URL: 'localhost' } }, /DATABASE_URL: must look like postgres:/],
    ['unknown flag', { words: ['start', '--prot', '1'] }, /unknown option "--prot": see lateral --help$/],
    ['unknown command', { words: ['strat'] }, /unknown command "strat": see lateral --help$/],
    ['folder that cannot be', { environment: { DATA_DIR: mainFile() } }, /DATA_DIR .* cannot be written/],
  ];
  const outcomes: Outcome[] = [];
  for (const [position, [name, { words = ['start'], environment: given }]] of cases.entries()) {
    const environment = { DATA_DIR: '/nonexistent/unused', PORT: '0', ...given };
    outcomes[position] = AS_PROGRAM.includes(name)
      ? await finish(launch({ words, environment }))
      : await refuse(words, environment);
  }
  for (const [position, [name, , line]] of cases.entries()) {
    const outcome = outcomes[position];
    t.equal(outcome?.code, /^(bad|unknown (flag|command))/.test(name) ? 2 : 1, `${name}: exit code`);
    t.equal(outcome?.lines.length, 1, `${name}: one line, ${JSON.stringify(outcome?.lines)}`);
    t.match(outcome?.lines[0], /^lateral: [^\n]{10,300}$/, name);
    t.match(outcome?.lines[0], line, name);
    t.ok((outcome?.milliseconds ?? Number.POSITIVE_INFINITY) < REFUSE_WITHIN, `${name}: at once`);
  }
  const said = outcomes.map((outcome) => outcome.everything).join('');
  t.notMatch(said, new URL(server.url).password, 'no password is shown');
  t.notMatch(said, /:wrong@/, 'nor a wrong one');
  const sql = postgres(free, { max: 1 });
  t.teardown(() => sql.end());
  t.strictSame([...(await sql`select email from service_users`)], [], 'no account whose password nobody saw');
});

t.test('help names every option, and the version is that of the package', async (t) => {
  for (const words of [['--help'], ['help'], ['start', '--help'], ['-h']]) {
    const { code, output, complaints } = await runCommand(words);
    t.equal(code, 0, words.join(' '));
    t.equal(complaints, '');
    for (const { name, about, initial } of options.rows()) {
      const line = output.split('\n').find((each) => each.trim().startsWith(`${name} `));
      if (!line?.includes(about) || !line.includes(initial)) t.fail(`${words.join(' ')} says of ${name}: ${line}`);
    }
  }
  const [most] = topicsOf(options.rows());
  t.equal(most?.rows.length, 10);
  const listed = topicsOf(options.rows()).flatMap(({ rows }) => rows.map(({ name }) => name));
  t.strictSame(
    [...listed].sort(),
    options
      .rows()
      .map(({ name }) => name)
      .sort(),
    'each option has one topic',
  );
  t.notOk(
    topicsOf(options.rows()).some(({ title }) => title === 'Other'),
    'a topic that says something',
  );
  t.match(await runCommand(['--version']), { code: 0, output: `${packageVersion}\n` });
});

function mainFile(): string {
  return packagePath('dist', 'src', 'main.js');
}

/**
 * Only the given environment counts, and the way to serve: whatever else is set around the tests must not reach the program. Through `env`, since the
 * test runner adds its own variables to those of a child.
 */
function launch({ words = ['start'], environment = {}, account, program = mainFile() }: Launch): Run {
  const variables = Object.entries({ PATH: process.env['PATH'], ...ways(), ...environment }).map(
    ([name, value]) => `${name}=${value}`,
  );
  const child = spawn('/usr/bin/env', ['-i', ...variables, process.execPath, program, ...words], {
    cwd: '/',
    stdio: ['ignore', 'pipe', 'pipe'],
    ...(account && { uid: account.uid, gid: account.gid }),
  });
  t.teardown(() => child.kill('SIGKILL'));
  let output = '';
  let complaints = '';
  child.stdout.on('data', (chunk) => {
    output += chunk;
  });
  child.stderr.on('data', (chunk) => {
    complaints += chunk;
  });
  const ended = once(child, 'close').then(([code, signal]) => (code ?? signal) as number | string);
  return { child, output: () => output, complaints: () => complaints, ended };
}

/** Waits for the line that names the address, and answers the address. */
async function ready(run: Run): Promise<string> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`not ready:\n${run.output()}${run.complaints()}`)), START_WITHIN);
    const look = (): void => {
      const url = /is ready at (http:\S+)\n[\s\S]*Try it:[^\n]*\n/.exec(run.output())?.[1];
      if (url === undefined) return;
      clearTimeout(timer);
      resolve(url);
    };
    run.child.stdout.on('data', look);
    void run.ended.then((code) => {
      clearTimeout(timer);
      reject(new Error(`it ended with ${code} before it was ready:\n${run.output()}${run.complaints()}`));
    });
  });
}

/** What `curl` would do with the line the program printed. */
async function runCurl(output: string): Promise<Answer> {
  const line = /Try it: +curl (.+)\n/.exec(output)?.[1] ?? '';
  const words = [...line.matchAll(/'([^']*)'|(\S+)/g)].map((match) => match[1] ?? match[2] ?? '');
  const headers: Record<string, string> = {};
  let address = '';
  while (words.length > 0) {
    const word = words.shift() ?? '';
    if (word === '-H') {
      const [name = '', ...value] = (words.shift() ?? '').split(': ');
      headers[name] = value.join(': ');
    } else if (!word.startsWith('-')) address = word;
  }
  const [, url, path] = /^(http:\/\/[^/]+)(\/.*)$/.exec(address) ?? [];
  if (url === undefined || path === undefined) throw new Error(`no address in the line: ${line}`);
  return request({ url }, 'GET', path, { headers, token: null });
}

/** These end the real program, the others the command in this process. */
const AS_PROGRAM = ['nothing listens there', 'wrong password', 'port in use', 'bad value', 'unknown flag'];

async function refuse(words: readonly string[], environment: Readonly<Record<string, string>>): Promise<Outcome> {
  const start = performance.now();
  const { code, output, complaints } = await runCommand(words, environment);
  const milliseconds = performance.now() - start;
  return { code, lines: linesOf(complaints), everything: output + complaints, milliseconds };
}

interface Outcome {
  readonly code: number | string;
  readonly lines: readonly string[];
  readonly everything: string;
  readonly milliseconds: number;
}

async function finish(run: Run): Promise<Outcome> {
  const start = performance.now();
  const code = await run.ended;
  const milliseconds = performance.now() - start;
  return { code, lines: complaintLines(run), everything: run.output() + run.complaints(), milliseconds };
}

/** What was said on stderr beside the log of what went well. */
function complaintLines(run: Run): string[] {
  return linesOf(run.complaints());
}

function linesOf(complaints: string): string[] {
  const lines = complaints.split('\n');
  return lines.filter((line) => line !== '' && !/^\{"level":30,.*\}$/.test(line));
}

async function readPostmaster(directory: string): Promise<number> {
  const text = await readFile(join(directory, 'postgres', 'postmaster.pid'), 'utf8').catch(() => '');
  return Number.parseInt(text, 10);
}

/** False too for the number of a server that has removed its file. */
function isAlive(pid: number): boolean {
  if (Number.isNaN(pid)) return false;
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

async function listenSomewhere(): Promise<{ port: number; close(): Promise<void> }> {
  const listener = createServer().listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const address = listener.address();
  const port = typeof address === 'object' && address ? address.port : 0;
  return {
    port,
    close: () =>
      new Promise((resolve) => {
        listener.close(() => resolve());
      }),
  };
}

async function findNobody(): Promise<OsUser> {
  const text = await readFile('/etc/passwd', 'utf8').catch(() => '');
  const [, uid = '65534', gid = '65534'] = /^nobody:[^:]*:(\d+):(\d+):/m.exec(text) ?? [];
  return { name: 'nobody', uid: Number(uid), gid: Number(gid), home: '/' };
}

async function makeFolderFor(account: OsUser | undefined): Promise<string> {
  const folder = await makeFolder();
  if (account) await chown(folder, account.uid, account.gid);
  return folder;
}

/** The program where the account can read it: a copy of what an installation holds when the project lies in a closed folder. */
async function findProgramFor(account: OsUser): Promise<string> {
  if ((await canReach(account, mainFile())) && (await canReach(account, packagePath('node_modules'))))
    return mainFile();
  const home = await makeFolder();
  const lock = JSON.parse(await readFile(packagePath('package-lock.json'), 'utf8'));
  const packages = Object.entries<{ dev?: boolean }>(lock.packages).filter(([path, { dev }]) => path !== '' && !dev);
  const installed = packages.map(([path]) => path);
  for (const path of ['package.json', 'sql', join('dist', 'src'), ...installed]) {
    if ((await lstat(packagePath(path)).catch(() => undefined)) === undefined) continue;
    await mkdir(dirname(join(home, path)), { recursive: true });
    await cp(packagePath(path), join(home, path), { recursive: true, verbatimSymlinks: true });
  }
  return join(home, 'dist', 'src', 'main.js');
}
