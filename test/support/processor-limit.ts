/** Limits the processor time of running programs with a control group of Linux, as containers do. */
import { access, mkdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';

const PERIOD_US = 20_000;

/** The root of the second version, and the controller `cpu` of the first one. */
const ROOTS = ['/sys/fs/cgroup', '/sys/fs/cgroup/cpu'];

export interface LimitedPrograms {
  /** E.g. "control group v1, 10 ms of each 20 ms". */
  readonly how: string;
  /** Ends the limit. The programs go on. */
  release(): Promise<void>;
}

/** Processes that the given ones start later are limited together with them. Null if this machine does not allow it. */
export async function limitProcessors(
  processes: readonly number[],
  processors: number,
): Promise<LimitedPrograms | null> {
  const quota = Math.round(PERIOD_US * processors);
  for (const root of ROOTS) {
    const version = root === ROOTS[0] ? 2 : 1;
    const folder = join(root, `lateral-test-${process.pid}-${Date.now()}`);
    if (!(await makeGroup(folder, version === 2 ? 'cpu.max' : 'cpu.cfs_quota_us'))) continue;
    if (version === 2) await writeFile(join(folder, 'cpu.max'), `${quota} ${PERIOD_US}`);
    else {
      await writeFile(join(folder, 'cpu.cfs_period_us'), String(PERIOD_US));
      await writeFile(join(folder, 'cpu.cfs_quota_us'), String(quota));
    }
    const move = async (to: string, pids: readonly (number | string)[]): Promise<void> => {
      // A process may have ended meanwhile.
      for (const pid of pids) await writeFile(join(to, 'cgroup.procs'), String(pid)).catch(() => {});
    };
    await move(folder, processes);
    const release = async (): Promise<void> => {
      const members = (await readFile(join(folder, 'cgroup.procs'), 'utf8').catch(() => '')).split('\n');
      await move(
        root,
        members.filter((pid) => pid !== ''),
      );
      await rmdir(folder).catch(() => {});
    };
    t.teardown(release);
    return { how: `control group v${version}, ${quota / 1_000} ms of each ${PERIOD_US / 1_000} ms`, release };
  }
  return null;
}

/** Makes a control group, which has this file. */
async function makeGroup(folder: string, file: string): Promise<boolean> {
  try {
    await mkdir(folder);
    await access(join(folder, file));
    return true;
  } catch {
    await rmdir(folder).catch(() => {});
    return false;
  }
}

/** A process and those that it started. */
export async function familyOf(pid: number): Promise<number[]> {
  const children = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8');
  return [
    pid,
    ...children
      .split(' ')
      .filter((text) => text !== '')
      .map(Number),
  ];
}

/** The share of all processors that was idle, from the call of this function to the call of the result. */
export async function watchIdle(): Promise<() => Promise<number>> {
  const times = async (): Promise<readonly number[]> => {
    const [line = ''] = (await readFile('/proc/stat', 'utf8')).split('\n');
    return line.split(/\s+/).slice(1, 9).map(Number);
  };
  const before = await times();
  return async () => {
    const passed = (await times()).map((ticks, index) => ticks - (before[index] ?? 0));
    const [, , , idle = 0, waiting = 0] = passed;
    return (
      (idle + waiting) /
      Math.max(
        1,
        passed.reduce((sum, ticks) => sum + ticks, 0),
      )
    );
  };
}
