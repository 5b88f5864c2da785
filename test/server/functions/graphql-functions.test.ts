/** Functions in GraphQL: queries where they only read, mutations where they may write, typed, and for who may call them. */
import { buildSchema, type GraphQLObjectType } from 'graphql';
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
import {
  createLibrary,
  get,
  KNOWS_CALLERS,
  loadSchemas,
  request,
  startDatabase,
  startTestService,
  withSql,
} from '../../support/service.js';
import { StatementCounter } from '../../support/statement-counter.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'graphql_functions');
await loadSchemas(databaseUrl, ['functions.sql']);
await withSql(
  databaseUrl,
  (sql) => sql`insert into service_functions (name, function) values ('tags', 'add'), ('not a name', 'add')`,
);
const counter = await StatementCounter.of(server, 'graphql_functions');
const service = await startTestService({ databaseUrl, WORKERS: '1', ...KNOWS_CALLERS });

async function ask(query: string, variables: object = {}, token?: string): Promise<unknown> {
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify({ query, variables });
  return (await request(service, 'POST', '/graphql', { headers, body, ...(token ? { token } : {}) })).json;
}

t.test('the schema has typed arguments and results', async (t) => {
  const schema = buildSchema((await get(service, '/server/specs/graphql')).text);
  const [queries, mutations] = [schema.getQueryType()?.getFields() ?? {}, schema.getMutationType()?.getFields() ?? {}];
  const shown = (name: string): string => {
    const field = queries[name] ?? mutations[name];
    return `${field?.args.map((each) => `${each.name}: ${each.type}`).join(', ')} => ${field?.type}`;
  };
  t.equal(shown('add'), 'a: Int!, b: Int => Int');
  t.equal(shown('total'), 'numbers: JSON => GraphQLBigInt');
  t.equal(shown('numbers'), 'up_to: Int! => [Int]');
  t.equal(shown('spread'), 'values_of: JSON! => spread_result');
  t.equal(shown('places'), ' => [places_result!]');
  t.equal(shown('grow'), 'given: JSON!, by: GraphQLBigInt => grow_result');
  t.equal(shown('nothing'), ' => Void');
  t.equal(shown('area'), 'side: Int, width: Int, height: Int, radius: Int, exact: Boolean => String');
  t.match(shown('articles_of'), /filter: articles_filter, .*writer: Int! => \[articles!\]/);
  t.match(shown('articles_of_aggregated'), /writer: Int! => \[articles_aggregated!\]/);
  t.equal(shown('article_titled'), 'title: String! => articles');
  t.ok(mutations['publish'] && !queries['publish'] && !mutations['add'], 'what may write is a mutation');
  t.equal(String(queries['tags']?.type), '[tags!]!', 'collections keep their names');
  t.notOk(queries['secret'] ?? queries['unnamed']);
  t.strictSame(Object.keys((schema.getType('spread_result') as GraphQLObjectType).getFields()), ['low', 'high']);
});

t.test('one operation calls several and reads collections, as one statement', async (t) => {
  const query = `fragment S on spread_result { low top: high __typename }
    query ($a: Int!) {
      add(a: $a) again: add(a: 1, b: 2) total(numbers: [1, 2]) numbers(up_to: 2) spread(values_of: [3, 9]) { ...S }
      places { size name } grow(given: {name: "x", size: 1}) { size } no_place { name } nothing area(side: 2)
      articles_of(writer: 1, sort: ["-id"], limit: 1, filter: {status: {_eq: "published"}}) { id author { name } comments { body } }
      articles_of_aggregated(writer: 1, groupBy: ["status"]) { group countAll max { views } }
      article_titled(title: "Zebra") { id } missing: article_titled(title: "None") { id }
      authors_by_id(id: 1) { name }
    }`;
  const expected = {
    data: {
      add: 15,
      again: 3,
      total: '3',
      numbers: [2, 1],
      spread: { low: 3, top: 9, __typename: 'spread_result' },
      places: [
        { size: '1', name: 'a' },
        { size: '9007199254740993', name: 'b' },
      ],
      grow: { size: '2' },
      no_place: null,
      nothing: null,
      area: 'square 4',
      articles_of: [{ id: '8', author: { name: 'Ada Lovelace' }, comments: [{ body: 'on beta' }] }],
      articles_of_aggregated: [{ group: { status: 'published' }, countAll: 3, max: { views: 250 } }],
      article_titled: { id: '6' },
      missing: null,
      authors_by_id: { name: 'Ada Lovelace' },
    },
  };
  t.strictSame(await ask(query, { a: 5 }), expected);
  const { answer, counts } = await counter.count(() => ask(query, { a: 5 }));
  t.strictSame(answer, expected);
  t.strictSame(
    counts.map(({ calls }) => calls),
    [1],
  );
});

t.test('mutations call what may write, in one transaction with other writes', async (t) => {
  const query = `mutation {
    create_tags_item(data: {name: "before"}) { name }
    write_article(title: "By GraphQL", writer: 1, comment: "So it is") { title comments { body } }
    publish(article: 3) { id status }
    count_up
  }`;
  t.match(await ask(query), {
    data: {
      create_tags_item: { name: 'before' },
      write_article: [{ title: 'By GraphQL', comments: [{ body: 'So it is' }] }],
      publish: { id: '3', status: 'published' },
      count_up: /^\d+$/,
    },
  });
  const failed = await ask(
    'mutation { create_tags_item(data: {name: "undone too"}) { id } refuse_write(reason: "No.") }',
  );
  t.match(failed, { errors: [{ message: /No\./, path: ['refuse_write'] }] });
  t.match((await get(service, '/items/tags?filter[name][_starts_with]=undone')).json, { data: [] });
});

t.test('wrong arguments are named', async (t) => {
  t.match(await ask('{ mood_of(given: "sad") }'), { errors: [{ message: /given/, path: ['mood_of'] }] });
  t.match(await ask('{ echo(day: "2023-02-30") { day } }'), { errors: [{ message: /day/ }] });
  t.match(await ask('{ add }'), { errors: [{ message: /"a"/ }] });
  t.match(await ask('{ area(side: 1, width: 2) }'), { errors: [{ message: /No overload/ }] });
  t.match(await ask('{ refuse(reason: "Not now.") }'), { errors: [{ message: /Not now/ }] });
});

t.test('a caller finds and calls what they may, and sees what they may', async (t) => {
  const { token } = await withSql(databaseUrl, (sql) =>
    makeCaller(sql, 'reader', [
      {
        permissions: [
          ...['add', 'articles_of', 'write_article', 'numbers'].map((collection) => ({
            collection,
            action: 'execute' as const,
          })),
          { collection: 'articles', action: 'read', permissions: { id: { _eq: 1 } }, fields: ['id', 'title'] },
        ],
      },
    ]),
  );
  t.strictSame(await ask('{ add(a: 1) articles_of(writer: 1) { id } }', {}, token), {
    data: { add: 11, articles_of: [{ id: '1' }] },
  });
  t.match(await ask('{ total }', {}, token), { errors: [{ message: /total/ }] });
  t.match(await ask('{ articles_of(writer: 1) { views } }', {}, token), { errors: [{}] });
  t.match(await ask('mutation { publish(article: 3) { id } }', {}, token), { errors: [{}] });
  t.strictSame(await ask('mutation { write_article(title: "x", writer: 1) { id } }', {}, token), {
    data: { write_article: [] },
  });
  const { token: blind } = await withSql(databaseUrl, (sql) =>
    makeCaller(sql, 'blind', [
      {
        permissions: ['articles_of', 'write_article'].map((collection) => ({ collection, action: 'execute' as const })),
      },
    ]),
  );
  t.match(await ask('{ articles_of(writer: 1) { id } }', {}, blind), { errors: [{}] });
  t.strictSame(await ask('mutation { write_article(title: "y", writer: 1) }', {}, blind), {
    data: { write_article: null },
  });
});
