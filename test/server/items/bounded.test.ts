/** Answers have a largest size, all of them together a memory; and a pattern for passwords cannot block anybody. */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { assertPassword } from '../../../src/server/accounts/passwords.js';
import { makeCaller } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

const JSON_HEADERS = { 'content-type': 'application/json' };
const LISTS = ['one', 'two', 'three', 'four'];
/** For seconds in `^(a+)+$`, and not for ever: a test that blocks the process cannot fail. */
const SLOW_PASSWORD = `${'a'.repeat(28)}!`;

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'bounded');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql`create table parents (id integer primary key, name text)`;
await sql`create table children (id serial primary key, parent integer references parents (id), body text)`;
await sql`insert into parents select n, 'parent ' || n from generate_series(1, 3) n`;
// About three megabytes for each parent.
await sql`insert into children (parent, body) select 1 + n % 3, repeat('x', 1000) from generate_series(1, 9000) n`;
await sql`insert into service_relations (many_collection, many_field, one_collection, one_field)
  values ('children', 'parent', 'parents', 'children')`;
const NESTED = `fields=id,children.body&deep[children][_limit]=-1`;

/** Four lists without a limit for each parent. */
const LARGE = `${LISTS.map((name) => `alias[${name}]=children&deep[${name}][_limit]=-1`).join('&')}&fields=id,${LISTS.map((name) => `${name}.body`).join()}`;

const tooLarge = {
  status: 400,
  json: { errors: [{ extensions: { code: 'INVALID_QUERY', option: 'MAX_RESPONSE_SIZE' } }] },
};

/** Asks for a large answer and reads no more of it than its first packet. */
async function requestUnread(service: { readonly url: string }, method: string, body = ''): Promise<Socket> {
  const { hostname, port } = new URL(service.url);
  const head = [
    `${method} /items/parents/1?${LARGE} HTTP/1.1`,
    `Host: ${hostname}`,
    `Authorization: Bearer ${ADMIN_TOKEN}`,
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
  ];
  const client = connect(Number(port), hostname).pause();
  client.write(`${head.join('\r\n')}\r\n\r\n${body}`);
  await once(client, 'readable');
  return client;
}

t.test('an answer that is not streamed has a largest size', async (t) => {
  const service = await startTestService({ databaseUrl, MAX_RESPONSE_SIZE: '8mb' });
  t.match(await get(service, `/items/parents/1?${NESTED}`), { status: 200 });
  t.match(await get(service, `/items/parents/1?${LARGE}`), tooLarge, 'an item');
  t.match(await get(service, `/items/parents?${NESTED}`), tooLarge, 'a list');
  t.match(await get(service, `/items/parents?${LARGE}&limit=-1`), tooLarge, 'a row of a stream');
  const query = '{ parents { children(limit: -1) { body } } }';
  const body = JSON.stringify({ query });
  const asked = await request(service, 'POST', '/graphql', { headers: JSON_HEADERS, body });
  t.match(asked.text, /MAX_RESPONSE_SIZE/, 'GraphQL');
  t.match(
    await get(service, '/items/children?limit=-1&fields=body'),
    { status: 200 },
    'a stream as a whole may be larger',
  );
  for (let turn = 0; turn < 20; turn++) t.match(await get(service, '/items/parents/1?fields=id'), { status: 200 });
});

t.test('one that is too large does not fail those it travels with', async (t) => {
  const service = await startTestService({ databaseUrl, MAX_RESPONSE_SIZE: '1mb', DATABASE_POOL_SIZE: '1' });
  await sql`insert into parents values (9, 'without children')`;
  const path = (key: number): string => `/items/parents/${key}?${NESTED}`;
  for (let turn = 0; turn < 10; turn++) t.match(await get(service, path(9)), { status: 200 });
  const answers = await Promise.all([9, 1, 9, 9, 2, 9, 9, 9].map((key) => get(service, path(key))));
  t.strictSame(
    answers.map(({ status }) => status),
    [200, 400, 200, 200, 400, 200, 200, 200],
  );
});

t.test('an item too large to be shown was written all the same', async (t) => {
  const service = await startTestService({ databaseUrl, MAX_RESPONSE_SIZE: '1mb' });
  const change = (name: string): Promise<Answer> =>
    request(service, 'PATCH', `/items/parents/1?${NESTED}`, { headers: JSON_HEADERS, body: JSON.stringify({ name }) });
  for (const name of ['first', 'second', 'third']) {
    const { status } = await change(name);
    const [row] = await sql`select name from parents where id = 1`;
    // Either it is done and nothing is shown, or it is refused and nothing is done.
    t.ok(
      status === 204 ? row?.['name'] === name : status === 400 && row?.['name'] !== name,
      `${name}: ${status}, ${row?.['name']}`,
    );
  }
});

t.test(
  'where the result is read before the commit, one that is too large is refused and nothing is written',
  async (t) => {
    const service = await startTestService({ databaseUrl, MAX_RESPONSE_SIZE: '64kb' });
    const body = 'y'.repeat(100_000);
    const written = async (): Promise<unknown[]> =>
      (await sql`select count(*) from children where body = ${body}`.values()).flat();
    const before = await written();
    const mutation = 'mutation($body: String) { create_children_item(data: { body: $body }) { body } }';
    const cases: [string, string, unknown, Record<string, string>][] = [
      ['POST', `/items/parents?${NESTED}`, { id: 50, children: [{ body }] }, { 'idempotency-key': 'large' }],
      ['POST', `/items/parents?${NESTED}`, { id: 51, children: [{ id: 100_000, body }] }, {}],
      ['PATCH', '/items/children', { keys: [1], data: { body } }, {}],
      ['PATCH', '/items/children', { query: { filter: { id: { _eq: 1 } } }, data: { body } }, {}],
      ['POST', '/graphql', { query: mutation, variables: { body } }, {}],
      ['POST', '/roles', { name: 'large', description: body }, {}],
    ];
    for (const [method, path, payload, headers] of cases) {
      const options = { headers: { ...JSON_HEADERS, ...headers }, body: JSON.stringify(payload) };
      const answer = await request(service, method, path, options);
      const said = `${method} ${path} ${JSON.stringify(payload).slice(0, 60)}`;
      t.match(answer.text.slice(0, 600), /MAX_RESPONSE_SIZE/, said);
      t.equal(answer.status, path === '/graphql' ? 200 : 400, said);
    }
    t.strictSame(await written(), before);
    t.strictSame([...(await sql`select id from service_roles where name = 'large'`)], []);
    const flat: [unknown, Record<string, string>][] = [
      [{ body }, {}],
      [{ body }, { 'idempotency-key': 'flat' }],
      [{ id: 100_000, body }, {}],
    ];
    for (const [payload, headers] of flat) {
      const options = { headers: { ...JSON_HEADERS, ...headers }, body: JSON.stringify(payload) };
      const done = await request(service, 'POST', '/items/children', options);
      t.equal(done.status, 204, 'a flat create is carried out');
    }
    t.strictSame(await written(), [String(Number(before[0]) + flat.length)]);
  },
);

t.test('a write whose row nobody looks at is done, however large the row is', async (t) => {
  await sql`create table marks (id uuid primary key default gen_random_uuid(), name text)`;
  const writer = await makeCaller(sql, 'writer', [{ permissions: [{ collection: 'marks', action: 'create' }] }]);
  // Started after it has rights: a running service learns of them a moment later.
  const service = await startTestService({ databaseUrl, MAX_RESPONSE_SIZE: '64kb', RESPONSE_MEMORY: '64kb' });
  const body = JSON.stringify(Array.from({ length: 2_000 }, (_, n) => ({ name: `mark ${n}` })));
  const headers = { ...JSON_HEADERS, authorization: `Bearer ${writer.token}` };
  for (let turn = 1; turn <= 3; turn++) {
    const { status } = await request(service, 'POST', '/items/marks', { headers, body });
    const [row] = await sql`select count(*)::int as count from marks`;
    t.strictSame([status, row?.['count']], [204, turn * 2_000]);
  }
});

t.test('large answers share a memory', { timeout: 100_000 }, async (t) => {
  const service = await startTestService({
    databaseUrl,
    WORKERS: '1',
    MAX_RESPONSE_SIZE: '16mb',
    RESPONSE_MEMORY: '16mb',
  });
  const unread = await requestUnread(service, 'GET');
  t.teardown(() => unread.destroy());
  const read = async (): Promise<number> => (await get(service, `/items/parents/2?${LARGE}`)).status;
  await waitFor(async () => (await read()) === 503, 20_000);
  t.match(await get(service, '/items/parents/2?fields=id'), { status: 200 }, 'small ones need no room');
  unread.destroy();
  await waitFor(async () => (await read()) === 200, 20_000);
  const answers = await Promise.all(
    Array.from({ length: 6 }, (_, n) => get(service, `/items/parents/${1 + (n % 3)}?${LARGE}&alias[x${n}]=name`)),
  );
  const statuses = answers.map(({ status }) => status);
  t.ok(
    statuses.every((status) => status === 200 || status === 503),
    statuses.join(),
  );
  t.ok(statuses.includes(200), 'some found room');
  for (let turn = 0; turn < 5; turn++)
    t.match(await get(service, `/items/parents/1?${LARGE}`), { status: 200 }, 'the memory is given back');
});

t.test('several mutations have one largest size together, and what is too large is not written', async (t) => {
  const service = await startTestService({ databaseUrl, MAX_RESPONSE_SIZE: '8mb' });
  const mutate = (name: string, ...keys: number[]): Promise<Answer> => {
    const steps = keys.map(
      (key, n) =>
        `s${n}: update_parents_item(id: ${key}, data: {name: "${name}"}) { name children(limit: -1) { body } }`,
    );
    const body = JSON.stringify({ query: `mutation { ${steps.join(' ')} }` });
    return request(service, 'POST', '/graphql', { headers: JSON_HEADERS, body });
  };
  const small = await mutate('two', 1, 2);
  t.match(small.json, { data: { s0: { name: 'two' }, s1: { name: 'two' } } });
  const large = await mutate('three', 1, 2, 3);
  t.match(large.text.slice(0, 1_000), /MAX_RESPONSE_SIZE/);
  const rows = await sql`select name from parents where id < 4 order by id`;
  t.notOk(rows.some(({ name }) => name === 'three'));
});

t.test('the answer to a write has its memory until the client has read it', { timeout: 60_000 }, async (t) => {
  const service = await startTestService({
    databaseUrl,
    WORKERS: '1',
    MAX_RESPONSE_SIZE: '16mb',
    RESPONSE_MEMORY: '16mb',
  });
  const read = async (): Promise<number> => (await get(service, `/items/parents/2?${LARGE}`)).status;
  t.equal(await read(), 200);
  const client = await requestUnread(service, 'PATCH', '{"name":"unread"}');
  t.teardown(() => client.destroy());
  await waitFor(async () => (await sql`select from parents where name = 'unread'`).length > 0, 20_000);
  await waitFor(async () => (await read()) === 503, 20_000);
  client.destroy();
  await waitFor(async () => (await read()) === 200, 20_000);
});

t.test('a pattern for passwords that takes for ever', { timeout: 60_000 }, async (t) => {
  const service = await startTestService({ databaseUrl, WORKERS: '1' });
  const person = await makeCaller(sql, 'person', [{ app_access: true }]);
  await sql`update service_settings set auth_password_policy = '^(a+)+$'`;
  t.teardown(() => sql`update service_settings set auth_password_policy = null`);
  const choose = (password: string): Promise<Answer> =>
    request(service, 'PATCH', `/users/${person.user}`, { headers: JSON_HEADERS, body: JSON.stringify({ password }) });
  t.match(await choose('aaaaaaaa'), { status: 200 });
  t.match(await choose('bbbb'), { status: 400, json: { errors: [{ extensions: { code: 'FAILED_VALIDATION' } }] } });
  let [longest, last] = [0, performance.now()];
  const timer = setInterval(() => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
  }, 5);
  const refused = await choose(SLOW_PASSWORD);
  await sleep(20);
  clearInterval(timer);
  t.match(refused, { status: 422, json: { errors: [{ extensions: { code: 'UNPROCESSABLE_CONTENT' } }] } });
  t.ok(longest < 2_000, `nobody waited longer than ${Math.round(longest)} ms`);
  t.match(await choose('aaaa'), { status: 200 }, 'and it works as before');
});

t.test('passwords that wait to be matched hold no connections, and few may wait', { timeout: 60_000 }, async (t) => {
  const service = await startTestService({ databaseUrl, WORKERS: '1', DATABASE_POOL_SIZE: '2' });
  const person = await makeCaller(sql, 'patient', [{ app_access: true }]);
  await sql`update service_settings set auth_password_policy = '^(a+)+$'`;
  t.teardown(() => sql`update service_settings set auth_password_policy = null`);
  const password = SLOW_PASSWORD;
  const ask = async (method: string, path: string, body: unknown): Promise<number> => {
    const answer = await request(service, method, path, { headers: JSON_HEADERS, body: JSON.stringify(body) });
    return /UNPROCESSABLE_CONTENT/.test(answer.text) ? 422 : answer.status;
  };
  const query = { filter: { id: { _eq: person.user } } };
  const users = { create: [{ email: 'another@example.com', password }] };
  const mutation = `mutation { update_users_items(ids: ["${person.user}"], data: { password: "${password}" }) { id } }`;
  const slow = [
    ask('PATCH', `/users/${person.user}`, { password }),
    ask('PATCH', '/users', { keys: [person.user], data: { password } }),
    ask('PATCH', '/users', { query, data: { password } }),
    ask('PATCH', '/settings', { public_registration_role: { name: 'new', users } }),
    ask('POST', '/graphql/system', { query: mutation }),
  ];
  const held: number[] = [];
  for (let turn = 0; turn < 20; turn++) {
    await passTime(100, 'samples over two seconds');
    const [row] = await sql<{ count: number }[]>`
      select count(*)::int from pg_stat_activity where datname = current_database() and state = 'idle in transaction'`;
    held.push(row?.count ?? 0);
  }
  t.ok(
    held.every((count) => count === 0),
    `connections in a transaction meanwhile: ${held.join()}`,
  );
  t.strictSame([...new Set(await Promise.all(slow))], [422]);
  const crowd = await Promise.allSettled(Array.from({ length: 40 }, () => assertPassword('^a+$', 'aaa')));
  const refused = crowd.flatMap((each) => (each.status === 'rejected' ? [each.reason.code] : []));
  t.strictSame(refused, Array(8).fill('SERVICE_UNAVAILABLE'));
});

t.test(
  'callers other than administrators set few passwords at a time, and none behind a field that they may not write',
  async (t) => {
    const own = { collection: 'service_users', action: 'update', fields: ['password'] } as const;
    const person = await makeCaller(sql, 'changing', [{ permissions: [own] }]);
    // Started after it has rights: a running service learns of them a moment later.
    const service = await startTestService({ databaseUrl });
    const patch = (path: string, body: unknown) =>
      request(service, 'PATCH', path, { headers: JSON_HEADERS, token: person.token, body: JSON.stringify(body) });
    const items = (count: number) => Array.from({ length: count }, () => ({ id: randomUUID(), password: 'x' }));
    t.match(await patch('/users', items(101)), { status: 400, text: /at most 100 hashed values/ });
    const spent = async (body: unknown): Promise<number> => {
      const before = process.cpuUsage();
      t.match(await patch('/users', body), { status: /40[03]/ });
      return process.cpuUsage(before).user / 1_000;
    };
    const query = { filter: { id: { _eq: person.user } } };
    const behind = await spent({ query, data: { role: { users: items(60) } } });
    t.ok(behind < 600, `${behind} ms for what is refused`);
    const unread = await spent({ query: { filter: {} }, data: { password: 'x' } });
    t.ok(unread < 600, `${unread} ms for a query that is none`);
  },
);
