/** `lateral files`: compares the rows of files with the contents of their storage locations. */

import { UsageError } from '../../base/errors.js';
import type { Program } from '../../server/feature/command.js';
import type { OPTIONS } from './options.js';
import { Storages } from './storage.js';

const FILES_HELP = `Usage: lateral files [--remove] [--option value ...]

Lists stored files without a row in service_files (a crash during an upload leaves them), and rows whose
stored file is missing. Files that are younger than a day are left out: their upload may not have ended.

  --remove  removes the stored files that have no row

Ends with status 1 if a row has lost its stored file. All options of lateral --help are accepted; STORAGE_LOCATIONS and
DATABASE_URL say where to look.`;

const YOUNG_MS = 86_400_000;

/** Other files in the folder or the bucket do not belong to the service. */
const OWN_NAME = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}/;

function isYoung(modified: Date): boolean {
  return Date.now() - modified.getTime() < YOUNG_MS;
}

async function files(
  words: readonly string[],
  { createObserver, readConfig, readWords, withCore }: Program,
): Promise<void> {
  const { operands, switches, environment } = readWords(words, ['remove']);
  if (operands.length > 0) throw new UsageError('files takes options only: see lateral files --help');
  const config = readConfig<typeof OPTIONS>({ ...process.env, ...environment });
  const storages = new Storages(config.STORAGE_LOCATIONS);
  const rows = await withCore(config, createObserver('warn'), console.error, ({ database }) =>
    database.rows<{ id: string; storage: string; filename_disk: string }>(
      'select id::text, storage, filename_disk from service_files where filename_disk is not null order by id',
    ),
  );
  let orphans = 0;
  const missing = new Map(rows.map((row) => [`${row.storage}/${row.filename_disk}`, row.id]));
  const named = new Set(missing.keys());
  for (const storage of storages.names) {
    const location = storages.of(storage);
    for await (const { name, bytes, modified } of location.list()) {
      missing.delete(`${storage}/${name}`);
      if (named.has(`${storage}/${name}`) || !OWN_NAME.test(name) || isYoung(modified)) continue;
      orphans++;
      console.log(`no row: ${storage}/${name} (${bytes} bytes)`);
      if (switches.has('remove')) await location.remove(name);
    }
  }
  for (const [name, id] of missing) console.log(`no stored file: ${id} (${name})`);
  const done = switches.has('remove') ? 'removed' : 'found';
  console.log(`${rows.length} files; ${orphans} without a row ${done}; ${missing.size} rows without a stored file`);
  if (missing.size > 0) process.exitCode = 1;
}

export const COMMANDS = {
  files: { help: FILES_HELP, run: files },
};
