/**
 * `lateral schema snapshot | diff | apply`: the schema of a database as a file, and a database made what the file says. `lateral relations
 * suggest` shows, or writes, the relations that the foreign keys of a database imply.
 */

import { readFile, writeFile } from 'node:fs/promises';
import { createInterface } from 'node:readline/promises';
import { StartError, UsageError } from '../../base/errors.js';
import { runSteps } from '../../base/time-slices.js';
import { writeYaml } from '../../base/yaml.js';
import type { Model } from '../../compiler/model/model.js';
import type { CommandLine } from '../../server/config/config.js';
import type { Program } from '../../server/feature/command.js';
import type { Core } from '../../server/feature/core.js';
import { prepareThread } from '../../server/node/prepare-thread.js';
import type { DdlStatement } from '../../server/schema/change/ddl-statement.js';
import { candidateStatement, referenceCandidate } from '../../server/schema/index-statement.js';
import type { Unindexed } from '../../server/schema/unindexed.js';
import { type Difference, type EntryChange, SECTIONS } from './difference.js';
import { parseDocumentText } from './parse-document.js';
import { readSnapshot, type Snapshot } from './parse-snapshot.js';
import { applySnapshot, compareSnapshot, takeSnapshot } from './snapshots.js';
import { type Hub, hubsOf, type Suggestion, suggestRelations } from './suggest.js';
import { applySuggestions, findUnindexed } from './suggested-relations.js';

const SCHEMA_HELP = `Usage: lateral schema snapshot [FILE] [--policies] [--json] [--option value ...]
       lateral schema diff FILE [--merge] [--force] [--option value ...]
       lateral schema apply FILE [--merge] [--force] [--dry-run] [--yes] [--option value ...]

Copies a schema (collections, fields, relations and their metadata, but no items) from one database to another.

  snapshot   writes the schema to FILE, or to standard output; as YAML, or as JSON if FILE ends in .json or with --json
  diff       shows what apply would change; exits with 0 for no differences, 2 for differences, 1 for an error
  apply      changes the database to match the snapshot, in one transaction
  FILE       JSON or YAML; - is standard input or output

  --policies includes the policies with their permissions; diff and apply then compare them too. Roles and users are named by
             their name and email, and must exist where the snapshot is applied. Secrets are never included
  --merge    deletes nothing: what is not in the snapshot stays
  --force    accepts a snapshot of another format version or another kind of database
  --dry-run  shows the changes without applying them
  --yes      does not ask for confirmation before deleting anything

All options of lateral --help are accepted; DATABASE_URL selects the database.`;

async function runPart(words: readonly string[], program: Program): Promise<void> {
  const [command, ...rest] = words;
  const part = SUBCOMMANDS.get(command ?? '');
  if (!part) throw new UsageError('schema expects snapshot, diff or apply: see lateral schema --help');
  const read = program.readWords(rest, part.switches);
  if (read.operands.length > 1) throw new UsageError(`unexpected argument "${read.operands[1]}": give one file`);
  await part.run(read, program);
}

/** The status of a difference is that of a wrong option elsewhere, so here a wrong option is an error like others. */
async function schema(words: readonly string[], program: Program): Promise<void> {
  await runPart(words, program).catch((error: unknown) => {
    throw error instanceof UsageError && words[0] === 'diff' ? new StartError(error.message) : error;
  });
}

const SUBCOMMANDS = new Map([
  ['snapshot', { switches: ['json', 'policies'], run: snapshot }],
  ['diff', { switches: ['merge', 'force'], run: diff }],
  ['apply', { switches: ['merge', 'force', 'dry-run', 'yes'], run: apply }],
]);

async function snapshot(commandLine: CommandLine, program: Program): Promise<void> {
  const [file = '-'] = commandLine.operands;
  const current = await open(program, commandLine, ({ schemaChanges }) =>
    takeSnapshot(schemaChanges, { objects: true, policies: commandLine.switches.has('policies') }),
  );
  const json = commandLine.switches.has('json') || /\.json$/i.test(file);
  const text = json ? `${JSON.stringify(current.snapshot, null, 2)}\n` : writeYaml(current.snapshot);
  for (const line of current.omitted()) console.error(`left out: ${line}`);
  if (file === '-') {
    process.stdout.write(text);
    return;
  }
  await writeFile(file, text).catch(() => {
    throw new StartError(`"${file}" cannot be written`);
  });
  const { collections, fields, relations, policies } = current.snapshot;
  const counts = [
    `${collections.length} collections`,
    `${fields.length} fields`,
    `${relations.length} relations`,
    ...(policies ? [`${policies.length} policies`] : []),
  ];
  console.error(`${counts.join(', ')} written to ${file}`);
}

/** Not the exit code of an error: a script must distinguish a difference from an unreadable file. */
const DIFFERS = 2;

async function diff(commandLine: CommandLine, program: Program): Promise<void> {
  const snapshot = await readFileOf(commandLine);
  const { comparison, omitted } = await open(program, commandLine, async ({ schemaChanges }) => ({
    comparison: await compareSnapshot(schemaChanges, snapshot, modeOf(commandLine)),
    omitted: (await takeSnapshot(schemaChanges, { objects: true, policies: false })).omitted(),
  }));
  for (const line of omitted) console.error(`not compared: ${line}`);
  console.log(comparison ? describeDifference(comparison.diff) : 'No differences.');
  if (comparison) process.exitCode = DIFFERS;
}

async function apply(commandLine: CommandLine, program: Program): Promise<void> {
  const snapshot = await readFileOf(commandLine);
  await open(program, commandLine, async ({ schemaChanges }) => {
    const comparison = await compareSnapshot(schemaChanges, snapshot, modeOf(commandLine));
    if (!comparison) return console.log('No differences.');
    console.log(describeDifference(comparison.diff));
    if (commandLine.switches.has('dry-run')) return;
    if (deletes(comparison.diff) && !commandLine.switches.has('yes')) await ask();
    const confirmedDiff = JSON.stringify(comparison.diff);
    const confirm = (diff: Difference): void => {
      if (JSON.stringify(diff) !== confirmedDiff)
        throw new StartError('the schema changed in the meantime: nothing was applied');
    };
    const applied = await applySnapshot(schemaChanges, snapshot, modeOf(commandLine), {
      confirm,
      progress: showProgress,
    });
    if (process.stderr.isTTY) process.stderr.write('\r\x1b[K');
    console.log(applied ? '\nApplied.' : '\nThere are no differences left.');
  });
}

function open<Result>(
  { createObserver, readConfig, withCore }: Program,
  { environment }: CommandLine,
  work: (core: Core) => Promise<Result>,
): Promise<Result> {
  return withCore(readConfig({ ...process.env, ...environment }), createObserver('warn'), console.error, work);
}

function modeOf({ switches }: CommandLine): { readonly merge: boolean } {
  return { merge: switches.has('merge') };
}

async function readFileOf({ operands: [file], switches }: CommandLine): Promise<Snapshot> {
  if (file === undefined) throw new UsageError('a file is needed: see lateral schema --help');
  const text = await (file === '-' ? readInput() : readFile(file, 'utf8')).catch(() => {
    throw new StartError(`"${file}" cannot be read`);
  });
  // Names of types are read by it, long before a service starts.
  await prepareThread();
  return runSteps(readSnapshot(parseDocumentText(text), switches.has('force')));
}

async function readInput(): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of process.stdin) pieces.push(piece);
  return Buffer.concat(pieces).toString();
}

async function ask(): Promise<void> {
  const refusal = new StartError('nothing was applied: --yes confirms deletions, --merge deletes nothing');
  if (!process.stdin.isTTY) throw refusal;
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await terminal.question(
    '\nThis deletes everything marked with -, including its data. Continue? [y/N] ',
  );
  terminal.close();
  if (!/^y(es)?$/i.test(answer.trim())) throw refusal;
}

function deletes(difference: Difference): boolean {
  return SECTIONS.some((section) =>
    (difference[section] ?? []).some(({ diff }) => diff.some(({ kind }) => kind === 'D')),
  );
}

/** One line for each entry, one more for each property that changes. */
function describeDifference(difference: Difference): string {
  return SECTIONS.flatMap((section) =>
    (difference[section] ?? []).flatMap((entry) => describeEntry(KINDS[section], entry)),
  ).join('\n');
}

const KINDS = {
  collections: 'collection',
  fields: 'field',
  relations: 'relation',
  // The name of an object begins with its kind.
  objects: '',
  functions: 'function',
  policies: 'policy',
} as const;

const MARKS = { N: '+', D: '-', E: '~' } as const;

function describeEntry(kind: string, { name: called, collection = called, field, diff }: EntryChange): string[] {
  const name = field === undefined ? collection : `${collection}.${field}`;
  const edits = diff.flatMap((change) => (change.kind === 'E' ? describeEdit(kind, change) : []));
  const mark = MARKS[diff[0]?.kind ?? 'E'];
  return [`  ${mark} ${kind === '' ? '' : `${kind} `}${name}`, ...edits];
}

type Edit = EntryChange['diff'][number] & { readonly kind: 'E' };

/** The lists of a policy are long and have no order, so only the entries that come and go are printed. */
function describeEdit(kind: string, { path, lhs, rhs }: Edit): string[] {
  const name = path.join('.');
  if (kind !== 'policy' || !Array.isArray(lhs) || !Array.isArray(rhs))
    return [`      ${name}: ${JSON.stringify(lhs)} -> ${JSON.stringify(rhs)}`];
  const [before, after] = [lhs, rhs].map((list) => list.map((each) => JSON.stringify(each)));
  const missing = (from: readonly string[] = [], others: readonly string[] = []): string[] =>
    from.filter((each) => !others.includes(each));
  return [
    ...missing(before, after).map((each) => `      - ${name}: ${each}`),
    ...missing(after, before).map((each) => `      + ${name}: ${each}`),
  ];
}

function showProgress(step: DdlStatement, position: number, total: number): void {
  if (!process.stderr.isTTY) return;
  const share = Math.floor((25 * position) / total);
  process.stderr.write(
    `\r\x1b[K[${'#'.repeat(share).padEnd(25)}] ${position}/${total}  ${step.kind.replaceAll('-', ' ')}`,
  );
}

const RELATIONS_HELP = `Usage: lateral relations suggest [COLLECTION ...] [--apply] [--option value ...]

A foreign key gives an item its parent. This command finds what it implies for the parent: the list of its children, and, for a
table that only links two others, the many-to-many list on both sides. Existing lists are not changed. It warns about
tables that would get very many lists (those are hidden in forms) and about foreign keys without an index.

  COLLECTION  only relations from or to these collections
  --apply     writes the relations to service_fields and service_relations, in one transaction; a running service uses them
              at once. Without --apply nothing is changed

All options of lateral --help are accepted; DATABASE_URL selects the database.`;

async function relations(
  words: readonly string[],
  { createObserver, readConfig, readWords, withCore }: Program,
): Promise<void> {
  const [command, ...rest] = words;
  if (command !== 'suggest') throw new UsageError('relations expects suggest: see lateral relations --help');
  const { operands, switches, environment } = readWords(rest, ['apply']);
  await withCore(
    readConfig({ ...process.env, ...environment }),
    createObserver('warn'),
    console.error,
    async ({ schemaChanges, mirror }) => {
      const { model } = mirror;
      for (const name of operands) {
        const reason = model.refused.get(name);
        if (reason !== undefined) throw new StartError(`"${name}" is not served: it ${reason}`);
        if (!model.collections.has(name)) throw new StartError(`there is no collection "${name}"`);
      }
      const isWanted = (each: Suggestion): boolean =>
        operands.length === 0 ||
        [each.collection, each.manyCollection, each.target].some((name) => operands.includes(name));
      const apply = switches.has('apply');
      const unindexed = (await findUnindexed(schemaChanges)).filter(
        ({ schema, table }) =>
          operands.length === 0 ||
          [...model.collections.values()].some(
            (each) => each.schema === schema && each.table === table && operands.includes(each.name),
          ),
      );
      const suggestions = apply
        ? await applySuggestions(schemaChanges, isWanted)
        : suggestRelations(model).filter(isWanted);
      const hubs = hubsOf(model, suggestions);
      console.log([report(suggestions, model, apply), ...warnings(suggestions, hubs, unindexed)].join('\n'));
    },
  );
}

function report(suggestions: readonly Suggestion[], model: Model, applied: boolean): string {
  const lines = [];
  if (suggestions.length === 0) lines.push('Nothing to suggest: every foreign key has its list.');
  else {
    lines.push(...table(suggestions), '');
    const count = `${suggestions.length} ${suggestions.length === 1 ? 'relation' : 'relations'}`;
    lines.push(applied ? `${count} written.` : `${count} suggested, nothing written. Write them with --apply.`);
  }
  if (model.refused.size > 0) lines.push('', 'Not served, so without relations:');
  for (const [name, reason] of model.refused) lines.push(`  ${name}: ${reason}`);
  return lines.join('\n');
}

function warnings(suggestions: readonly Suggestion[], hubs: readonly Hub[], unindexed: readonly Unindexed[]): string[] {
  const lines: string[] = [];
  if (hubs.length > 0) lines.push('', 'Referenced by very many tables: request only a few of their lists at a time.');
  for (const { collection, lists } of hubs) lines.push(`  ${collection}: ${lists} lists`);
  const hidden = suggestions.filter((each) => each.hidden);
  if (hidden.length > 0) lines.push('', 'Hidden in forms by default:');
  for (const { collection, field } of hidden) lines.push(`  ${collection}.${field}`);
  if (unindexed.length > 0)
    lines.push('', 'Foreign keys without an index, which slows down lists and deletions; these create them:');
  for (const each of unindexed) lines.push(`  ${candidateStatement(referenceCandidate(each))}`);
  return lines;
}

function table(suggestions: readonly Suggestion[]): string[] {
  const rows = suggestions.map((each) => [
    `${each.collection}.${each.field}`,
    each.kind,
    each.kind !== 'many-to-many'
      ? `${each.manyCollection}, by its ${each.manyField}${each.columns ? ` (${each.columns.join(', ')})` : ''}`
      : `${each.target}, through ${each.manyCollection} (${each.manyField}, ${each.junctionField})` +
        (each.sortField === null ? '' : `, ordered by ${each.sortField}`),
  ]);
  const all = [['FIELD', 'KIND', 'LEADS TO'], ...rows];
  const widths = [0, 1].map((column) => Math.max(...all.map((row) => (row[column] ?? '').length)));
  return all.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}

export const COMMANDS = {
  schema: { help: SCHEMA_HELP, run: schema },
  relations: { help: RELATIONS_HELP, run: relations },
};
