/** `lateral doctor`: what is right and wrong with a database and the role that serves it. It changes nothing. */

import { StartError } from '../base/errors.js';
import { parseOwnJson } from '../base/narrow.js';
import { createObserver } from '../base/observe.js';
import { type Config, readArguments, readConfig } from '../config/config.js';
import { buildModel } from '../mirror/introspect.js';
import { findOtherSchemas, loadSchema } from '../postgres/catalog/catalog.js';
import { locateSystemTables } from '../postgres/catalog/migrate.js';
import { systemTables } from '../postgres/catalog/system-tables.js';
import type { Database } from '../postgres/pools/database.js';
import { readOmissions } from '../schema/snapshot/snapshots.js';
import { loadUnindexed } from '../schema/suggest/suggested-relations.js';
import { withDatabase } from '../service/start.js';
import { loadGrammar } from '../sql/grammar.js';
import { readSql } from '../sql/read-sql.js';
import { diagnose, type Examined, type Facts } from './diagnosis.js';
import type { CheckStatus, Finding } from './findings.js';
import { examineLive } from './live-findings.js';
import { examineHosts, examineReplicas } from './replica-findings.js';

export const DOCTOR_HELP = `Usage: lateral doctor [--json] [--option value ...]

Checks a database and the role of DATABASE_URL, and prints the SQL that fixes a problem: connection, schemas, tables that are not served,
keys, names, privileges, foreign keys without an index, functions, what snapshots leave out, extensions, settings, replicas and live
queries. It changes nothing and can be run before the first start.

  --json  prints the findings as JSON: {"ok", "problems", "notes", "findings": [{"section", "status", "message", "details"}]}

Exits with 0 if there are no problems, with 1 if there are. Notes are not problems.

All options of lateral --help are accepted; DATABASE_URL selects the database.`;

const FACTS = readSql('doctor.sql');

export async function doctor(words: readonly string[]): Promise<void> {
  const { operands, switches, environment } = readArguments(words, ['json']);
  if (operands.length > 0) throw new StartError(`unexpected argument "${operands[0]}": see lateral doctor --help`);
  // The command reports the current state.
  const config: Config = { ...readConfig({ ...process.env, ...environment }), DATABASE_START_TIMEOUT: 0 };
  const findings = await examine(config).catch((error: unknown): readonly Finding[] => {
    if (!(error instanceof StartError)) throw error;
    return [{ section: 'Connection', status: 'problem', message: error.message, details: [] }];
  });
  const number = (status: CheckStatus): number => findings.filter((each) => each.status === status).length;
  const [problems, notes] = [number('problem'), number('note')];
  if (switches.has('json')) console.log(JSON.stringify({ ok: problems === 0, problems, notes, findings }, null, 2));
  else console.log(`${report(findings)}\n\n${summary(problems, notes)}`);
  if (problems > 0) process.exitCode = 1;
}

async function examine(config: Config): Promise<readonly Finding[]> {
  await loadGrammar();
  return withDatabase(
    config,
    createObserver('error'),
    (message) => console.error(message),
    async (database) => {
      const examined = await lookAt(database, config);
      return [
        ...diagnose(examined),
        ...examineHosts(database),
        ...(await examineReplicas(config, database)),
        ...(await examineLive(config, database, examined)),
      ];
    },
  );
}

async function lookAt(database: Database, config: Config): Promise<Examined> {
  const installed = await locateSystemTables(database, config.SYSTEM_SCHEMA);
  const others = await findOtherSchemas(database);
  return database.catalog.use(async (session) => {
    const { document } = await loadSchema(session, database, true);
    const cell = (statement: string, parameters: readonly string[]): Promise<Buffer | null> =>
      session.cell(statement, parameters);
    const schemas = JSON.stringify(database.schemas);
    const ours = installed ? database.system : '';
    const model = buildModel(document, 1, database);
    const called = [...model.functions.values()].flatMap(({ overloads }) => overloads);
    const functions = JSON.stringify(called.map((each) => [each.schema, each.function]));
    const text = await cell(FACTS, [schemas, ours, JSON.stringify([...systemTables()]), functions]);
    return {
      config,
      facts: parseOwnJson<Facts>(String(text)),
      model,
      declared: document.function_rows ?? [],
      installed,
      unindexed: await loadUnindexed(cell, database.schemas),
      others,
      omissions: await readOmissions(cell, model, document.function_rows ?? []),
    };
  });
}

const MARKS: Readonly<Record<CheckStatus, string>> = { ok: 'ok', note: 'note', problem: 'PROBLEM' };
const WIDTH = 9;

/** By section, in the order in which they come up first; below a problem, what it is about and how to solve it. */
function report(findings: readonly Finding[]): string {
  const sections = new Map<string, Finding[]>();
  for (const each of findings) sections.set(each.section, [...(sections.get(each.section) ?? []), each]);
  return [...sections].map(([section, entries]) => [section, ...entries.flatMap(linesOf)].join('\n')).join('\n\n');
}

function linesOf({ status, message, details }: Finding): string[] {
  const indent = ' '.repeat(2 + WIDTH);
  const width = Math.max(0, ...details.map(({ name }) => name.length));
  return [
    `  ${MARKS[status].padEnd(WIDTH)}${wrap(message, indent)}`,
    ...details.flatMap(({ name, message, fix }) => [
      `${indent}${name.padEnd(width)}  ${message}`,
      ...(fix === undefined ? [] : [`${indent}  ${fix}`]),
    ]),
  ];
}

const LINE = 110;

function wrap(message: string, indent: string): string {
  const lines = [''];
  for (const word of message.split(' ')) {
    const last = lines.at(-1) ?? '';
    if (last !== '' && indent.length + last.length + word.length >= LINE) lines.push(word);
    else lines[lines.length - 1] = last === '' ? word : `${last} ${word}`;
  }
  return lines.join(`\n${indent}`);
}

function summary(problems: number, notes: number): string {
  const noted = notes === 0 ? '' : `, ${notes} ${notes === 1 ? 'note' : 'notes'}`;
  if (problems === 0) return `No problems${noted}.`;
  return `${problems} ${problems === 1 ? 'problem' : 'problems'}${noted}.`;
}
