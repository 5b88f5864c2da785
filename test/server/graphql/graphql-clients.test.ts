/** Clients that people use: graphql-request, Apollo with persisted queries, and the code generator. */
import { createHash } from 'node:crypto';
import { ApolloClient, ApolloLink, gql, HttpLink, InMemoryCache } from '@apollo/client';
import { PersistedQueryLink } from '@apollo/client/link/persisted-queries';
import { codegen } from '@graphql-codegen/core';
import * as typescriptPlugin from '@graphql-codegen/typescript';
import * as operationsPlugin from '@graphql-codegen/typescript-operations';
import { buildClientSchema, getIntrospectionQuery, type IntrospectionQuery, parse, printSchema } from 'graphql';
import { ClientError, GraphQLClient } from 'graphql-request';
import t from 'tap';
import typescript from 'typescript-api';
import { ADMIN_TOKEN, createLibrary, startDatabase, startTestService } from '../../support/service.js';

t.setTimeout(120_000);
const server = await startDatabase();
const service = await startTestService({ databaseUrl: await createLibrary(server, 'clients') });
const endpoint = `${service.url}/graphql`;
const headers = { authorization: `Bearer ${ADMIN_TOKEN}` };

const ARTICLE = `query Article($id: ID!) {
  articles_by_id(id: $id) { id title rating author { name } blocks { item { __typename ... on block_text { text } } } }
}`;

t.test('graphql-request', async (t) => {
  const client = new GraphQLClient(endpoint, { headers });
  t.match(await client.request(ARTICLE, { id: 1 }), {
    articles_by_id: { id: '1', rating: 4.5, author: { name: 'Ada Lovelace' } },
  });
  const created = await client.request(
    'mutation ($data: create_tags_input!) { create_tags_item(data: $data) { name } }',
    {
      data: { name: 'by a client' },
    },
  );
  t.strictSame(created, { create_tags_item: { name: 'by a client' } });
  const refused = await client.request('{ articles { nope } }').catch((error: unknown) => error);
  t.ok(refused instanceof ClientError);
  t.match(refused, { response: { status: 400, errors: [{ extensions: { code: 'INVALID_QUERY' } }] } });
});

t.test('Apollo Client, with persisted queries', async (t) => {
  const bodies: Record<string, unknown>[] = [];
  const http = new HttpLink({
    uri: endpoint,
    headers,
    fetch: (input, init) => {
      bodies.push(JSON.parse(String(init?.body)) as Record<string, unknown>);
      return fetch(input, init);
    },
  });
  const persisted = new PersistedQueryLink({
    sha256: (text: string) => createHash('sha256').update(text).digest('hex'),
  });
  const client = new ApolloClient({ cache: new InMemoryCache(), link: ApolloLink.from([persisted, http]) });
  t.teardown(() => client.stop());
  for (let round = 0; round < 2; round++) {
    const { data } = await client.query({ query: gql(ARTICLE), variables: { id: 1 }, fetchPolicy: 'no-cache' });
    t.match(data, { articles_by_id: { title: 'Hello World', __typename: 'articles' } });
  }
  t.strictSame(
    bodies.map((body) => 'query' in body),
    [false, true, false],
    'the text was sent once',
  );
  const cached = await client.query({ query: gql('{ articles(limit: 2) { id title } }') });
  t.match(cached.data, { articles: [{ id: '1' }, { id: '2' }] });
  t.match(client.cache.extract(), { 'articles:1': { title: 'Hello World' } }, 'items are cached by type and id');
  const failed = await client.query({ query: gql('{ articles_by_id(id: 404) { id } }'), errorPolicy: 'all' });
  t.match(failed, { data: { articles_by_id: null }, error: { errors: [{ extensions: { code: 'FORBIDDEN' } }] } });
});

t.test('graphql-codegen makes types that the compiler accepts', async (t) => {
  const client = new GraphQLClient(endpoint, { headers });
  const introspection = await client.request<IntrospectionQuery>(getIntrospectionQuery());
  const schema = buildClientSchema(introspection);
  const document = parse(
    `${ARTICLE} mutation Create($data: create_articles_input!) { create_articles_item(data: $data) { id } }`,
  );
  const output = await codegen({
    filename: 'types.ts',
    schema: parse(printSchema(schema)),
    documents: [{ location: 'article.graphql', document }],
    config: {},
    plugins: [{ typescript: {} }, { operations: {} }],
    pluginMap: { typescript: typescriptPlugin, operations: operationsPlugin },
  });
  t.match(output, /export type ArticleQuery = /);
  t.match(output, /title: string/);
  const { diagnostics } = typescript.transpileModule(output, { reportDiagnostics: true });
  t.strictSame(
    diagnostics?.map(({ messageText }) => messageText),
    [],
  );
});
