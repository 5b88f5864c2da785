/**
 * CPU time of processes, user and system together, from Linux's /proc. Unlike requests per second, it hardly changes if other programs
 * use the machine too. The functions return null without /proc.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The clock of /proc: a hundredth of a second on every Linux. */
const MILLISECONDS_PER_TICK = 10;

/** In milliseconds; all threads of the process. */
export function spentBy(pid: number): number | null {
  const times = timesOf(pid);
  if (times === null) return null;
  const [user = 0, system = 0] = times;
  return (user + system) * MILLISECONDS_PER_TICK;
}

/** For all processes of a PostgreSQL server, including those that have ended. */
export function spentByServer(postmaster: number): number | null {
  const ended = timesOf(postmaster);
  if (ended === null) return null;
  const own = ended.reduce((sum, each) => sum + each, 0) * MILLISECONDS_PER_TICK;
  const running = readdirSync('/proc').filter((name) => /^\d+$/.test(name) && parentOf(Number(name)) === postmaster);
  return running.reduce((sum, name) => sum + (spentBy(Number(name)) ?? 0), own);
}

/** For the embedded server with this data folder, or null if there is none. */
export function postmasterOf(dataDirectory: string): number | null {
  try {
    const [first] = readFileSync(join(dataDirectory, 'postgres', 'postmaster.pid'), 'utf8').split('\n', 1);
    return Number(first);
  } catch {
    return null;
  }
}

/** User and system time, and those of children that have ended, in ticks. */
function timesOf(pid: number): readonly number[] | null {
  return statOf(pid)?.slice(11, 15).map(Number) ?? null;
}

function parentOf(pid: number): number {
  return Number(statOf(pid)?.[1]);
}

/** The fields after the name, which may contain spaces; null if the process has ended. */
function statOf(pid: number): readonly string[] | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return null;
  }
}
