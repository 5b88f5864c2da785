/** Full text search with its rank, similar texts, and trees, with extensions that are not on the search path. */
import t, { type Test } from 'tap';
import { makeCaller } from '../../support/callers.js';
import {
  type Answer,
  createDatabase,
  get,
  request,
  startDatabase,
  startTestService,
  withSql,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'words');
await withSql(databaseUrl, async (sql) => {
  await sql
    .unsafe(`
    create schema ext; create extension pg_trgm schema ext; create extension ltree schema ext;
    create text search configuration ext.own (copy = pg_catalog.english);
    create table topics (id int primary key, name text);
    insert into topics values (1, 'databases and their indexes'), (2, 'gardens');
    create table texts (id int primary key, title varchar(100), body text, tree ext.ltree, topic int references topics,
      words tsvector generated always as (to_tsvector('english', coalesce(title, '') || ' ' || coalesce(body, ''))) stored, bare tsvector);
    insert into texts (id, title, body, tree, topic, bare) values
      (1, 'Joining tables', 'A join joins rows. The join of joins is a join.', 'top.sql', 1, 'join:1'),
      (2, 'Indexes', 'An index finds rows quickly', 'top.sql.index', 1, 'index:1'),
      (3, 'Roses', 'Joining two roses is grafting', 'top.garden', 2, null),
      (4, null, null, null, null, null);
    create table many (id int primary key, title text, body text, tree ext.ltree,
      words tsvector generated always as (to_tsvector('english', body)) stored);
    insert into many select n, md5(n::text), 'word' || n || ' ' || md5((n * 7)::text), ('top.' || n % 100 || '.' || n)::ext.ltree
      from generate_series(1, 20000) n;
    create index many_words on many using gin (words);
    create index many_body on many using gin (to_tsvector('english', body));
    create index many_title on many using gin (title ext.gin_trgm_ops);
    create index many_tree on many using gist (tree);
    analyze;`)
    .simple();
});
const service = await startTestService({ databaseUrl });
const headers = { 'content-type': 'application/json' };

function search(query: object, collection = 'texts'): Promise<Answer> {
  const body = JSON.stringify({ query: { fields: ['id'], sort: ['id'], ...query } });
  return request(service, 'SEARCH', `/items/${collection}`, { headers, body });
}

function ids(answer: Answer): unknown {
  return answer.status === 200 ? (answer.json as { data: { id: number }[] }).data.map(({ id }) => id) : answer.text;
}

async function expectIds(
  t: Test,
  cases: readonly (readonly [filter: object, found: readonly number[]])[],
): Promise<void> {
  for (const [filter, found] of cases) t.strictSame(ids(await search({ filter })), found, JSON.stringify(filter));
}

async function expectRefusals(t: Test, cases: readonly (readonly [query: object, message: RegExp])[]): Promise<void> {
  for (const [query, text] of cases) t.match(await search(query), { status: 400, text }, JSON.stringify(query));
}

async function expectIndex(t: Test, query: string, index: string): Promise<void> {
  const answer = await get(service, encodeURI(`/items/many?fields=id&limit=-1&${query}`), {
    headers: { prefer: 'explain' },
  });
  const { data } = answer.json as { data: { plan: unknown; sql: string } };
  t.match(JSON.stringify(data.plan), `"Index Name":"${index}"`, `${query}: ${data.sql}`);
}

t.test('full text search', async (t) => {
  await expectIds(t, [
    [{ words: { _fts: 'joins' } }, [1, 3]],
    [{ words: { _fts: 'rows -index' } }, [1]],
    [{ words: { _fts: 'rose or index' } }, [2, 3]],
    [{ words: { _fts: '"two roses"' } }, [3]],
    [{ body: { _fts: { query: 'joins', config: 'english' } } }, [1, 3]],
    [{ body: { _fts: { query: 'joins', config: 'pg_catalog.simple' } } }, [1]],
    [{ title: { _fts: { query: 'table', config: 'own' } } }, [1]],
    [{ title: { _fts: { query: 'tables' } } }, [1]],
    [{ bare: { _fts: { query: 'indexes', config: 'simple' } } }, []],
    [{ bare: { _fts: { query: 'indexing', config: 'english' } } }, [2]],
    [{ topic: { name: { _fts: { query: 'database', config: 'english' } } } }, [1, 2]],
    [{ words: { _fts: "')); drop table texts; --" } }, []],
  ]);
  const url = 'filter[body][_fts][query]=joins&filter[body][_fts][config]=english';
  t.strictSame(ids(await get(service, `/items/texts?fields=id&${url}`)), [1, 3]);
  const document =
    '{ texts(filter: { words: { _fts: "join" }, body: { _fts: { query: "rows", config: "english" } } }) { id } }';
  const found = await request(service, 'POST', '/graphql', { headers, body: JSON.stringify({ query: document }) });
  t.strictSame(found.json, { data: { texts: [{ id: '1' }] } }, found.text);
  await expectIndex(t, 'filter[words][_fts]=word77', 'many_words');
  await expectIndex(t, 'filter[body][_fts][query]=word77&filter[body][_fts][config]=english', 'many_body');
  await expectRefusals(t, [
    [
      { filter: { body: { _fts: { query: 'a', config: 'klingon' } } } },
      /_fts.* of .*body.*: there is no text search configuration .*klingon/,
    ],
    [{ filter: { body: { _fts: { config: 'english' } } } }, /_fts.* of .*body.* needs a .*query/],
    [{ filter: { body: { _fts: { query: 'a', config: 5 } } } }, /config.* in .*_fts.* of .*body.* must be the name/],
    [{ filter: { body: { _fts: { query: 'a', language: 'english' } } } }, /not .*language/],
    [{ filter: { body: { _fts: ['a'] } } }, /_fts.* of field .*body/],
    [{ filter: { id: { _fts: 'a' } } }, /integer.* does not contain the .*_fts/],
    [{ filter: { words: { _contains: 'a' } } }, /tsvector.* does not contain the .*_contains/],
  ]);
});

t.test('rank', async (t) => {
  const filter = { words: { _fts: 'joins' } };
  t.strictSame(ids(await search({ filter, sort: ['-rank(words)'] })), [1, 3]);
  t.strictSame(ids(await search({ filter, sort: ['rank(words)'] })), [3, 1]);
  const text = { body: { _fts: { query: 'rows or roses or join', config: 'english' } } };
  t.strictSame(
    ids(await search({ filter: { _or: [text, { id: 4 }] }, sort: ['-rank(body)'], limit: 4 })),
    [4, 1, 3, 2],
  );
  const related = { topic: { name: { _fts: { query: 'database', config: 'english' } } } };
  t.strictSame(ids(await search({ filter: related, sort: ['-rank(topic.name)', '-id'] })), [2, 1]);
  const first = await search({ filter, sort: ['-rank(words)'], limit: 1, cursor: '' });
  const { meta } = first.json as { meta: { next_cursor: string } };
  t.strictSame(ids(await search({ filter, sort: ['-rank(words)'], limit: 1, cursor: meta.next_cursor })), [3]);
  const document = '{ texts(filter: { words: { _fts: "join" } }, sort: ["-rank(words)"]) { id } }';
  const found = await request(service, 'POST', '/graphql', { headers, body: JSON.stringify({ query: document }) });
  t.strictSame(found.json, { data: { texts: [{ id: '1' }, { id: '3' }] } }, found.text);
  await expectRefusals(t, [
    [{ sort: ['-rank(words)'] }, /rank.* needs a filter .*_fts.* of the same field/],
    [{ filter, sort: ['-rank(body)'] }, /rank.* needs a filter .*_fts/],
    [{ filter: { words: { _nnull: true } }, sort: ['-rank(words)'] }, /rank.* needs a filter/],
    [{ fields: ['rank(words)'], filter }, /rank.* can only be used in .*sort/],
    [{ filter: { 'rank(words)': { _gt: 0 } } }, /rank.* can only be used in .*sort/],
  ]);
});

t.test('similar texts', async (t) => {
  await expectIds(t, [
    [{ title: { _similar: 'Indxes' } }, [2]],
    [{ title: { _similar: 'joining table' } }, [1]],
    [{ title: { _similar: 'wholly unlike' } }, []],
  ]);
  await expectIndex(t, `filter[title][_similar]=${'c4ca4238a0b923820dcc509a6f75849b'}`, 'many_title');
  await expectRefusals(t, [[{ filter: { id: { _similar: 'a' } } }, /integer.* does not contain the .*_similar/]]);
  const other = await createDatabase(server, 'without_trigrams');
  await withSql(other, (sql) => sql.unsafe('create table notes (id int primary key, body text)'));
  const bare = await startTestService({ databaseUrl: other });
  const answer = await get(bare, '/items/notes?filter[body][_similar]=a');
  t.match(answer, {
    status: 400,
    text: /_similar.* of .*body.* needs the extension pg_trgm.*create extension pg_trgm/,
  });
  await withSql(other, (sql) => sql.unsafe('create extension pg_trgm; insert into notes values (1, $$abc$$)').simple());
  await request(bare, 'POST', '/utils/cache/clear');
  t.strictSame(ids(await get(bare, '/items/notes?fields=id&filter[body][_similar]=abc')), [1]);
  await bare.stop();
});

t.test('trees', async (t) => {
  await expectIds(t, [
    [{ tree: { _descendant_of: 'top.sql' } }, [1, 2]],
    [{ tree: { _descendant_of: 'top' } }, [1, 2, 3]],
    [{ tree: { _ancestor_of: 'top.sql.index.btree' } }, [1, 2]],
    [{ tree: { _ancestor_of: 'top.garden' } }, [3]],
  ]);
  const document = '{ texts(filter: { tree: { _descendant_of: "top.sql.index" } }) { id } }';
  const found = await request(service, 'POST', '/graphql', { headers, body: JSON.stringify({ query: document }) });
  t.strictSame(found.json, { data: { texts: [{ id: '2' }] } }, found.text);
  await expectIndex(t, 'filter[tree][_descendant_of]=top.7.107', 'many_tree');
  await expectIndex(t, 'filter[tree][_ancestor_of]=top.7.107.x', 'many_tree');
  await expectRefusals(t, [
    [
      { filter: { tree: { _descendant_of: 'top..sql' } } },
      /_descendant_of.* of field .*tree.*: it must be a path of labels/,
    ],
    [{ filter: { tree: { _ancestor_of: ['top'] } } }, /_ancestor_of.* of field .*tree/],
    [{ filter: { title: { _descendant_of: 'top' } } }, /does not contain the .*_descendant_of/],
  ]);
});

t.test('a search looks into the field that the collection names', async (t) => {
  t.strictSame(ids(await search({ search: 'joins' })), [1], 'texts that hold it');
  const named = await request(service, 'PATCH', '/collections/texts', {
    headers,
    body: JSON.stringify({ meta: { search_field: 'words' } }),
  });
  t.match(named.json, { data: { meta: { search_field: 'words' } } }, named.text);
  t.strictSame(ids(await search({ search: 'joins' })), [1, 3], 'words of the language');
  t.strictSame(ids(await search({ search: 'joins -rows', sort: ['-rank(words)'] })), [3]);
  const callers = await withSql(databaseUrl, async (sql) => ({
    some: await makeCaller(sql, 'some', [
      { permissions: [{ collection: 'texts', action: 'read', fields: ['id', 'title'] }] },
    ]),
    all: await makeCaller(sql, 'all', [
      { permissions: [{ collection: 'texts', action: 'read', permissions: { words: { _fts: 'rows' } } }] },
    ]),
  }));
  // What plain SQL wrote is heard of within a moment; the test must not depend on when.
  await request(service, 'POST', '/utils/cache/clear');
  const as = async (token: string, query: string): Promise<unknown> =>
    ids(await get(service, `/items/texts?fields=id&sort=id&${query}`, { token }));
  t.strictSame(await as(callers.some.token, 'search=roses'), [3], 'who may not see it searches what they see');
  t.strictSame(await as(callers.some.token, 'search=joins'), []);
  t.strictSame(await as(callers.all.token, ''), [1, 2], 'a permission by full text');
  t.strictSame(await as(callers.all.token, 'search=join'), [1]);
});
