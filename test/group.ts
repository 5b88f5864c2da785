/**
 * Runs several test files in one process, one after the other: to load the service and to warm it up takes longer than most files do.
 *
 *   node dist/test/group.js dist/test/server/items/reads.test.js dist/test/server/items/writes.test.js
 */
import { basename, resolve } from 'node:path';
import t from 'tap';

const paths = process.argv.slice(2);
/** Milliseconds. The runner sets the limit of the whole process. */
const timeout = (Number(process.env['TAP_TIMEOUT'] ?? 30) * 1_000) / paths.length;

for (const path of paths) {
  await t.test(basename(path, '.test.js'), { timeout }, async (file) => {
    globalThis.testFile = file;
    await import(resolve(path));
  });
  globalThis.testFile = undefined;
}
