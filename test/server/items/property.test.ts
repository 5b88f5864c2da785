/**
 * Random models, rows and requests: each request goes through HTTP, and its answer is compared with that of a naive oracle
 * in memory. The seed is fixed unless PROPERTY_SEED names another one or `random`; PROPERTY_CASES says how many requests.
 */
import { inspect } from 'node:util';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { prepareProperty } from '../../support/property.js';
import {
  type Answer,
  connectSql,
  copyDatabase,
  dropDatabase,
  type Sql,
  request as send,
  startTestService,
} from '../../support/service.js';
import { DATABASE_SCHEMAS } from '../../support/several-schemas.js';
import { createModel } from './property/database.js';
import { drawn } from './property/draw.js';
import { encodeRequest } from './property/encode.js';
import { difference } from './property/expected.js';
import { FEATURES } from './property/features.js';
import { drawModel, type Model, tableNamed } from './property/model.js';
import { type ExpectedAnswer, expectedAnswer } from './property/oracle.js';
import { Refused } from './property/oracle-values.js';
import { drawRequest, leastOf, type ReadRequest } from './property/requests.js';
import { type Check, shrinkRequest, shrinkRows } from './property/shrink.js';

type Service = Awaited<ReturnType<typeof startTestService>>;

const REQUESTS_PER_MODEL = 100;
const MOST_SHOWN = 4_000;
const { cases, seed, server, counts } = await prepareProperty({ seed: '20260101', cases: 200 });

for (let position = 0; position < Math.ceil(cases / REQUESTS_PER_MODEL); position++) {
  await t.test(`model ${seed + position}`, (t) => testModel(t, seed + position));
}

t.test('the requests reach what they are meant to reach', async (t) => {
  const least = Math.floor(cases / 600);
  const rare = FEATURES.filter((feature) => (counts.get(feature) ?? 0) < least);
  t.strictSame(rare, [], `each feature occurs in at least ${least} of ${cases} requests`);
  const listed = FEATURES.map((feature) => `${feature} ${counts.get(feature) ?? 0}`);
  t.comment(listed.join(', '));
});

async function testModel(t: Test, modelSeed: number): Promise<void> {
  const [model] = fc.sample(drawn(drawModel), { seed: modelSeed, numRuns: 1 }) as [Model];
  const name = `model_${modelSeed}`;
  const databaseUrl = await copyDatabase(server, 'template_of_models', name);
  const sql = connectSql(databaseUrl);
  await createModel(sql, model);
  const service = await startTestService({
    databaseUrl,
    DATABASE_SCHEMAS,
    QUERY_LIMIT_DEFAULT: String(model.options.defaultLimit),
    STREAM_ABOVE: String(model.options.streamAbove),
    QUERYSTRING_MAX_PARSE_DEPTH: '100',
    MAX_RELATIONAL_DEPTH: '20',
    MAX_QUERY_NODES: '100000',
    DATABASE_POOL_SIZE: '1',
    DATABASE_STREAM_POOL_SIZE: '1',
  });
  const requests = fc.asyncProperty(
    drawn((draw) => drawRequest(model, draw)),
    async (request) => {
      const { wrong } = await examine(service, model, request);
      if (wrong !== null) throw new Error(wrong);
    },
  );
  const numRuns = Math.min(cases, REQUESTS_PER_MODEL);
  const result = await fc.check(requests, { seed: modelSeed, numRuns, endOnFailure: true });
  if (result.counterexample) {
    const [request] = result.counterexample;
    for (const line of await report(service, sql, model, request, modelSeed)) t.comment(line);
    t.fail(`PROPERTY_SEED=${modelSeed} PROPERTY_CASES=${numRuns}: ${result.errorInstance}`);
  } else t.pass(`${result.numRuns} requests`);
  await service.stop();
  await sql.end();
  await dropDatabase(server, name);
}

interface Examined {
  readonly wrong: string | null;
  readonly expected: ExpectedAnswer;
  readonly answer: Answer;
}

async function examine(service: Service, model: Model, request: ReadRequest): Promise<Examined> {
  const seen = new Set<string>();
  const whole = request.walk === null ? request : { ...request, query: { ...request.query, limit: -1 } };
  const expected = expectedAnswer({ model, seen }, whole);
  if (request.spelling % 5 === 0) await ask(service, twinOf(request), seen);
  const answer =
    request.walk === null ? await ask(service, request, seen) : await walk(service, request, request.walk, seen);
  for (const feature of seen) counts.set(feature, (counts.get(feature) ?? 0) + 1);
  const wrong = wrongWith(answer, expected);
  if (wrong !== null || request.walk !== null || request.spelling % 10 !== 1) return { wrong, expected, answer };
  return { wrong: await wrongTogether(service, request, answer), expected, answer };
}

/** Many at once, so that some travel in one statement, beside one with other values: each gets the answer it gets alone. */
async function wrongTogether(service: Service, request: ReadRequest, alone: Answer): Promise<string | null> {
  const twin = ask(service, twinOf(request), new Set());
  const answers = await Promise.all(Array.from({ length: 5 }, () => ask(service, request, new Set())));
  await twin;
  const other = answers.find((answer) => answer.status !== alone.status || answer.text !== alone.text);
  return other === undefined ? null : `together ${other.text}, alone ${alone.text}`;
}

/** The same with other numbers: the request itself then meets a statement that was made for other values. */
function twinOf(request: ReadRequest): ReadRequest {
  const other = (value: unknown, name: string): unknown => {
    if (['limit', 'offset', 'page', '_limit', '_offset', '_page'].includes(name)) return Number(value) > 0 ? 1 : value;
    if (value === null || typeof value !== 'object' || Array.isArray(value)) return value;
    return Object.fromEntries(Object.entries(value).map(([key, below]) => [key, other(below, key)]));
  };
  return { ...request, query: other(request.query, '') as ReadRequest['query'] };
}

async function ask(service: Service, request: ReadRequest, seen: Set<string>): Promise<Answer> {
  const { method, path, body, features } = encodeRequest(request);
  for (const feature of features) seen.add(feature);
  const headers = { 'content-type': 'application/json' };
  return send(service, method, path, body === null ? {} : { body, headers });
}

/** All pages of a list, one behind the other; the oracle is asked for the whole. */
async function walk(service: Service, request: ReadRequest, size: number, seen: Set<string>): Promise<Answer> {
  seen.add('cursor');
  const data: unknown[] = [];
  let cursor: string | null = '';
  while (cursor !== null && data.length < 1_000) {
    const page = await ask(service, { ...request, query: { ...request.query, limit: size, cursor } }, seen);
    if (page.status !== 200) return page;
    const found = page.json as { data: unknown[]; meta: { next_cursor: string | null } };
    data.push(...found.data);
    cursor = found.meta.next_cursor;
  }
  return { status: 200, headers: {}, text: JSON.stringify({ data }), json: { data } };
}

function wrongWith(answer: Answer, expected: ExpectedAnswer): string | null {
  if (answer.status !== expected.status) return `status ${answer.status}, expected ${expected.status}: ${answer.text}`;
  return expected.body === null ? null : difference(answer.json, expected.body);
}

/** Everything that is needed to look into it. */
async function report(
  service: Service,
  sql: Sql,
  model: Model,
  request: ReadRequest,
  modelSeed: number,
): Promise<string[]> {
  const first = signature((await examine(service, model, request)).answer);
  const check: Check = async (candidate) => {
    try {
      const { wrong, answer } = await examine(service, model, candidate);
      return signature(answer) === first ? wrong : null;
    } catch (error) {
      if (error instanceof Refused) return null;
      throw error;
    }
  };
  const smallest = await shrinkRequest(request, leastOf(tableNamed(model, request.collection)), check);
  await shrinkRows(sql, model, smallest, check);
  const { wrong, expected, answer } = await examine(service, model, smallest);
  const { method, path, body } = encodeRequest(smallest);
  const tables = model.tables.filter(({ name, rows }) => rows.length > 0 || name === smallest.collection);
  return [
    `model ${modelSeed}: ${wrong}`,
    `request: ${method} ${path} ${body ?? ''}`,
    `query: ${JSON.stringify(smallest.query)}${smallest.walk === null ? '' : `, in pages of ${smallest.walk}`}`,
    `answer: ${answer.status} ${answer.text.slice(0, MOST_SHOWN)}`,
    `expected: ${expected.status} ${JSON.stringify(expected.body).slice(0, MOST_SHOWN)}`,
    `options: ${inspect(model.options)}`,
    ...tables.flatMap((table) => inspect(table, { depth: 5, breakLength: 200 }).split('\n')),
  ];
}

/** A smaller request counts only if it fails in the same way. */
function signature({ status, text }: Answer): string {
  if (status === 200) return '200';
  return `${status} ${text
    .replaceAll(/\\"[^"]*\\"/g, '')
    .split(': ')
    .at(-1)}`;
}
