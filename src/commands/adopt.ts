/** `lateral adopt`: moves an installation of Directus to this service, on the same database. */
import { type Adoption, adopt as carryOver } from '../adopt/adopt.js';
import { StartError } from '../base/errors.js';
import { createObserver } from '../base/observe.js';
import { readArguments, readConfig } from '../config/config.js';
import { withDatabase } from '../service/start.js';
import { loadGrammar } from '../sql/grammar.js';
import { verifyAdoption } from './verify.js';

export const ADOPT_HELP = `Usage: lateral adopt [--dry-run] [--activity] [--keep-references] [--option value ...]
       lateral adopt --verify URL --token TOKEN [--option value ...]

Takes over an installation of Directus (versions 10 to 12) in the database of DATABASE_URL: collections, fields, relations, roles,
policies, permissions, users with their passwords, static tokens and second factors, and settings. All of it is one transaction. The
directus_* tables stay as they are, and are not served. The command may be repeated: it updates what it has made, and takes away access that
was taken away there. It says what it does not carry over, and why.

  --dry-run          shows what would be done and changes nothing
  --activity         copies the activity and the revisions as well, which may be large
  --keep-references  leaves foreign keys to directus_users and directus_roles as they are, for as long as the other server goes on
                     writing: until the command is repeated without it, only users and files that exist there can be referred to
  --verify URL       asks the server at URL and this service the same questions, as an administrator, as the public and as a user of each role
                     that has a static token, and shows where the answers differ; exits with 1 if a difference is not explained
  --token TOKEN      the static token of an administrator there, for --verify

Stop the other server before a run without --keep-references: users that it makes later could not be referred to.

All options of lateral --help are accepted; DATABASE_URL selects the database, DATABASE_SCHEMA its schema.`;

export async function adopt(words: readonly string[]): Promise<void> {
  const { operands, switches, environment, values } = readArguments(
    words,
    ['dry-run', 'activity', 'keep-references'],
    ['verify', 'token'],
  );
  if (operands.length > 0) throw new StartError(`unexpected argument "${operands[0]}": see lateral adopt --help`);
  // A statement may copy millions of rows.
  const config = { ...readConfig({ ...process.env, ...environment }), DATABASE_STATEMENT_TIMEOUT: 0 };
  const dryRun = switches.has('dry-run');
  await loadGrammar();
  const { verify: url, token } = values;
  if (url !== undefined) {
    if (!URL.canParse(url)) throw new StartError(`--verify must look like https://directus.example.com, not "${url}"`);
    if (token === undefined) throw new StartError('--verify needs --token, the static token of an administrator there');
    if (!(await verifyAdoption(config, url, token))) process.exitCode = 1;
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
  const adoption = await withDatabase(
    config,
    createObserver('warn'),
    (message) => console.error(message),
    (database) => carryOver(database, options),
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
