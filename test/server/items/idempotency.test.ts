/**
 * Requests with an Idempotency-Key: whoever sends one again, however often and however close together, has it carried out
 * once and reads the first answer.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { digestToken } from '../../../src/server/access/tokens.js';
import { makeCaller } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

const OTHER_TOKEN = 'the-token-of-another-administrator';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'receipts');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql`
  insert into service_users (first_name, email, token, role)
  select 'Other', 'other@example.com', ${digestToken(OTHER_TOKEN)}, role from service_users limit 1`;
const service = await startTestService({ databaseUrl });

interface PostOptions {
  readonly collection?: string;
  readonly query?: string;
  readonly token?: string;
  readonly to?: { readonly url: string };
}

function post(key: string, payload: unknown, options: PostOptions = {}): Promise<Answer> {
  const { collection = 'tags', query = '', token = ADMIN_TOKEN, to = service } = options;
  return request(to, 'POST', `/items/${collection}${query}`, {
    headers: { 'content-type': 'application/json', 'idempotency-key': key },
    body: JSON.stringify(payload),
    token,
  });
}

async function countTags(name: string): Promise<number> {
  const [row] = await sql`select count(*)::int as count from tags where name = ${name}`;
  return row?.['count'];
}

async function countReceipts(): Promise<number> {
  const [row] = await sql`select count(*)::int as count from service_receipts`;
  return row?.['count'];
}

t.test('the same request twice: one row, one answer', async (t) => {
  const name = randomUUID();
  const first = await post('twice', { name });
  t.match(first, { status: 200, json: { data: { id: Number, name } } });
  const second = await post('twice', { name });
  t.equal(second.status, 200);
  t.equal(second.text, first.text);
  t.equal(await countTags(name), 1);

  await sql`update tags set name = ${`${name} changed`} where name = ${name}`;
  const third = await post('twice', { name });
  t.match(third, { status: 200, json: { data: { name: `${name} changed` } } }, 'what became of the item');
  t.equal(await countTags(name), 0);
});

t.test('an item that may no longer be read is not shown', async (t) => {
  const permissions = [
    { collection: 'tags', action: 'create' },
    { collection: 'tags', action: 'read', permissions: { name: { _ncontains: 'hidden' } } },
  ] as const;
  const { token, policies } = await makeCaller(sql, 'repeating', [{ permissions }]);
  const name = randomUUID();
  const send = (): Promise<Answer> => post('rights', { name }, { token });
  const sendTwo = (): Promise<Answer> => post('rights-of-two', [{ name }, { name: `${name} 2` }], { token });
  t.match(await send(), { status: 200, json: { data: { id: Number, name } } });
  t.match(await sendTwo(), { status: 200, json: { data: [{ name }, { name: `${name} 2` }] } });
  const limit = (change: Readonly<Record<string, unknown>>): Promise<unknown> =>
    sql`update service_permissions set ${sql(change)} where policy = ${policies[0] as string} and action = 'read'`;

  await sql`update tags set name = 'hidden' where name = ${name}`;
  t.match(await send(), { status: 204, text: '' }, 'an item that has left what the caller may see');
  const shown = (await sendTwo()).json as { data: { name: string }[] };
  t.strictSame(
    shown.data.map((tag) => tag.name),
    [`${name} 2`],
  );
  await sql`update tags set name = ${name} where name = 'hidden'`;
  t.match(await send(), { status: 200, json: { data: { name } } });

  await limit({ fields: 'id' });
  await waitFor(async () => !(await send()).text.includes(name), 5_000);
  t.match((await send()).json, { data: { id: Number } }, 'a field');
  await limit({ action: 'delete' });
  await waitFor(async () => (await send()).status === 204, 5_000);
  t.equal(await countTags(name), 2, 'and nothing was written again');
});

t.test('lists and nested payloads', async (t) => {
  const name = randomUUID();
  const many = [{ name }, { name }, { name }];
  const first = await post('list', many);
  t.match(first, { status: 200, json: { data: { length: 3 } } });
  t.equal((await post('list', many)).text, first.text);
  t.equal(await countTags(name), 3);

  const nested = {
    title: name,
    author: { name },
    comments: [{ body: name }, { body: name }],
    tags: [{ tags_id: { name: `${name} nested` } }],
  };
  const options = { collection: 'articles', query: '?fields=id,title,author.name,comments.body,tags.tags_id.name' };
  const made = await post('nested', nested, options);
  t.match(made, { status: 200, json: { data: { title: name, author: { name }, comments: { length: 2 } } } });
  t.equal((await post('nested', nested, options)).text, made.text);
  t.strictSame(
    [
      ...(await sql`
        select
          (select count(*)::int from articles where title = ${name}) as articles,
          (select count(*)::int from authors where name = ${name}) as authors,
          (select count(*)::int from comments where body = ${name}) as comments,
          (select count(*)::int from tags where name = ${`${name} nested`}) as tags`),
    ],
    [{ articles: 1, authors: 1, comments: 2, tags: 1 }],
  );
});

t.test('20 at once: one row, 20 equal answers', async (t) => {
  for (let round = 0; round < 3; round++) {
    const name = randomUUID();
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => post(`at once ${round}`.replaceAll(' ', '-'), { name })),
    );
    t.strictSame(new Set(answers.map(({ status }) => status)), new Set([200]));
    t.equal(new Set(answers.map(({ text }) => text)).size, 1);
    t.equal(await countTags(name), 1);
  }
});

t.test('items whose own keys or unique values would collide are still repeated', async (t) => {
  const email = `${randomUUID()}@example.com`;
  const unique = { id: 7001, name: 'unique', email };
  const first = await post('unique', unique, { collection: 'authors' });
  t.match(first, { status: 200, json: { data: { id: 7001, email } } });
  const second = await post('unique', unique, { collection: 'authors' });
  t.match(second, { status: 200, text: first.text });

  const linking = { id: 7001, title: 'links comments that exist', comments: [1, 2] };
  const linked = await post('linking', linking, { collection: 'articles' });
  t.match(linked, { status: 200, json: { data: { id: 7001 } } });
  t.match(await post('linking', linking, { collection: 'articles' }), { status: 200, text: linked.text });

  const upserting = { id: 7002, title: 'changes an author', author: { id: 7001, name: 'changed', email } };
  const answers = await Promise.all(
    Array.from({ length: 10 }, () => post('upserting', upserting, { collection: 'articles' })),
  );
  t.strictSame(new Set(answers.map(({ status }) => status)), new Set([200]));
  t.equal(new Set(answers.map(({ text }) => text)).size, 1);

  const own = { name: 'own', email: `${randomUUID()}@example.com`, articles: [7002] };
  const owned = await post('own', own, { collection: 'authors' });
  t.match(owned, { status: 200, json: { data: { articles: [7002] } } });
  t.match(await post('own', own, { collection: 'authors' }), { status: 200, text: owned.text }, 'one after the other');
  const crowd = { name: 'crowd', email: `${randomUUID()}@example.com`, articles: [{ id: 7003, title: 'one' }, 7002] };
  const crowded = await Promise.all(Array.from({ length: 10 }, () => post('crowd', crowd, { collection: 'authors' })));
  t.strictSame(new Set(crowded.map(({ status }) => status)), new Set([200]), 'and all at once');
  t.equal(new Set(crowded.map(({ text }) => text)).size, 1);
});

t.test('the same key for another request is refused', async (t) => {
  const name = randomUUID();
  t.equal((await post('other', { name })).status, 200);
  const refused = { status: 422, json: { errors: [{ extensions: { code: 'UNPROCESSABLE_CONTENT' } }] } };
  t.match(await post('other', { name: `${name}!` }), refused, 'another body');
  t.match(await post('other', [{ name }]), refused, 'a list of the same');
  t.match(await post('other', { name }, { query: '?fields=id' }), refused, 'another query');
  t.match(await post('other', { name }, { collection: 'authors' }), refused, 'another collection');
  t.equal(await countTags(name), 1);
  t.equal(await countTags(`${name}!`), 0);
  const [row] = await sql`select count(*)::int as count from authors where name = ${name}`;
  t.equal(row?.['count'], 0);
  t.equal((await post('other', { name })).status, 200, 'the key still answers its own request');
});

t.test('a key belongs to who sent it', async (t) => {
  const name = randomUUID();
  const mine = await post('whose', { name });
  const theirs = await post('whose', { name }, { token: OTHER_TOKEN });
  t.match([mine, theirs], [{ status: 200 }, { status: 200 }]);
  t.not(mine.text, theirs.text);
  t.equal(await countTags(name), 2);
  t.equal((await post('whose', { name }, { token: OTHER_TOKEN })).text, theirs.text);
  t.equal((await post('whose', { name: `${name}!` }, { token: OTHER_TOKEN })).status, 422);
  t.equal((await post('whose', { name }, { token: 'the-token-of-nobody-at-all' })).status, 401);
  t.equal(await countTags(name), 2);
});

t.test('an expired key writes again', async (t) => {
  const hasty = await startTestService({ databaseUrl, IDEMPOTENCY_TTL: '1500ms' });
  const name = randomUUID();
  const first = await post('expiring', { name }, { to: hasty });
  t.equal((await post('expiring', { name }, { to: hasty })).text, first.text);
  t.equal(await countTags(name), 1);
  await passTime(1_600, 'the key expires');
  const answers = await Promise.all(Array.from({ length: 10 }, () => post('expiring', { name }, { to: hasty })));
  t.strictSame(new Set(answers.map(({ status }) => status)), new Set([200]));
  t.equal(new Set(answers.map(({ text }) => text)).size, 1, 'once, also when many come at once');
  t.not(answers[0]?.text, first.text);
  t.equal(await countTags(name), 2);
  await passTime(1_600, 'the key expires');
  t.equal((await post('expiring', { name: `${name}!` }, { to: hasty })).status, 200, 'and it may be another request');
  t.equal(await countTags(`${name}!`), 1);
});

t.test('a request that failed leaves no receipt and may be repeated', async (t) => {
  const before = await countReceipts();
  const email = `${randomUUID()}@example.com`;
  const refused = await post('failing', { name: 'first', email: 'ada@example.com' }, { collection: 'authors' });
  t.match(refused, { status: 400, json: { errors: [{ extensions: { code: 'FAILED_VALIDATION', field: 'email' } }] } });
  t.equal((await post('failing', { nothing: 1 })).status, 400);
  t.equal(
    (await post('failing', { name: 'no such item', articles: [999_999] }, { collection: 'authors' })).status,
    403,
  );
  t.equal((await post('failing', { name: 'x' }, { collection: 'nowhere' })).status, 403);
  t.equal((await post('failing', { name: 'x' }, { query: '?fields=nothing' })).status, 403);
  t.equal(await countReceipts(), before);
  t.equal(await countTags('x'), 0);
  t.equal((await post('failing', { name: 'second', email }, { collection: 'authors' })).status, 200);
  t.equal(await countReceipts(), before + 1);
});

t.test('keys of every kind', async (t) => {
  const hostile = [
    "'; drop table service_receipts; --",
    '$1',
    '{x}',
    '\\',
    '"quoted"',
    '%00',
    '__proto__',
    'a'.repeat(255),
    '!',
    '~',
    '0',
    'null',
  ];
  for (const key of hostile.map((each) => each.replaceAll(' ', '_'))) {
    const name = randomUUID();
    const first = await post(key, { name });
    t.equal(first.status, 200, key);
    t.equal((await post(key, { name })).text, first.text, key);
    t.equal(await countTags(name), 1);
  }
  const keys = await sql`select id from service_receipts where id !~ '^[A-Za-z0-9_-]{43}$'`;
  t.equal(keys.length, 0, 'nothing of a key is stored but its digest');
  const name = randomUUID();
  for (const key of ['a b', 'a'.repeat(256), 'aüb', 'a\tb']) {
    t.match(await post(key, { name }), {
      status: 400,
      json: { errors: [{ extensions: { code: 'INVALID_PAYLOAD' } }] },
    });
  }
  t.equal(await countTags(name), 0);
  t.equal((await post('', { name })).status, 200, 'an empty key is none');
  t.equal((await post('', { name })).status, 200);
  t.equal(await countTags(name), 2);
});

t.test('items whose key is of bytes', async (t) => {
  await sql`create table seals (id bytea primary key default decode(md5(random()::text), 'hex'), name text)`;
  const to = await startTestService({ databaseUrl });
  for (const [key, payload] of Object.entries({
    made: { name: 'one' },
    given: { id: 'AQL/', name: 'two' },
    list: [{ name: 'three' }, { name: 'four' }],
  })) {
    const first = await post(`seal-${key}`, payload, { collection: 'seals', to });
    t.equal(first.status, 200, key);
    const second = await post(`seal-${key}`, payload, { collection: 'seals', to });
    t.strictSame([second.status, second.text], [200, first.text], key);
  }
});

function send(method: string, path: string, key: string, payload?: unknown): Promise<Answer> {
  const body = payload === undefined ? '' : JSON.stringify(payload);
  const length = String(Buffer.byteLength(body));
  const headers = { 'content-type': 'application/json', 'content-length': length, 'idempotency-key': key };
  return request(service, method, path, { headers, body });
}

t.test('PATCH: what it creates is created once', async (t) => {
  const body = randomUUID();
  const comments = { create: [{ body }] };
  const count = async (): Promise<number> =>
    (await sql`select count(*)::int as count from comments where body = ${body}`)[0]?.['count'];
  const fields = '?fields=id,title,comments.body';
  const requests = [
    [`/items/articles/1${fields}`, { title: body, comments }],
    [
      `/items/articles${fields}`,
      [
        { id: 1, comments },
        { id: 2, title: body },
      ],
    ],
    [`/items/articles${fields}`, { keys: [1], data: { title: `${body} 2`, comments } }],
    // The first time changes what it finds.
    [`/items/articles${fields}`, { query: { filter: { title: `${body} 2` } }, data: { title: body, comments } }],
  ] as const;
  for (const [index, [path, payload]] of requests.entries()) {
    const key = `patch-${index}`;
    const first = await send('PATCH', path, key, payload);
    t.match(first, { status: 200, text: new RegExp(body) });
    const answers = await Promise.all(Array.from({ length: 3 }, () => send('PATCH', path, key, payload)));
    for (const { status, text } of answers) t.strictSame([status, text], [200, first.text], path);
    t.equal(await count(), index + 1, JSON.stringify(payload));
    const other = Array.isArray(payload)
      ? payload.slice(1)
      : { ...payload, ...('data' in payload ? { data: { title: '' } } : { title: '' }) };
    t.equal((await send('PATCH', path, key, other)).status, 422, 'another request');
  }
  const list = [{ id: 9001, name: body }];
  t.equal((await send('POST', '/items/tags', 'method', list)).status, 200);
  t.equal((await send('PATCH', '/items/tags', 'method', list)).status, 422, 'another method is another request');
});

t.test('PATCH of an item whose key is of bytes', async (t) => {
  const to = await startTestService({ databaseUrl });
  const patch = (): Promise<Answer> =>
    request(to, 'PATCH', '/items/seals/AQL%2F', {
      headers: { 'content-type': 'application/json', 'idempotency-key': 'seal-patched' },
      body: '{"name":"patched"}',
    });
  const first = await patch();
  t.match(first, { status: 200, json: { data: { name: 'patched' } } });
  const second = await patch();
  t.strictSame([second.status, second.text], [200, first.text]);
});

t.test('DELETE: what is gone is not missed', async (t) => {
  const name = randomUUID();
  const { json } = await post('', [{ name }, { name }, { name }, { name }]);
  const [one, two, three] = (json as { readonly data: readonly { readonly id: number }[] }).data.map(({ id }) => id);
  for (const [path, payload] of [
    [`/items/tags/${one}`, undefined],
    ['/items/tags', [two, three]],
    ['/items/tags', { query: { filter: { name } } }],
  ] as const) {
    const key = `delete-${JSON.stringify(payload ?? null)}`;
    for (let attempt = 1; attempt <= 3; attempt++) t.equal((await send('DELETE', path, key, payload)).status, 204);
    t.equal((await send('DELETE', '/items/tags', key, [999_999])).status, 422, 'another request');
  }
  t.equal(await countTags(name), 0);
  t.equal((await send('DELETE', `/items/tags/${one}`, 'gone')).status, 403, 'it has not existed before');
  t.equal((await send('DELETE', `/items/tags/${one}`, 'gone')).status, 403, 'nor has it left a receipt');
});

t.test('a key that an earlier version stored', async (t) => {
  const name = randomUUID();
  const first = await post('earlier', { name });
  t.equal(first.status, 200);
  // It kept the answer in place of the keys.
  await sql`update service_receipts set keys = null, answer = ${first.text} where keys is not null`;
  await sql`update tags set name = ${`${name} changed`} where name = ${name}`;
  const changed = { status: 200, json: { data: { name: `${name} changed` } } };
  t.match(await post('earlier', { name }), changed, 'the item of the answer, as it is now');
  for (const answer of ['{"data":{"name":"without its key"}}', null]) {
    await sql`update service_receipts set answer = ${answer} where answer is not null`;
    const refused = await post('earlier', { name });
    t.match(refused, { status: 422, json: { errors: [{ extensions: { code: 'UNPROCESSABLE_CONTENT' } }] } });
    t.match(refused.text, /was carried out by an earlier version/);
  }
  t.equal(await countTags(name), 0, 'it is not carried out again');
  const names = [randomUUID(), randomUUID()];
  const several = await post('earlier-list', [{ name: names[0] }, { name: names[1] }]);
  await sql`update service_receipts set keys = null, answer = ${several.text} where keys is not null`;
  t.equal((await post('earlier-list', [{ name: names[0] }, { name: names[1] }])).text, several.text);
  await sql`truncate service_receipts`;
});

t.test('receipts are no items', async (t) => {
  t.equal((await request(service, 'GET', '/items/service_receipts')).status, 403);
});
