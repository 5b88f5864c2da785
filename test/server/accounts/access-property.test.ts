/**
 * Random policies over random models: what somebody reads must be what an oracle finds in the rows that this person may see,
 * and what somebody writes must be what the rules allow. Whatever a request names that may not be seen is refused as if it did
 * not exist. The seed is fixed unless PROPERTY_SEED names another one or `random`; PROPERTY_CASES says how many requests.
 */
import { inspect } from 'node:util';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { type MadeCaller, makeCaller } from '../../support/callers.js';
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
import { createModel, typeOf } from '../items/property/database.js';
import { type Draw, drawn } from '../items/property/draw.js';
import { encodeRequest } from '../items/property/encode.js';
import { difference } from '../items/property/expected.js';
import { isJson, writeValue } from '../items/property/kinds.js';
import {
  drawModel,
  keyTextOf,
  type Model,
  Refused,
  type Row,
  showsKey,
  type Table,
  tableNamed,
  Unknown,
} from '../items/property/model.js';
import { type ExpectedAnswer, expectedAnswer } from '../items/property/oracle.js';
import { drawRequest, leastOf, type ReadRequest } from '../items/property/requests.js';
import { type Check, shrinkRequest } from '../items/property/shrink.js';
import { type Drawn, drawPolicies, rulesOf } from './access-property/policies.js';
import { viewOf } from './access-property/view.js';
import { drawWrite, encodeWrite, judge, type Write } from './access-property/writes.js';

type Service = Awaited<ReturnType<typeof startTestService>>;

const CASES_PER_MODEL = 250;
const CALLERS = 6;
const { cases, seed, server, counts } = await prepareProperty({ seed: '20260202', cases: 120 });

for (let position = 0; position < Math.ceil(cases / CASES_PER_MODEL); position++) {
  await t.test(`model ${seed + position}`, (t) => testModel(t, seed + position));
}

t.test('the requests reach what they are meant to reach', async (t) => {
  for (const feature of [
    'rows are hidden',
    'values are masked',
    'a relation is cut',
    'refused',
    'answered',
    'row rule',
  ])
    t.ok((counts.get(feature) ?? 0) >= cases / 100, `${feature}: ${counts.get(feature) ?? 0}`);
  for (const kind of ['create', 'update', 'delete', 'nested', 'key of several columns'])
    for (const end of ['done', 'refused'])
      t.ok((counts.get(`${kind} ${end}`) ?? 0) > cases / 1_000, `${kind} ${end}: ${counts.get(`${kind} ${end}`) ?? 0}`);
});

/** Somebody with policies, and what they may see. */
interface Somebody {
  readonly token: string;
  readonly drawn: Drawn;
  readonly view: Model;
}

async function testModel(t: Test, modelSeed: number): Promise<void> {
  const [model] = fc.sample(drawn(drawModel), { seed: modelSeed, numRuns: 1 }) as [Model];
  const name = `model_${modelSeed}`;
  const databaseUrl = await copyDatabase(server, 'template_of_models', name);
  const sql = connectSql(databaseUrl);
  await createModel(sql, model);
  const callers: Somebody[] = [];
  for (let number = 0; number < CALLERS; number++) {
    const [policies] = fc.sample(
      drawn((draw) => drawPolicies(model, number, draw)),
      { seed: modelSeed * CALLERS + number, numRuns: 1 },
    ) as [Drawn];
    const { token }: MadeCaller = await makeCaller(
      sql,
      `caller${number}`,
      policies.policies.map((rules) => ({
        permissions: rules.map(({ table, where, ...rest }) => ({
          collection: table,
          permissions: where,
          ...rest,
          fields: rest.fields ?? ['*'],
        })),
      })),
      policies.person,
    );
    callers.push({ token, drawn: policies, view: viewOf(model, policies) });
  }
  const service = await startTestService({
    LOG_LEVEL: process.env['LOG_LEVEL'] ?? 'silent',
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
    drawn((draw) => drawCase(model, callers, draw)),
    async ({ somebody, request }) => {
      const wrong = await examine(service, somebody, request, true);
      if (wrong !== null) throw new Error(wrong);
    },
  );
  const numRuns = Math.min(cases, CASES_PER_MODEL);
  const result = await fc.check(requests, { seed: modelSeed, numRuns, endOnFailure: true });
  if (result.counterexample) {
    const [{ somebody, request }] = result.counterexample;
    for (const line of await report(service, model, somebody, request)) t.comment(line);
    t.fail(`PROPERTY_SEED=${modelSeed} PROPERTY_CASES=${numRuns}: ${result.errorInstance}`);
  } else t.pass(`${result.numRuns} requests`);
  const writes = Math.ceil(numRuns / 3);
  const [random] = fc.sample(
    drawn((draw) => draw),
    { seed: modelSeed, numRuns: 1 },
  ) as [Draw];
  for (let number = 0; number < writes; number++) {
    const somebody = random.pick(callers);
    const write = drawWrite(model, number, random);
    const wrong = await examineWrite(service, sql, model, somebody, write);
    if (wrong === null) continue;
    const { method, path, body } = encodeWrite(model, write);
    t.comment(`${method} ${path} ${JSON.stringify(body)}`);
    t.comment(JSON.stringify(somebody.drawn.person));
    const concerned = somebody.drawn.policies
      .flat()
      .filter(
        ({ action, table }) =>
          action !== 'read' && [write.table.name, write.kind === 'nested' ? write.target.name : ''].includes(table),
      );
    for (const rule of concerned) t.comment(JSON.stringify(rule));
    t.fail(`write ${number}: PROPERTY_SEED=${modelSeed} PROPERTY_CASES=${numRuns}: ${wrong}`);
    break;
  }
  t.pass(`${writes} writes`);
  await service.stop();
  await sql.end();
  await dropDatabase(server, name);
}

/** What may not be done changes nothing; what may be done does what it says, and what the rules add. */
async function examineWrite(
  service: Service,
  sql: Sql,
  model: Model,
  somebody: Somebody,
  write: Write,
): Promise<string | null> {
  const judged = judge(model, somebody.drawn, write);
  const before = await digest(sql, model);
  const { method, path, body } = encodeWrite(model, write);
  const text = JSON.stringify(body);
  const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(text)) };
  const answer = await send(service, method, path, { token: somebody.token, headers, body: text });
  const end = answer.status < 300 ? 'done' : 'refused';
  note(`${write.kind} ${end}`);
  if (write.table.key.length > 1) note(`key of several columns ${end}`);
  if (!judged.statuses.includes(answer.status))
    return `status ${answer.status}, expected ${judged.statuses}: ${answer.text.slice(0, 300)}`;
  const after = await digest(sql, model);
  if (answer.status >= 300) return before.text === after.text ? null : 'what was refused has changed something';
  for (const { table, row } of judged.rows) {
    if (!(await isStored(sql, table, row))) return `"${table.name}" does not hold ${inspect(row)}`;
    const key = keyTextOf(table, row);
    table.rows = [...table.rows.filter((each) => keyTextOf(table, each) !== key), row];
  }
  for (const { table, key } of judged.gone) table.rows = table.rows.filter((each) => keyTextOf(table, each) !== key);
  const known = model.tables.reduce((sum, { rows }) => sum + rows.length, 0);
  return after.rows === known ? null : `there are ${after.rows} rows, expected ${known}`;
}

/** All rows as texts, and how many they are. */
async function digest(sql: Sql, model: Model): Promise<{ text: string; rows: number }> {
  const tables = model.tables.map(({ name }) => `select t::text from "${name}" t`).join(' union all ');
  const [row] = await sql.unsafe(
    `select md5(string_agg(text, '' order by text)) as text, count(*)::int as rows from (${tables}) t (text)`,
  );
  return row as unknown as { text: string; rows: number };
}

async function isStored(sql: Sql, table: Table, row: Row): Promise<boolean> {
  const plain = table.columns.filter(({ kind }) => !isJson(kind));
  const tests = plain.map(
    ({ name, kind }) =>
      sql` and ${sql(name)} is not distinct from ${writeValue(kind, row[name] ?? null)}::text::${typeOf(sql, kind)}`,
  );
  return (await sql`select from ${sql(table.name)} where true ${tests}`).length === 1;
}

interface Case {
  readonly somebody: Somebody;
  readonly request: ReadRequest;
}

/** Mostly what may be asked, sometimes anything. */
function drawCase(model: Model, callers: readonly Somebody[], draw: Draw): Case {
  const somebody = draw.pick(callers);
  const known = somebody.view.tables.length > 0 && draw.chance(75);
  return { somebody, request: drawRequest(known ? somebody.view : model, draw) };
}

async function examine(
  service: Service,
  somebody: Somebody,
  request: ReadRequest,
  tally: boolean,
): Promise<string | null> {
  const expected = expect(somebody.view, request);
  const answer =
    request.walk === null
      ? await ask(service, somebody, request)
      : await walk(service, somebody, request, request.walk);
  if (tally) count(somebody, request, answer);
  // What the oracle never came upon may be hidden all the same.
  if (answer.status === 403 || isCut(somebody.view, answer)) return null;
  if (expected === null) return `an answer to what may not be asked: ${answer.status} ${answer.text.slice(0, 500)}`;
  if (answer.status !== expected.status) return `status ${answer.status}, expected ${expected.status}: ${answer.text}`;
  return expected.body === null ? null : difference(answer.json, expected.body);
}

/** A reference to what may not be seen is a column: a field behind it that begins as operators do is none of those. */
function isCut({ tables }: Model, { status, text }: Answer): boolean {
  const [, name] = /"_lead\\?" is no filter operator of \\"([^"\\]+)/.exec(text) ?? [];
  return status === 400 && tables.some(({ view }) => view?.cut.some((each) => each.name === name));
}

/** Null where the request names what may not be seen. */
function expect(view: Model, request: ReadRequest): ExpectedAnswer | null {
  const whole = request.walk === null ? request : { ...request, query: { ...request.query, limit: -1 } };
  try {
    const table = tableNamed(view, request.collection);
    const hasKey = showsKey(table) && table.key.every(({ name }) => !table.view?.isMasked(name));
    if (request.walk !== null && !hasKey && table.key.length > 0) return null;
    return expectedAnswer({ model: view, seen: new Set() }, whole);
  } catch (error) {
    if (error instanceof Unknown) return null;
    throw error;
  }
}

function count({ view, drawn }: Somebody, request: ReadRequest, { status }: Answer): void {
  note(status === 200 ? 'answered' : 'refused');
  const table = view.tables.find(({ name }) => name === request.collection);
  if (!table || status !== 200) return;
  if (rulesOf(drawn, 'read', table.name).some(({ where }) => where !== null)) note('row rule');
  if (table.columns.some(({ name }) => table.view?.isMasked(name))) note('values are masked');
  if ((table.view?.cut.length ?? 0) > 0) note('a relation is cut');
  note('rows are hidden');
}

function note(feature: string): void {
  counts.set(feature, (counts.get(feature) ?? 0) + 1);
}

function ask(service: Service, { token }: Somebody, request: ReadRequest): Promise<Answer> {
  const { method, path, body } = encodeRequest(request);
  return send(service, method, path, {
    token,
    ...(body !== null && { body, headers: { 'content-type': 'application/json' } }),
  });
}

async function walk(service: Service, somebody: Somebody, request: ReadRequest, size: number): Promise<Answer> {
  const data: unknown[] = [];
  let cursor: string | null = '';
  while (cursor !== null && data.length < 1_000) {
    const page = await ask(service, somebody, { ...request, query: { ...request.query, limit: size, cursor } });
    if (page.status !== 200) return page;
    const found = page.json as { data: unknown[]; meta: { next_cursor: string | null } };
    data.push(...found.data);
    cursor = found.meta.next_cursor;
  }
  return { status: 200, headers: {}, text: JSON.stringify({ data }), json: { data } };
}

async function report(service: Service, model: Model, somebody: Somebody, request: ReadRequest): Promise<string[]> {
  const first = (await examine(service, somebody, request, false))?.slice(0, 5);
  // A smaller request counts only if it fails in the same way.
  const check: Check = async (candidate) => {
    try {
      const wrong = await examine(service, somebody, candidate, false);
      return wrong?.slice(0, 5) === first ? wrong : null;
    } catch (error) {
      if (error instanceof Refused) return null;
      throw error;
    }
  };
  const smallest = await shrinkRequest(request, leastOf(tableNamed(model, request.collection)), check);
  const answer = await ask(service, somebody, smallest);
  const expected = expect(somebody.view, smallest);
  return [
    `wrong: ${await check(smallest)}`,
    `query: ${smallest.collection} ${smallest.item ?? ''} ${JSON.stringify(smallest.query)} walk ${smallest.walk} keys ${JSON.stringify(smallest.keys)}`,
    `answer: ${answer.status} ${answer.text.slice(0, 1_500)}`,
    `expected: ${expected?.status} ${JSON.stringify(expected?.body ?? null).slice(0, 1_500)}`,
    `person: ${JSON.stringify(somebody.drawn.person)}`,
    ...model.tables.map(
      ({ name, key, columns, relations }) =>
        `${name} (${key.map((column) => column.name)}): ${columns.map((column) => `${column.name} ${column.kind}`).join(', ')}; ${JSON.stringify(relations)}`,
    ),
    ...somebody.drawn.policies
      .flat()
      .filter(({ action }) => action === 'read')
      .map((rule) => `rule: ${JSON.stringify(rule)}`),
  ];
}
