/**
 * A disk that can be filled up: a file system in memory that holds one table. It has room for all imports of a run on a fast machine.
 * Only the superuser of the machine may mount it.
 */
import { execFileSync } from 'node:child_process';
import { chown, rm, stat, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { makeFolder, withSql } from '../support/service.js';

export interface SmallDisk {
  readonly fill: () => Promise<void>;
  readonly free: () => Promise<void>;
}

/** Answers why there is none, where it cannot be made. */
export async function fillableDisk(databaseUrl: string, directory: string): Promise<SmallDisk | string> {
  const folder = await makeFolder();
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=256m,mode=0700', 'tmpfs', folder], { stdio: 'pipe' });
  } catch (error) {
    return `a small file system cannot be mounted: ${error instanceof Error ? error.message.split('\n')[0] : error}`;
  }
  t.teardown(() => execFileSync('umount', ['--lazy', folder]));
  const { uid, gid } = await stat(join(directory, 'postgres', 'postmaster.pid'));
  await chown(folder, uid, gid);
  await withSql(databaseUrl, async (sql) => {
    await sql.unsafe(`create tablespace small location '${folder}'`);
    await sql.unsafe('alter table goods set tablespace small');
  });
  const filler = join(folder, 'filler');
  return {
    fill: async () => {
      const { bavail, bsize } = await statfs(folder);
      await writeFile(filler, Buffer.alloc(bavail * bsize)).catch(() => {});
    },
    free: () => rm(filler, { force: true }),
  };
}
