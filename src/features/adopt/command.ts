/**
 * `lateral adopt` moves an installation of Directus to this service, on the same database. With `--verify` it sends the
 * same requests to both servers and reports where the responses differ.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { StartError, UsageError } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import { buildModel } from '../../compiler/model/introspect.js';
import type { Model } from '../../compiler/model/model.js';
import type { Config } from '../../server/config/config.js';
import type { Program } from '../../server/feature/command.js';
import { prepareThread } from '../../server/node/prepare-thread.js';
import { loadSchema } from '../../server/postgres/catalog/catalog.js';
import { locateSystemTables } from '../../server/postgres/catalog/migrate.js';
import { type Adoption, adopt as carryOver } from './adopt.js';
import { type Callers, compareAnswers, findCallers, type ServerAnswer, type TestCaller } from './compare.js';
import { comparable, type Item, type Question, questionsOf } from './questions.js';
import { findInstallations } from './source.js';

const ADOPT_HELP = `Usage: lateral adopt [--dry-run] [--activity] [--keep-references] [--option value ...]
       lateral adopt --verify URL --token TOKEN [--option value ...]

Takes over an installation of Directus (versions 10 to 12) in the database of DATABASE_URL: collections, fields, relations, roles,
policies, permissions, users with their passwords, static tokens and second factors, and settings. All of it is one transaction. The
command does not change the directus_* tables, and Lateral does not serve them. The command can be repeated: it updates the rows of
earlier runs, and removes access that was removed in Directus. It lists what it does not copy, with the reason.

  --dry-run          shows what would be done and changes nothing
  --activity         copies the activity and the revisions as well, which may be large
  --keep-references  leaves foreign keys to tables of Directus as they are, for use while Directus is running. Until the command is
                     repeated without it, your tables can only reference users and files that exist in Directus
  --verify URL       sends the same requests to Directus at URL and to this service, as an administrator, as the public and as a user of
                     each role that has a static token, and shows where the responses differ; exits with 1 if a difference is not explained
  --token TOKEN      the static token of an administrator of Directus, for --verify

Stop Directus before a run without --keep-references: your tables could not reference users that it creates later.

All options of lateral --help are accepted; DATABASE_URL selects the database, DATABASE_SCHEMA its schema.`;

export async function adopt(words: readonly string[], program: Program): Promise<void> {
  const { operands, switches, environment, values } = program.readWords(
    words,
    ['dry-run', 'activity', 'keep-references'],
    ['verify', 'token'],
  );
  if (operands.length > 0) throw new UsageError(`unexpected argument "${operands[0]}": see lateral adopt --help`);
  // A statement may copy millions of rows.
  const config = { ...program.readConfig({ ...process.env, ...environment }), DATABASE_STATEMENT_TIMEOUT: 0 };
  const dryRun = switches.has('dry-run');
  await prepareThread();
  const { verify: url, token } = values;
  if (url !== undefined) {
    if (!URL.canParse(url)) throw new StartError(`--verify must look like https://directus.example.com, not "${url}"`);
    if (token === undefined) throw new StartError('--verify needs --token, the static token of an administrator there');
    if (!(await verifyAdoption(program, config, { url, token }))) process.exitCode = 1;
    return;
  }
  const options = {
    system: config.SYSTEM_SCHEMA,
    dryRun,
    activity: switches.has('activity'),
    keepReferences: switches.has('keep-references'),
    progress: (step: string) => {
      if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${step} ...`);
    },
  };
  const adoption = await program.withDatabase(config, program.createObserver('warn'), console.error, (database) =>
    carryOver(database, options),
  );
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K');
  console.log(report(adoption, dryRun));
}

function report(adoption: Adoption, dryRun: boolean): string {
  const { kinds, columns, references, keptReferences, renamed, suspended, notes, unfit } = adoption;
  const lines = [`Directus ${adoption.major} in schema "${adoption.schema}"`, ''];
  const width = Math.max(...kinds.map(({ name }) => name.length));
  for (const { name, created, changed, removed = 0 } of kinds)
    lines.push(
      `  ${name.padEnd(width)}  ${created} new, ${changed} changed${removed > 0 ? `, ${removed} removed` : ''}`,
    );
  lines.push(...section('Columns of the project added to system tables:', columns));
  lines.push(...section('Foreign keys that lead to the tables of this service now:', references));
  lines.push(...section('Foreign keys left as they are (--keep-references):', keptReferences));
  if (renamed > 0) lines.push('', `${renamed} rows of many-to-any relations name a collection of this service now.`);
  if (suspended > 0) lines.push('', `${suspended} users were deleted there and are suspended here.`);
  lines.push(...section('Not carried over, or different here:', notes));
  lines.push(...section('Permissions that grant nothing:', unfit));
  const changes =
    kinds.reduce((sum, { created, changed, removed = 0 }) => sum + created + changed + removed, 0) +
    columns.length +
    references.length +
    renamed +
    suspended;
  lines.push('', outcome(changes, dryRun));
  return lines.join('\n');
}

function outcome(changes: number, dryRun: boolean): string {
  if (changes === 0) return 'Nothing to change: everything is adopted.';
  return dryRun
    ? 'Nothing was changed. Without --dry-run all of this is one transaction.'
    : 'Adopted. Start the service: passwords and static tokens are those of Directus. lateral doctor names the foreign keys without an\nindex, which Directus does not make and lists need.';
}

function section(title: string, entries: readonly string[]): string[] {
  return entries.length === 0 ? [] : ['', title, ...entries.map((entry) => `  ${entry}`)];
}

const TIMEOUT_MS = 30_000;
const AT_ONCE = 3;
/** A server that is busy is asked again. */
const ATTEMPTS = 5;
const PAUSE_MS = 1_000;
/** Examples of each kind of difference. */
const EXAMPLES = 3;

interface Difference {
  readonly caller: string;
  readonly question: Question;
  readonly explanation: string | null;
  readonly detail: string;
}

/** Answers whether every difference is explained. */
async function verifyAdoption(
  { createObserver, withDatabase, withService }: Program,
  config: Config,
  { url, token }: { readonly url: string; readonly token: string },
): Promise<boolean> {
  const old = url.replace(/\/+$/, '');
  const shown = await permissionsShown(old, token);
  const observe = createObserver('warn');
  const { model, callers, silent } = await withDatabase(config, observe, console.error, async (database) => {
    if (!(await locateSystemTables(database, config.SYSTEM_SCHEMA)))
      throw new StartError('nothing is adopted yet: run lateral adopt first');
    return database.catalog.use(async (session): Promise<Callers & { model: Model }> => {
      const { document } = await loadSchema(session, database);
      const places = await findInstallations(session, database);
      return { model: buildModel(document, 1, database), ...(await findCallers(session, places, token, shown)) };
    });
  });
  const serving: Config = {
    ...config,
    PORT: 0,
    HOST: '127.0.0.1',
    ADMIN_PORT: null,
    WORKERS: 1,
    RATE_LIMITER_ENABLED: false,
  };
  return withService(serving, observe, console.error, async (own) => {
    const questions = await makeQuestions(model, callers, old, token);
    const differences = await askAll(questions, old, own);
    console.log(describeDifferences(questions.length, differences, callers, silent));
    return differences.every(({ explanation }) => explanation !== null);
  });
}

/** The keys of the permissions that the other server applies. */
async function permissionsShown(old: string, token: string): Promise<ReadonlySet<number>> {
  const { status, body } = await send(old, { path: '/permissions?limit=-1&fields=id' }, token);
  const rows = isObject(body) ? body['data'] : null;
  if (status !== 200 || !Array.isArray(rows))
    throw new StartError(
      `--verify: ${old} answers ${status} to GET /permissions: --token must be that of an administrator`,
    );
  return new Set(rows.map((row: unknown) => (isObject(row) ? Number(row['id']) : Number.NaN)));
}

interface Asked {
  readonly caller: TestCaller;
  readonly question: Question;
}

async function makeQuestions(
  model: Model,
  callers: readonly TestCaller[],
  old: string,
  token: string,
): Promise<readonly Asked[]> {
  const questions: Asked[] = [];
  for (const collection of comparable(model)) {
    const key = encodeURIComponent(collection.key[0]?.name ?? '');
    const { body } = await send(
      old,
      { path: `/items/${encodeURIComponent(collection.name)}?limit=3&sort=${key}` },
      token,
    );
    const rows = isObject(body) && Array.isArray(body['data']) ? body['data'] : [];
    const items = rows.filter((each): each is Item => isObject(each));
    for (const caller of callers)
      for (const question of questionsOf(collection, model, items, caller.token === token))
        questions.push({ caller, question });
  }
  return questions;
}

async function askAll(questions: readonly Asked[], old: string, here: string): Promise<readonly Difference[]> {
  const differences: Difference[] = [];
  let position = 0;
  const work = async (): Promise<void> => {
    for (let next = questions[position++]; next !== undefined; next = questions[position++]) {
      const { caller, question } = next;
      const [theirs, ours] = await Promise.all([send(old, question, caller.token), send(here, question, caller.token)]);
      const found = compareAnswers(question, caller, theirs, ours);
      if (found) differences.push({ caller: caller.name, question, ...found });
      if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${position}/${questions.length} questions`);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K');
  return differences;
}

type Sent = Pick<Question, 'path' | 'body'>;

async function send(base: string, question: Sent, token: string | null): Promise<ServerAnswer> {
  for (let attempt = 1; ; attempt++) {
    const answer = await sendOnce(base, question, token);
    if (answer.status !== 503 || attempt === ATTEMPTS) return answer;
    await sleep(PAUSE_MS * attempt);
  }
}

async function sendOnce(base: string, { path, body }: Sent, token: string | null): Promise<ServerAnswer> {
  const headers: Record<string, string> = token === null ? {} : { authorization: `Bearer ${token}` };
  if (body !== undefined) headers['content-type'] = 'application/json';
  const response = await fetch(`${base}${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers,
    ...(body === undefined ? {} : { body }),
    signal: AbortSignal.timeout(TIMEOUT_MS),
  }).catch((error: unknown) => {
    throw new StartError(`${base} does not answer: ${error instanceof Error ? error.message : String(error)}`);
  });
  const text = await response.text();
  try {
    return { status: response.status, body: JSON.parse(text) };
  } catch {
    return { status: response.status, body: text };
  }
}

function describeDifferences(
  total: number,
  differences: readonly Difference[],
  callers: readonly TestCaller[],
  silent: readonly string[],
): string {
  const lines = [`${total} questions, asked by ${callers.map(({ name }) => name).join(', ')}.`];
  if (silent.length > 0) lines.push(`Not asked, since no user has a static token: ${silent.join(', ')}.`);
  const groups = new Map<string, Difference[]>();
  for (const each of differences) {
    const key = each.explanation ?? `not explained: ${each.question.kind}`;
    groups.set(key, [...(groups.get(key) ?? []), each]);
  }
  for (const [title, entries] of [...groups].sort(([one], [other]) => (one < other ? -1 : 1))) {
    lines.push('', `${entries.length} differ: ${title}`);
    const most = entries[0]?.explanation === null ? EXAMPLES * 7 : EXAMPLES;
    for (const { caller, question, detail } of entries.slice(0, most))
      lines.push(`  ${caller}: ${question.body ?? decodeURIComponent(question.path)}`, `    ${detail}`);
    if (entries.length > most) lines.push(`  and ${entries.length - most} more`);
  }
  const unexplained = differences.filter(({ explanation }) => explanation === null).length;
  lines.push('', unexplained === 0 ? 'No unexplained difference.' : `${unexplained} unexplained differences.`);
  return lines.join('\n');
}

export const COMMANDS = {
  adopt: { help: ADOPT_HELP, run: adopt },
};
