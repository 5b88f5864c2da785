/** The part of `lateral doctor` about DATABASE_CALLER: the login, the database roles of callers, and the policies of row-level security. */
import { parseOwnJson } from '../base/narrow.js';
import { candidateStatement, referenceCandidate } from '../compile/index-candidates.js';
import type { Config } from '../config/config.js';
import { loginObstacle, unreadableTables } from '../postgres/catalog/caller-login.js';
import { systemTables } from '../postgres/catalog/system-tables.js';
import type { Database } from '../postgres/pools/database.js';
import { quoteIdentifier } from '../sql/fragment.js';
import { readSql } from '../sql/read-sql.js';
import { type CheckStatus, count, type Detail, type Finding, finding } from './diagnosis.js';

const FACTS = readSql('doctor-callers.sql');

/** The result of sql/doctor-callers.sql. */
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
  readonly unindexed: readonly string[];
}

/** `installed`: whether the service's own tables are there. */
export async function examineCallers(
  config: Config,
  database: Database,
  installed: boolean,
): Promise<readonly Finding[]> {
  const { DATABASE_CALLER: mode } = config;
  if (mode === 'service') return [];
  const roles = mode === 'role' ? await databaseRoles(config, database, installed) : [];
  const parameters = [
    JSON.stringify(database.schemas),
    installed ? database.system : '',
    JSON.stringify(roles),
    JSON.stringify([...systemTables()]),
  ];
  const cell = await database.own.use((session) => session.cell(FACTS, parameters));
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
  return [
    ...(bare.length === 0
      ? []
      : [say('note', `no policy shows any row of ${bare.map(({ name }) => name).join(', ')}`)]),
    ...(unindexed.length === 0 ? [] : [say('note', 'policies read columns without an index', unindexed)]),
    ...(repeated.length === 0 ? [] : [say('note', 'policies call a function for each row', repeated)]),
  ];
}

/** A call that PostgreSQL repeats for each row, or null: within a select of its own it is made once. */
function callPerRow(condition: string): string | null {
  const outside = condition.replaceAll(/\( SELECT (?:[^()]|\([^()]*(?:\([^()]*\))?[^()]*\))*\)/g, '');
  return /\b(?:current_setting\((?:[^()]*)\)|\w+\.\w+\(\))/.exec(outside)?.[0] ?? null;
}
