/** `lateral import` writes the rows of a file to a collection. */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { basename, extname } from 'node:path';
import { StartError, UsageError } from '../../base/errors.js';
import { NO_AUTHOR } from '../../compiler/plan/write/write.js';
import { parseOnConflict } from '../../compiler/request/on-conflict.js';
import { CLI_IDENTITY } from '../../server/access/identity.js';
import { write } from '../../server/execute/pipeline.js';
import { NO_CLIENT } from '../../server/execute/stages.js';
import type { Program } from '../../server/feature/command.js';
import { ImportFailure, importRows } from './import.js';
import { type ImportFormat, readRows } from './import-file.js';
import type { OPTIONS } from './options.js';

const IMPORT_HELP = `Usage: lateral import FILE [COLLECTION] [--on-conflict COLUMNS] [--resolution merge|ignore] [--option value ...]

Writes the rows of a JSON, NDJSON or CSV file to a collection (by default the one that the file is named after) in one
transaction. Rows whose key exists are updated, all others are created.

  --on-conflict COLUMNS  finds existing items by the columns of a unique index instead of the key
  --resolution ignore    leaves existing items as they are

Exits with 1 if a row is invalid: then nothing is imported. All options of lateral --help are accepted; DATABASE_URL
selects the database.`;

async function importFile(
  words: readonly string[],
  { createObserver, readConfig, readWords, withCore }: Program,
): Promise<void> {
  const { operands, environment, values } = readWords(words, [], ['on-conflict', 'resolution']);
  const [file, named] = operands;
  if (file === undefined) throw new UsageError('import expects a file: see lateral import --help');
  const onConflict = parseOnConflict(values['on-conflict']?.split(',') ?? null, values['resolution'] ?? null);
  const ending = extname(file).slice(1).toLowerCase();
  const format = IMPORT_FORMATS[ending];
  if (!format) throw new StartError(`"${file}" is not a .json, .ndjson, .jsonl or .csv file`);
  const total = await stat(file).then(
    (stats) => {
      if (!stats.isFile()) throw new StartError(`"${file}" is not a file`);
      return stats.size;
    },
    () => {
      throw new StartError(`"${file}" cannot be read`);
    },
  );
  const config = readConfig<typeof OPTIONS>({ ...process.env, ...environment });
  const collection = named ?? basename(file, extname(file));
  let readBytes = 0;
  // Opened only when it is read: what flows before that would be lost.
  const bytes = async function* (): AsyncGenerator<Buffer> {
    for await (const piece of createReadStream(file)) {
      readBytes += piece.length;
      yield piece;
    }
  };
  const progress = (rows: number): void => {
    const share = total === 0 ? 100 : Math.floor((100 * readBytes) / total);
    if (process.stderr.isTTY) process.stderr.write(`\r[${'#'.repeat(share / 4).padEnd(25)}] ${share} %  ${rows} rows`);
  };
  await withCore(config, createObserver('warn'), console.error, async ({ writes }) => {
    const { MAX_IMPORT_ERRORS: maxErrors } = config;
    await write({
      client: NO_CLIENT,
      identify: () => ({ caller: CLI_IDENTITY, author: NO_AUTHOR }),
      parse: () => ({ collection, rows: readRows(bytes(), format), format, maxErrors, progress, onConflict }),
      execute: (options, writer) => importRows(writes, options, writer, NO_CLIENT).catch(failImport),
      reply: (count) => {
        if (process.stderr.isTTY) process.stderr.write('\n');
        console.log(`${count} ${count === 1 ? 'row' : 'rows'} imported into "${collection}"`);
      },
    });
  });
}

function failImport(error: unknown): never {
  if (!(error instanceof ImportFailure)) throw error;
  const lines = error.errors.slice(0, 20).map((each) => `  row ${each.row}: ${each.error.message}`);
  const count = error.errors.length === 1 ? '1 row is' : `${error.errors.length} rows are`;
  throw new StartError(`nothing was imported, ${count} invalid:\n${lines.join('\n')}`);
}

const IMPORT_FORMATS: Readonly<Record<string, ImportFormat>> = {
  json: 'json',
  ndjson: 'ndjson',
  jsonl: 'ndjson',
  csv: 'csv',
};

export const COMMANDS = {
  import: { help: IMPORT_HELP, run: importFile },
};
