/** Webhooks: changes by the API and by SQL are posted, signed and in order, and nothing but the changes that were asked for. */
import { createHmac } from 'node:crypto';
import { Webhook } from 'standardwebhooks';
import t, { type Test } from 'tap';
import { runCommand } from '../../support/command.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  get,
  request,
  runProgram,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { type Received, type Receiver, startReceiver } from '../../support/webhook-receiver.js';

// On a busy machine the services and programs that it starts take most of the time.
t.setTimeout(120_000);
const server = await startDatabase();
const url = await createLibrary(server, 'webhooks');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql.unsafe(`
  create type mood as enum ('sad', 'glad');
  create table keyless (v text);
  create table pairs (a int, b text, v text, primary key (a, b));
  create table moments (at timestamptz, code bytea, primary key (at, code));
  create table odd (id bigint primary key, m mood, list mood[], f float8, n numeric, d jsonb, bytes bytea, span daterange);
  create table parted (id int primary key, v text) partition by range (id);
  create table parted_low partition of parted for values from (0) to (100)`);

const options = { databaseUrl: url, WORKERS: '1', WEBHOOKS_ALLOW_LOCAL: 'true', WEBHOOK_RETRY_DELAYS: '50ms,100ms' };
const service = await startTestService(options);
const receiver = await startReceiver();

interface Created {
  readonly id: string;
  readonly secret: string;
}

/** A request with a JSON body, of the administrator unless another token is given. */
function send(method: string, path: string, body?: object, token = ADMIN_TOKEN): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(service, method, path, { token, headers, ...(body && { body: JSON.stringify(body) }) });
}

async function create(t: Test, webhook: object, to: Receiver = receiver): Promise<Created> {
  const answer = await send('POST', '/webhooks', { name: t.name, url: `${to.url}/hook`, ...webhook });
  t.equal(answer.status, 200, answer.text);
  to.received.length = 0;
  const { id, secret } = (answer.json as { data: Created }).data;
  t.teardown(() => send('DELETE', `/webhooks/${id}`));
  return { id, secret };
}

const act = (id: string, name: string, body?: object): Promise<Answer> => send('POST', `/webhooks/${id}/${name}`, body);

/** Event, key and the data without the fields that the library has by default. */
const brief = ({ json: { event, key, data } }: Received): unknown[] => [event, key, data];

/** Different items arrive in any order. */
const byKey = (one: unknown[], other: unknown[]): number => (String(one[1]) < String(other[1]) ? -1 : 1);

t.test('changes by the API and by SQL arrive with the item as the API shows it', async (t) => {
  await create(t, { collections: ['tags'] });
  await send('POST', '/items/tags', { id: 900, name: 'one' });
  await sql`update tags set name = 'two' where id = 900`;
  await sql`delete from tags where id = 900`;
  const received = await receiver.count(3);
  t.strictSame(
    received.map(brief).map(([event, key]) => [event, key]),
    [
      ['create', '900'],
      ['update', '900'],
      ['delete', '900'],
    ],
  );
  t.match(received[1]?.json, { type: 'tags.update', data: { id: 900, name: 'two' }, previous: { name: 'one' } });
  t.match(received[2]?.json.data, { name: 'two' });
  t.match(received[0]?.headers, { 'content-type': 'application/json', 'user-agent': 'lateral' });
});

t.test('filter, fields and events select what is sent', async (t) => {
  const filter = { _and: [{ status: { _eq: 'published' } }, { author: { name: { _starts_with: 'Ada' } } }] };
  await sql`insert into authors (id, name) values (700, 'Ada L'), (701, 'Bob')`;
  await create(t, {
    collections: ['articles'],
    events: ['create', 'update'],
    filter,
    fields: ['title', 'author.name'],
  });
  await sql`insert into articles (id, title, status, author) values (700, 'draft', 'draft', 700), (701, 'of Bob', 'published', 701),
    (702, 'sent', 'published', 700)`;
  await sql`update articles set status = 'published' where id = 700`;
  await sql`delete from articles where id between 700 and 702`;
  await sql`insert into articles (id, title, status, author) values (703, 'last', 'published', 700)`;
  await receiver.count(3);
  t.strictSame(receiver.received.map(brief).sort(byKey), [
    ['update', '700', { title: 'draft', author: { name: 'Ada L' } }],
    ['create', '702', { title: 'sent', author: { name: 'Ada L' } }],
    ['create', '703', { title: 'last', author: { name: 'Ada L' } }],
  ]);
});

t.test('keys of several columns, tables without a key, truncate and partitions', async (t) => {
  await create(t, { collections: ['pairs', 'keyless', 'parted'] });
  await sql`insert into pairs values (1, 'a~b', 'x')`;
  await sql`update pairs set b = 'c' where a = 1`;
  await receiver.count(3);
  t.strictSame(
    receiver.received.map(({ json: { event, key } }) => [event, key]).sort(),
    [
      ['create', '1~a\\~b'],
      ['create', '1~c'],
      ['delete', '1~a\\~b'],
    ],
    'a change of the key deletes one item and creates another',
  );
  receiver.received.length = 0;
  await sql`insert into keyless values ('first')`;
  await sql`update keyless set v = 'second'`;
  await sql`truncate keyless`;
  await sql`insert into keyless values ('third')`;
  await receiver.count(4);
  t.strictSame(receiver.received.map(brief), [
    ['create', null, { v: 'first' }],
    ['update', null, { v: 'second' }],
    ['truncate', null, null],
    ['create', null, { v: 'third' }],
  ]);
  receiver.received.length = 0;
  await sql`insert into parted values (1, 'root')`;
  await sql`update parted_low set v = 'partition'`;
  await receiver.count(2);
  t.strictSame(
    receiver.received.map(({ json: { collection, event, data } }) => [collection, event, data]),
    [
      ['parted', 'create', { id: 1, v: 'root' }],
      ['parted', 'update', { id: 1, v: 'partition' }],
    ],
  );
});

t.test('values of all kinds survive, whatever the settings of the writer', async (t) => {
  await create(t, { collections: ['odd'] });
  await sql.begin(async (sql) => {
    await sql`set local extra_float_digits = -10`;
    await sql`set local datestyle = 'SQL, DMY'`;
    await sql`set local bytea_output = 'escape'`;
    await sql`set local timezone = 'Asia/Tokyo'`;
    await sql`insert into odd values (9007199254740993, 'glad', '{sad,glad}', 0.1::float8 + 0.2::float8, 'NaN', '{"a":[1,"é"]}',
      '\\x00ff', '[2026-02-01,2026-03-04)')`;
  });
  await receiver.count(1);
  const shown = await get(service, '/items/odd/9007199254740993', { token: ADMIN_TOKEN });
  t.equal(receiver.received[0]?.body.match(/"data":(.*)}$/)?.[1], shown.text.match(/"data":(.*)}$/)?.[1]);
});

t.test('a rolled back change is not sent, and one transaction sends all of its changes', async (t) => {
  await create(t, { collections: ['tags'] });
  await sql
    .begin(async (sql) => {
      await sql`insert into tags (id, name) values (910, 'never')`;
      throw new Error('undo');
    })
    .catch(() => {});
  await sql.begin(async (sql) => {
    await sql`insert into tags (id, name) values (911, 'a')`;
    await sql`update tags set name = 'b' where id = 911`;
    await sql`insert into tags (id, name) values (911, 'c') on conflict (id) do update set name = excluded.name`;
  });
  await receiver.count(3);
  t.strictSame(
    receiver.received.map(({ json: { data } }) => data?.['name']),
    ['a', 'b', 'c'],
  );
});

t.test('keys are written in one way, whatever the settings of the writer', async (t) => {
  await create(t, { collections: ['moments'] });
  await sql.begin(async (sql) => {
    await sql`set local timezone = 'Asia/Tokyo'`;
    await sql`set local bytea_output = 'escape'`;
    await sql`insert into moments values ('2026-01-01T00:00:00Z', '\\x00ff')`;
  });
  const [first] = await receiver.count(1);
  t.match(first?.json.key, /^2026-01-01T00:00:00\+00:00~\\{1,2}x00ff$/);
});

t.test('the trigger makes no SERIALIZABLE writer fail', async (t) => {
  await create(t, { collections: ['tags'] });
  const one = connectSql(url);
  const other = connectSql(url);
  t.teardown(() => Promise.all([one.end(), other.end()]));
  for (const session of [one, other]) await session.unsafe('begin isolation level serializable');
  await one`insert into tags (id, name) values (960, 'one')`;
  await other`insert into tags (id, name) values (961, 'other')`;
  await one.unsafe('commit');
  await t.resolves(other.unsafe('commit'));
  await receiver.count(2);
});

t.test('changes that the service cannot read in time wait', async (t) => {
  const { id } = await create(t, { collections: ['tags'] });
  const locker = connectSql(url);
  t.teardown(() => locker.end());
  await locker.unsafe('begin');
  await locker`lock table service_webhook_deliveries in exclusive mode`;
  await sql`insert into tags (id, name) values (962, 'late')`;
  let cancelled = 0;
  await waitFor(async () => {
    cancelled += (
      await sql`select pg_cancel_backend(pid) from pg_stat_activity where datname = current_database()
        and wait_event_type = 'Lock' and query like '%service_webhook_deliveries%'`
    ).length;
    return cancelled >= 3;
  }, 10_000);
  await locker.unsafe('commit');
  await receiver.count(1);
  t.match(await sql`select incomplete_since from service_webhooks where id = ${id}`, [{ incomplete_since: null }]);
});

t.test('deliveries are signed; after a rotation both secrets sign', async (t) => {
  const { id, secret } = await create(t, { collections: ['tags'] });
  t.match(secret, /^whsec_[A-Za-z0-9+/]{43}=$/);
  const verify = ({ headers, body }: Received, key: string): boolean => {
    try {
      new Webhook(key).verify(body, headers as Record<string, string>);
      return true;
    } catch {
      return false;
    }
  };
  await sql`insert into tags (id, name) values (920, 'signed')`;
  const [first] = await receiver.count(1);
  t.ok(first && verify(first, secret));
  t.notOk(first && verify({ ...first, body: `${first.body} ` }, secret), 'a changed body');
  const shown = await get(service, `/webhooks/${id}`, { token: ADMIN_TOKEN });
  t.match(shown.json, { data: { secret: '**********', previous_secret: null } });
  const rotated = await act(id, 'rotate');
  const { secret: next } = (rotated.json as { data: { secret: string } }).data;
  t.not(next, secret);
  // A delivery that was prepared before has the former signature alone.
  await waitFor(async () => {
    const { length } = receiver.received;
    await sql`update tags set name = 'again' where id = 920`;
    const second = (await receiver.count(length + 1)).at(-1);
    return second !== undefined && verify(second, secret) && verify(second, next);
  }, 5_000);
});

t.test('a failed delivery is repeated in order, then dead, and can be sent again', async (t) => {
  const { id } = await create(t, { collections: ['tags'] });
  let isBroken = true;
  receiver.answer = ({ json: { key } }, response) =>
    void response.writeHead(isBroken && key === '930' ? 500 : 200).end('x'.repeat(2_000));
  await sql`insert into tags (id, name) values (930, 'a')`;
  await sql`update tags set name = 'b' where id = 930`;
  await sql`insert into tags (id, name) values (931, 'other')`;
  const deliveries = async () => {
    const path = `/webhook_deliveries?filter[webhook][_eq]=${id}&sort=sequence&fields=item,status,attempts,response_status,response_body`;
    return ((await get(service, path, { token: ADMIN_TOKEN })).json as { data: Record<string, unknown>[] }).data;
  };
  await waitFor(async () => (await deliveries()).filter(({ status }) => status === 'dead').length === 2, 10_000);
  const [dead, , delivered] = await deliveries();
  t.match(dead, { item: '930', status: 'dead', attempts: 3, response_status: 500 });
  t.equal(String(dead?.['response_body']).length, 1_024);
  t.match(delivered, { item: '931', status: 'delivered', attempts: 1 }, 'other items do not wait');
  const ofItem = receiver.received.filter(({ json: { key } }) => key === '930');
  t.strictSame(
    ofItem.map(({ json: { data } }) => data?.['name']),
    ['a', 'a', 'a', 'b', 'b', 'b'],
  );
  t.equal(new Set(ofItem.map(({ headers }) => headers['webhook-id'])).size, 2, 'all attempts have the same id');
  isBroken = false;
  receiver.received.length = 0;
  t.match((await act(id, 'redeliver')).json, { data: { count: 2 } });
  await receiver.count(2);
  t.strictSame(
    receiver.received.map(({ json: { data } }) => data?.['name']),
    ['a', 'b'],
  );
  receiver.answer = (_, response) => void response.writeHead(204).end();
});

t.test('a failed truncate with thousands of followers blocks nothing but its own table', async (t) => {
  const { id } = await create(t, { collections: ['parted', 'tags'] });
  await act(id, 'pause');
  await sql`insert into service_webhook_deliveries (webhook, sequence, collection, event, item, payload, attempts, next_attempt_at)
    select ${id}, n, 'parted', case n when 2 then 'truncate' else 'update' end, case when n <> 2 then n::text end,
      json_build_object('event', n), 1, now() + case when n < 3 then interval '1 hour' else '-1 hour' end
    from generate_series(1, 5000) n`;
  await sql`insert into tags (id, name) values (935, 'other table')`;
  await act(id, 'resume');
  const [first] = await receiver.count(1);
  t.equal(first?.json.collection, 'tags', 'the followers are due, and wait');
  await sql`update service_webhook_deliveries set next_attempt_at = now() where webhook = ${id} and sequence < 3 and collection = 'parted'`;
  const order = (await receiver.count(20)).slice(1, 3).map(({ json: { event } }) => event);
  t.strictSame(order, [1, 2], 'the truncate waits for older ones, and later ones wait for it');
});

t.test('a paused webhook keeps its changes; an inactive one does not', async (t) => {
  const { id } = await create(t, { collections: ['tags'] });
  t.match(await act(id, 'pause'), { status: 200 });
  await sql`insert into tags (id, name) values (940, 'kept')`;
  t.match(await act(id, 'resume'), { status: 200 });
  await receiver.count(1);
  await send('PATCH', `/webhooks/${id}`, { status: 'inactive' });
  const triggers = async () => (await sql`select from pg_trigger where tgname like 'service_webhook%'`).length;
  await waitFor(async () => (await triggers()) === 0, 5_000);
  await sql`update tags set name = 'unseen' where id = 940`;
  t.match(await act(id, 'resume'), { status: 400 });
  t.match((await act(id, 'test')).json, { data: { delivered: true, status: 204, error: null } });
  t.equal(receiver.received.at(-1)?.json.type, 'tags.test');
  t.equal(receiver.received.length, 2);
});

t.test('a receiver that hangs delays no other', async (t) => {
  const slow = await startReceiver();
  slow.answer = () => {};
  await create(t, { collections: ['tags'] }, slow);
  await create(t, { collections: ['tags'] });
  const start = Date.now();
  await sql`insert into tags (id, name) select n, 'x' from generate_series(2000, 2099) n`;
  await receiver.count(100);
  t.ok(Date.now() - start < 8_000);
  t.ok(slow.received.length <= 8);
});

t.test('bad webhooks are refused, and only administrators write them', async (t) => {
  const good = { name: 'x', url: 'https://example.com/x', collections: ['tags'] };
  const bad: readonly [object, RegExp][] = [
    [{ url: 'ftp://example.com' }, /"url" must be/],
    [{ url: 'http://user:x@example.com' }, /credentials/],
    [{ collections: [] }, /"collections" must be/],
    [{ collections: 'tags' }, /"collections" must be/],
    [{ collections: ['nothing'] }, /nothing/],
    [{ collections: ['service_users'] }, /belongs to the service/],
    [{ events: ['created'] }, /"events" must be some of/],
    [{ filter: { nam: { _eq: 'x' } } }, /nam/],
    [{ filter: { name: { _is: 'x' } } }, /_is/],
    [{ fields: ['nothing'] }, /nothing/],
    [{ headers: { 'Webhook-Id': 'x' } }, /cannot contain/],
    [{ headers: { 'X-A': 'a\r\nB: c' } }, /printable/],
    [{ secret: 'short' }, /whsec_/],
    [{ status: 'on' }, /status/],
  ];
  for (const [part, expected] of bad) {
    const answer = await send('POST', '/webhooks', { ...good, ...part });
    t.ok(answer.status >= 400 && answer.status < 500, `${answer.status} ${JSON.stringify(part)}`);
    t.match(answer.text.replaceAll('\\"', '"'), expected);
  }
  await sql`insert into service_users (email, token) values ('reader@example.com', encode(sha256('a-token-of-the-reader'), 'hex'))`;
  for (const [method, path] of [
    ['POST', '/webhooks'],
    ['GET', '/webhooks'],
    ['POST', '/webhooks/x/rotate'],
  ] as const) {
    const answer = await send(method, path, method === 'GET' ? undefined : good, 'a-token-of-the-reader');
    t.equal(answer.status, 403, `${method} ${path}`);
  }
  t.match((await get(service, '/webhooks', { token: ADMIN_TOKEN })).json, { data: [] });
});

t.test('changes that cannot be recorded do not fail the writer: the webhook is incomplete', async (t) => {
  const { id } = await create(t, { collections: ['tags'] });
  await sql`alter table service_webhook_changes add constraint broken check (event <> 'create')`;
  await sql`insert into tags (id, name) values (950, 'missed')`;
  await sql`alter table service_webhook_changes drop constraint broken`;
  const incomplete = async () => {
    const { json } = await get(service, `/webhooks/${id}?fields=incomplete_since,incomplete_reason`, {
      token: ADMIN_TOKEN,
    });
    return (json as { data: { incomplete_reason: string | null } }).data.incomplete_reason;
  };
  await waitFor(async () => (await incomplete()) !== null, 5_000);
  t.match(await incomplete(), /broken/);
  await sql`update tags set name = 'sent' where id = 950`;
  await receiver.count(1);
  t.match(await act(id, 'resume'), { status: 200 });
  t.equal(await incomplete(), null);
});

t.test('a dropped table, a renamed one and a new key keep the triggers right', async (t) => {
  await sql`create table passing (id int primary key, v text)`;
  await send('POST', '/utils/cache/clear');
  const { id } = await create(t, { collections: ['passing'] });
  await sql`alter table passing drop constraint passing_pkey, add column code text primary key default 'c'`;
  await waitFor(async () => (await triggerArguments('passing')).includes('code'), 10_000);
  await sql`insert into passing values (1, 'v', 'k')`;
  const [first] = await receiver.count(1);
  t.equal(first?.json.key, 'k');
  await sql`alter table passing rename to passed`;
  const reason = async (): Promise<unknown> => {
    const { json } = await get(service, `/webhooks/${id}?fields=incomplete_reason`);
    return (json as { data: { incomplete_reason: string | null } }).data.incomplete_reason;
  };
  await waitFor(async () => (await reason()) !== null, 10_000);
  t.match(await reason(), /the collection "passing" does not exist/);
  await waitFor(async () => (await triggerArguments('passed')) === '', 10_000);
  await sql`drop table passed`;
});

async function triggerArguments(table: string): Promise<string> {
  const rows = await sql<{ text: string }[]>`
    select encode(tgargs, 'escape') as text from pg_trigger
    where tgrelid = to_regclass(${table}) and tgname like 'service\\_webhook\\_insert%'`;
  return rows.map(({ text }) => text).join();
}

t.test('beyond WEBHOOK_MAX_BACKLOG one event replaces many, and the tables stay small', async (t) => {
  const small = await createLibrary(server, 'webhooks_backlog');
  const limited = await startTestService({ ...options, databaseUrl: small, WEBHOOK_MAX_BACKLOG: '100' });
  const held = await startReceiver();
  const waiting: (() => void)[] = [];
  held.answer = (_, response) => void waiting.push(() => response.writeHead(204).end());
  const writer = connectSql(small);
  t.teardown(() => writer.end());
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify({ name: 'x', url: held.url, collections: ['tags', 'authors'] });
  t.equal((await request(limited, 'POST', '/webhooks', { headers, body })).status, 200);
  for (let round = 0; round < 40; round++)
    await writer`insert into tags (id, name) select n, 'x' from generate_series(${1_000 + round * 20}::int, ${1_019 + round * 20}::int) n`;
  const webhook = async () => (await writer`select status, incomplete_reason from service_webhooks`)[0];
  await waitFor(async () => (await webhook())?.['incomplete_reason'] !== null, 10_000);
  t.match(await webhook(), { status: 'active', incomplete_reason: /resync.* of "tags".*WEBHOOK_MAX_BACKLOG/ });
  await writer`update tags set name = 'y'`;
  await writer`insert into authors (id, name) values (999, 'not lost')`;
  const left = async (): Promise<number> =>
    Number((await writer`select count(*)::int as count from service_webhook_changes`)[0]?.['count']);
  await waitFor(async () => (await left()) === 0, 10_000);
  const [{ count } = { count: 0 }] = await writer<{ count: number }[]>`
    select count(*)::int from service_webhook_deliveries`;
  t.ok(count <= 900, `${count} deliveries`);
  const { text } = await get(limited, '/server/health');
  t.match(text, /webhooks:pending/);
  held.answer = (_, response) => void response.writeHead(204).end();
  for (const answer of waiting) answer();
  const types = () => held.received.map(({ json: { type } }) => type);
  await waitFor(async () => types().includes('tags.resync') && types().includes('authors.create'), 20_000);
  t.match(held.received.find(({ json: { event } }) => event === 'resync')?.json, { key: null, data: null });
  const pending = async () => (await writer`select from service_webhook_deliveries where status = 'pending'`).length;
  await waitFor(async () => (await pending()) === 0, 20_000);
  held.received.length = 0;
  await writer`update tags set name = 'z' where id = 1000`;
  t.match(
    (await held.count(1))[0]?.json,
    { event: 'update', key: '1000' },
    'after the resync, changes arrive one by one',
  );
});

t.test('a bulk change that is rolled back looks like no backlog', async (t) => {
  const small = await createLibrary(server, 'webhooks_undone');
  const limited = await startTestService({ ...options, databaseUrl: small, WEBHOOK_MAX_BACKLOG: '100' });
  const writer = connectSql(small);
  t.teardown(() => writer.end());
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify({ name: 'x', url: receiver.url, collections: ['tags'] });
  receiver.received.length = 0;
  t.equal((await request(limited, 'POST', '/webhooks', { headers, body })).status, 200);
  const state = async () =>
    (
      await writer`select status, incomplete_reason, (select count(*)::int from service_webhook_changes) as changes from service_webhooks`
    )[0];
  for (const rows of [90, 150]) {
    const undone = writer.begin(async (sql) => {
      for (let part = 0; part < 3; part++)
        await sql`insert into tags (id, name) select n, 'x' from generate_series(${10_000 + part * 1_000}::int, ${9_999 + part * 1_000 + rows}::int) n`;
      throw new Error('undo');
    });
    await t.rejects(undone);
    await writer`insert into tags (id, name) values (${rows}, 'kept')`;
  }
  await receiver.count(2);
  t.strictSame(receiver.received.map(({ json: { key } }) => key).sort(), ['150', '90']);
  t.match(await state(), { status: 'active', incomplete_reason: null });
  await writer.begin(async (sql) => {
    for (let part = 0; part < 3; part++)
      await sql`insert into tags (id, name) select n, 'x' from generate_series(${20_000 + part * 100}::int, ${20_059 + part * 100}::int) n`;
  });
  await waitFor(async () => (await state())?.['incomplete_reason'] !== null, 10_000);
  t.match(await state(), { status: 'active', incomplete_reason: /a transaction made more than 100 changes/ });
  await waitFor(async () => receiver.received.some(({ json: { event } }) => event === 'resync'), 10_000);
});

t.test('a template makes the body that a chat wants', async (t) => {
  const template = {
    text: 'Tag {{ key }} is "{{data.name}}" ({{event}}), was {{previous.name}}',
    id: '{{data.id}}',
    n: 1,
  };
  const { id, secret } = await create(t, { collections: ['tags'], template });
  await sql`insert into tags (id, name) values (980, ${'a "quoted" \\ {{key}} \u2028 name'})`;
  const [first] = await receiver.count(1);
  t.strictSame(JSON.parse(first?.body ?? ''), {
    text: 'Tag 980 is "a "quoted" \\ {{key}} \u2028 name" (create), was ',
    id: 980,
    n: 1,
  });
  const content = `${first?.headers['webhook-id']}.${first?.headers['webhook-timestamp']}.${first?.body}`;
  const key = Buffer.from(secret.replace('whsec_', ''), 'base64');
  t.equal(first?.headers['webhook-signature'], `v1,${createHmac('sha256', key).update(content).digest('base64')}`);
  const [stored] = await sql`select payload from service_webhook_deliveries where webhook = ${id}`;
  t.match(stored?.['payload'], { data: { id: 980 } }, 'the delivery keeps the whole change');
  const bad: readonly [unknown, RegExp][] = [
    ['{{data.name}}', /must be a JSON object or list/],
    [{ text: '{{secret}}' }, /placeholders begin with one of/],
    [{ text: '{{data.nam}}' }, /no collection of the webhook has this field/],
    [{ text: '{{data..name}}' }, /only data and previous have fields/],
    [{ text: '{{ data.name' }, /without a path/],
    [{ text: '{{event.constructor}}' }, /only data and previous have fields/],
    [{ text: 'x'.repeat(20_000) }, /longer than/],
  ];
  for (const [wrong, expected] of bad)
    t.match(await send('PATCH', `/webhooks/${id}`, { template: wrong }), { status: 400, text: expected });
});

t.test('lateral webhooks', async (t) => {
  const { id } = await create(t, { name: 'by hand', collections: ['tags'] });
  const environment = { DATABASE_URL: url, WEBHOOKS_ALLOW_LOCAL: 'true' };
  const run = (...words: string[]) => runCommand(['webhooks', ...words], environment);
  t.match(
    (await runProgram(['webhooks', 'list'], environment)).output,
    new RegExp(`${id}  by hand  active.*0 pending, 0 dead`),
  );
  t.match(await run('test', 'by hand'), { code: 0, output: /^delivered: status 204/ });
  t.match(await run('deliveries', id), { code: 0, output: /tags\.test {2}delivered \(1\) {2}status 204/ });
  t.match(await run('pause', 'nothing'), { code: 1, complaints: /There is no webhook "nothing"/ });
  t.match(await run('shout'), { code: 2, complaints: /webhooks expects one of list, test/ });
});

t.test('local addresses are refused by default, also behind a name', async (t) => {
  const other = await createLibrary(server, 'webhooks_strict');
  const strict = await startTestService({ databaseUrl: other, WORKERS: '1' });
  const headers = { 'content-type': 'application/json' };
  for (const host of [
    '127.0.0.1',
    '[::1]',
    'localhost',
    '10.0.0.1',
    '169.254.169.254',
    '[::ffff:127.0.0.1]',
    '0x7f.1',
  ]) {
    const body = JSON.stringify({ name: 'x', url: `http://${host}:9/`, collections: ['tags'] });
    const answer = await request(strict, 'POST', '/webhooks', { headers, body });
    t.match(answer, { status: 400, text: /local address/ }, host);
  }
  const redirecting = await startReceiver();
  redirecting.answer = (_, response) => void response.writeHead(307, { location: receiver.url }).end();
  const { id } = await create(t, { collections: ['tags'] }, redirecting);
  t.match((await act(id, 'test')).json, { data: { delivered: false, status: 307 } });
  t.match((await act(id, 'redeliver')).json, { data: { count: 0 } }, 'a test is not sent again');
});
