/**
 * 64 writers over the same few parents: each owns a column, a card and what it made, and shares everything else. Whatever
 * happens between them, what a writer was told is what it finds in the end. WRITERS_SECONDS makes it longer.
 */
import t from 'tap';
import {
  type Answer,
  connectSql,
  createDatabase,
  request,
  startDatabase,
  startTestService,
  withSql,
} from '../../support/service.js';

const SECONDS = Number(process.env['WRITERS_SECONDS'] ?? 2.5);
const WRITERS = 64;
const BOARDS = 4;
t.setTimeout((SECONDS + 60) * 1_000);

// Deadlocks are noticed early, so that there are many of them.
const server = await startDatabase({ settings: { deadlock_timeout: '50ms' } });
const databaseUrl = await createDatabase(server, 'writers');
await (await startTestService({ databaseUrl })).stop();
const columns = Array.from({ length: WRITERS }, (_, writer) => `c${writer} integer not null default 0`).join(', ');
await withSql(databaseUrl, (sql) =>
  sql
    .unsafe(`
      create table boards (id serial primary key, name text, ${columns});
      create table cards (
        id serial primary key,
        board integer references boards (id) on delete set null,
        owner integer,
        title text,
        count integer not null default 0,
        sort integer
      );
      create table labels (id serial primary key, name text, uses integer not null default 0);
      create table boards_labels (
        id serial primary key,
        boards_id integer references boards (id) on delete cascade,
        labels_id integer references labels (id) on delete cascade,
        sort integer
      );
      insert into boards (name) select 'board ' || n from generate_series(1, ${BOARDS}) n;
      insert into cards (board, title) select 1 + n % ${BOARDS}, 'own' from generate_series(1, ${WRITERS}) n;
      insert into labels (name) select 'label ' || n from generate_series(1, 6) n;
      insert into boards_labels (boards_id, labels_id, sort) select b, l, l from generate_series(1, ${BOARDS}) b, generate_series(1, 3) l;
      insert into service_fields (collection, field, special) values
        ('boards', 'cards', 'o2m'), ('boards', 'labels', 'm2m'), ('cards', 'board', 'm2o');
      insert into service_relations (many_collection, many_field, one_collection, one_field, junction_field, sort_field, one_deselect_action) values
        ('cards', 'board', 'boards', 'cards', null, 'sort', 'nullify'),
        ('boards_labels', 'boards_id', 'boards', 'labels', 'labels_id', 'sort', 'delete'),
        ('boards_labels', 'labels_id', 'labels', null, 'boards_id', null, 'nullify');`)
    .simple(),
);
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const service = await startTestService({ databaseUrl, DATABASE_WRITE_POOL_SIZE: '24' });

function send(method: string, path: string, payload: unknown): Promise<Answer> {
  const body = JSON.stringify(payload) ?? '';
  // Node.js names no length for the body of a DELETE by itself.
  const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)) };
  return request(service, method, path, { headers, body });
}

/** What one writer knows to be so. */
interface Ledger {
  readonly columns: number[];
  count: number;
  readonly made: Set<number>;
}

type Step = (writer: number, ledger: Ledger, random: () => number) => Promise<Answer>;

interface Action {
  readonly step: Step;
  /** What others may cause: an item that is gone by now. */
  readonly mayFail: readonly number[];
}

const board = (random: () => number): number => 1 + Math.floor(random() * BOARDS);
const anyOf = <Entry>(random: () => number, entries: readonly Entry[]): Entry =>
  entries[Math.floor(random() * entries.length)] as Entry;
const shuffled = (random: () => number, count: number): number[] =>
  Array.from({ length: count }, (_, n) => ({ n: n + 1, place: random() }))
    .sort((one, other) => one.place - other.place)
    .map(({ n }) => n);

const ACTIONS: Readonly<Record<string, Action>> = {
  'own column, and own card moved here': {
    mayFail: [],
    step: async (writer, ledger, random) => {
      const id = board(random);
      const value = (ledger.columns[id] ?? 0) + 1;
      const count = ledger.count + 1;
      const answer = await send('PATCH', `/items/boards/${id}?fields=id`, {
        [`c${writer}`]: value,
        cards: { update: [{ id: writer + 1, count }] },
      });
      if (answer.status === 200) {
        ledger.columns[id] = value;
        ledger.count = count;
      }
      return answer;
    },
  },
  'own column of all boards at once': {
    mayFail: [],
    step: async (writer, ledger, random) => {
      const changes = shuffled(random, BOARDS).map((id) => ({ id, [`c${writer}`]: (ledger.columns[id] ?? 0) + 1 }));
      const answer = await send('PATCH', '/items/boards?fields=id', changes);
      if (answer.status === 200)
        for (let id = 1; id <= BOARDS; id++) ledger.columns[id] = (ledger.columns[id] ?? 0) + 1;
      return answer;
    },
  },
  'own card with its board': {
    mayFail: [],
    step: async (writer, ledger, random) => {
      const id = board(random);
      const value = (ledger.columns[id] ?? 0) + 1;
      const count = ledger.count + 1;
      const answer = await send('PATCH', `/items/cards/${writer + 1}?fields=id`, {
        count,
        board: { id, [`c${writer}`]: value },
      });
      if (answer.status === 200) {
        ledger.columns[id] = value;
        ledger.count = count;
      }
      return answer;
    },
  },
  'cards of others moved here': {
    mayFail: [],
    step: (_, __, random) => {
      const cards = shuffled(random, WRITERS).slice(0, 4);
      return send('PATCH', `/items/boards/${board(random)}?fields=id,cards.id`, {
        cards: { update: cards.map((id) => ({ id })) },
      });
    },
  },
  'cards here are these and no others': {
    mayFail: [],
    step: (_, __, random) =>
      send('PATCH', `/items/boards/${board(random)}?fields=id`, { cards: shuffled(random, WRITERS).slice(0, 6) }),
  },
  'cards made in a board': {
    mayFail: [],
    step: async (writer, ledger, random) => {
      const title = `${writer} ${random()}`;
      const create = [
        { owner: writer, title },
        { owner: writer, title },
      ];
      const answer = await send('PATCH', `/items/boards/${board(random)}?fields=id`, { cards: { create } });
      for (const { id } of await sql`select id from cards where owner = ${writer} and title = ${title}`)
        ledger.made.add(id);
      return answer;
    },
  },
  'a card made with its board and labels': {
    mayFail: [],
    step: async (writer, ledger, random) => {
      const answer = await send('POST', '/items/cards?fields=id', {
        owner: writer,
        board: { id: board(random), labels: { create: [{ labels_id: 1 + Math.floor(random() * 6) }] } },
      });
      if (answer.status === 200) ledger.made.add((answer.json as { data: { id: number } }).data.id);
      return answer;
    },
  },
  'own cards deleted': {
    mayFail: [],
    step: async (_, ledger, random) => {
      const gone = [...ledger.made].filter(() => random() < 0.5).slice(0, 3);
      const answer = await send('DELETE', '/items/cards', gone);
      if (answer.status === 204) for (const id of gone) ledger.made.delete(id);
      return answer;
    },
  },
  'labels replaced': {
    mayFail: [],
    step: (writer, __, random) => {
      const labels = shuffled(random, 6).slice(0, 3);
      return send('PATCH', `/items/boards/${board(random)}?fields=id,labels.labels_id`, {
        labels: labels.map((id) => ({ labels_id: random() < 0.5 ? id : { id, name: `named by ${writer}` } })),
      });
    },
  },
  'labels made and taken away': {
    // Links that another writer took away meanwhile.
    mayFail: [400, 403],
    step: async (_, __, random) => {
      const id = board(random);
      const rows = await sql`select id from boards_labels where boards_id = ${id} limit 5`;
      const links = rows.map((row) => row['id'] as number);
      return send('PATCH', `/items/boards/${id}?fields=id`, {
        labels: {
          create: [{ labels_id: 1 + Math.floor(random() * 6) }],
          update: links.slice(0, 1).map((link) => ({ id: link, sort: 1 })),
          delete: links.slice(1, 3),
        },
      });
    },
  },
  'a board made with cards and deleted': {
    mayFail: [],
    step: async (writer, _, random) => {
      const made = await send('POST', '/items/boards?fields=id', {
        name: `short-lived, of ${writer}`,
        cards: [1 + Math.floor(random() * WRITERS), { title: 'left behind' }],
        labels: [{ labels_id: 2 }],
      });
      if (made.status !== 200) return made;
      return send('DELETE', `/items/boards/${(made.json as { data: { id: number } }).data.id}`, undefined);
    },
  },
};

t.test(`${WRITERS} writers for ${SECONDS} s`, async (t) => {
  const begun = performance.now();
  const ledgers = Array.from({ length: WRITERS }, (): Ledger => ({ columns: [], count: 0, made: new Set() }));
  const counts = new Map<string, number>();
  const surprises = new Map<string, string>();
  const names = Object.keys(ACTIONS);
  const hasSucceeded = (name: string): boolean => counts.has(`${name}: 200`) || counts.has(`${name}: 204`);
  // On a slow machine an action that is often refused needs more time.
  const isUnfinished = (): boolean => {
    const seconds = (performance.now() - begun) / 1_000;
    return seconds < SECONDS || (seconds < 10 * SECONDS && !names.every(hasSucceeded));
  };
  await Promise.all(
    ledgers.map(async (ledger, writer) => {
      const random = createRandom(writer + 1);
      while (isUnfinished()) {
        const name = anyOf(random, names);
        const action = ACTIONS[name] as Action;
        const { status, text } = await action.step(writer, ledger, random);
        const outcome = `${name}: ${status}`;
        counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
        if (status !== 200 && status !== 204 && !action.mayFail.includes(status)) surprises.set(outcome, text);
      }
    }),
  );
  for (const [outcome, count] of [...counts].sort()) t.comment(`${count} x ${outcome}`);
  for (const [outcome, text] of surprises) t.fail(`${outcome} (${counts.get(outcome)} times) ${text.slice(0, 300)}`);
  for (const name of names) t.ok(hasSucceeded(name), name);
  const [statistics] = await sql`select deadlocks::int from pg_stat_database where datname = current_database()`;
  t.comment(`${statistics?.['deadlocks']} deadlocks, none of which a client saw`);

  const boards = await sql`select * from boards where id <= ${BOARDS} order by id`;
  const lost: string[] = [];
  for (const [writer, ledger] of ledgers.entries()) {
    for (const row of boards) {
      const expected = ledger.columns[row['id']] ?? 0;
      if (row[`c${writer}`] !== expected)
        lost.push(`c${writer} of board ${row['id']}: ${row[`c${writer}`]}, not ${expected}`);
    }
  }
  t.strictSame(lost, [], 'no column lost an update');
  const cards = await sql`select count from cards where id <= ${WRITERS} order by id`;
  t.strictSame(
    cards.map((row) => row['count']),
    ledgers.map(({ count }) => count),
    'no card lost an update, however often it was moved',
  );
  const owned =
    await sql`select owner, array_agg(id order by id) as ids from cards where owner is not null group by owner`;
  const found = new Map(owned.map((row) => [row['owner'], row['ids']]));
  t.strictSame(
    ledgers.map((_, writer) => found.get(writer) ?? []),
    ledgers.map(({ made }) => [...made].sort((one, other) => one - other)),
    'what was made is there, what was deleted is not',
  );
  const [orphans] = await sql`
    select
      (select count(*)::int from boards_labels where boards_id is null or labels_id is null) as halves,
      (select count(*)::int from boards_labels l where not exists (select from boards b where b.id = l.boards_id)) as links,
      (select count(*)::int from cards c where board is not null and not exists (select from boards b where b.id = c.board)) as cards,
      (select count(*)::int from boards where id > ${BOARDS}) as boards`;
  t.strictSame({ ...orphans }, { halves: 0, links: 0, cards: 0, boards: 0 }, 'nothing is left behind');
});

t.test('keys that clients supply and keys that sequences give do not meet', async (t) => {
  let highest = 0;
  const failures: string[] = [];
  const end = performance.now() + SECONDS * 400;
  const made = new Set<number>();
  let supplied = 0;
  await Promise.all(
    Array.from({ length: 32 }, async (_, writer) => {
      const random = createRandom(1_000 + writer);
      while (performance.now() < end) {
        const key = writer % 8 === 0 ? highest + 500 + Math.floor(random() * 500) : undefined;
        const answer = await send('POST', '/items/labels?fields=id', { ...(key && { id: key }), name: `of ${writer}` });
        const { data } = answer.json as { data?: { id: number } };
        if (data) {
          if (made.has(data.id)) failures.push(`${data.id} was given twice`);
          made.add(data.id);
          highest = Math.max(highest, data.id);
          if (key) supplied++;
        } else if (!key || answer.status !== 400) failures.push(answer.text);
      }
    }),
  );
  t.comment(`${made.size} rows, ${supplied} of them with keys of their own`);
  t.ok(supplied > 10);
  t.strictSame([failures.length, failures[0]], [0, undefined], 'who supplies no key never collides');
  const [state] = await sql`select (select last_value from labels_id_seq) >= (select max(id) from labels) as ahead`;
  t.equal(state?.['ahead'], true, 'the sequence is ahead of every key');
  const after = await Promise.all(Array.from({ length: 20 }, () => send('POST', '/items/labels', { name: 'after' })));
  t.ok(after.every(({ status }) => status === 200));
});

t.test('many make the same item', async (t) => {
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, n) => send('POST', '/items/boards?fields=id', { id: 500, name: `of ${n}` })),
  );
  const statuses = answers.map(({ status }) => status).sort();
  t.strictSame(statuses, [200, ...Array(19).fill(400)], 'one of them makes it');
  const nested = await Promise.all(
    Array.from({ length: 20 }, (_, n) =>
      send('POST', '/items/cards?fields=board.id', { title: `${n}`, board: { id: 600, name: `of ${n}` } }),
    ),
  );
  t.strictSame(new Set(nested.map(({ status }) => status)), new Set([200]), 'as a nested item it is made or changed');
  const [row] = await sql`select count(*)::int as count from cards where board = 600`;
  t.equal(row?.['count'], 20);
});

/** Numbers from 0 to 1 that follow from the seed alone (mulberry32). */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
