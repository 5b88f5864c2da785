/** Apollo Client as it is: its subscription link speaks to /graphql over a WebSocket. */
import { ApolloClient, gql, InMemoryCache } from '@apollo/client';
import { GraphQLWsLink } from '@apollo/client/link/subscriptions';
import { createClient } from 'graphql-ws';
import t from 'tap';
import { WebSocket } from 'ws';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

// Browsers have it, and so has Node from 22 on; the link names it.
Object.assign(globalThis, { WebSocket });

const server = await startDatabase({ own: true });
const url = await createLibrary(server, 'apollo');
const sql = connectSql(url);
t.teardown(() => sql.end());
const service = await startTestService({ databaseUrl: url, WORKERS: '1' });

const socket = createClient({
  url: `${service.url.replace(/^http/, 'ws')}/graphql`,
  connectionParams: async () => ({ access_token: ADMIN_TOKEN }),
});
const client = new ApolloClient({ link: new GraphQLWsLink(socket), cache: new InMemoryCache() });
t.teardown(async () => {
  client.stop();
  await socket.dispose();
});

t.test('a live query, and what it says is in the cache', async (t) => {
  await sql`insert into tags (id, name) values (5000, 'one')`;
  const answers: unknown[] = [];
  const query = gql`subscription ($id: ID!) { tags_by_id(id: $id) { id name } }`;
  const subscription = client
    .subscribe({ query, variables: { id: '5000' } })
    .subscribe(({ data }) => answers.push(data));
  await waitFor(async () => answers.length === 1, 10_000);
  await sql`update tags set name = 'uno' where id = 5000`;
  await waitFor(async () => answers.length === 2, 10_000);
  t.match(answers, [{ tags_by_id: { name: 'one' } }, { tags_by_id: { __typename: 'tags', id: '5000', name: 'uno' } }]);
  t.match(client.cache.extract(), { 'tags:5000': { name: 'uno' } });
  subscription.unsubscribe();
});

t.test('events, and an operation that fails', async (t) => {
  const events: unknown[] = [];
  const query = gql`subscription { tags_mutated(event: update) { key event data { id name } } }`;
  // Null says that changes may have been missed: the log may just have been opened.
  const subscription = client
    .subscribe<{ tags_mutated: unknown }>({ query })
    .subscribe(({ data }) => data?.tags_mutated && events.push(data));
  let count = 0;
  // Nothing says when it has begun.
  await waitFor(async () => {
    await sql`update tags set name = ${`turn ${++count}`} where id = 5000`;
    return events.length > 0;
  }, 10_000);
  t.match(events[0], { tags_mutated: { key: '5000', event: 'update', data: { id: '5000', name: /^turn / } } });
  subscription.unsubscribe();
  const errors: unknown[] = [];
  client
    .subscribe({ query: gql`subscription { nothing { id } }` })
    .subscribe({ next: ({ error }) => errors.push(error), error: (error) => errors.push(error) });
  await waitFor(async () => errors.length > 0, 10_000);
  t.match(String(errors[0]), /Cannot query field "nothing"/);
});

t.test('queries and mutations take the same way', async (t) => {
  const mutation = gql`mutation { update_tags_item(id: 5000, data: { name: "changed" }) { id name } }`;
  t.match(await client.mutate({ mutation }), { data: { update_tags_item: { name: 'changed' } } });
  t.match(
    await client.query({ query: gql`{ tags(filter: { id: { _eq: 5000 } }) { name } }`, fetchPolicy: 'no-cache' }),
    {
      data: { tags: [{ name: 'changed' }] },
    },
  );
});
