/** Builds the schema of a twin: from the statements of the statistics file, or from the scripts of migrations. */
import { readdir, readFile, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { StartError } from '../../base/errors.js';
import { codeOf, messageOf } from '../../base/narrow.js';
import { quoteIdentifier } from '../../compiler/sql/fragment.js';
import { parseStatements } from '../../compiler/sql/grammar.js';
import { prepareThread } from '../../server/node/prepare-thread.js';
import type { Database } from '../../server/postgres/pools/database.js';
import type { Session } from '../../server/postgres/pools/sessions.js';
import type { StatisticsFile, StructureStatement } from './statistics-file.js';

/** A part of the structure that could not be built, and the reason in PostgreSQL's words. */
export interface Unbuilt {
  readonly kind: string;
  readonly name: string;
  readonly reason: string;
}

export interface Script {
  readonly name: string;
  readonly text: string;
}

interface Scripts {
  readonly migrations: readonly Script[] | null;
  readonly pending: readonly Script[];
}

export async function buildStructure(
  database: Database,
  { structure }: StatisticsFile,
  { migrations, pending }: Scripts,
): Promise<readonly Unbuilt[]> {
  return database.own.use(async (session) => {
    const path = String((await session.cell('show search_path', [], false)) ?? '');
    let unbuilt: readonly Unbuilt[] = [];
    if (migrations === null) {
      await session.query("set check_function_bodies = off; set search_path = ''");
      unbuilt = await runInAnyOrder(session, structure);
      await session.query(`reset check_function_bodies; set search_path = ${path}`);
    }
    for (const script of [...(migrations ?? []), ...pending]) await runScript(session, script, path);
    return unbuilt;
  });
}

/** Objects need others. Statements that fail are repeated as long as others succeed. */
async function runInAnyOrder(session: Session, structure: readonly StructureStatement[]): Promise<readonly Unbuilt[]> {
  let pending = structure;
  for (;;) {
    const failed: (readonly [StructureStatement, string])[] = [];
    for (const group of groupsOf(pending)) failed.push(...(await runGroup(session, group)));
    if (failed.length === 0) return [];
    if (failed.length === pending.length) return failed.map(([[kind, name], reason]) => ({ kind, name, reason }));
    pending = failed.map(([statement]) => statement);
  }
}

/** Statements of one kind that follow each other: mostly all of them succeed. */
function groupsOf(structure: readonly StructureStatement[]): StructureStatement[][] {
  const groups: StructureStatement[][] = [];
  for (const statement of structure) {
    const last = groups.at(-1);
    if (last?.[0]?.[0] === statement[0]) last.push(statement);
    else groups.push([statement]);
  }
  return groups;
}

async function runGroup(
  session: Session,
  group: readonly StructureStatement[],
): Promise<(readonly [StructureStatement, string])[]> {
  try {
    await session.query(group.map(([, , text]) => text).join(';\n'));
    return [];
  } catch (error) {
    if (group.length === 1) return exists(error) ? [] : group.map((each) => [each, messageOf(error)] as const);
    const half = Math.ceil(group.length / 2);
    return [...(await runGroup(session, group.slice(0, half))), ...(await runGroup(session, group.slice(half)))];
  }
}

/** Errors for a schema, table, function, type or constraint that exists already: the service or another statement has created it. */
const EXISTS: ReadonlySet<string> = new Set(['42P06', '42P07', '42710', '42723', '42701', '42P16']);

function exists(error: unknown): boolean {
  return EXISTS.has(codeOf(error));
}

async function runScript(session: Session, { name, text }: Script, path: string): Promise<void> {
  const script = withoutConcurrently(text);
  try {
    await runWithRoles(session, script).catch((error: unknown) => {
      if (!exists(error) || !OWN_PART.test(script)) throw error;
      return runWithoutOwnParts(session, script);
    });
    await session.query(`set search_path = ${path}`);
  } catch (error) {
    throw new StartError(`${name} cannot be run on the twin: ${messageOf(error)}`);
  }
}

/** The roles are superusers, because only these own event triggers. */
async function runWithRoles(session: Session, script: string): Promise<void> {
  for (let role = await runUnlessRoleMissing(session, script); role !== null; ) {
    await session.query(`create role ${quoteIdentifier(role)} superuser`);
    role = await runUnlessRoleMissing(session, script);
  }
}

/** Names a table or function of the service. */
const OWN_PART = /\bservice_\w/;

/** A statement of a script, by its bytes. */
interface StatementBytes {
  readonly stmt_location?: number;
  readonly stmt_len?: number;
}

/** A dump of a database that the service uses has the tables and functions of the service, which the twin has already. */
async function runWithoutOwnParts(session: Session, script: string): Promise<void> {
  await prepareThread();
  const bytes = Buffer.from(script);
  for (const { stmt_location: begin = 0, stmt_len: length = bytes.length } of parseStatements<StatementBytes>(script)) {
    const statement = bytes.subarray(begin, begin + length).toString();
    try {
      await runWithRoles(session, statement);
    } catch (error) {
      const isThere = exists(error) || codeOf(error) === ALREADY_IDENTITY;
      if (!isThere || !(OWN_PART.test(statement) || codeOf(error) === DUPLICATE_SCHEMA)) throw error;
    }
  }
}

const DUPLICATE_SCHEMA = '42P06';
const ALREADY_IDENTITY = '55000';

/** Owners and grants name roles of production, which the twin has not. Returns the role that is missing, or null if the script was run. */
async function runUnlessRoleMissing(session: Session, script: string): Promise<string | null> {
  try {
    await session.query(script);
    return null;
  } catch (error) {
    const [, role] = /^role "(.+)" does not exist$/.exec(messageOf(error)) ?? [];
    if (codeOf(error) !== UNDEFINED_OBJECT || role === undefined) throw error;
    await session.query('rollback');
    return role;
  }
}

const UNDEFINED_OBJECT = '42704';

/** It needs a transaction of its own, and the twin has no other users. */
function withoutConcurrently(text: string): string {
  return text
    .replace(/\b((?:create\s+(?:unique\s+)?|drop\s+)index)\s+concurrently\b/gi, '$1')
    .replace(/\b(reindex\s*(?:\([^)]*\)\s*|\s)(?:index|table|schema|database))\s+concurrently\b/gi, '$1')
    .replace(/\b(detach\s+partition\s+(?:"[^"]*"|[^\s;"])+)\s+concurrently\b/gi, '$1');
}

/** The part that undoes a migration follows these lines, and stays out. */
const UNDO = /^--\s*(?:migrate:down|\+goose\s+down)\b[\s\S]*/im;

/** pg_dump frames its scripts with these commands of psql, which PostgreSQL does not know. */
const PSQL_FRAME = /^\\(?:un)?restrict\b.*$/gm;

/** The .sql files of a folder in the order of their names, numbers by value; or one file. */
export async function readScripts(path: string): Promise<readonly Script[]> {
  const found = await stat(path).catch(() => {
    throw new StartError(`"${path}" cannot be read`);
  });
  if (!found.isDirectory()) return [await readScript(path)];
  const names = (await readdir(path)).filter((name) => name.endsWith('.sql') && !name.endsWith('.down.sql'));
  if (names.length === 0) throw new StartError(`"${path}" has no .sql files`);
  const order = new Intl.Collator('en', { numeric: true });
  return Promise.all(names.sort(order.compare).map((name) => readScript(join(path, name))));
}

async function readScript(path: string): Promise<Script> {
  const text = await readFile(path, 'utf8').catch(() => {
    throw new StartError(`"${path}" cannot be read`);
  });
  return { name: basename(path), text: text.replace(UNDO, '').replace(PSQL_FRAME, '') };
}
