/**
 * The embedded database: a PostgreSQL of our own in DATA_DIR, for users who have not named one. A start must get over
 * whatever a former run left there: a half-made cluster, a stale lock, a server without an owner. A server that ends by itself is
 * started again.
 */
import { createHash, randomBytes } from 'node:crypto';
import {
  access,
  chmod,
  constants,
  lstat,
  mkdir,
  open,
  readdir,
  readFile,
  readlink,
  realpath,
  rename,
  rm,
  rmdir,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { createServer } from 'node:net';
import { basename, dirname, join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../../base/errors.js';
import { messageOf, succeeds, unless } from '../../base/narrow.js';
import { type Binaries, findBinaries } from './binaries.js';
import { canReach, chooseOsUser, giveTo, type OsUser, openShelter } from './os-user.js';
import { launch, openLog, type Postmaster, stopOrphan } from './postmaster.js';
import { findComplaint, isRunning, readStartStamp, runProgram } from './processes.js';

export interface EmbeddedServer {
  /** User, password, 127.0.0.1, port and the database "lateral". */
  readonly url: string;
  /**
   * Ends all sessions, waits until the server has ended and unlocks the folder. May be called again. After `patience` milliseconds
   * the server is killed.
   */
  stop(patience?: number): Promise<void>;
}

interface EmbeddedOptions {
  /** DATA_DIR: created when missing. */
  readonly directory: string;
  /** More settings of the server, as its `-c name=value` takes them. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Called with a message about each notable step, such as the creation of the database. */
  readonly report?: (message: string) => void;
  /** Called when the server ends by itself and is to be started again. */
  readonly restarted?: (message: string) => void;
  /** Ends the wait for a server that does not become ready. */
  readonly signal?: AbortSignal | undefined;
}

interface State {
  readonly password: string;
  readonly port?: number;
}

interface Home {
  readonly directory: string;
  readonly account: OsUser | undefined;
  /** The cluster's real path, whether it exists or not. */
  readonly cluster: string;
  /** Whether `directory` names the cluster, itself or through a link. */
  readonly linked: boolean;
  readonly report: (message: string) => void;
}

/** A cluster, and what its server is run with. */
interface Server {
  readonly home: Home;
  readonly binaries: Binaries;
  readonly settings: Readonly<Record<string, string>>;
}

const NAME = 'lateral';
const ATTEMPTS = 5;

export async function startEmbedded(options: EmbeddedOptions): Promise<EmbeddedServer> {
  try {
    const directory = await openDirectory(resolve(options.directory));
    const home = await findHome(directory, options.report ?? (() => {}));
    const release = await takeLock(`${home.cluster}.lock`, directory);
    try {
      const { url, postmaster } = await startIn(home, options);
      let stopped: Promise<void> | undefined;
      return {
        url,
        stop: (patience) => {
          stopped ??= postmaster.stop(patience).finally(release);
          return stopped;
        },
      };
    } catch (error) {
      await release();
      throw error;
    }
  } catch (error) {
    if (!(error instanceof Error && 'syscall' in error)) throw error;
    throw new StartError(`The embedded PostgreSQL cannot be started in ${options.directory}: ${error.message}`);
  }
}

/** Whether an embedded database was made there. */
export async function holdsCluster(directory: string): Promise<boolean> {
  return succeeds(lstat(join(resolve(directory), 'postgres')));
}

/** The address of an embedded database that a service uses now; null if none does. */
export async function findRunning(directory: string): Promise<string | null> {
  const cluster = await realpath(join(resolve(directory), 'postgres')).catch(() => null);
  if (cluster === null || !(await isLocked(`${cluster}.lock`))) return null;
  const path = join(resolve(directory), `${NAME}.json`);
  const { password, port } = parseState(path, await readFile(path, 'utf8'));
  return port === undefined ? null : addressOf(password, port);
}

function addressOf(password: string, port: number): string {
  return `postgres://${NAME}:${password}@127.0.0.1:${port}/${NAME}`;
}

async function openDirectory(directory: string): Promise<string> {
  try {
    const created = await mkdir(directory, { recursive: true });
    if (created !== undefined && process.getuid?.() === 0) await chmod(directory, 0o755);
    await access(directory, constants.R_OK | constants.W_OK | constants.X_OK);
    return await realpath(directory);
  } catch (error) {
    throw new StartError(`DATA_DIR ${directory} cannot be written: ${messageOf(error)}`);
  }
}

/** The cluster lies in DATA_DIR, or in the shelter when the account cannot get into DATA_DIR; a link there settles it. */
async function findHome(directory: string, report: Home['report']): Promise<Home> {
  const own = join(directory, 'postgres');
  const account = await chooseOsUser(own);
  const stats = await lstat(own).catch(() => undefined);
  if (stats?.isSymbolicLink()) {
    const cluster = await realpath(own).catch(() => undefined);
    if (cluster !== undefined) return { directory, account, cluster, linked: true, report };
    throw new StartError(`${own} leads to ${await readlink(own)}, which does not exist`);
  }
  if (account === undefined || (await canReach(account, directory))) {
    return { directory, account, cluster: own, linked: true, report };
  }
  if (stats !== undefined && !(await removeIfEmpty(own))) {
    throw new StartError(`${own} cannot be reached by "${account.name}", who must run PostgreSQL: move DATA_DIR`);
  }
  const digest = createHash('sha256').update(directory).digest('hex').slice(0, 16);
  const cluster = join(await openShelter(account), `data-${digest}`);
  return { directory, account, cluster, linked: false, report };
}

async function startIn(
  home: Home,
  { settings = {}, restarted, signal }: EmbeddedOptions,
): Promise<{ url: string; postmaster: Postmaster }> {
  const binaries = await findBinaries(home.account, home.directory, home.report);
  await stopOrphan(home.cluster, home.report);
  const state = await openState(home);
  const server = { home, binaries, settings };
  if (await isMissing(home.cluster)) await createCluster(server, state.password);
  else await checkCluster(home, binaries);
  if (!home.linked) await symlink(home.cluster, join(home.directory, 'postgres')).catch(unless('EEXIST'));
  const { port, postmaster } = await launchOnPort(server, state.port, signal);
  try {
    if (port !== state.port) await writeState(home, { ...state, port });
  } catch (error) {
    await postmaster.stop();
    throw error;
  }
  const startAgain = async (stopping: AbortSignal): Promise<Postmaster> => {
    await stopOrphan(home.cluster, home.report);
    const next = await launchOnPort(server, port, stopping);
    if (next.port === port) return next.postmaster;
    await next.postmaster.stop();
    throw new Error(`The port ${port} of the embedded PostgreSQL is in use`);
  };
  return {
    url: addressOf(state.password, port),
    postmaster: restarted ? new Supervised(postmaster, startAgain, restarted) : postmaster,
  };
}

/** Written before the cluster exists: an interrupted first start is taken up with the same password. */
async function openState(home: Home): Promise<State> {
  const path = statePath(home);
  const text = await readFile(path, 'utf8').catch(unless('ENOENT'));
  if (text !== undefined) return parseState(path, text);
  if (!(await isMissing(home.cluster))) {
    if (home.linked) throw new StartError(`${path} is missing: it has the password of the database`);
    await setAside(home);
  }
  const state = { password: randomBytes(24).toString('base64url') };
  await writeState(home, state);
  return state;
}

function parseState(path: string, text: string): State {
  try {
    const { password, port } = JSON.parse(text);
    if (typeof password === 'string' && /^[\w-]+$/.test(password)) {
      return { password, ...(Number.isInteger(port) && { port }) };
    }
  } catch {}
  throw new StartError(`${path} is damaged: it has no password`);
}

/** As root, the file gets the owner of DATA_DIR, who may start the service next. */
async function writeState(home: Home, state: State): Promise<void> {
  const passing = `${statePath(home)}.${randomBytes(6).toString('hex')}`;
  const file = await open(passing, 'wx', 0o600);
  try {
    await file.writeFile(`${JSON.stringify(state)}\n`);
    if (home.account !== undefined) {
      const { uid, gid } = await stat(home.directory);
      await file.chown(uid, gid);
    }
  } finally {
    await file.close();
  }
  await rename(passing, statePath(home));
}

function statePath(home: Home): string {
  return join(home.directory, `${NAME}.json`);
}

/** A sheltered cluster whose DATA_DIR was removed and created again: the new one starts empty, the old data are kept. */
async function setAside(home: Home): Promise<void> {
  const aside = `${home.cluster}.${new Date().toISOString().replaceAll(/[^\d]/g, '')}`;
  await rename(home.cluster, aside);
  home.report(`Moved the database of an earlier ${home.directory} in ${aside}`);
}

async function checkCluster(home: Home, binaries: Binaries): Promise<void> {
  const { cluster, account } = home;
  const version = await readFile(join(cluster, 'PG_VERSION'), 'utf8').catch(() => '');
  if (!/^\d+(\.\d+)?\s*$/.test(version)) throw new StartError(`${cluster} is neither empty nor a PostgreSQL cluster`);
  if (version.trim() !== binaries.major) {
    throw new StartError(
      `${cluster} was created by PostgreSQL ${version.trim()}, but this is ${binaries.major}: dump it with the old version and load it into a new DATA_DIR`,
    );
  }
  const { uid } = await stat(cluster);
  if (account !== undefined && uid !== account.uid) await giveTo(account, cluster);
  if (account === undefined && uid !== (process.getuid?.() ?? uid)) {
    throw new StartError(`${cluster} is owned by another user (${uid})`);
  }
  await chmod(cluster, 0o700);
}

/** Made under a passing name: the cluster's own name never stands for half of one. */
async function createCluster({ home, binaries, settings }: Server, password: string): Promise<void> {
  const { cluster, account, report } = home;
  report(`Creating a database in ${cluster}`);
  await removeLeftovers(cluster);
  const passing = `${cluster}.new-${randomBytes(6).toString('hex')}`;
  const passwordFile = `${passing}.password`;
  const unsafe = settings['fsync'] === 'off';
  try {
    await mkdir(passing, { mode: 0o700 });
    if (account !== undefined) await giveTo(account, passing);
    const file = await open(passwordFile, 'wx', 0o600);
    await file.writeFile(`${password}\n`);
    if (account !== undefined) await file.chown(account.uid, account.gid);
    await file.close();
    const locale = ['--encoding=UTF8', '--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--locale=C'];
    const login = [`--username=${NAME}`, '--auth=scram-sha-256', `--pwfile=${passwordFile}`];
    const sync = unsafe ? ['--no-sync'] : [];
    await runProgram(binaries.initdb, [`--pgdata=${passing}`, ...locale, ...login, ...sync], account);
    const single = `--single -c exit_on_error=on -c fsync=${unsafe ? 'off' : 'on'} -D`.split(' ');
    await runProgram(binaries.postgres, [...single, passing, 'postgres'], account, 'create database "lateral";\n');
    await rename(passing, cluster);
  } finally {
    await rm(passwordFile, { force: true });
    await rm(passing, { recursive: true, force: true, maxRetries: 3 });
  }
}

/** A former run's initdb may still be writing into one of these; what cannot be removed now goes the next time. */
async function removeLeftovers(cluster: string): Promise<void> {
  const parent = dirname(cluster);
  const names = (await readdir(parent)).filter((name) => name.startsWith(`${basename(cluster)}.new-`));
  for (const name of names)
    await rm(join(parent, name), { recursive: true, force: true, maxRetries: 3 }).catch(() => {});
}

async function isMissing(cluster: string): Promise<boolean> {
  return (await lstat(cluster).catch(() => undefined)) === undefined || (await removeIfEmpty(cluster));
}

function removeIfEmpty(folder: string): Promise<boolean> {
  return succeeds(rmdir(folder));
}

/** Another process may take the port between our check and the server's, and sessions of a dead server may linger. */
async function launchOnPort(
  { home, binaries, settings }: Server,
  preferred: number | undefined,
  signal: AbortSignal | undefined,
): Promise<{ port: number; postmaster: Postmaster }> {
  const { cluster, account } = home;
  const log = await openLog(join(home.directory, 'postgres.log'));
  try {
    if (account !== undefined) {
      const { uid, gid } = await stat(home.directory);
      await log.chown(uid, gid);
    }
    for (let attempt = 1; ; attempt++) {
      const port = await choosePort(preferred);
      const outcome = await launch({ program: binaries.postgres, cluster, account, log, port, settings, signal });
      if (outcome.kind === 'ready') return { port, postmaster: outcome.postmaster };
      const passes = /Address already in use|shared memory block .* is still in use/.test(outcome.output);
      if (!passes || attempt === ATTEMPTS) {
        throw new StartError(`The embedded PostgreSQL does not start: ${findComplaint(outcome.output)}`);
      }
      await sleep(attempt * 200);
    }
  } finally {
    await log.close();
  }
}

async function choosePort(preferred: number | undefined): Promise<number> {
  return (preferred !== undefined && (await tryPort(preferred))) || (await tryPort(0)) || 0;
}

/** The port if it is free (0 asks for any), else undefined. */
function tryPort(port: number): Promise<number | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(undefined));
    server.listen(port, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' ? address?.port : undefined));
    });
  });
}

/**
 * The owner of a cluster: one process. The lock is next to the cluster itself, so that two names of one cluster share it. It has the
 * time at which the process started as well: another process may have its number by now.
 */
interface Owner {
  readonly pid: number;
  readonly started?: string | undefined;
}

/** Takes the lock, also from an owner that has ended, and returns how to release it. `directory` is the name that the user knows. */
async function takeLock(path: string, directory: string): Promise<() => Promise<void>> {
  const started = await readStartStamp(process.pid);
  const content = JSON.stringify({ pid: process.pid, started } satisfies Owner);
  for (let attempt = 0; attempt < 10; attempt++) {
    const isCreated = await writeFile(path, content, { flag: 'wx', mode: 0o644 }).then(() => true, unless('EEXIST'));
    if (isCreated) return () => rm(path, { force: true });
    const lockText = await readLock(path);
    if (lockText === undefined) continue;
    const owner = parseOwner(lockText);
    if (owner !== undefined && (await isOwnerRunning(owner))) {
      throw new StartError(`DATA_DIR ${directory} is in use by process ${owner.pid}`);
    }
    await removeStale(path, lockText);
  }
  throw new StartError(`DATA_DIR ${directory} is in use: ${path} keeps being replaced`);
}

/** Whether a process that runs holds it. */
export async function isLocked(path: string): Promise<boolean> {
  const owner = parseOwner((await readLock(path)) ?? '');
  return owner !== undefined && isOwnerRunning(owner);
}

/** A lock without an owner in it is given a moment: its maker may be between creating and writing it. */
async function readLock(path: string): Promise<string | undefined> {
  const read = (): Promise<string | undefined> => readFile(path, 'utf8').catch(() => undefined);
  const content = await read();
  if (content === undefined || parseOwner(content) !== undefined) return content;
  await sleep(200);
  return read();
}

function parseOwner(content: string): Owner | undefined {
  try {
    const owner: Owner = JSON.parse(content);
    return Number.isInteger(owner.pid) && owner.pid > 0 ? owner : undefined;
  } catch {
    return undefined;
  }
}

async function isOwnerRunning(owner: Owner): Promise<boolean> {
  if (!(await isRunning(owner.pid))) return false;
  const started = await readStartStamp(owner.pid);
  return started === undefined || owner.started === undefined || started === owner.started;
}

/** Moves the lock away before judging it again: another start may have replaced the stale one in between. */
async function removeStale(path: string, stale: string): Promise<void> {
  const aside = `${path}.${randomBytes(6).toString('hex')}`;
  try {
    await rename(path, aside);
  } catch {
    return;
  }
  if ((await readFile(aside, 'utf8')) === stale) await rm(aside, { force: true });
  else await rename(aside, path);
}

/** Milliseconds between attempts: the first pause, which is doubled each time, and the longest. */
const PAUSE = 100;
const LONGEST_PAUSE = 10_000;

/** Milliseconds after which a server that has ended counts as one that ran well. */
const STABLE = 60_000;

/** Keeps a server running: if it ends without being stopped, it is started again. A start that fails is repeated. */
class Supervised implements Postmaster {
  readonly #stopping = new AbortController();
  #watching: Promise<void>;

  /** `start` starts the same server once more, under the same address, unless it was stopped. */
  constructor(
    private current: Postmaster,
    private readonly start: (signal: AbortSignal) => Promise<Postmaster>,
    private readonly report: (message: string) => void,
  ) {
    this.#watching = this.#watch();
  }

  /** The end of the server that runs now. */
  get ended(): Promise<string> {
    return this.current.ended;
  }

  async stop(patience?: number): Promise<void> {
    this.#stopping.abort();
    // A server that is being started must be stopped too, so wait for it.
    await this.current.stop(patience);
    await this.#watching;
    await this.current.stop(patience);
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stopping;
    let pause = PAUSE;
    for (;;) {
      const since = performance.now();
      const reason = await this.current.ended;
      if (signal.aborted) return;
      const lost = performance.now();
      this.report(`The embedded PostgreSQL exited (${reason}); restarting it`);
      if (lost - since > STABLE) pause = PAUSE;
      for (;;) {
        await sleep(pause, null, { signal }).catch(() => {});
        if (signal.aborted) return;
        pause = Math.min(pause * 2, LONGEST_PAUSE);
        try {
          this.current = await this.start(signal);
          break;
        } catch (error) {
          if (signal.aborted) return;
          this.report(`${messageOf(error)}; retrying`);
        }
      }
      this.report(`Restarted the embedded PostgreSQL after ${Math.round(performance.now() - lost)} ms`);
    }
  }
}
