/**
 * Starts one server process on a cluster, waits until it accepts connections, and stops it. Also stops a server that a killed
 * run of the service left behind on the same cluster.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { constants } from 'node:fs';
import { type FileHandle, open, readFile, readlink, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { StartError } from '../../base/errors.js';
import { unless } from '../../base/narrow.js';
import type { OsUser } from './os-user.js';
import {
  accountOptions,
  childrenOf,
  hasEndedSync,
  isRunning,
  readCommandLine,
  signal,
  waitUntil,
} from './processes.js';

interface Launch {
  readonly program: string;
  readonly cluster: string;
  readonly account: OsUser | undefined;
  readonly log: FileHandle;
  readonly port: number;
  readonly settings: Readonly<Record<string, string>>;
  /** Ends a start that was given up. */
  readonly signal?: AbortSignal | undefined;
}

export interface Postmaster {
  /** `patience` is how many milliseconds it gets to end by itself: then it is killed, and recovers from its log at the next start. */
  stop(patience?: number): Promise<void>;
  /** Resolves when it has ended for any reason, with the signal or the code. */
  readonly ended: Promise<string>;
}

/** Either a server that is ready, or what it said before it ended. */
type StartResult =
  | { readonly kind: 'ready'; readonly postmaster: Postmaster }
  | { readonly kind: 'ended'; readonly output: string };

const PID_FILE = 'postmaster.pid';
const STATUS_LINE = 7;
const READY_TIMEOUT = 60_000;
const STOP_TIMEOUT = 60_000;
/** Milliseconds of the stop that are left for an end without a checkpoint. */
const QUIT_TIMEOUT = 500;
/** An immediate exit still waits so long for the server to end. */
const EXIT_TIMEOUT = 3_000;
const ORPHAN_TIMEOUT = 5_000;
const LOG_LIMIT = 10 * 1024 * 1024;
const IMPOSSIBLE_PID = 2_147_483_647;
/** Root writes to folders that less trusted users can write to, and must not follow their links. */
const NO_FOLLOW = constants.O_NOFOLLOW ?? 0;

/** Detached: an interrupt typed into our terminal must reach the service alone, which stops the server after its last user. */
export async function launch(options: Launch): Promise<StartResult> {
  const { size } = await options.log.stat();
  const fixed = { listen_addresses: '127.0.0.1', port: String(options.port), unix_socket_directories: '' };
  const settings = Object.entries({ max_connections: '100', wal_level: 'logical', ...options.settings, ...fixed });
  const child = spawn(
    options.program,
    ['-D', options.cluster, ...settings.flatMap(([name, value]) => ['-c', `${name}=${value}`])],
    { ...accountOptions(options.account), detached: true, stdio: ['ignore', options.log.fd, options.log.fd] },
  );
  const ended = new Promise<string>((resolve) => {
    child.once('exit', (code, name) => resolve(name ?? `code ${code}`));
  });
  let failure: Error | undefined;
  child.once('error', (error) => {
    failure = error;
  });
  child.unref();
  const abandon = (): void => {
    if (hasEnded(child) || child.pid === undefined) return;
    child.kill('SIGINT');
    if (!hasEndedSync(child.pid, EXIT_TIMEOUT)) killFamily(child.pid);
  };
  process.on('exit', abandon);
  void ended.then(() => process.off('exit', abandon));
  const isUnwanted = (): boolean => options.signal?.aborted === true;
  const answered = await waitUntil(
    async () => failure !== undefined || hasEnded(child) || isUnwanted() || (await isReady(options.cluster, child.pid)),
    READY_TIMEOUT,
  );
  if (answered && failure === undefined && !hasEnded(child) && !isUnwanted()) {
    return { kind: 'ready', postmaster: { ended, stop: (patience) => stopChild(child, patience) } };
  }
  if (failure !== undefined) {
    process.off('exit', abandon);
    throw new StartError(`${options.program} cannot be run: ${failure.message}`);
  }
  if (hasEnded(child)) return { kind: 'ended', output: await readFrom(options.log, size) };
  await stopChild(child, QUIT_TIMEOUT);
  if (isUnwanted()) throw new StartError('The start of the embedded PostgreSQL was interrupted');
  throw new StartError(`The embedded PostgreSQL was not ready within ${READY_TIMEOUT / 1000} seconds`);
}

/** Opened by us and handed over, so that the server's account needs no right to the folder. */
export async function openLog(path: string): Promise<FileHandle> {
  const size = await stat(path).then(
    (stats) => stats.size,
    () => 0,
  );
  if (size > LOG_LIMIT) await rename(path, `${path}.old`);
  return open(path, constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | NO_FOLLOW, 0o600);
}

/** Ends the server of a former run. Only the holder of the cluster's lock may call this: nobody needs that server. */
export async function stopOrphan(cluster: string, report: (message: string) => void): Promise<void> {
  const path = join(cluster, PID_FILE);
  const lines = (await readFile(path, 'utf8').catch(() => '')).split('\n');
  const pid = Math.abs(Number.parseInt(lines[0] ?? '', 10));
  if (!(pid > 0)) return rm(path, { force: true });
  if (!(await isRunning(pid))) return disown(path, lines);
  if (!(await isServerOf(cluster, pid))) return disown(path, lines);
  report(`Stopping the PostgreSQL server of an earlier run, process ${pid}`);
  for (const name of ['SIGINT', 'SIGQUIT', 'SIGKILL'] as const) {
    if (name === 'SIGKILL') killFamily(pid);
    else signal(pid, name);
    if (await waitUntil(async () => !(await isRunning(pid)), ORPHAN_TIMEOUT)) return disown(path, lines);
  }
  throw new StartError(`The PostgreSQL server of an earlier run, process ${pid}, does not stop`);
}

async function stopChild(child: ChildProcess, patience = STOP_TIMEOUT): Promise<void> {
  for (const [name, time] of [
    ['SIGINT', patience - QUIT_TIMEOUT],
    ['SIGQUIT', QUIT_TIMEOUT],
  ] as const) {
    if (!hasEnded(child)) child.kill(name);
    if (await waitUntil(() => hasEnded(child), time)) return;
  }
  if (child.pid !== undefined) killFamily(child.pid);
  await waitUntil(() => hasEnded(child), ORPHAN_TIMEOUT);
}

/** Its sessions too, which end by themselves only where they are able to: one that hangs would keep the next server from starting. */
function killFamily(pid: number): void {
  for (const each of [...childrenOf(pid), pid].reverse()) signal(each, 'SIGKILL');
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

async function isReady(cluster: string, pid: number | undefined): Promise<boolean> {
  const lines = (await readFile(join(cluster, PID_FILE), 'utf8').catch(() => '')).split('\n');
  return lines[0] === String(pid) && lines[STATUS_LINE]?.trim() === 'ready';
}

async function readFrom(log: FileHandle, start: number): Promise<string> {
  const buffer = Buffer.alloc(64 * 1024);
  const { size } = await log.stat();
  const { bytesRead } = await log.read(buffer, 0, buffer.length, Math.max(start, size - buffer.length));
  return buffer.toString('utf8', 0, bytesRead);
}

/**
 * PostgreSQL will not start while the file names a living process, though the number may have passed to another. The
 * file itself stays: the server reads in it whether sessions of the former one still hold its shared memory.
 */
async function disown(path: string, lines: readonly string[]): Promise<void> {
  const file = await open(path, constants.O_RDWR | NO_FOLLOW).catch(unless('ENOENT'));
  if (file === undefined) return;
  try {
    await file.writeFile([String(IMPOSSIBLE_PID), ...lines.slice(1)].join('\n'));
  } finally {
    await file.close();
  }
}

/** A folder that was moved while its server ran is known by where that server works, if we may look. */
async function isServerOf(cluster: string, pid: number): Promise<boolean> {
  const command = await readCommandLine(pid);
  if (!/(^|[\\/])postgres(\.exe)?( |$)/.test(command)) return false;
  if (command.includes(` -D ${cluster} `)) return true;
  const location = await readlink(`/proc/${pid}/cwd`).catch(() => undefined);
  if (location !== undefined) return location === cluster;
  throw new StartError(
    `${join(cluster, PID_FILE)} names process ${pid}, a PostgreSQL server that may or may not use this folder: stop it or remove the file`,
  );
}
