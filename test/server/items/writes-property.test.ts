/**
 * Random models, rows and nested payloads: each write goes through HTTP, and the whole database is then compared with what
 * an oracle made of the same payload, row by row. A refused write must have changed nothing. The seed is fixed unless
 * PROPERTY_SEED names another one or `random`; PROPERTY_CASES says how many writes.
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
  request,
  type Sql,
  startTestService,
} from '../../support/service.js';
import { DATABASE_SCHEMAS } from '../../support/several-schemas.js';
import { drawn } from './property/draw.js';
import { createModel, firstState, loadRows, readRows } from './writes-property/database.js';
import { compareStates, resolve } from './writes-property/matching.js';
import { drawModel, keyOf, type Model, type Row, tableNamed, type Value } from './writes-property/model.js';
import { applyWrite, type Outcome, type State } from './writes-property/oracle.js';
import { drawWrite, encodeWrite, type WriteCase } from './writes-property/requests.js';
import { shrinkWrite } from './writes-property/shrink.js';

type Service = Awaited<ReturnType<typeof startTestService>>;

const WRITES_PER_MODEL = 50;
const MOST_ROWS = 250;
const { cases, seed, server, counts } = await prepareProperty({ seed: '20260101', cases: 100 });

for (let position = 0; position < Math.ceil(cases / WRITES_PER_MODEL); position++) {
  await t.test(`model ${seed + position}`, (t) => testModel(t, seed + position));
}

t.test('the writes reach what they are meant to reach', async (t) => {
  t.comment([...counts].map(([name, count]) => `${name} ${count}`).join(', '));
  for (const kind of ['create', 'one', 'each', 'same', 'delete', 'conflict'])
    t.ok((counts.get(`${kind} done`) ?? 0) >= cases / 50, `${kind} succeeds often`);
  for (const status of [400, 403]) t.ok((counts.get(`refused ${status}`) ?? 0) >= cases / 50, `${status} is met often`);
  for (const kind of ['create', 'one', 'each', 'same', 'delete', 'conflict'])
    t.ok(
      (counts.get(`${kind} of several columns done`) ?? 0) >= cases / 200,
      `${kind} of items with a key of several columns`,
    );
  t.ok((counts.get('shared columns done') ?? 0) >= cases / 600, 'two references that share a column are written');
  t.ok((counts.get('rows of four levels') ?? 0) >= cases / 50, 'payloads are deep');
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
    DATABASE_POOL_SIZE: '2',
  });
  let state = firstState(model);
  await loadRows(sql, model, state);
  const writes = Math.min(cases, WRITES_PER_MODEL);
  for (let number = 1; number <= writes; number++) {
    const arbitrary = drawn((draw) => drawWrite(model, state, number, draw));
    const [write] = fc.sample(arbitrary, { seed: modelSeed * 1_000 + number, numRuns: 1 }) as [WriteCase];
    const { wrong, found } = await examine(service, sql, model, state, write);
    if (wrong !== null) {
      t.fail(await report(service, sql, model, state, write, `${modelSeed}, write ${number}`));
      break;
    }
    const rows = [...found.values()].reduce((sum, each) => sum + each.size, 0);
    state = rows > MOST_ROWS ? firstState(model) : found;
    if (rows > MOST_ROWS) await loadRows(sql, model, state);
  }
  t.pass(`${writes} writes`);
  await service.stop();
  await sql.end();
  await dropDatabase(server, name);
}

interface Examined {
  readonly wrong: string | null;
  readonly found: State;
  readonly answer: Answer;
  readonly outcome: Outcome;
}

async function examine(service: Service, sql: Sql, model: Model, before: State, write: WriteCase): Promise<Examined> {
  const outcome = applyWrite(model, before, write);
  const { method, path, body } = encodeWrite(model, write);
  // Without its length a body of DELETE would not be taken for one.
  const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body ?? '')) };
  const answer = await request(service, method, path, body === null ? {} : { body, headers });
  const found = await readRows(sql, model);
  const isRefused = answer.status >= 400;
  count(isRefused ? `refused ${answer.status}` : `${write.kind} done`);
  if (!isRefused && tableNamed(model, write.table).parts.length > 0) count(`${write.kind} of several columns done`);
  if (!isRefused && isShared(write)) count('shared columns done');
  if (depthOf(write) >= 4 && !isRefused) count('rows of four levels');
  return { wrong: wrongWith(), found, answer, outcome };

  function wrongWith(): string | null {
    const { errors, eitherWay, replaces } = outcome;
    if (replaces && !isRefused && [...errors].every((status) => status === 400)) return null;
    const isAllowed = isRefused
      ? errors.has(answer.status) || (eitherWay && answer.status === 400)
      : errors.size === 0 && answer.status === (isShown() ? 200 : 204);
    if (!isAllowed) {
      const wanted = errors.size > 0 ? [...errors].join(' or ') : 'success';
      return `status ${answer.status}, expected ${wanted}: ${answer.text}`;
    }
    const { difference, made } = compareStates(model, before, isRefused ? before : outcome.after, found);
    return difference ?? (isRefused ? null : wrongAnswer(model, write, answer, outcome, made, found));
  }

  /** One item that its own payload made leave cannot be shown. */
  function isShown(): boolean {
    if (write.kind === 'conflict' && !write.many) return outcome.shown?.length === 1;
    if (write.kind !== 'one') return write.kind !== 'delete';
    return outcome.after.get(write.table)?.has(write.key) === true;
  }
}

/** The items of the answer are those of the payload, in its order. */
function wrongAnswer(
  model: Model,
  write: WriteCase,
  answer: Answer,
  { shown, after }: Outcome,
  made: ReadonlyMap<string, Value>,
  found: State,
): string | null {
  if (shown === null || new Set(shown).size < shown.length) return null;
  const table = tableNamed(model, write.table);
  const rows = shown.flatMap((key): Row[] => {
    const row = after.get(table.name)?.get(String(key));
    return row ? [row] : [];
  });
  const keys = rows.map((row) => String(keyOf(table, resolve(row, made))));
  const expected = keys.flatMap((key) => {
    const row = found.get(table.name)?.get(key);
    return row ? [row['label']] : [];
  });
  if (answer.status === 204) return null;
  const { data } = answer.json as { data: Row | Row[] };
  const labels = (Array.isArray(data) ? data : [data]).map(({ label }) => label);
  if (JSON.stringify(labels) === JSON.stringify(expected)) return null;
  return `the answer shows ${JSON.stringify(labels)}, expected ${JSON.stringify(expected)}`;
}

/** Everything that is needed to look into it; the database has the rows from before again and again. */
async function report(
  service: Service,
  sql: Sql,
  model: Model,
  state: State,
  write: WriteCase,
  place: string,
): Promise<string> {
  const again = async (candidate: WriteCase): Promise<Examined> => {
    await loadRows(sql, model, state);
    return examine(service, sql, model, state, candidate);
  };
  const smallest = await shrinkWrite(write, async (candidate) => (await again(candidate)).wrong);
  const { wrong, answer, outcome } = await again(smallest);
  const { method, path, body } = encodeWrite(model, smallest);
  const named = new Set<string>([smallest.table]);
  const tables = model.tables.map(({ name, key, columns, relations }) => {
    if (body?.includes(name)) named.add(name);
    return {
      name,
      key,
      columns: columns.map(
        (column) => `${column.name} ${column.type}${column.nullable ? '' : ' not null'} ${column.initial ?? ''}`,
      ),
      relations,
    };
  });
  const rows = [...state].map(
    ([name, rows]) => `${name}:\n${[...rows.values()].map((row) => `  ${JSON.stringify(row)}`).join('\n')}`,
  );
  return [
    wrong,
    `seed ${place}: again with PROPERTY_SEED=${place.split(',')[0]} PROPERTY_CASES=${WRITES_PER_MODEL}`,
    `request: ${method} ${decodeURIComponent(path)} ${body ?? ''}`,
    `answer: ${answer.status} ${answer.text.slice(0, 1_000)}`,
    `expected: ${[...outcome.errors].join(' or ') || 'success'}`,
    `model: ${inspect(tables, { depth: 6, breakLength: 160 })}`,
    `rows before:\n${rows.join('\n')}`,
  ].join('\n');
}

function depthOf(value: unknown): number {
  if (value === null || typeof value !== 'object') return 0;
  const below = Math.max(0, ...Object.values(value).map(depthOf));
  return Array.isArray(value) ? below : below + 1;
}

/** Whether two references that share a column are in the same object. */
function isShared(value: unknown): boolean {
  if (value === null || typeof value !== 'object') return false;
  const isHere = !Array.isArray(value) && 'first' in value && 'second' in value;
  return (isHere && value.first !== null && value.second !== null) || Object.values(value).some(isShared);
}

function count(name: string): void {
  counts.set(name, (counts.get(name) ?? 0) + 1);
}
