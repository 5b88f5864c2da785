/** The resident memory of a process, in MiB: the current value and the maximum. */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

export async function readMemory(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  const kibibytes = /^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? (await askProcessList(pid));
  return Number(kibibytes) / 1024;
}

/** The current value, if the system does not report a maximum. */
export async function readPeak(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  const kibibytes = /^VmHWM:\s+(\d+) kB/m.exec(status)?.[1];
  return kibibytes === undefined ? await readMemory(pid) : Number(kibibytes) / 1024;
}

/** For systems without /proc. */
async function askProcessList(pid: number): Promise<string> {
  const { stdout } = await promisify(execFile)('ps', ['-o', 'rss=', '-p', String(pid)]);
  return stdout.trim();
}
