/** An answer from memory depends on the rows that it shows: changes of other rows leave it there, and those of its own rows drop it. */
import t from 'tap';
import {
  type Answer,
  connectSql,
  createServed,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

const SCHEMA = `
create table writers (id int primary key, name text);
create table topics (id uuid primary key, name text);
create table items (id int primary key, title text, writer int references writers, editor int references writers, parent int references items);
create table notes (id int primary key, body text, rank int default 0, item int references items);
create table replies (id int primary key, body text, note int references notes on delete cascade);
create table items_topics (id int primary key, item int references items, topic uuid references topics);
create table places (town int, street int, name text, primary key (town, street));
create table visits (id int primary key, town int, street int, item int references items, foreign key (town, street) references places);
create table stamps (id int primary key, name text);
insert into stamps values (1, 'first');
create table images (id int primary key, name text);
create table blocks (id int primary key, item int references items, collection text, target text);
insert into writers select n, 'writer ' || n from generate_series(1, 6) n;
insert into topics select ('00000000-0000-4000-8000-00000000000' || n)::uuid, 'topic ' || n from generate_series(1, 6) n;
insert into items select n, 'item ' || n, n, n % 6 + 1, case when n > 1 then n - 1 end from generate_series(1, 6) n;
insert into notes select n, 'note ' || n, n, 1 + n % 6 from generate_series(1, 24) n;
insert into replies select n, 'reply ' || n, 1 + n % 24 from generate_series(1, 48) n;
insert into items_topics select n, 1 + n % 6, ('00000000-0000-4000-8000-00000000000' || (1 + n / 6 % 6))::uuid from generate_series(1, 12) n;
insert into places select n, n, 'place ' || n from generate_series(1, 6) n;
insert into visits select n, 1 + n % 6, 1 + n % 6, 1 + n % 6 from generate_series(1, 6) n;
insert into images select n, 'image ' || n from generate_series(1, 6) n;
insert into blocks select n, 1 + n % 6, 'images', (1 + n % 6)::text from generate_series(1, 6) n;
insert into service_fields (collection, field, special, interface) values
  ('items', 'notes', 'o2m', 'list-o2m'), ('items', 'topics', 'm2m', 'list-m2m'), ('items', 'visits', 'o2m', 'list-o2m'),
  ('items', 'blocks', 'o2m', 'list-o2m'), ('items', 'children', 'o2m', 'list-o2m'), ('notes', 'replies', 'o2m', 'list-o2m'),
  ('writers', 'items', 'o2m', 'list-o2m'), ('blocks', 'target', 'm2a', 'm2a');
insert into service_relations (many_collection, many_field, one_collection, one_field, junction_field, one_collection_field, one_allowed_collections) values
  ('notes', 'item', 'items', 'notes', null, null, null), ('replies', 'note', 'notes', 'replies', null, null, null),
  ('items_topics', 'item', 'items', 'topics', 'topic', null, null), ('items_topics', 'topic', 'topics', null, 'item', null, null),
  ('visits', 'item', 'items', 'visits', null, null, null), ('blocks', 'item', 'items', 'blocks', null, null, null),
  ('items', 'parent', 'items', 'children', null, null, null), ('items', 'writer', 'writers', 'items', null, null, null),
  ('items', 'editor', 'writers', null, null, null, null),
  ('blocks', 'target', null, null, null, 'collection', 'images,writers');
`;

interface Case {
  readonly path: string;
  /** Changes of rows that it does not show. */
  readonly others: readonly string[];
  /** Changes that it shows. */
  readonly own: readonly string[];
  /** Whether it also runs with triggers. */
  readonly isByKey?: boolean;
}

const TOPIC = '00000000-0000-4000-8000-00000000000';

const CASES: Readonly<Record<string, Case>> = {
  'a list below a key': {
    isByKey: true,
    path: '/items/items/1?fields=id,title,notes.id,notes.body',
    others: [
      `update notes set body = body || '!' where item = 3`,
      `insert into notes values (100, 'other', 0, 3)`,
      `update notes set item = 4 where id = 100`,
      `delete from notes where id = 100`,
      `update items set title = title || '!' where id = 4`,
    ],
    own: [
      `update notes set body = body || '!' where item = 1`,
      `insert into notes values (101, 'mine', 0, 1)`,
      `update notes set item = 3 where id = 101`,
      `update notes set item = 1 where id = 101`,
      `update notes set id = 102 where id = 101`,
      `delete from notes where id = 102`,
      `update items set title = title || '!' where id = 1`,
    ],
  },
  'a list with a filter, an order and a limit of its own': {
    path: '/items/items/2?fields=id,notes.body&deep[notes][_filter][rank][_gte]=1&deep[notes][_sort]=-rank&deep[notes][_limit]=2',
    others: [`update notes set rank = rank + 1 where item = 3`],
    own: [
      `update notes set rank = 0 where item = 2 and rank = (select max(rank) from notes where item = 2)`,
      `update notes set rank = 50 where item = 2 and rank = 0`,
      `insert into notes values (110, 'first', 99, 2)`,
      `delete from notes where id = 110`,
    ],
  },
  'related items and lists of lists': {
    path: '/items/items/3?fields=id,writer.name,editor.name,notes.body,notes.replies.body,parent.title,children.title',
    others: [
      `update writers set name = name || '!' where id = 6`,
      `update replies set body = body || '!' where note in (select id from notes where item = 5)`,
      `insert into replies values (100, 'other', (select min(id) from notes where item = 5))`,
      `update items set title = title || '!' where id = 6`,
    ],
    own: [
      `update writers set name = name || '!' where id = 3`,
      `update writers set name = name || '!' where id = 4`,
      `update items set writer = 5 where id = 3`,
      `update items set title = title || '!' where id = 2`,
      `update items set title = title || '!' where id = 4`,
      `update items set parent = 3 where id = 6`,
      `update items set parent = 5 where id = 6`,
      `insert into replies values (101, 'mine', (select min(id) from notes where item = 3))`,
      `update replies set note = (select min(id) from notes where item = 5) where id = 101`,
      `update notes set item = 3 where id = (select min(id) from notes where item = 5)`,
    ],
  },
  'a junction': {
    path: '/items/items/4?fields=id,topics.topic.name',
    others: [
      `insert into items_topics values (100, 2, '${TOPIC}1')`,
      `update items_topics set topic = '${TOPIC}2' where id = 100`,
      `update topics set name = name || '!' where id not in (select topic from items_topics where item = 4)`,
    ],
    own: [
      `insert into items_topics values (101, 4, '${TOPIC}6')`,
      `update topics set name = name || '!' where id = '${TOPIC}6'`,
      `update items_topics set item = 2 where id = 101`,
    ],
  },
  'a reference of two columns': {
    path: '/items/items/5?fields=id,visits.id',
    others: [`update visits set item = 2 where item = 3`],
    own: [`insert into visits values (100, 1, 1, 5)`, `delete from visits where id = 100`],
  },
  'references to any collection': {
    isByKey: true,
    path: '/items/items/6?fields=id,blocks.target:images.name,blocks.target:writers.name',
    others: [
      `update images set name = name || '!' where id::text not in (select target from blocks where item = 6)`,
      `update blocks set collection = 'writers' where item = 1`,
    ],
    own: [
      `update images set name = name || '!' where id::text in (select target from blocks where item = 6)`,
      `update blocks set collection = 'writers' where item = 6`,
      `update writers set name = name || '!' where id::text in (select target from blocks where item = 6)`,
    ],
  },
  'a GraphQL operation of several parts': {
    path: `/graphql?query=${encodeURIComponent('{ a: items_by_id(id: 1) { id notes { body } } b: items_by_id(id: 2) { id writer { name } } c: items_by_id(id: 999) { id } }')}`,
    others: [
      `update notes set body = body || '!' where item = 3`,
      `update writers set name = name || '!' where id = 6`,
    ],
    own: [
      `update notes set body = body || '!' where item = 1`,
      `update writers set name = name || '!' where id = 2`,
      `insert into notes values (120, 'mine', 0, 1)`,
    ],
  },
  'lists below a list, with shared subtrees': {
    path: '/items/items?fields=id,writer.name,writer.items.title,notes.body&filter[id][_in]=1,2&sort=id&limit=10',
    others: [`update notes set body = body || '!' where item = 5`, `insert into notes values (130, 'other', 0, 5)`],
    own: [
      `update notes set body = body || '!' where item = 2`,
      `update writers set name = name || '!' where id = 1`,
      `update items set writer = 1 where id = 6`,
    ],
  },
  'rows behind an offset': {
    path: '/items/items/1?fields=id,notes.id&deep[notes][_offset]=1&deep[notes][_sort]=id',
    others: [`update writers set name = name || '!' where id = 6`],
    own: [`delete from notes where id = 6`],
  },
  'a count of a list': {
    path: '/items/items/2?fields=id,count(notes),notes.id&deep[notes][_limit]=1&deep[notes][_sort]=id',
    others: [`update writers set name = name || '!' where id = 6`],
    own: [`insert into notes values (140, 'last', 0, 2)`, `delete from notes where id = 140`],
  },
  'a filter on a relation of the list': {
    path: '/items/items/2?fields=id,notes.id&deep[notes][_filter][replies][_some][body][_contains]=reply',
    others: [`update writers set name = name || '!' where id = 6`],
    own: [
      `update replies set body = 'none' where note in (select id from notes where item = 2)`,
      `update replies set body = 'reply' where note in (select id from notes where item = 2)`,
    ],
  },
};

t.setTimeout(400_000);
const server = await startDatabase({ settings: { wal_level: 'logical' } });
const isHit = ({ headers }: Answer): boolean => headers['cache-status'] === 'lateral; hit';

for (const LIVE of ['logical', 'triggers'] as const)
  t.test(`with ${LIVE}`, { timeout: 300_000 }, async (t) => {
    const databaseUrl = await createServed(server, `rows_${LIVE}`);
    const sql = connectSql(databaseUrl);
    t.teardown(() => sql.end());
    await sql.unsafe(SCHEMA).simple();
    const service = await startTestService({ databaseUrl, LIVE, READ_CACHE_SIZE: '16mb', WORKERS: '1' });
    const fresh = (path: string): Promise<Answer> => get(service, path, { headers: { prefer: 'consistency=strong' } });
    const warm = async (path: string): Promise<Answer> => {
      let answer = await get(service, path);
      await waitFor(async () => {
        answer = await get(service, path);
        return isHit(answer);
      }, 10_000);
      return answer;
    };
    const dropped = async (): Promise<number> =>
      Number(/^lateral_read_cache_invalidations_total (\d+)$/m.exec((await get(service, '/server/metrics')).text)?.[1]);
    /** Waits until the changes before it are reported. */
    const settled = async (): Promise<void> => {
      await request(service, 'PATCH', '/items/stamps/1', {
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ name: `named at ${performance.now()}` }),
      });
      // Answers come from memory again when the caller's own write was reported.
      await waitFor(async () => isHit(await get(service, '/items/places?fields=town&limit=1')), 10_000);
    };

    // By triggers, only keys are reported, so lists depend on the table.
    const cases = Object.entries(CASES).filter(([, { isByKey }]) => LIVE === 'logical' || isByKey);
    for (const [name, { path, others, own }] of cases)
      t.test(name, { timeout: 120_000 }, async (t) => {
        const first = await warm(path);
        t.equal(first.status, 200, first.text);
        t.equal(first.text, (await fresh(path)).text, 'the same from memory');
        for (const change of others) {
          await warm(path);
          const before = await dropped();
          await sql.unsafe(change);
          await settled();
          if (LIVE === 'logical') t.equal(await dropped(), before, `stays: ${change}`);
          t.equal((await get(service, path)).text, (await fresh(path)).text, change);
        }
        for (const change of own) {
          const { text } = await warm(path);
          const before = await dropped();
          await sql.unsafe(change);
          await settled();
          t.ok((await dropped()) > before, `goes: ${change}`);
          const answer = await get(service, path);
          t.not(answer.text, text, change);
          t.equal(answer.text, (await fresh(path)).text, change);
        }
        await request(service, 'POST', '/utils/cache/clear');
      });
  });
