/**
 * Other processes: whether one is alive, whether it is still the one that wrote its number down
 * (numbers are used again), and how to run one of PostgreSQL's programs under the account that may run it.
 */
import { execFile, execFileSync, type SpawnOptions, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { StartError } from '../../base/errors.js';
import type { OsUser } from './os-user.js';

/** A process that has ended but was never reaped does not count: in a container nobody may ever reap it. */
export async function isRunning(pid: number): Promise<boolean> {
  if (!signal(pid, 0)) return false;
  const state = (await readStatus(pid))?.[0];
  return state !== 'Z' && state !== 'X';
}

/** Synchronous, for use while the process exits: whether a child ends within so many milliseconds. */
export function hasEndedSync(pid: number, milliseconds: number): boolean {
  const deadline = Date.now() + milliseconds;
  const clock = new Int32Array(new SharedArrayBuffer(4));
  for (;;) {
    const state = readStatusSync(pid)?.[0];
    if (state === 'Z' || state === 'X' || !signal(pid, 0)) return true;
    if (Date.now() >= deadline) return false;
    Atomics.wait(clock, 0, 0, 10);
  }
}

/** The processes that this one has started and that have not ended. */
export function childrenOf(pid: number): number[] {
  try {
    const all = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
    return all.map(Number).filter((each) => readStatusSync(each)?.[1] === String(pid));
  } catch {
    return listChildren(pid);
  }
}

/** Where the system has no /proc. */
function listChildren(pid: number): number[] {
  try {
    const lines = execFileSync('ps', ['-A', '-o', 'pid=,ppid='], { encoding: 'utf8' }).trim().split('\n');
    const pairs = lines.map((line) => line.trim().split(/\s+/).map(Number));
    return pairs.flatMap(([each, parent]) => (parent === pid && each !== undefined ? [each] : []));
  } catch {
    return [];
  }
}

/** Sends a signal; false when there is no such process. A process of another user counts as running. */
export function signal(pid: number, name: NodeJS.Signals | 0): boolean {
  try {
    process.kill(pid, name);
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ESRCH') return false;
    if (name === 0) return true;
    throw error;
  }
}

/** Distinguishes a process from a later one with the same number. It is undefined if the system does not report it. */
export async function readStartStamp(pid: number): Promise<string | undefined> {
  const ticks = (await readStatus(pid))?.[19];
  if (ticks === undefined) return undefined;
  const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => '');
  return `${boot.trim()}/${ticks}`;
}

/** The words a process was started with. `/proc/<pid>/cmdline` is open to all, where `cwd` asks for the right to trace. */
export async function readCommandLine(pid: number): Promise<string> {
  try {
    return (await readFile(`/proc/${pid}/cmdline`, 'utf8')).replaceAll('\0', ' ').trim();
  } catch {
    const listing = await promisify(execFile)('ps', ['-p', String(pid), '-o', 'command=']).catch(() => ({
      stdout: '',
    }));
    return listing.stdout.trim();
  }
}

/**
 * The environment is built from scratch: our own holds secrets, and PG* variables that would change what the server does. The
 * messages must stay English, because we look for FATAL in them.
 */
export function accountOptions(account: OsUser | undefined): SpawnOptions {
  const { PATH, HOME, SystemRoot, TEMP } = process.env;
  const env = { PATH, HOME: account?.home ?? HOME, SystemRoot, TEMP, LC_ALL: 'C', TZ: 'UTC' };
  return { cwd: '/', env, windowsHide: true, ...(account && { uid: account.uid, gid: account.gid }) };
}

/** Runs a program to its end and returns what it said; a failure becomes a start error with its last words. */
export function runProgram(
  program: string,
  parameters: readonly string[],
  account: OsUser | undefined,
  input = '',
): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, parameters, { ...accountOptions(account), stdio: ['pipe', 'pipe', 'pipe'] });
    let output = '';
    const collect = (chunk: Buffer): void => {
      output += chunk.toString();
    };
    child.stdout?.on('data', collect);
    child.stderr?.on('data', collect);
    child.stdin?.on('error', () => {});
    child.stdin?.end(input);
    child.once('error', (error) => reject(new StartError(`${program} cannot be run: ${error.message}`)));
    child.once('close', (code) => {
      if (code === 0) resolve(output);
      else reject(new StartError(`${program} failed: ${findComplaint(output)}`));
    });
  });
}

/** The last line that names an error, or the last line at all. */
export function findComplaint(output: string): string {
  const lines = output.split('\n').filter((line) => line.trim() !== '');
  const complaint = lines.findLast((line) => /\b(FATAL|PANIC|ERROR|error): /.test(line)) ?? lines.at(-1);
  return complaint?.replace(/^.*?\b(FATAL|PANIC|ERROR|error): +/, '') ?? 'it exited without any output';
}

export async function waitUntil(condition: () => Promise<boolean> | boolean, milliseconds: number): Promise<boolean> {
  const deadline = Date.now() + milliseconds;
  while (!(await condition())) {
    if (Date.now() >= deadline) return false;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return true;
}

/** The fields of `/proc/<pid>/stat` after the program's name, which may itself hold spaces and brackets. */
async function readStatus(pid: number): Promise<string[] | undefined> {
  return splitStatus(await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined));
}

function readStatusSync(pid: number): string[] | undefined {
  try {
    return splitStatus(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return undefined;
  }
}

function splitStatus(text: string | undefined): string[] | undefined {
  return text?.slice(text.lastIndexOf(')') + 2).split(' ');
}
