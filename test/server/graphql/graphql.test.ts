/** GraphQL queries and mutations on the library: what is asked is what comes back, in the order of the document. */
import t from 'tap';
import { createLibrary, request, startDatabase, startTestService, withSql } from '../../support/service.js';

t.setTimeout(180_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'graphql');
await withSql(databaseUrl, async (sql) => {
  await sql`create table settings (id serial primary key, title text default 'Untitled', price numeric(10, 2) default 1.5)`;
  await sql`insert into service_collections (collection, singleton) values ('settings', true)`;
  await sql`create table values_of_types (
    id uuid primary key default gen_random_uuid(), big bigint, exact numeric(30, 10), tags text, moment timestamptz, span int4range,
    numbers int[], secret text, long_name_of_a_field_that_is_as_long_as_a_name_may_be_in_postgre int, "not a name" int)`;
  await sql`insert into service_fields (collection, field, special) values
    ('values_of_types', 'tags', 'cast-csv'), ('values_of_types', 'secret', 'conceal')`;
  await sql`insert into values_of_types (id, big, exact, tags, moment, span, numbers, secret) values
    ('00000000-0000-0000-0000-000000000001', 9007199254740993, 1.5, 'a,b', '2024-01-02T03:04:05Z', '[1,5)', '{1,2}', 'hidden')`;
  await sql`create table articles_by_id (id serial primary key, note text)`;
  await sql`create table articles_filter (id serial primary key, note text)`;
  await sql`create table "select" (id serial primary key, "create" boolean)`;
  await sql`comment on table tags is 'Words that articles are found by'`;
  await sql`comment on column tags.name is 'One word'`;
});
const service = await startTestService({ databaseUrl });

async function ask(query: string, variables: object = {}, path = '/graphql'): Promise<unknown> {
  const body = JSON.stringify({ query, variables });
  return (await request(service, 'POST', path, { headers: { 'content-type': 'application/json' }, body })).json;
}

t.test('keys stand in the order of the document', async (t) => {
  const query = '{ z: tags(limit: 1) { name id __typename } __typename a: authors_by_id(id: 1) { id } }';
  const { text } = await request(service, 'POST', '/graphql', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query }),
  });
  t.equal(text, '{"data":{"z":[{"name":"news","id":"1","__typename":"tags"}],"__typename":"Query","a":{"id":"1"}}}');
});

t.test('fragments, directives and fields that merge', async (t) => {
  const query = `query ($no: Boolean!, $yes: Boolean = true) {
    articles(limit: 1) { ...A author @skip(if: $no) { name } author @include(if: $yes) { id } comments(limit: 1) { id } }
  }
  fragment A on articles { id ...B @include(if: $no) comments(limit: 1) { body ... @include(if: true) { author { name } } } }
  fragment B on articles { title }`;
  t.strictSame(await ask(query, { no: false }), {
    data: {
      articles: [
        {
          id: '1',
          comments: [{ body: 'Nice!', author: { name: 'Alan Turing' }, id: '1' }],
          author: { name: 'Ada Lovelace', id: '1' },
        },
      ],
    },
  });
  t.match(await ask(query, { no: true, yes: false }), {
    data: { articles: [{ id: '1', title: 'Hello World', author: undefined }] },
  });
  t.strictSame(await ask('{ tags(limit: 1) { id @skip(if: true) } articles @include(if: false) { id } }'), {
    data: { tags: [{}] },
  });
});

t.test('unions: fragments by type, aliases, what no fragment covers', async (t) => {
  const query = `{ articles_by_key: authors_by_id(id: 1) { articles(limit: 1) { blocks(sort: ["id"]) {
    one: item { __typename ...T ... on block_image { link: url } }
    two: item { ... on block_quote { link: who } }
  } } } } fragment T on block_text { text }`;
  t.strictSame(await ask(query), {
    data: {
      articles_by_key: {
        articles: [
          {
            blocks: [
              { one: { __typename: 'block_text', text: 'Intro text' }, two: {} },
              { one: { __typename: 'block_image', link: 'https://img.example.com/1.jpg' }, two: {} },
              { one: { __typename: 'block_quote' }, two: { link: 'Hamlet' } },
            ],
          },
        ],
      },
    },
  });
});

t.test('functions, aggregates and groups', async (t) => {
  const query = `{
    articles(filter: { comments_func: { count: { _gt: 2 } }, published_at_func: { year: { _eq: 2023 } } }) {
      published_at_func { y: year month __typename } comments_func { count } meta_func { count json(path: "nested.a[1]") }
    }
    articles_aggregated(groupBy: ["status"], sort: ["-countAll"], having: { count: { _gt: 2 } }) {
      by: group n: countAll count { id t: title __typename } avg { rating } max { published_at title }
    }
    all: articles_aggregated { group countDistinct { status } }
  }`;
  t.strictSame(await ask(query), {
    data: {
      articles: [
        {
          published_at_func: { y: 2023, month: 1, __typename: 'datetime_functions' },
          comments_func: { count: 3 },
          meta_func: { count: null, json: 2 },
        },
      ],
      articles_aggregated: [
        {
          by: { status: 'published' },
          n: 5,
          count: { id: 5, t: 5, __typename: 'articles_aggregated_count' },
          avg: { rating: 3.748 },
          max: { published_at: '2024-12-25T18:00:00.000Z', title: 'Zebra' },
        },
        {
          by: { status: 'draft' },
          n: 3,
          count: { id: 3, t: 3, __typename: 'articles_aggregated_count' },
          avg: { rating: 50000002.495 },
          max: { published_at: '2023-02-25T23:59:59.000Z', title: 'hello lower' },
        },
      ],
      all: [{ group: null, countDistinct: { status: 3 } }],
    },
  });
});

t.test('types: how each value is shown', async (t) => {
  const query = `{ values_of_types { id big exact tags moment span numbers secret } settings { id title price __typename } }`;
  t.strictSame(await ask(query), {
    data: {
      values_of_types: [
        {
          id: '00000000-0000-0000-0000-000000000001',
          big: '9007199254740993',
          exact: 1.5,
          tags: ['a', 'b'],
          moment: '2024-01-02T03:04:05.000Z',
          span: '[1,5)',
          numbers: [1, 2],
          secret: '**********',
        },
      ],
      settings: { id: null, title: 'Untitled', price: 1.5, __typename: 'settings' },
    },
  });
});

t.test('names: collections come first, fields have names that GraphQL can write', async (t) => {
  const answer = (await ask(`{
    query: __type(name: "Query") { fields { name type { name ofType { name ofType { ofType { name } } } } } }
    own: __type(name: "articles_filter") { kind } generated: __type(name: "articles_filter_") { kind }
    values: __type(name: "values_of_types") { fields { name } } tags: __type(name: "tags") { description fields { name description } }
    select: __type(name: "select_relation_input") { kind } }`)) as {
    data: Record<string, { fields: { name: string }[] }>;
  };
  const byId = answer.data['query']?.fields.find(({ name }) => name === 'articles_by_id');
  t.match(
    byId,
    { type: { ofType: { ofType: { ofType: { name: 'articles_by_id' } } } } },
    'the collection of that name',
  );
  t.match(answer.data, { own: { kind: 'OBJECT' }, generated: { kind: 'INPUT_OBJECT' } });
  t.ok(answer.data['values']?.fields.every(({ name }) => /^[A-Za-z_][A-Za-z0-9_]*$/.test(name)));
  t.match(answer.data['tags'], {
    description: 'Words that articles are found by',
    fields: [{ name: 'id' }, { name: 'name', description: 'One word' }],
  });
  const long = 'x'.repeat(64);
  t.match(await ask(`{ ${long}: tags(limit: 1) { id } }`), { data: { [long]: [{ id: '1' }] } });
  t.match(await ask(`{ tags(limit: 1) { ${long}: id } }`), {
    errors: [{ path: ['tags'], extensions: { code: 'INVALID_QUERY' } }],
  });
});

t.test('errors say where they belong; what may be null leaves the rest', async (t) => {
  const forbidden = { extensions: { code: 'FORBIDDEN' } };
  t.strictSame(
    await ask('{ a: authors_by_id(id: 404) { id } b: tags(limit: 1) { id } c: tags_by_id(id: "x") { id } }'),
    {
      data: { a: null, b: [{ id: '1' }], c: null },
      errors: [
        {
          message: "You don't have permission to access this.",
          path: ['a'],
          locations: [{ line: 1, column: 3 }],
          ...forbidden,
        },
        {
          message: "You don't have permission to access this.",
          path: ['c'],
          locations: [{ line: 1, column: 61 }],
          ...forbidden,
        },
      ],
    },
  );
  t.match(await ask('{ a: authors_by_id(id: 1) { articles(sort: ["nope"]) { id } } tags(limit: 1) { id } }'), {
    data: { a: null, tags: [{ id: '1' }] },
    errors: [{ path: ['a'], extensions: { code: 'FORBIDDEN' } }],
  });
  t.match(await ask('{ articles { comments(filter: { id: { _in: [] } }) { id } } }'), {
    data: null,
    errors: [
      { path: ['articles', 'comments'], locations: [{ line: 1, column: 14 }], extensions: { code: 'INVALID_QUERY' } },
    ],
  });
  t.match(await ask('{ articles(filter: { views: { _eq: "abc" } }) { id } }'), {
    data: null,
    errors: [{ path: ['articles'], extensions: { code: 'INVALID_QUERY' } }],
  });
  t.match(await ask('{ articles(limit: -5) { id } }'), {
    data: null,
    errors: [{ extensions: { code: 'INVALID_QUERY' } }],
  });
  t.match(
    await ask(
      '{ articles { id author { articles { author { articles { author { articles { author { articles { author { articles { author { id } } } } } } } } } } } } }',
    ),
    {
      errors: [{ extensions: { code: 'INVALID_QUERY' } }],
    },
  );
});

t.test('mutations: forms of payloads, all or nothing, in order', async (t) => {
  const create = `mutation ($data: create_articles_input!) { create_articles_item(data: $data) {
    title author { name } comments { body } tags { tags_id { name } } blocks { item { ... on block_text { text } } } } }`;
  const data = {
    title: 'By GraphQL',
    author: { name: 'New Author' },
    comments: [{ body: 'one' }, { body: 'two' }],
    tags: [{ tags_id: { id: 1 } }, { tags_id: { name: 'fresh' } }],
    blocks: [{ collection: 'block_text', item: { text: 'a block' } }],
  };
  t.strictSame(await ask(create, { data }), {
    data: {
      create_articles_item: {
        title: 'By GraphQL',
        author: { name: 'New Author' },
        comments: [{ body: 'one' }, { body: 'two' }],
        tags: [{ tags_id: { name: 'news' } }, { tags_id: { name: 'fresh' } }],
        blocks: [{ item: { text: 'a block' } }],
      },
    },
  });
  t.strictSame(
    await ask(`mutation { update_articles_item(id: 1, data: { comments: {
      create: [{ body: "new" }], update: [{ id: 1, body: "changed" }], delete: [2] } }) { comments { body } } }`),
    { data: { update_articles_item: { comments: [{ body: 'changed' }, { body: 'Spam' }, { body: 'new' }] } } },
    'the detailed form',
  );
  t.strictSame(
    await ask(`mutation { first: create_tags_item(data: { name: "x" }) { name } second: create_tags_items(data: [{ name: "y" }, { name: "z" }], sort: ["-name"], limit: 1) { name }
      third: update_authors_batch(data: [{ id: 2, bio: "B" }, { id: 1, bio: "A" }]) { id bio } __typename
      fourth: delete_comments_item(id: 9) { key: id __typename } fifth: update_settings(data: { title: "Set" }) { id title } }`),
    {
      data: {
        first: { name: 'x' },
        second: [{ name: 'z' }],
        third: [
          { id: '2', bio: 'B' },
          { id: '1', bio: 'A' },
        ],
        __typename: 'Mutation',
        fourth: { key: '9', __typename: 'delete_one' },
        fifth: { id: '1', title: 'Set' },
      },
    },
  );
  t.match(
    await ask('mutation { create_tags_item(data: { name: "undone" }) { id } delete_tags_item(id: 9999) { id } }'),
    {
      data: null,
      errors: [{ path: ['delete_tags_item'], locations: [{ line: 1, column: 62 }], extensions: { code: 'FORBIDDEN' } }],
    },
  );
  t.strictSame(await ask('{ tags(filter: { name: { _eq: "undone" } }) { id } }'), { data: { tags: [] } });
  t.match(
    await ask('mutation { update_articles_item(id: 1, data: { comments: [{ create: [], body: "x" }] }) { id } }'),
    {
      errors: [{ extensions: { code: 'INVALID_PAYLOAD' } }],
    },
  );
  t.match(await ask('mutation { create_authors_item(data: { name: "x", email: "ada@example.com" }) { id } }'), {
    errors: [{ extensions: { code: 'FAILED_VALIDATION', collection: 'authors', field: 'email', type: 'unique' } }],
  });
  t.match(await ask('mutation { create_select_item(data: { create: true }) { id create } }'), {
    data: { create_select_item: { id: '1', create: true } },
  });
});

t.test('a change of the schema of the database is a change of the GraphQL schema', async (t) => {
  t.match(await ask('{ later { id } }'), { errors: [{ extensions: { code: 'INVALID_QUERY' } }] });
  await withSql(databaseUrl, (sql) => sql`create table later (id serial primary key)`);
  let answer: unknown;
  for (let attempt = 0; attempt < 100; attempt++) {
    answer = await ask('{ later { id } }');
    if ('data' in (answer as object)) break;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  t.strictSame(answer, { data: { later: [] } });
});

t.test('a caller without permissions sees nothing', async (t) => {
  const body = (query: string) => ({
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query }),
    token: null,
  });
  t.match(await request(service, 'POST', '/graphql', body('{ _empty __typename }')), {
    status: 200,
    json: { data: { _empty: null, __typename: 'Query' } },
  });
  t.match(await request(service, 'POST', '/graphql', body('{ articles { id } }')), {
    status: 400,
    json: { errors: [{ locations: [{ line: 1, column: 3 }], extensions: { code: 'INVALID_QUERY' } }] },
  });
  t.match(await request(service, 'POST', '/graphql', body('mutation { delete_tags_item(id: 1) { id } }')), {
    status: 400,
  });
});
