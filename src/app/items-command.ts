/**
 * `lateral import` writes the rows of a file to a collection. `lateral explain` prints the SQL of a read, its parameters and PostgreSQL's
 * plan.
 */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { basename, extname } from 'node:path';
import { StartError, UsageError } from '../base/errors.js';
import { createObserver } from '../base/observe.js';
import { NO_AUTHOR } from '../compiler/plan/write/write.js';
import { parseOnConflict } from '../compiler/request/on-conflict.js';
import { parseRead } from '../compiler/request/rest.js';
import { pretty } from '../compiler/sql/pretty.js';
import { ImportFailure, importRows } from '../features/import-export/import.js';
import { type ImportFormat, readRows } from '../features/import-export/import-file.js';
import { describeNode } from '../features/plans/plan-tree.js';
import { CLI_IDENTITY } from '../server/access/identity.js';
import { readArguments, readConfig } from '../server/config/config.js';
import { read, write } from '../server/execute/pipeline.js';
import type { Explanation } from '../server/execute/reads/reads.js';
import { NO_CLIENT } from '../server/execute/stages.js';
import type { ExplainedNode, ExplainedPlan } from '../speed/plan-choices/generic-plan.js';
import { parseLimits } from './core.js';
import { withCore } from './start.js';

const IMPORT_HELP = `Usage: lateral import FILE [COLLECTION] [--on-conflict COLUMNS] [--resolution merge|ignore] [--option value ...]

Writes the rows of a JSON, NDJSON or CSV file to a collection (by default the one that the file is named after) in one
transaction. Rows whose key exists are updated, all others are created.

  --on-conflict COLUMNS  finds existing items by the columns of a unique index instead of the key
  --resolution ignore    leaves existing items as they are

Exits with 1 if a row is invalid: then nothing is imported. All options of lateral --help are accepted; DATABASE_URL
selects the database.`;

async function importFile(words: readonly string[]): Promise<void> {
  const { operands, environment, values } = readArguments(words, [], ['on-conflict', 'resolution']);
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
  const config = readConfig({ ...process.env, ...environment });
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

const EXPLAIN_HELP = `Usage: lateral explain [--analyze] [--json] "GET /items/..." [--option value ...]

Prints the SQL of a read, its parameters and PostgreSQL's plan, as an administrator reads it.

  --analyze  also runs the statement, and shows times and rows
  --json     prints all of it as JSON, with the plan as PostgreSQL writes it and indexes that could serve the request

Exits with 1 if the request is invalid. All options of lateral --help are accepted; DATABASE_URL selects the database.`;

async function explain(words: readonly string[]): Promise<void> {
  const { operands, switches, environment } = readArguments(words, ['analyze', 'json']);
  const [request = ''] = operands;
  const match = /^(?:GET\s+)?\/items\/([^/?]+)(?:\/([^/?]+))?(?:\?(.*))?$/s.exec(request.trim());
  if (!match) throw new UsageError('explain expects a request such as "GET /items/articles?fields=title,author.name"');
  const config = readConfig({ ...process.env, ...environment });
  const [, collection = '', key, queryString = ''] = match.map((part) => part ?? undefined);
  await withCore(config, createObserver('warn'), console.error, async ({ reads }) => {
    const item = key === undefined ? null : decodeURIComponent(key);
    const explanation = await read(
      {
        client: NO_CLIENT,
        identify: () => CLI_IDENTITY,
        parse: () => parseRead(decodeURIComponent(collection), item, queryString, parseLimits(config)),
        execute: (prepared) => reads.explain(prepared, switches.has('analyze')),
      },
      reads,
    );
    console.log(switches.has('json') ? JSON.stringify(explanation, null, 2) : readable(explanation));
  });
}

function readable({ sql, parameters, plan }: Explanation): string {
  const values = parameters.map((value, position) => `$${position + 1} = ${JSON.stringify(value)}`);
  return [
    pretty(sql).trimEnd(),
    ...(values.length > 0 ? ['', ...values] : []),
    '',
    ...(plan ? planText(plan[0]) : []),
  ].join('\n');
}

function planText({ Plan, 'Planning Time': planning, 'Execution Time': execution }: ExplainedPlan): string[] {
  const times = execution === undefined ? '' : `: planned in ${planning} ms, executed in ${execution} ms`;
  return [`Plan${times}`, ...nodeLines(Plan, 1)];
}

function nodeLines(node: ExplainedNode, depth: number): string[] {
  const indent = '  '.repeat(depth);
  return [
    `${indent}${describeNode(node)}  (${figures(node)})`,
    ...conditions(node).map((condition) => `${indent}    ${condition}`),
    ...(node.Plans ?? []).flatMap((child) => nodeLines(child, depth + 1)),
  ];
}

function figures(node: ExplainedNode): string {
  const { 'Actual Total Time': time, 'Actual Rows': rows, 'Actual Loops': loops = 1 } = node;
  const expected = `cost ${node['Total Cost']}, ${node['Plan Rows']} rows expected`;
  if (time === undefined) return expected;
  return `${expected}, ${rows} found in ${time} ms${loops === 1 ? '' : `, ${loops} times`}`;
}

function conditions(node: ExplainedNode): string[] {
  const { Filter: filter, 'Rows Removed by Filter': removed } = node;
  const named: readonly (readonly [string, string | undefined])[] = [
    ['index', node['Index Cond']],
    ['recheck', node['Recheck Cond']],
    ['hash', node['Hash Cond']],
    ['merge', node['Merge Cond']],
    ['join', node['Join Filter']],
    ['filter', filter && (removed ? `${filter} (${removed} rows removed)` : filter)],
    ['sort', node['Sort Key']?.join(', ')],
  ];
  return named.flatMap(([name, text]) => (text === undefined ? [] : [`${name}: ${text}`]));
}

export const COMMANDS = {
  explain: { help: EXPLAIN_HELP, run: explain },
  import: { help: IMPORT_HELP, run: importFile },
};
