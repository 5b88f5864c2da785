/** Golden files: statements with their parameters, to be read by people. UPDATE_GOLDEN=1 writes them again. */
import { readdir, readFile, writeFile } from 'node:fs/promises';
import type { Test } from 'tap';
import { packagePath } from '../../src/base/package-files.js';
import { pretty } from '../../src/compiler/sql/pretty.js';
import { ADMIN_TOKEN, request } from './service.js';
import type { StatementRecorder } from './statement-recorder.js';

export type GoldenFolder = 'reads' | 'writes' | 'keys' | 'schema' | 'functions';

export const GOLDEN_FOLDERS: readonly GoldenFolder[] = ['reads', 'writes', 'keys', 'schema', 'functions'];

/** A statement in lines, below the values of its parameters. */
export function goldenStatement(text: string, parameters: readonly unknown[]): string {
  const lines = parameters.map((value, position) => `-- $${position + 1} = ${literal(value)}\n`);
  return `${lines.join('')}${pretty(text)}`;
}

function literal(value: unknown): string {
  return value === null ? 'null' : `'${String(value).replaceAll("'", "''")}'`;
}

export async function compareGolden(t: Test, folder: GoldenFolder, name: string, content: string): Promise<void> {
  const file = packagePath('test', 'golden', folder, `${name}.sql`);
  const lines = content.split('\n').flatMap(wrapComment);
  const text = lines.join('\n');
  if (process.env['UPDATE_GOLDEN']) await writeFile(file, text);
  t.equal(text, await readFile(file, 'utf8'));
  const longest = lines.find((line) => line.length > MAX_LINE);
  t.equal(longest, undefined, `no line has more than ${MAX_LINE} characters`);
}

/** Longer lines cannot be reviewed. */
const MAX_LINE = 160;

/** Breaks requests and values, which are comments, behind a comma if there is one. */
function wrapComment(line: string): readonly string[] {
  if (!line.startsWith('-- ') || line.length <= MAX_LINE) return [line];
  const [first = '', ...rest] = line.match(/.{1,115}(?:,|$)|.{1,116}/g) ?? [];
  return [first, ...rest.map((part) => `--   ${part}`)];
}

export interface GoldenRequest {
  readonly method: 'GET' | 'SEARCH' | 'POST' | 'PATCH' | 'DELETE';
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /** Stands for a body that would be too long to read. */
  readonly shown?: string;
}

/**
 * Statements that are no answer to a request: those of the folder sql, which begin with a comment and can be read there, and
 * what connections send when they open, were idle, or listen, what the service does for webhooks after a change of the
 * schema, and the regular question whether its tables are there.
 */
const LEFT_OUT =
  /^(-- |set |select 1$|select pg_listening_channels\(\))|\bservice_webhook|\bas (may_install|installed)\b/;

/** Sends a request that has to succeed; answers the statements that the service sent for it. */
export async function recordRequest(
  t: Test,
  { service, recorder }: { readonly service: { readonly url: string }; readonly recorder: StatementRecorder },
  { method, path, body, headers = {}, shown }: GoldenRequest,
  token = ADMIN_TOKEN,
): Promise<string> {
  const text = body === undefined ? '' : JSON.stringify(body);
  const sent = await recorder.during(async () => {
    const own = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(text)) };
    const answer = await request(service, method, path, { headers: { ...own, ...headers }, body: text, token });
    // The tags of a recorded request are those of no row.
    const isMatched = headers['if-match'] !== undefined;
    const expected = isMatched ? [412] : [200, 204];
    t.ok(expected.includes(answer.status), `${answer.status} ${answer.text.slice(0, 1_000)}`);
    if (!isMatched) t.notMatch(answer.json, { errors: Array });
  });
  const lines = [
    `-- ${method} ${path} ${shown ?? text}`.trim(),
    ...Object.entries(headers).map(([header, value]) => `-- ${header}: ${value}`),
    '',
  ];
  const statements = sent.filter((statement) => !LEFT_OUT.test(statement.text));
  t.not(statements.length, 0);
  return `${lines.join('\n')}${statements.map((each) => `\n${goldenStatement(`${each.text};`, each.parameters)}`).join('')}`;
}

/** The names of the files in a folder. */
export async function goldenNames(folder: GoldenFolder): Promise<readonly string[]> {
  const files = await readdir(packagePath('test', 'golden', folder));
  return files.map((file) => file.replace(/\.sql$/, '')).sort();
}

export function readGolden(folder: GoldenFolder, name: string): Promise<string> {
  return readFile(packagePath('test', 'golden', folder, `${name}.sql`), 'utf8');
}
