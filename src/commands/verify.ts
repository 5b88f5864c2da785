/** `lateral adopt --verify`: asks the other server and this one the same questions, and says where the answers differ. */

import { setTimeout as sleep } from 'node:timers/promises';
import { type Askers, findAskers } from '../adopt/askers.js';
import { type Asker, compareAnswers, type ServerAnswer } from '../adopt/compare.js';
import { comparable, type Item, type Question, questionsOf } from '../adopt/questions.js';
import { findInstallations } from '../adopt/source.js';
import { StartError } from '../base/errors.js';
import { isObject } from '../base/exact-json.js';
import { createObserver } from '../base/observe.js';
import type { Config } from '../config/config.js';
import { buildModel } from '../mirror/introspect.js';
import type { Model } from '../mirror/model.js';
import { loadSchema } from '../postgres/catalog/catalog.js';
import { locateSystemTables } from '../postgres/catalog/migrate.js';
import { startService, withDatabase } from '../service/start.js';

const TIMEOUT_MS = 30_000;
const AT_ONCE = 3;
/** A server that is busy is asked again. */
const ATTEMPTS = 5;
const PAUSE_MS = 1_000;
/** Examples of each kind of difference. */
const EXAMPLES = 3;

interface Difference {
  readonly asker: string;
  readonly question: Question;
  readonly explanation: string | null;
  readonly detail: string;
}

/** Answers whether every difference is explained. */
export async function verifyAdoption(config: Config, url: string, token: string): Promise<boolean> {
  const old = url.replace(/\/+$/, '');
  const shown = await permissionsShown(old, token);
  const observe = createObserver('warn');
  const { model, askers, silent } = await withDatabase(config, observe, console.error, async (database) => {
    if (!(await locateSystemTables(database, config.SYSTEM_SCHEMA)))
      throw new StartError('nothing is adopted yet: run lateral adopt first');
    return database.catalog.use(async (session): Promise<Askers & { model: Model }> => {
      const { document } = await loadSchema(session, database);
      const places = await findInstallations(session, database);
      return { model: buildModel(document, 1, database), ...(await findAskers(session, places, token, shown)) };
    });
  });
  const service = await startService(
    { ...config, PORT: 0, HOST: '127.0.0.1', ADMIN_PORT: null, WORKERS: 1, RATE_LIMITER_ENABLED: false },
    observe,
    console.error,
  );
  try {
    const questions = await makeQuestions(model, askers, old, token);
    const differences = await askAll(questions, old, service.url);
    console.log(report(questions.length, differences, askers, silent));
    return differences.every(({ explanation }) => explanation !== null);
  } finally {
    await service.stop();
  }
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
  readonly asker: Asker;
  readonly question: Question;
}

async function makeQuestions(
  model: Model,
  askers: readonly Asker[],
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
    for (const asker of askers)
      for (const question of questionsOf(collection, model, items, asker.token === token))
        questions.push({ asker, question });
  }
  return questions;
}

async function askAll(questions: readonly Asked[], old: string, here: string): Promise<readonly Difference[]> {
  const differences: Difference[] = [];
  let position = 0;
  const work = async (): Promise<void> => {
    for (let next = questions[position++]; next !== undefined; next = questions[position++]) {
      const { asker, question } = next;
      const [theirs, ours] = await Promise.all([send(old, question, asker.token), send(here, question, asker.token)]);
      const found = compareAnswers(question, asker, theirs, ours);
      if (found) differences.push({ asker: asker.name, question, ...found });
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

function report(
  total: number,
  differences: readonly Difference[],
  askers: readonly Asker[],
  silent: readonly string[],
): string {
  const lines = [`${total} questions, asked by ${askers.map(({ name }) => name).join(', ')}.`];
  if (silent.length > 0) lines.push(`Not asked, since no user has a static token: ${silent.join(', ')}.`);
  const groups = new Map<string, Difference[]>();
  for (const each of differences) {
    const key = each.explanation ?? `not explained: ${each.question.kind}`;
    groups.set(key, [...(groups.get(key) ?? []), each]);
  }
  for (const [title, entries] of [...groups].sort(([one], [other]) => (one < other ? -1 : 1))) {
    lines.push('', `${entries.length} differ: ${title}`);
    const most = entries[0]?.explanation === null ? EXAMPLES * 7 : EXAMPLES;
    for (const { asker, question, detail } of entries.slice(0, most))
      lines.push(`  ${asker}: ${question.body ?? decodeURIComponent(question.path)}`, `    ${detail}`);
    if (entries.length > most) lines.push(`  and ${entries.length - most} more`);
  }
  const unexplained = differences.filter(({ explanation }) => explanation === null).length;
  lines.push('', unexplained === 0 ? 'No unexplained difference.' : `${unexplained} unexplained differences.`);
  return lines.join('\n');
}
