/** `lateral doctor`: what is right and wrong with a database and the role that serves it. It changes nothing. */

import { StartError, UsageError } from '../../base/errors.js';
import { asError, parseOwnJson } from '../../base/narrow.js';
import { buildModel } from '../../compiler/model/introspect.js';
import { quoteIdentifier } from '../../compiler/sql/fragment.js';
import type { Config } from '../../server/config/config.js';
import { envFile } from '../../server/config/env-file.js';
import type { Misspelt } from '../../server/config/misspelt.js';
import type { Program } from '../../server/feature/command.js';
import { type CheckStatus, count, type Detail, type Finding, finding } from '../../server/feature/finding.js';
import { chooseTransport } from '../../server/http/listen.js';
import { prepareThread } from '../../server/node/prepare-thread.js';
import { loginObstacle, unreadableTables } from '../../server/postgres/catalog/caller-login.js';
import { findOtherSchemas, loadSchema } from '../../server/postgres/catalog/catalog.js';
import { findLeftovers } from '../../server/postgres/catalog/leftovers.js';
import { locateSystemTables } from '../../server/postgres/catalog/migrate.js';
import { findMissingGrant } from '../../server/postgres/catalog/missing-grants.js';
import { systemTables } from '../../server/postgres/catalog/system-tables.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { readSql } from '../../server/postgres/read-sql.js';
import { candidateStatement, referenceCandidate } from '../../server/schema/index-statement.js';
import { loadUnindexed } from '../../server/schema/unindexed.js';
import { type Examined, type Facts, findingsOf } from './diagnosis.js';
import { policyFaults } from './policy-faults.js';

const DOCTOR_HELP = `Usage: lateral doctor [--json] [--option value ...]

Checks a database and the role of DATABASE_URL, and prints the SQL that fixes a problem: connection, schemas, tables that are not served,
keys, names, privileges, row-level security (with DATABASE_CALLER), foreign keys without an index, functions, what snapshots leave out,
extensions, settings, replicas and live queries. It changes nothing and can be run before the first start.

  --json  prints the findings as JSON: {"ok", "problems", "notes", "findings": [{"section", "status", "message", "details"}]}

Exits with 0 if there are no problems, with 1 if there are. Notes are not problems.

All options of lateral --help are accepted; DATABASE_URL selects the database.`;

const FACTS = readSql('features', 'doctor', 'doctor.sql');

async function doctor(words: readonly string[], program: Program): Promise<void> {
  const { operands, switches, environment } = program.readWords(words, ['json']);
  if (operands.length > 0) throw new UsageError(`unexpected argument "${operands[0]}": see lateral doctor --help`);
  // The command reports the current state.
  const config: Config = { ...program.readConfig({ ...process.env, ...environment }), DATABASE_START_TIMEOUT: 0 };
  const examined = await examine(config, program).catch((error: unknown): readonly Finding[] => {
    if (!(error instanceof StartError)) throw error;
    return [finding('Connection', 'problem', error.message)];
  });
  const findings = [...examineOptions(program.misspelt(process.env)), ...examined];
  const number = (status: CheckStatus): number => findings.filter((each) => each.status === status).length;
  const [problems, notes] = [number('problem'), number('note')];
  if (switches.has('json')) console.log(JSON.stringify({ ok: problems === 0, problems, notes, findings }, null, 2));
  else console.log(`${report(findings)}\n\n${summary(problems, notes)}`);
  if (problems > 0) process.exitCode = 1;
}

async function examine(
  config: Config,
  { createObserver, withDatabase, diagnose }: Program,
): Promise<readonly Finding[]> {
  await prepareThread();
  return withDatabase(config, createObserver('error'), console.error, async (database) => {
    const examined = await lookAt(database, config);
    return [
      ...findingsOf(examined),
      ...(await examineCallers(config, database, examined.installed)),
      ...policyFaults(examined),
      ...(await examineServer(config)),
      ...examineHosts(database),
      ...(await diagnose(examined)),
    ];
  });
}

async function lookAt(database: Database, config: Config): Promise<Examined> {
  const installed = await locateSystemTables(database, config.SYSTEM_SCHEMA);
  const others = await findOtherSchemas(database);
  const leftovers = await findLeftovers(database);
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
      database,
      facts: parseOwnJson<Facts>(String(text)),
      model,
      declared: document.function_rows ?? [],
      installed,
      unindexed: await loadUnindexed(cell, model),
      others,
      leftovers,
      missingGrant: installed ? null : await findMissingGrant(session, config.SYSTEM_SCHEMA ?? database.schema),
    };
  });
}

/** Variables that the service does not read, although they look like options. */
function examineOptions(misspelt: readonly Misspelt[]): readonly Finding[] {
  const file = envFile();
  return [
    ...(file === null ? [] : [finding('Options', 'ok', `${file.path} sets ${file.names.join(', ') || 'nothing'}`)]),
    ...misspelt.map(({ name, meant }) =>
      finding('Options', 'note', `there is no option ${name}: did you mean ${meant}?`),
    ),
  ];
}

/** The server that requests would get. */
async function examineServer(config: Config): Promise<readonly Finding[]> {
  const chosen = await chooseTransport(config).catch(asError);
  if (chosen instanceof Error) return [finding('Server', 'problem', `SERVER=${config.SERVER}: ${chosen.message}`)];
  const { transport, obstacle } = chosen;
  if (transport.name === 'uws') return [finding('Server', 'ok', 'uWebSockets serves requests')];
  if (obstacle === null) return [finding('Server', 'ok', 'node:http serves requests (SERVER=node)')];
  return [finding('Server', 'note', `node:http serves requests, which is slower: ${obstacle}`)];
}

/** Hosts of DATABASE_URL that a failover would not move to. */
function examineHosts({ primary }: Database): readonly Finding[] {
  return (primary?.foreign ?? []).map((message) =>
    finding('Connection', 'problem', `host ${message}: it is not used. Correct DATABASE_URL`),
  );
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

const CALLER_FACTS = readSql('features', 'doctor', 'doctor-callers.sql');

/** The result of sql/features/doctor/doctor-callers.sql. */
interface CallerFacts {
  readonly roles: readonly RoleFacts[];
  /** Tables with row-level security. */
  readonly tables: readonly SecuredTable[];
}

interface SecuredTable {
  /** With its schema, quoted. */
  readonly name: string;
  readonly schema: string;
  readonly table: string;
  readonly partitioned: boolean;
  readonly policies: readonly Policy[];
}

interface RoleFacts {
  readonly name: string;
  readonly exists: boolean;
  /** Whether the login of the service may become the role. */
  readonly member: boolean;
  /** Whether row-level security does not bind it. */
  readonly bypasses: boolean;
  /** Schemas that it may not use. */
  readonly closed: readonly string[];
  /** Tables that it may not read. */
  readonly denied: readonly string[];
  /** Sequences that it may not use, of columns whose default it needs for new rows. */
  readonly unnumbered: readonly string[];
  /** Tables of the service that it may not read, and that its tables refer to. */
  readonly system: readonly string[];
}

interface Policy {
  readonly name: string;
  readonly condition: string | null;
  /** Functions that read the caller, though they are declared immutable. */
  readonly immutable: readonly string[];
  readonly unindexed: readonly string[];
}

/**
 * The part about DATABASE_CALLER: the login, the database roles of callers, and the policies of row-level security. `installed`: whether
 * the service's own tables exist.
 */
async function examineCallers(config: Config, database: Database, installed: boolean): Promise<readonly Finding[]> {
  const { DATABASE_CALLER: mode } = config;
  if (mode === 'service') return [];
  const roles = mode === 'role' ? await databaseRoles(config, database, installed) : [];
  const parameters = [
    JSON.stringify(database.schemas),
    installed ? database.system : '',
    JSON.stringify(roles),
    JSON.stringify([...systemTables()]),
  ];
  const cell = await database.own.use((session) => session.cell(CALLER_FACTS, parameters));
  const facts = parseOwnJson<CallerFacts>(String(cell));
  const obstacle = await loginObstacle(database, []);
  const [login] = await database.rows<{ login: string }>('select current_user as login');
  return [
    obstacle === null
      ? say('ok', `DATABASE_CALLER is ${mode}, and row-level security binds ${login?.login}`)
      : say('problem', `the service does not start: ${obstacle}`),
    ...(mode === 'role' ? examineLogin(login?.login ?? '', await unreadableTables(database)) : []),
    ...facts.roles.flatMap((role) => examineRole(role, login?.login ?? '')),
    ...examinePolicies(facts.tables),
  ];
}

function say(status: CheckStatus, message: string, details: readonly Detail[] = []): Finding {
  return finding('Row-level security', status, message, details);
}

function examineLogin(login: string, tables: readonly string[]): Finding[] {
  if (tables.length === 0) return [];
  const details = tables.map((name) => ({
    name,
    message: `no privilege of ${login}`,
    fix: `grant select, insert, update, delete on ${name} to ${quoteIdentifier(login)};`,
  }));
  const message = `administrators without a database role may not read ${count(tables.length, 'table', 'tables')}: set database_role of their role, or grant ${login} the privileges`;
  return [say('note', message, details)];
}

/** The roles of the options, and those of service_roles, which has none before the first start. */
async function databaseRoles(config: Config, database: Database, installed: boolean): Promise<string[]> {
  const { DATABASE_ANON_ROLE: anon, DATABASE_ROLES: listed } = config;
  const stored = installed
    ? await database
        .rows<{ role: string }>(
          'select distinct database_role as role from service_roles where database_role is not null',
        )
        .catch(() => [])
    : [];
  return [...new Set([...(anon === null ? [] : [anon]), ...listed, ...stored.map(({ role }) => role)])];
}

function examineRole(facts: RoleFacts, login: string): Finding[] {
  const { name, exists, member, bypasses, closed } = facts;
  const role = quoteIdentifier(name);
  const problem = (message: string, fix: string): Finding[] => [
    say('problem', `role ${name}: its callers get errors`, [{ name, message, fix }]),
  ];
  if (!exists) return problem('it does not exist', `create role ${role} nologin;`);
  if (!member) return problem(`${login} cannot become it`, `grant ${role} to ${quoteIdentifier(login)};`);
  if (bypasses) return problem('row-level security does not bind it', `alter role ${role} nosuperuser nobypassrls;`);
  const usage = closed.map((schema) => `grant usage on schema ${quoteIdentifier(schema)} to ${role};`);
  if (usage.length > 0) return problem(`it may not use ${closed.join(', ')}`, usage.join(' '));
  return examineGrants(facts, role);
}

function examineGrants({ name, denied, unnumbered, system }: RoleFacts, role: string): Finding[] {
  const lacks = (list: readonly string[], message: string, grant: (each: string) => string): Detail[] =>
    list.map((each) => ({ name: each, message, fix: `grant ${grant(each)} to ${role};` }));
  const tables = lacks(denied, 'no privilege to read', (table) => `select on ${table}`);
  const sequences = lacks(unnumbered, 'no privilege to use', (each) => `usage on sequence ${each}`);
  const own = lacks(system, 'no privilege for fields of related items', (table) => `select (id) on ${table}`);
  return [
    tables.length === 0
      ? say('ok', `role ${name} may read every table`)
      : say('note', `role ${name} may not read ${count(tables.length, 'table', 'tables')}`, tables),
    ...(sequences.length === 0 ? [] : [say('note', `role ${name} cannot create items without a key`, sequences)]),
    ...(own.length === 0 ? [] : [say('note', `role ${name} cannot read related system items`, own)]),
  ];
}

function examinePolicies(tables: CallerFacts['tables']): Finding[] {
  const bare = tables.filter(({ policies }) => policies.length === 0);
  const each = tables.flatMap(({ name, policies }) => policies.map((policy) => ({ table: name, ...policy })));
  const policiesOf = tables.flatMap(({ policies, ...table }) => policies.map((policy) => ({ table, policy })));
  const unindexed = policiesOf.flatMap(({ table, policy: { name, unindexed: columns } }) =>
    columns.map((column) => ({
      name: table.name,
      message: `policy ${name} reads ${column}`,
      fix: candidateStatement(referenceCandidate({ ...table, columns: [column] })),
    })),
  );
  const repeated = each.flatMap(({ table, name, condition }) => {
    const call = callPerRow(condition ?? '');
    return call === null ? [] : [{ name: table, message: `policy ${name}: write (select ${call}) instead of ${call}` }];
  });
  const immutable = each.flatMap(({ table, name, immutable: functions }) =>
    functions.map((called) => ({
      name: table,
      message: `policy ${name} calls ${called}`,
      fix: `alter function ${called} stable;`,
    })),
  );
  const shared =
    'policies call immutable functions that read the caller: PostgreSQL may use the result of another caller';
  return [
    ...(immutable.length === 0 ? [] : [say('problem', shared, immutable)]),
    ...(bare.length === 0
      ? []
      : [say('note', `no policy shows any row of ${bare.map(({ name }) => name).join(', ')}`)]),
    ...(unindexed.length === 0 ? [] : [say('note', 'policies read columns without an index', unindexed)]),
    ...(repeated.length === 0 ? [] : [say('note', 'policies call a function for each row', repeated)]),
  ];
}

/** Returns a call that PostgreSQL repeats for each row, or null. PostgreSQL makes a call in a subselect only once. */
function callPerRow(condition: string): string | null {
  const outside = condition.replaceAll(/\( SELECT (?:[^()]|\([^()]*(?:\([^()]*\))?[^()]*\))*\)/g, '');
  return /\b(?:current_setting\((?:[^()]*)\)|\w+\.\w+\(\))/.exec(outside)?.[0] ?? null;
}

export const COMMANDS = {
  doctor: { help: DOCTOR_HELP, run: doctor },
};
