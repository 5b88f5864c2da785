/** Webhooks at their edges: tables that change under them, receivers that ask for a rest, instances with other options, and leftovers. */
import t, { type Test } from 'tap';
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
import { startReceiver } from '../../support/webhook-receiver.js';

t.setTimeout(120_000);
const server = await startDatabase();
const url = await createLibrary(server, 'webhook_edges');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table renamed (id int primary key, v text);
  create table swapped (id int primary key, v text);
  create table guarded (id int primary key, v text)`);

const options = {
  databaseUrl: url,
  WORKERS: '1',
  WEBHOOKS_ALLOW_LOCAL: 'true',
  WEBHOOK_RETRY_DELAYS: '50ms,50ms,50ms',
};
const service = await startTestService(options);
const receiver = await startReceiver();

function send(method: string, path: string, body?: object): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(service, method, path, { token: ADMIN_TOKEN, headers, ...(body && { body: JSON.stringify(body) }) });
}

async function create(t: Test, webhook: object): Promise<string> {
  const answer = await send('POST', '/webhooks', { name: t.name, url: `${receiver.url}/hook`, ...webhook });
  t.equal(answer.status, 200, answer.text);
  receiver.received.length = 0;
  receiver.answer = (_, response) => void response.writeHead(204).end();
  const { id } = (answer.json as { data: { id: string } }).data;
  t.teardown(() => send('DELETE', `/webhooks/${id}`));
  return id;
}

async function stateOf(id: string): Promise<{ status: string; incomplete_reason: string | null }> {
  const { json } = await get(service, `/webhooks/${id}?fields=status,incomplete_reason`, { token: ADMIN_TOKEN });
  return (json as { data: { status: string; incomplete_reason: string | null } }).data;
}

async function reasonOf(id: string): Promise<string> {
  await waitFor(async () => (await stateOf(id)).incomplete_reason !== null, 10_000);
  return (await stateOf(id)).incomplete_reason ?? '';
}

t.test('a webhook is deleted while results of its deliveries are written', async (t) => {
  const COUNT = 8;
  const holder = connectSql(url);
  const deleter = connectSql(url);
  t.teardown(() => Promise.all([holder.end(), deleter.end()]));
  const other = await create(t, { collections: ['tags'], status: 'inactive' });
  await sql`insert into service_webhook_deliveries (webhook, sequence, collection, event, status, payload, finished_at)
    select ${other}, n, 'tags', 'create', 'delivered', '{}', now() from generate_series(1, 20000) n`;
  await sql`vacuum analyze service_webhook_deliveries`;
  for (let round = 0; round < 5; round++) {
    const id = await create(t, { collections: ['tags'] });
    await send('POST', `/webhooks/${id}/pause`);
    const number = (n: number): string => `00000000-0000-4000-8000-${String(100 * round + n).padStart(12, '0')}`;
    // PostgreSQL deletes them by the index on the time, the last one first.
    for (let n = 1; n <= COUNT; n++)
      await sql`insert into service_webhook_deliveries (id, webhook, sequence, collection, event, item, payload, created_at)
        values (${number(n)}, ${id}, ${n}, 'tags', 'update', ${String(n)}, ${sql.json({ n })}, now() - make_interval(secs => ${n}))`;
    const held: (() => void)[] = [];
    receiver.answer = (_, response) => void held.push(() => response.writeHead(204).end());
    await send('POST', `/webhooks/${id}/resume`);
    await receiver.count(COUNT);
    const waiting = (count: number): Promise<number> =>
      waitFor(async () => {
        const [row] = await sql`select count(*)::int as waiting from pg_stat_activity
          where datname = current_database() and wait_event_type = 'Lock'`;
        return row?.['waiting'] >= count;
      }, 10_000);
    let deletion: Promise<unknown> = Promise.resolve();
    await holder.begin(async (holding) => {
      await holding`select from service_webhook_deliveries where id = ${number(COUNT / 2)} for update`;
      for (const answer of held) answer();
      await waiting(1);
      deletion = deleter`delete from service_webhooks where id = ${id}`.then(
        () => 'deleted',
        (error: unknown) => String(error),
      );
      await waiting(2);
    });
    t.equal(await deletion, 'deleted');
  }
});

t.test('old deliveries are deleted, even if all webhooks are inactive', async (t) => {
  const id = await create(t, { collections: ['tags'], status: 'inactive' });
  await sql`insert into service_webhook_deliveries (webhook, sequence, collection, event, status, payload, finished_at)
    values (${id}, 1, 'tags', 'create', 'delivered', '{}', now() - make_interval(days => 10))`;
  await startTestService({ ...options, WEBHOOK_MAX_BACKLOG: '500' });
  const kept = async () => (await sql`select from service_webhook_deliveries`).length;
  await waitFor(async () => (await kept()) === 0, 10_000);
});

t.test('instances with different limits do not replace the triggers of each other', async (t) => {
  await create(t, { collections: ['tags'] });
  const versions = async (): Promise<string> => {
    const rows = await sql`select xmin::text from pg_trigger where tgname like 'service\\_webhook\\_%'`;
    return rows.map(({ xmin }) => xmin).join();
  };
  const before = await versions();
  await sql`create table another (id int primary key)`;
  await waitFor(async () => (await get(service, '/items/another', { token: ADMIN_TOKEN })).status === 200, 10_000);
  await passTime(500, 'the instances check their triggers');
  t.equal(await versions(), before);
});

t.test('a renamed key column leaves a gap, and no events of other kinds', async (t) => {
  const id = await create(t, { collections: ['renamed'] });
  await sql`insert into renamed values (1, 'a')`;
  await receiver.count(1);
  await sql.begin(async (writer) => {
    await writer`alter table renamed rename column id to code`;
    await writer`update renamed set v = 'b'`;
  });
  t.match(await reasonOf(id), /key column/);
  await waitFor(async () => {
    await sql`update renamed set v = v || 'c'`;
    return receiver.received.length > 1;
  }, 10_000);
  t.match(receiver.received[1]?.json, { event: 'update', key: '1', data: { code: 1 } });
});

t.test('settings of the writer do not fail it', async (t) => {
  await create(t, { collections: ['guarded'] });
  await sql.begin(async (writer) => {
    await writer`select set_config('lateral.webhook_changes', 'x', true)`;
    await writer`insert into guarded values (1, 'a')`;
  });
  t.match((await receiver.count(1))[0]?.json, { event: 'create', key: '1' });
});

t.test('a table that is replaced by another of its name leaves the webhook incomplete', async (t) => {
  const id = await create(t, { collections: ['swapped'] });
  await sql.begin(async (writer) => {
    await writer`insert into swapped values (1, 'a')`;
    await writer`drop table swapped`;
    await writer`create table swapped (id int primary key, v text)`;
  });
  t.match(await reasonOf(id), /was dropped before its changes|had no triggers for a while/);
  await waitFor(async () => {
    await sql`insert into swapped values (2, 'b') on conflict (id) do update set v = 'c'`;
    return receiver.received.length > 0;
  }, 10_000);
});

t.test('triggers that somebody disabled are enabled again, and the webhook is incomplete', async (t) => {
  const id = await create(t, { collections: ['guarded'] });
  await sql`insert into guarded values (2, 'noticed')`;
  await receiver.count(1);
  await sql`alter table guarded disable trigger user`;
  t.match(await reasonOf(id), /had no triggers for a while/);
});

t.test('triggers that were disabled while no instance ran make the webhook incomplete', async (t) => {
  const databaseUrl = await createLibrary(server, 'webhook_disabled');
  const owner = connectSql(databaseUrl);
  t.teardown(() => owner.end());
  const first = await startTestService({ ...options, databaseUrl });
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify({ name: t.name, url: receiver.url, collections: ['tags'] });
  t.match(await request(first, 'POST', '/webhooks', { headers, body }), { status: 200 });
  await first.stop();
  await owner`alter table tags disable trigger user`;
  await startTestService({ ...options, databaseUrl });
  const reasons = async () =>
    await owner`select from service_webhooks where incomplete_reason ~ 'had no triggers for a while'`;
  await waitFor(async () => (await reasons()).length === 1, 10_000);
});

t.test('a new webhook that enables the triggers of a table makes the others of the table incomplete', async (t) => {
  const id = await create(t, { collections: ['tags'] });
  await sql`alter table tags disable trigger user`;
  t.teardown(() => sql`alter table tags enable trigger user`);
  await create(t, { collections: ['tags'] });
  const [found] = await sql`select incomplete_reason as reason from service_webhooks where id = ${id}`;
  t.match(found?.['reason'], /had no triggers for a while/);
});

t.test('a webhook is deleted while others read its table, and its last changes go with it', async (t) => {
  const id = await create(t, { collections: ['tags'] });
  await sql.begin(async (writer) => {
    await writer`insert into tags (id, name) values (7001, 'left')`;
    t.equal((await send('DELETE', `/webhooks/${id}`)).status, 204);
  });
  await waitFor(async () => (await sql`select from service_webhook_changes`).length === 0, 10_000);
  const triggers = async () => (await sql`select from pg_trigger where tgname like 'service\\_webhook\\_%'`).length;
  await waitFor(async () => (await triggers()) === 0, 10_000);
});

t.test('Retry-After holds for all deliveries to the receiver', async (t) => {
  await create(t, { collections: ['tags'] });
  const back = Date.now() + 2_500;
  const when = new Date(back).toUTCString();
  receiver.answer = (_, response) => {
    const isBack = Date.now() > Date.parse(when);
    response.writeHead(isBack ? 204 : 429, isBack ? {} : { 'retry-after': when }).end();
  };
  await sql`insert into tags (id, name) select n, 'tag ' || n from generate_series(8001, 8040) n`;
  await receiver.count(40, 15_000);
  const keys = receiver.received.map(({ json }) => json.key);
  await waitFor(async () => new Set(receiver.received.slice(-40).map(({ json }) => json.key)).size === 40, 15_000);
  // Two instances send eight each before the first answer.
  t.ok(keys.length - new Set(keys).size <= 16, `${keys.length} requests for 40 deliveries`);
});

t.test('a receiver that answers 410 gets no more', async (t) => {
  const id = await create(t, { collections: ['tags'] });
  receiver.answer = (_, response) => void response.writeHead(410).end();
  await sql`update tags set name = 'gone' where id = 8001`;
  await waitFor(async () => (await stateOf(id)).status === 'paused', 10_000);
  receiver.answer = (_, response) => void response.writeHead(204).end();
  t.equal((await send('POST', `/webhooks/${id}/resume`)).status, 200);
  await waitFor(async () => receiver.received.length > 1, 10_000);
});

t.test('a secret has the padding that libraries of receivers need', async (t) => {
  const secret = `whsec_${Buffer.alloc(32, 7).toString('base64').replace('=', '')}`;
  const webhook = { name: 'x', url: `${receiver.url}/hook`, collections: ['tags'], secret };
  t.match(await send('POST', '/webhooks', webhook), { status: 400, text: /base64/ });
  const padded = { ...webhook, secret: `${secret}=` };
  const bare = await send('POST', '/webhooks?envelope=false&fields=id,secret', padded);
  t.match(bare, { status: 200, json: { secret: padded.secret } });
  t.teardown(() => send('DELETE', `/webhooks/${(bare.json as { id: string }).id}`));
});

t.test('a status of 2xx accepts, even if the body drips or breaks', async (t) => {
  const id = await create(t, { collections: ['tags'] });
  const dripping: NodeJS.Timeout[] = [];
  t.teardown(() => dripping.forEach(clearInterval));
  receiver.answer = ({ json: { key } }, response) => {
    response.writeHead(200, { 'content-length': '1000000' }).write('accepted', () => {
      if (key === '9501') dripping.push(setInterval(() => response.write('.'), 20));
      else response.destroy();
    });
  };
  await sql`insert into tags (id, name) values (9501, 'drips'), (9502, 'breaks')`;
  const finished = async () =>
    await sql`select status, attempts, response_status, error from service_webhook_deliveries where webhook = ${id} and status <> 'pending'`;
  await waitFor(async () => (await finished()).length === 2, 5_000);
  for (const delivery of await finished())
    t.match(delivery, { status: 'delivered', attempts: 1, response_status: 200, error: null });
  t.equal(receiver.received.length, 2);
});

t.test('headers are shown as little as the secret, also in revisions', async (t) => {
  const id = await create(t, { collections: ['tags'], headers: { Authorization: 'Bearer first' } });
  const path = `/webhooks/${id}`;
  const read = async (): Promise<string> =>
    (await get(service, `${path}?fields=name,headers`, { token: ADMIN_TOKEN })).text;
  t.match(await read(), /"headers":"\*{10}"/);
  await send('PATCH', path, { name: 'same headers', headers: '**********' });
  await sql`insert into tags (id, name) values (9601, 'x')`;
  t.equal((await receiver.count(1))[0]?.headers['authorization'], 'Bearer first', 'the mask changes nothing');
  t.equal((await send('PATCH', path, { headers: { Authorization: 'Bearer second' } })).status, 200);
  await sql`insert into tags (id, name) values (9602, 'x')`;
  t.equal((await receiver.count(2))[1]?.headers['authorization'], 'Bearer second');
  const revisions = await get(service, `/revisions?filter[item][_eq]=${id}`, { token: ADMIN_TOKEN });
  t.match(revisions.text, /"headers":"\*{10}"/);
  t.notMatch(revisions.text, /Bearer/);
  t.equal((await send('PATCH', path, { headers: null })).status, 200);
  t.match(await read(), /"headers":null/);
});
