/**
 * Registers with one writer each, whose values only go up, and many readers of every kind. For such registers a history is
 * linearizable when each read shows a value no older than any that was acknowledged, or shown to anybody, before it was sent,
 * and none that nobody has begun to write. LINEARIZABILITY_OPERATIONS=100000 makes the run longer.
 */
import t from 'tap';
import { Connection } from '../../support/protocol-client.js';
import {
  createDatabase,
  get,
  startDatabase,
  startTestService,
  type TestOptions,
  withSql,
} from '../../support/service.js';

const OPERATIONS = Number(process.env['LINEARIZABILITY_OPERATIONS'] ?? 1_200);
t.setTimeout(60_000 + OPERATIONS * 10);

const REGISTERS = 16;
const SHELVES = 4;
/** Few, because they work all the time: a service that mostly reads is where reads are batched. */
const WRITERS = 4;
/** They keep a read on its way that takes some time. */
const WAITERS = 2;
const READERS = 58;
/** So many requests in a row ask for the same shape: as clients do that come from one page. */
const BURST = 64;
/** The one that the view with a division refuses to show. */
const REFUSED = 13;
const DIVIDED = `/items/divided/${REFUSED}`;

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'registers');
await (await startTestService({ databaseUrl })).stop();
await withSql(databaseUrl, async (sql) => {
  await sql`create table shelves (id int primary key, name text)`;
  await sql`create table registers (id int primary key, value int not null, shelf int references shelves)`;
  await sql`create view divided as select id, value / (case id when ${sql.unsafe(String(REFUSED))} then 0 else 1 end) as value from registers`;
  // What it shows was true when it began: an answer that is on its way for so long is soon out of date.
  await sql`create view lasting as select id, value, pg_sleep(0.001)::text as lasted from registers`;
  await sql`insert into shelves select n, 'Shelf ' || n from generate_series(1, ${SHELVES}::int) n`;
  await sql`insert into registers select n, 0, (n - 1) % ${SHELVES}::int + 1 from generate_series(1, ${REGISTERS}::int) n`;
  await sql`insert into service_collections (collection, primary_key) values ('divided', 'id'), ('lasting', 'id')`;
  await sql`insert into service_relations (many_collection, many_field, one_collection, one_field)
    values ('registers', 'shelf', 'shelves', 'registers')`;
});

interface Register {
  readonly id: number;
  readonly value: number;
}

/** What a reader asks for, and what of the answer is a register. */
interface Question {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly body?: string;
  readonly ids: readonly number[];
  readonly registers: (data: never) => readonly Register[];
}

const ALL = Array.from({ length: REGISTERS }, (_, position) => position + 1);
const DOCUMENT = 'query ($id: ID!) { registers_by_id(id: $id) { id value } }';
const NESTED_DOCUMENT = 'query ($id: ID!) { shelves_by_id(id: $id) { registers { id value } } }';

function shelved(shelf: number): number[] {
  return ALL.filter((id) => ((id - 1) % SHELVES) + 1 === shelf);
}

/** By the number of a burst; one by key comes more often, since such reads are the most. */
const QUESTIONS: readonly ((id: number) => Question)[] = [
  byKey,
  (id) => ({
    method: 'GET',
    path: `/items/shelves/${shelfOf(id)}?fields=id,registers.id,registers.value`,
    ids: shelved(shelfOf(id)),
    registers: ({ registers }: { registers: Register[] }) => registers,
  }),
  byKey,
  (id) => ({
    method: 'POST',
    path: '/graphql',
    body: JSON.stringify({ query: DOCUMENT, variables: { id } }),
    ids: [id],
    registers: (data: { registers_by_id: Register }) => [numbered(data.registers_by_id)],
  }),
  (id) => ({
    method: 'GET',
    path: `/items/registers?fields=id,value&sort=-id&filter[id][_lte]=${id}`,
    ids: ALL.slice(0, id),
    registers: (data: Register[]) => data,
  }),
  (id) => (id % 2 === 0 ? { ...byKey(id), path: `/items/lasting/${id}` } : byKey(id)),
  (id) => ({ ...byKey(id), path: `/items/divided/${id}` }),
  byKey,
  () => ({
    method: 'GET',
    path: '/items/registers?fields=id,value&sort=id',
    ids: ALL,
    registers: (data: Register[]) => data,
  }),
  (id) => ({ ...byKey(id), path: `/items/divided/${id}` }),
  (id) => ({
    method: 'POST',
    path: '/graphql',
    body: JSON.stringify({ query: NESTED_DOCUMENT, variables: { id: shelfOf(id) } }),
    ids: shelved(shelfOf(id)),
    registers: (data: { shelves_by_id: { registers: Register[] } }) => data.shelves_by_id.registers.map(numbered),
  }),
];

function byKey(id: number): Question {
  return {
    method: 'GET',
    path: `/items/registers/${id}?fields=id,value`,
    ids: [id],
    registers: (data: Register) => [data],
  };
}

/**
 * On its way for so long that somebody always waits for it: who asks for the same right after a write must not get the answer
 * that was on its way before.
 */
const LASTING: Question = {
  method: 'GET',
  path: '/items/lasting?sort=id',
  ids: ALL,
  registers: (data: Register[]) => data,
};

function shelfOf(id: number): number {
  return ((id - 1) % SHELVES) + 1;
}

/** GraphQL gives keys as texts. */
function numbered({ id, value }: { readonly id: number | string; readonly value: number }): Register {
  return { id: Number(id), value };
}

/** What is known of the registers, by id. */
class History {
  /** The highest value that was acknowledged or shown. */
  readonly known = new Int32Array(REGISTERS + 1);
  /** The highest value that somebody has begun to write. */
  readonly begun = new Int32Array(REGISTERS + 1);
  readonly violations: string[] = [];
  reads = 0;
  writes = 0;
  refused = 0;
  left = 0;

  get operations(): number {
    return this.reads + this.writes + this.refused + this.left;
  }

  check(path: string, known: Int32Array, expected: readonly number[], shown: readonly Register[]): void {
    if (shown.length !== expected.length) this.#complain(`${path} showed ${shown.length} of ${expected.length}`);
    for (const { id, value } of shown) {
      const least = known[id] as number;
      if (!expected.includes(id)) this.#complain(`${path} showed register ${id}`);
      else if (!(value >= least)) this.#complain(`${path} showed ${value} of register ${id} after ${least} was known`);
      else if (value > (this.begun[id] as number)) this.#complain(`${path} showed ${value}, which nobody wrote yet`);
      else this.learn(id, value);
    }
  }

  learn(id: number, value: number): void {
    if (value > (this.known[id] as number)) this.known[id] = value;
  }

  #complain(violation: string): void {
    if (this.violations.length < 20) this.violations.push(violation);
  }
}

interface Pass {
  readonly options: Omit<TestOptions, 'databaseUrl'>;
  readonly operations: number;
  /** One of so many reads is refused, and one of so many clients leaves; 0 for none. */
  readonly faults: number;
}

/** Runs readers and writers against a service of its own; answers what it measured. */
async function run({ options, operations, faults }: Pass): Promise<{ history: History; metrics: Metrics }> {
  const service = await startTestService({ databaseUrl, READ_BATCHING: 'true', ...options });
  const history = new History();
  await withSql(databaseUrl, async (sql) => {
    for (const { id, value } of await sql<Register[]>`select id, value from registers`) {
      history.learn(id, value);
      history.begun[id] = value;
    }
  });
  const connections = Array.from({ length: WRITERS + WAITERS + READERS }, () => new Connection(service));
  await Promise.all(connections.map((connection) => connection.open()));
  const random = randomNumbers(operations);
  await Promise.all(
    connections.map(async (connection, position) => {
      while (history.operations < operations && history.violations.length === 0) {
        if (position < WRITERS) await writeOnce(connection, position, history, random);
        else if (position < WRITERS + WAITERS) await askOnce(connection, LASTING, history);
        else await readOnce(connection, history, random, faults);
      }
    }),
  );
  for (const connection of connections) connection.close();
  const { text } = await get(service, '/server/metrics');
  await withSql(databaseUrl, async (sql) => {
    for (const { id, value } of await sql<Register[]>`select id, value from registers`)
      if (value !== history.begun[id]) history.violations.push(`register ${id} holds ${value} in the end`);
  });
  await service.stop();
  return { history, metrics: readMetrics(text) };
}

async function readOnce(connection: Connection, history: History, random: Random, faults: number): Promise<void> {
  const ask = QUESTIONS[Math.floor(history.operations / BURST) % QUESTIONS.length] as (id: number) => Question;
  const question = ask(random(REGISTERS) + 1);
  if (faults > 0 && random(faults) === 0) {
    history.left++;
    return connection.leave(question.method, question.path, question.body);
  }
  if (faults > 0 && random(faults) === 0) return refusedOnce(connection, '/items/registers/thirteen', history);
  if (question.path !== DIVIDED) return askOnce(connection, question, history);
  // Those that travel with it must not suffer.
  return faults > 0 ? refusedOnce(connection, DIVIDED, history) : askOnce(connection, ask(1), history);
}

async function askOnce(connection: Connection, question: Question, history: History): Promise<void> {
  const { method, path, body, ids, registers } = question;
  const known = history.known.slice();
  const { status, body: text } = await connection.request(method, path, body);
  history.reads++;
  if (status !== 200) history.violations.push(`${path} was answered ${status}: ${text.slice(0, 200)}`);
  else history.check(path, known, ids, registers((JSON.parse(text) as { data: never }).data));
}

async function refusedOnce(connection: Connection, path: string, history: History): Promise<void> {
  const { status } = await connection.request('GET', path);
  history.refused++;
  if (status < 400 || status >= 500) history.violations.push(`${path} was answered ${status}`);
}

/** Each register has one writer. */
async function writeOnce(connection: Connection, writer: number, history: History, random: Random): Promise<void> {
  const id = writer + 1 + WRITERS * random(REGISTERS / WRITERS);
  const value = (history.begun[id] as number) + 1;
  history.begun[id] = value;
  const { status, body } =
    random(3) === 0
      ? await connection.request(
          'POST',
          '/graphql',
          JSON.stringify({
            query:
              'mutation ($id: ID!, $value: Int!) { update_registers_item(id: $id, data: { value: $value }) { id value } }',
            variables: { id, value },
          }),
        )
      : await connection.request('PATCH', `/items/registers/${id}?fields=id,value`, JSON.stringify({ value }));
  history.writes++;
  if (status === 200 && new RegExp(`"value":${value}\\b`).test(body)) history.learn(id, value);
  else history.violations.push(`a write was answered ${status}: ${body.slice(0, 200)}`);
  if (random(4) === 0) await askOnce(connection, LASTING, history);
}

type Random = (below: number) => number;

/** Repeatable as far as the order of answers is. */
function randomNumbers(seed: number): Random {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 4_294_967_296) * below);
  };
}

interface Metrics {
  /** Reads that shared a statement. */
  readonly batched: number;
  readonly splits: number;
}

function readMetrics(text: string): Metrics {
  const sample = (name: string): number =>
    Number(
      text
        .split('\n')
        .find((line) => line.startsWith(`${name} `))
        ?.split(' ')[1],
    );
  return {
    batched: sample('lateral_read_batch_size_sum') - sample('lateral_read_batch_size_bucket{le="1"}'),
    splits: sample('lateral_read_batch_splits_total'),
  };
}

function describe({ reads, writes, refused, left }: History, { batched, splits }: Metrics): string {
  return `${reads} reads, ${batched} of them in batches, ${writes} writes, ${refused} refused, ${left} left, ${splits} batches split`;
}

t.test('reads in batches see what was acknowledged before they asked', async (t) => {
  const { history, metrics } = await run({ options: {}, operations: Math.round(OPERATIONS * 0.6), faults: 0 });
  t.strictSame(history.violations, []);
  t.ok(metrics.batched > 0, describe(history, metrics));
});

t.test('also where some are refused, some leave and connections are few', async (t) => {
  const options = { DATABASE_POOL_SIZE: '2' };
  const { history, metrics } = await run({ options, operations: Math.round(OPERATIONS * 0.25), faults: 50 });
  t.strictSame(history.violations, []);
  t.ok(metrics.batched > history.reads / 20, describe(history, metrics));
  t.ok(history.refused > 0 && history.left > 0);
});

t.test('and without batches', async (t) => {
  const options = { READ_BATCHING: 'false' };
  const { history, metrics } = await run({ options, operations: Math.round(OPERATIONS * 0.15), faults: 100 });
  t.strictSame(history.violations, []);
  t.equal(metrics.batched, 0, describe(history, metrics));
});
