/** GraphQL over WebSockets with the `graphql-ws` client as it is: live queries, events, errors, and the codes of the protocol. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Client, createClient } from 'graphql-ws';
import t from 'tap';
import { WebSocket } from 'ws';
import { readConfig } from '../../../src/app/options.js';
import { keepConnections } from '../../../src/features/sockets/connection.js';
import { createClientAddressResolver } from '../../../src/server/http/client-address.js';
import { chooseTransport } from '../../../src/server/http/listen.js';
import { socketServer } from '../../../src/server/http/websocket.js';
import { inForce, makeCaller } from '../../support/callers.js';
import { MessageSocket } from '../../support/message-socket.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

const server = await startDatabase({ own: true });
const url = await createLibrary(server, 'graphqlsocket');
const sql = connectSql(url);
t.teardown(() => sql.end());
const service = await startTestService({
  databaseUrl: url,
  WORKERS: '1',
  LIVE_MAX_SUBSCRIPTIONS_PER_CONNECTION: '20',
  WEBSOCKETS_GRAPHQL_AUTH_TIMEOUT: '1s',
});
const address = `${service.url.replace(/^http/, 'ws')}/graphql`;

function connect(token: string | null = ADMIN_TOKEN): Client {
  const connectionParams = token === null ? {} : { access_token: token };
  const client = createClient({ url: address, webSocketImpl: WebSocket, connectionParams, retryAttempts: 0 });
  t.teardown(() => void client.dispose());
  return client;
}

/** The key and the name of items that show whether events are told yet. */
const PROBE = '99999';

/** Nothing says when a subscription to events has begun: some come before. */
async function begun(change: () => Promise<unknown>, ...all: readonly Followed[]): Promise<void> {
  await waitFor(async () => {
    await change();
    await sleep(50);
    return all.every(({ hasBegun }) => hasBegun);
  }, 10_000);
}

let probes = 0;
const probeCreate = (): Promise<unknown> =>
  sql`insert into tags (id, name) values (${`${PROBE}${++probes}`}, ${PROBE})`;
const probeDelete = (): Promise<unknown> =>
  sql`delete from tags where id = (select min(id) from tags where name = ${PROBE})`;

interface Followed {
  hasBegun: boolean;
  readonly results: Record<string, unknown>[];
  /** What it ended with; undefined until then, null without an error. */
  ending: unknown;
  stop(): void;
}

function follow(client: Client, query: string, variables: Record<string, unknown> = {}): Followed {
  const followed: Followed = { hasBegun: false, results: [], ending: undefined, stop: () => {} };
  followed.stop = client.subscribe(
    { query, variables },
    {
      next: (result) => {
        if (JSON.stringify(result).includes(PROBE)) followed.hasBegun = true;
        else followed.results.push({ ...result });
      },
      error: (error) => {
        followed.ending = error;
      },
      complete: () => {
        followed.ending = null;
      },
    },
  );
  return followed;
}

async function upTo({ results }: Followed, count: number): Promise<unknown[]> {
  await waitFor(async () => results.length >= count, 10_000);
  return results;
}

async function ended(followed: Followed): Promise<unknown> {
  await waitFor(async () => followed.ending !== undefined, 10_000);
  return followed.ending;
}

t.test('a live query: the answer, and each that differs', async (t) => {
  await sql`insert into tags (id, name) values (100, 'first')`;
  const client = connect();
  const list = follow(
    client,
    'subscription ($least: GraphQLStringOrFloat) { tags(filter: { id: { _gte: $least } }, sort: "id") { id name } }',
    {
      least: 100,
    },
  );
  const item = follow(client, 'subscription { tag: tags_by_id(id: 100) { ...shown } } fragment shown on tags { name }');
  const count = follow(client, 'subscription { tags_aggregated { countAll } }');
  t.strictSame(await upTo(list, 1), [{ data: { tags: [{ id: '100', name: 'first' }] } }]);
  t.strictSame(await upTo(item, 1), [{ data: { tag: { name: 'first' } } }]);
  await upTo(count, 1);
  await sql`insert into tags (id, name) values (101, 'second')`;
  await upTo(list, 2);
  t.strictSame(list.results[1], {
    data: {
      tags: [
        { id: '100', name: 'first' },
        { id: '101', name: 'second' },
      ],
    },
  });
  await upTo(count, 2);
  t.equal(item.results.length, 1, 'what has not changed is not sent');
  await sql`delete from tags where id = 100`;
  await upTo(item, 2);
  t.match(item.results[1], { data: { tag: null }, errors: [{ path: ['tag'], extensions: { code: 'FORBIDDEN' } }] });
  list.stop();
  t.equal(await ended(list), null);
});

t.test('queries and mutations are answered once', async (t) => {
  const client = connect();
  const written = follow(client, 'mutation { create_tags_item(data: { id: 150, name: "written" }) { id } }');
  t.equal(await ended(written), null);
  t.strictSame(written.results, [{ data: { create_tags_item: { id: '150' } } }]);
  const read = follow(client, '{ tags_by_id(id: 150) { name } __typename }');
  t.equal(await ended(read), null);
  t.strictSame(read.results, [{ data: { tags_by_id: { name: 'written' }, __typename: 'Query' } }]);
  const twice = follow(client, 'mutation { create_tags_item(data: { id: 150, name: "again" }) { id } }');
  t.equal(await ended(twice), null);
  t.match(twice.results, [{ data: null, errors: [{ extensions: { code: 'FAILED_VALIDATION' } }] }]);
});

t.test('events: each change of an item, with the fields that are selected', async (t) => {
  const client = connect();
  const all = follow(client, 'subscription { tags_mutated { key event data { id name } } }');
  const some = follow(
    client,
    'subscription ($event: EventEnum) { gone: tags_mutated(event: $event) { __typename ...what } } fragment what on tags_mutated { kind: event key one: data { name } data { id } }',
    { event: 'delete' },
  );
  const created = follow(client, 'subscription { tags_mutated(event: create) { data { name tag: name } } }');
  await begun(probeCreate, all, created);
  await begun(probeDelete, some);
  await sql`insert into tags (id, name) values (201, 'a'), (202, 'b')`;
  await upTo(all, 2);
  await sql`update tags set name = 'c' where id = 201`;
  await upTo(all, 3);
  await sql`delete from tags where id = 202`;
  t.strictSame(await upTo(all, 4), [
    { data: { tags_mutated: { key: '201', event: 'create', data: { id: '201', name: 'a' } } } },
    { data: { tags_mutated: { key: '202', event: 'create', data: { id: '202', name: 'b' } } } },
    { data: { tags_mutated: { key: '201', event: 'update', data: { id: '201', name: 'c' } } } },
    { data: { tags_mutated: { key: '202', event: 'delete', data: null } } },
  ]);
  t.strictSame(await upTo(some, 1), [
    { data: { gone: { __typename: 'tags_mutated', kind: 'delete', key: '202', one: null, data: null } } },
  ]);
  t.strictSame(await upTo(created, 2), [
    { data: { tags_mutated: { data: { name: 'a', tag: 'a' } } } },
    { data: { tags_mutated: { data: { name: 'b', tag: 'b' } } } },
  ]);
  await sql`delete from tags where name = ${PROBE}`;
});

t.test('changes that are made right after a subscription was sent are its events', async (t) => {
  const client = connect();
  // It keeps the connection and the stream of changes open.
  const first = follow(client, 'subscription { authors_mutated { data { name } } }');
  await begun(() => sql`update authors set name = ${PROBE} where id = 1`, first);
  const missing: number[] = [];
  for (let round = 0; round < 10; round++) {
    const id = 300 + round;
    await sql`insert into tags (id, name) values (${id}, 'before')`;
    const events = follow(client, 'subscription { tags_mutated { key event } }');
    t.equal((await request(service, 'DELETE', `/items/tags/${id}`)).status, 204);
    const found = await waitFor(async () => events.results.length > 0, 3_000).then(
      () => true,
      () => false,
    );
    if (!found) missing.push(round);
    else t.strictSame(events.results, [{ data: { tags_mutated: { key: String(id), event: 'delete' } } }]);
    events.stop();
  }
  t.strictSame(missing, [], 'no round is without its event');
  first.stop();
});

t.test('rows and fields are those that the caller may see now', async (t) => {
  const rule = { collection: 'articles', action: 'read', permissions: { status: { _eq: 'published' } } } as const;
  const caller = await makeCaller(sql, 'follower', [{ permissions: [{ ...rule, fields: ['id', 'title', 'status'] }] }]);
  await inForce(service, caller, '/items/articles');
  const client = connect(caller.token);
  t.match(await ended(follow(client, 'subscription { authors_mutated { data { name } } }')), [
    { message: /authors_mutated/ },
  ]);
  t.match(await ended(follow(client, 'subscription { articles { body } }')), [{ message: /body/ }]);
  const events = follow(client, 'subscription { articles_mutated { key event data { title } } }');
  const list = follow(client, 'subscription { articles(filter: { id: { _gte: 300 } }) { id title } }');
  await upTo(list, 1);
  await sql`insert into articles (id, title, status) values (299, 'before', 'published')`;
  await begun(() => sql`update articles set title = ${PROBE} where id = 299`, events);
  await sql`insert into articles (id, title, status) values (300, 'hidden', 'draft'), (301, 'shown', 'published')`;
  t.strictSame(await upTo(events, 1), [
    { data: { articles_mutated: { key: '301', event: 'create', data: { title: 'shown' } } } },
  ]);
  await upTo(list, 2);
  t.strictSame(list.results[1], { data: { articles: [{ id: '301', title: 'shown' }] } });
  const before = performance.now();
  await sql`update service_permissions set fields = 'id,status' where policy = ${caller.policies[0] ?? ''}`;
  t.match(await ended(list), [{ message: /title/ }], 'a field that is gone ends a live query');
  t.ok(performance.now() - before < 1_000, `within a second: ${Math.round(performance.now() - before)} ms`);
  await sql`update articles set title = 'secret' where id = 301`;
  const shown = follow(client, 'subscription { articles(filter: { id: { _gte: 300 } }) { id } }');
  await upTo(shown, 1);
  t.equal(events.results.length, 1, 'nothing is told of it');
  t.notMatch(JSON.stringify([events, list]), /secret|hidden/);
  await sql`delete from articles where id in (300, 301)`;
  await upTo(shown, 2);
});

t.test('an invalid document is an error of its operation alone', async (t) => {
  const client = connect();
  for (const [query, message] of [
    ['subscription {', /Syntax Error/],
    ['subscription { nothing }', /Cannot query field/],
    ['subscription { tags { id } articles { id } }', /only one top level field/],
    ['subscription { tags_mutated(event: other) { key } }', /EventEnum/],
    ['', /Must provide query/],
  ] as const)
    t.match(await ended(follow(client, query)), [{ message, extensions: { code: /./ } }], query);
  const post = await request(service, 'POST', '/graphql', {
    body: JSON.stringify({ query: 'subscription { tags { id } }' }),
    headers: { 'content-type': 'application/json' },
  });
  t.match(post.json, { errors: [{ message: /WebSocket/ }] });
  const events = await fetch(`${service.url}/graphql?query=${encodeURIComponent('subscription { tags { id } }')}`, {
    headers: { accept: 'text/event-stream', authorization: `Bearer ${ADMIN_TOKEN}` },
  });
  const reader = events.body?.getReader();
  const first = await reader?.read();
  t.match(Buffer.from(first?.value ?? []).toString(), /event: next\ndata: \{"data":\{"tags":\[/);
  await reader?.cancel();
});

t.test('the schema shows both kinds of fields', async (t) => {
  const text = (await get(service, '/server/specs/graphql')).text;
  t.match(text, /type tags_mutated \{\n {2}key: ID!\n {2}event: EventEnum\n {2}data: tags\n\}/);
  t.match(text, /type Subscription \{[^}]*\n {2}tags_mutated\(event: EventEnum\): tags_mutated\n/);
  t.match(text, /type Subscription \{[^}]*\n {2}tags_aggregated\(/);
  const query = '{ __schema { subscriptionType { fields { name } } } }';
  const { text: body } = await get(service, `/graphql?query=${encodeURIComponent(query)}`);
  t.match(body, /"tags_by_id".*"articles_mutated"/);
});

const raw = async (path = '/graphql', protocols: string | null = 'graphql-transport-ws'): Promise<MessageSocket> => {
  const socket = new MessageSocket(service, { path, protocols });
  t.teardown(() => socket.close());
  return socket.opened();
};

const init = { type: 'connection_init', payload: { access_token: ADMIN_TOKEN } };

async function acknowledged(): Promise<MessageSocket> {
  const socket = await raw();
  socket.send(init);
  await socket.next(({ type }) => type === 'connection_ack');
  return socket;
}

t.test('messages that the protocol does not know end the connection with its codes', async (t) => {
  const subscribe = { id: 's', type: 'subscribe', payload: { query: 'subscription { tags { id } }' } };
  for (const [messages, code] of [
    [['{'], 4400],
    [['[]'], 4400],
    [[{ type: 'unheard-of' }], 4400],
    [[{ ...init, payload: 5 }], 4400],
    [[init, { ...subscribe, id: 5 }], 4400],
    [[init, { ...subscribe, id: 'x'.repeat(2_000) }], 4400],
    [[init, { ...subscribe, payload: { query: {} } }], 4400],
    [[init, { type: 'subscribe', id: 'a' }], 4400],
    [[init, `{"type":"ping","payload":{"a":${'['.repeat(50_000)}${']'.repeat(50_000)}}}`], 4400],
    [[subscribe], 4401],
    [[{ type: 'connection_init' }], 4403],
    [[{ ...init, payload: { access_token: 'wrong' } }], 4403],
    [[{ ...init, payload: { access_token: 5 } }], 4403],
    [[], 4408],
    [[init, subscribe, subscribe], 4409],
    [[init, init], 4429],
  ] as const) {
    const socket = await raw();
    for (const message of messages) {
      socket.send(message);
      if (message === init && messages.length > 1 && messages[1] !== init)
        await socket.next(({ type }) => type === 'connection_ack');
    }
    await socket.ended();
    t.equal(socket.closed?.code, code, JSON.stringify(messages).slice(0, 100));
  }
  const other = await raw('/graphql', null);
  await other.ended();
  t.equal(other.closed?.code, 4406);
  t.equal((await raw('/graphql?access_token=wrong')).status, 401);
});

t.test('pings are answered, and an id is free again when its operation has ended', async (t) => {
  const socket = await acknowledged();
  socket.send({ type: 'ping', payload: { at: 1 } });
  t.strictSame(await socket.next(({ type }) => type === 'pong'), { type: 'pong', payload: { at: 1 } });
  for (let turn = 0; turn < 3; turn++) {
    socket.send({ id: 'q', type: 'subscribe', payload: { query: 'subscription { tags { id } }' } });
    await socket.next(({ type }) => type === 'next');
    socket.send({ id: 'q', type: 'complete' });
  }
  socket.send({ id: 'unknown', type: 'complete' });
  for (let each = 0; each < 21; each++)
    socket.send({ id: `n${each}`, type: 'subscribe', payload: { query: 'subscription { tags { id } }' } });
  t.match(await socket.next(({ type }) => type === 'error'), {
    id: 'n20',
    payload: [{ extensions: { code: 'REQUESTS_EXCEEDED' } }],
  });
});

t.test('a token that is withdrawn ends the connection', async (t) => {
  const read = { collection: 'tags', action: 'read' } as const;
  const caller = await makeCaller(sql, 'leaving', [{ permissions: [read] }]);
  await inForce(service, caller, '/items/tags');
  const events = follow(connect(caller.token), 'subscription { tags { id } }');
  await upTo(events, 1);
  await sql`update service_users set token = null where id = ${caller.user}`;
  t.match(await ended(events), { code: 4403 });
});

t.test('a token that expires: the client comes back with a new one, and goes on', async (t) => {
  const brief = await startTestService({ databaseUrl: url, WORKERS: '1', ACCESS_TOKEN_TTL: '2s' });
  const headers = { 'content-type': 'application/json' };
  const account = JSON.stringify({ email: 'eve@example.com', password: 'a long password' });
  t.equal((await request(service, 'POST', '/users', { body: account, headers })).status, 200);
  await sql`insert into service_access ("user", policy)
    select u.id, p.id from service_users u, service_policies p where u.email = 'eve@example.com' and p.admin_access limit 1`;
  const codes: number[] = [];
  let logins = 0;
  const client = createClient({
    url: `${brief.url.replace(/^http/, 'ws')}/graphql`,
    webSocketImpl: WebSocket,
    retryAttempts: 20,
    retryWait: () => sleep(50),
    shouldRetry: () => true,
    connectionParams: async () => {
      const { json } = await request(brief, 'POST', '/auth/login', { body: account, headers });
      logins++;
      return { access_token: Object(json).data.access_token };
    },
    on: { closed: (event) => codes.push(Object(event).code) },
  });
  t.teardown(() => void client.dispose());
  const tags = follow(client, 'subscription { tags_aggregated { countAll } }');
  await upTo(tags, 1);
  await waitFor(async () => codes.length > 0, 10_000);
  t.equal(codes[0], 4403);
  await upTo(tags, 2);
  t.ok(logins > 1);
  t.equal(tags.ending, undefined);
});

t.test('anonymous clients are served where they may be, and what they may not see is no field', async (t) => {
  t.match(await ended(follow(connect(null), 'subscription { tags { id } }')), { code: 4403 });
  const other = await startTestService({ databaseUrl: url, WORKERS: '1', WEBSOCKETS_GRAPHQL_AUTH: 'public' });
  const open = createClient({
    url: `${other.url.replace(/^http/, 'ws')}/graphql`,
    webSocketImpl: WebSocket,
    retryAttempts: 0,
  });
  t.teardown(() => void open.dispose());
  const nobody = follow(open, '{ __typename }');
  t.equal(await ended(nobody), null);
  t.strictSame(nobody.results, [{ data: { __typename: 'Query' } }]);
  t.match(await ended(follow(open, 'subscription { tags { id } }')), [{ message: /subscription/ }]);
});

t.test('a connection that is ended while it opens is not kept', async (t) => {
  const config = readConfig({});
  let closed = 0;
  let kept = 0;
  const protocol = keepConnections(0, (socket, _, onClosed) => {
    socket.end(4406);
    const nothing = (): void => {};
    return {
      message: nothing,
      drained: nothing,
      ping: nothing,
      recheck: nothing,
      stop: () => kept++,
      closed: () => {
        closed++;
        onClosed();
      },
    };
  });
  const hooks = {
    clientAddress: createClientAddressResolver(config),
    timing: false,
    timingFor: 'false' as const,
    answersOrigins: false,
    names: null,
    positions: null,
    caches: false,
    respond: () => {},
    respondError: () => {},
    openResponse: () => {
      throw new Error('no response stays open here');
    },
  };
  const door = { path: '/door', connections: null, cookieName: '', maxMessageBytes: 1_024, accept: async () => '' };
  const options = { config, hooks, limit: null, admit: () => {}, refuse: () => {} };
  const sockets = [socketServer({ ...door, ...protocol }, options)];
  const { transport } = await chooseTransport(config);
  const address = { host: '127.0.0.1', port: 0, shared: false };
  const { port, close } = await transport.open(address, { get: () => {}, any: () => {}, sockets });
  t.teardown(close);
  for (let each = 0; each < 3; each++) {
    const socket = new MessageSocket({ url: `http://127.0.0.1:${port}` }, { path: '/door' });
    await socket.ended();
    t.equal(socket.closed?.code, 4406);
  }
  t.equal(closed, 3);
  protocol.stop();
  t.equal(kept, 0);
});
