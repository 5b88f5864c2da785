/**
 * What PostgreSQL can ask: operators of texts, arrays, ranges, documents, networks, full text and trees, in REST, SEARCH, GraphQL,
 * permissions and validations. Each uses an index where there is one, and a value that does not fit is 400.
 */
import t, { type Test } from 'tap';
import {
  type Answer,
  createDatabase,
  get,
  request,
  startDatabase,
  startTestService,
  withSql,
} from '../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'operators');
await withSql(databaseUrl, async (sql) => {
  await sql
    .unsafe(`
    create table words (id int primary key, word text collate "C", plain text, code varchar(10), mood text);
    insert into words values (1, 'Zebra', 'Zebra', 'a1', 'x'), (2, 'apple', 'apple', 'b2', 'y'), (3, 'Ärger', 'Ärger', 'c3', null),
      (4, 'banana', 'banana', null, 'z'), (5, null, null, 'd4', '');
    create collation german (provider = icu, locale = 'de');
    alter table words alter column plain type text collate german;
    create table many (id int primary key, word text);
    insert into many select n, md5(n::text) from generate_series(1, 20000) n;
    create index many_word on many (word);
    analyze;`)
    .simple();
});
const service = await startTestService({ databaseUrl });
const headers = { 'content-type': 'application/json' };

function search(collection: string, filter: unknown, more: object = {}): Promise<Answer> {
  const query = { fields: ['id'], sort: ['id'], filter, ...more };
  return request(service, 'SEARCH', `/items/${collection}`, { headers, body: JSON.stringify({ query }) });
}

function graphql(query: string, variables: object = {}): Promise<Answer> {
  return request(service, 'POST', '/graphql', { headers, body: JSON.stringify({ query, variables }) });
}

function ids(answer: Answer): unknown {
  return answer.status === 200 ? (answer.json as { data: { id: number }[] }).data.map(({ id }) => id) : answer.text;
}

/** Each filter, with the keys of the items that it finds. */
async function expectIds(
  t: Test,
  collection: string,
  cases: readonly (readonly [filter: object, found: readonly number[]])[],
): Promise<void> {
  for (const [filter, found] of cases)
    t.strictSame(ids(await search(collection, filter)), found, JSON.stringify(filter));
}

/** The statement's plan names the index. */
async function expectIndex(t: Test, path: string, index: string): Promise<void> {
  const answer = await get(service, encodeURI(path), { headers: { prefer: 'explain' } });
  t.equal(answer.status, 200, answer.text);
  const { data } = answer.json as { data: { plan: unknown; sql: string } };
  t.match(JSON.stringify(data.plan), `"Index Name":"${index}"`, `${path}: ${data.sql}`);
}

t.test('texts have an order, that of their column', async (t) => {
  await expectIds(t, 'words', [
    [{ word: { _lt: 'a' } }, [1]],
    [{ plain: { _lt: 'b' } }, [2, 3]],
    [{ word: { _gte: 'apple', _lte: 'banana' } }, [2, 4]],
    [{ word: { _between: ['Z', 'b'] } }, [1, 2]],
    [{ plain: { _between: ['a', 'b'] } }, [2, 3]],
    [{ plain: { _nbetween: ['a', 'b'] } }, [1, 4]],
    [{ code: { _gt: 'b2' } }, [3, 5]],
    [{ mood: { _between: ['', 'x'] } }, [1, 5]],
  ]);
  t.strictSame(ids(await get(service, '/items/words?fields=id&filter[code][_between]=b,d')), [2, 3]);
  const found = await graphql('{ words(filter: { plain: { _lt: "b" } }, sort: ["id"]) { id } }');
  t.strictSame(found.json, { data: { words: [{ id: '2' }, { id: '3' }] } }, found.text);
  const wrong = await search('words', { code: { _between: ['a'] } });
  t.match(wrong, { status: 400, text: /_between.* of .*code.* needs exactly two values/ });
  await expectIndex(t, '/items/many?fields=id&limit=-1&filter[word][_between]=00,01', 'many_word');
  await expectIndex(t, '/items/many?fields=id&limit=-1&filter[word][_lt]=001', 'many_word');
});
