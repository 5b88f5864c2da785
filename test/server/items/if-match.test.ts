/** Entity tags of items, and writes that depend on them: a client never overwrites a change that it has not seen. */
import t from 'tap';
import { inForce, makeCaller } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  KNOWS_CALLERS,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { StatementCounter } from '../../support/statement-counter.js';
import { passTime } from '../../support/time.js';
import { failure } from '../../support/users.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'matched');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table counters (id serial primary key, name text, value int not null default 0, secret text,
    parent int references counters);
  insert into counters (name) select 'counter ' || n from generate_series(1, 60) n;
  create table lines (id serial primary key, counter int references counters on delete cascade, text text);
  create table named (id serial primary key, name text unique);
  insert into named (name) values ('books');
  create table pairs (a int, b int, value int, primary key (a, b));
  insert into pairs values (1, 2, 0);
  create table measured (id int not null, at date not null, value int, primary key (id, at)) partition by range (at);
  create table measured_1 partition of measured for values from ('2020-01-01') to ('2030-01-01');
  insert into measured values (1, '2026-01-01', 0);
  create view shown_counters as select id, name, value from counters;
  create view summed as select parent as id, sum(value) as value from counters group by parent;
  create table triggered (id serial primary key, name text);
  insert into triggered (name) values ('a');
  create function shout() returns trigger language plpgsql as $$ begin new.name := upper(new.name); return new; end $$;
  create trigger shout before insert or update on triggered for each row execute function shout();
  create table preferences (id serial primary key, theme text default 'light');
  insert into service_collections (collection, singleton) values ('preferences', true);
  insert into service_fields (collection, field, special) values ('counters', 'lines', 'o2m');
  insert into service_relations (many_collection, many_field, one_collection, one_field)
    values ('lines', 'counter', 'counters', 'lines'), ('counters', 'parent', 'counters', null);
  insert into service_collections (collection, primary_key) values ('shown_counters', 'id')`);
const counter = await StatementCounter.of(server, 'matched');
const service = await startTestService({
  databaseUrl,
  WORKERS: '1',
  COMPRESSION: 'gzip',
  COMPRESSION_MIN_SIZE: '0',
  ...KNOWS_CALLERS,
});

interface Sent {
  readonly match?: string;
  readonly none?: string;
  readonly token?: string;
  readonly headers?: Record<string, string>;
}

function send(method: string, path: string, body?: unknown, sent: Sent = {}): Promise<Answer> {
  const { match, none, token = ADMIN_TOKEN, headers = {} } = sent;
  const content = body === undefined ? {} : { body: JSON.stringify(body) };
  return request(service, method, path, {
    headers: {
      'content-type': 'application/json',
      ...(match === undefined ? {} : { 'if-match': match }),
      ...(none === undefined ? {} : { 'if-none-match': none }),
      ...headers,
    },
    token,
    ...content,
  });
}

function tagOf({ headers }: Answer): string {
  return String(headers['etag']);
}

async function readTag(path: string, token = ADMIN_TOKEN): Promise<string> {
  const answer = await send('GET', path, undefined, { token });
  t.equal(answer.status, 200, path);
  return tagOf(answer);
}

function rowOf(tag: string): string {
  return tag.slice(1, tag.indexOf('.'));
}

async function countStatements(work: () => Promise<unknown>): Promise<number> {
  const { counts } = await counter.count(work);
  return counts.reduce((sum, { calls }) => sum + calls, 0);
}

const FAILED = failure(412, 'PRECONDITION_FAILED');
const FORBIDDEN = failure(403, 'FORBIDDEN');

t.test('the tag of an item has a row part and a body part', async (t) => {
  const path = '/items/counters/1';
  const tag = await readTag(path);
  const [row] = await sql`select xmin::text from counters where id = 1`;
  t.match(tag, /^"\d+\.[-a-z0-9]+\.[-a-z0-9]+"$/);
  t.equal(rowOf(tag), row?.['xmin']);
  const whole = await send('GET', path);
  t.equal(whole.text.at(-1), '}', 'the row part is not in the body');
  t.equal(whole.status, 200);
  t.equal((await send('GET', path, undefined, { none: tag })).status, 304);
  const named = await readTag(`${path}?fields=id,name`);
  t.equal(rowOf(named), rowOf(tag), 'whatever the fields are');
  t.not(named, tag);
  await sql`insert into lines (counter, text) values (1, 'nested')`;
  const [nested, before] = [await readTag(`${path}?fields=lines.text`), named];
  t.equal(rowOf(nested), rowOf(before), 'a nested item is no part of the row');
  await sql`update lines set text = 'changed' where counter = 1`;
  const after = await readTag(`${path}?fields=lines.text`);
  t.equal(rowOf(after), rowOf(nested));
  t.not(after, nested, 'but of the body');
  t.equal((await send('GET', `${path}?fields=lines.text`, undefined, { none: nested })).status, 200);
  t.match(
    tagOf(await send('GET', '/items/counters?limit=1')),
    /^"[-a-z0-9]+\.[-a-z0-9]+"$/,
    'a list has only a body part',
  );
});

t.test('HEAD, reads in a batch and the answers of writes have the same tag', async (t) => {
  const path = '/items/counters/2';
  const tag = await readTag(path);
  t.equal(tagOf(await send('HEAD', path)), tag);
  const together = await Promise.all(Array.from({ length: 100 }, () => send('GET', path)));
  t.ok(together.every((answer) => tagOf(answer) === tag && answer.status === 200));
  for (const query of ['', '?fields=*,lines.text', '?fields=id']) {
    const changed = await send('PATCH', path + query, { value: 5 });
    t.match(changed.json, { data: { id: 2 } });
    t.equal(tagOf(changed), await readTag(path + query), `PATCH ${query}`);
  }
  const made = await send('POST', '/items/counters', { name: 'new' });
  const { id } = (made.json as { data: { id: number } }).data;
  t.equal(tagOf(made), await readTag(`/items/counters/${id}`));
  const nested = await send('POST', '/items/counters', { name: 'new', lines: [{ text: 'a' }] });
  const { id: other } = (nested.json as { data: { id: number } }).data;
  t.equal(tagOf(nested), await readTag(`/items/counters/${other}`));
  const several = await send('POST', '/items/counters', [{ name: 'new' }]);
  t.equal(several.headers['etag'], undefined);
  t.match(several.json, { data: [{ name: 'new' }] });
});

t.test('a flat write with If-Match is one statement and fails with 412', async (t) => {
  const path = '/items/counters/3';
  const flat = `${path}?fields=id,value`;
  const first = await readTag(path);
  let second = '';
  t.equal(
    await countStatements(async () => {
      const changed = await send('PATCH', flat, { value: 1 }, { match: first });
      t.equal(changed.status, 200);
      second = tagOf(changed);
    }),
    1,
  );
  t.not(rowOf(second), rowOf(first));
  const log = await sql`select count(*)::int from service_activity where collection = 'counters' and item = '3'`;
  t.equal(
    await countStatements(async () => t.match(await send('PATCH', flat, { value: 2 }, { match: first }), FAILED)),
    1,
  );
  t.strictSame(await sql`select count(*)::int from service_activity where collection = 'counters' and item = '3'`, log);
  t.match(await send('PATCH', path, { value: 2 }, { match: second }), { status: 200, json: { data: { value: 2 } } });
  t.match(await send('DELETE', path, undefined, { match: second }), FAILED);
  const third = await readTag(path);
  t.equal(
    await countStatements(async () => t.equal((await send('DELETE', path, undefined, { match: third })).status, 204)),
    1,
  );
  t.match(await send('DELETE', path, undefined, { match: third }), FORBIDDEN, 'the item is missing');
  t.match(await send('PATCH', path, { value: 2 }, { match: third }), FORBIDDEN);
  t.match(await send('PATCH', path, { value: 2 }, { match: '*' }), FORBIDDEN);
});

t.test('lists of tags, any tag, weak, foreign and malformed tags', async (t) => {
  const path = '/items/counters/4';
  const patch = (match: string): Promise<Answer> => send('PATCH', path, { value: 1 }, { match });
  t.equal((await patch('*')).status, 200);
  t.equal((await patch(`"1.a.b" , W/"x",${await readTag(path)}`)).status, 200);
  t.match(await patch(`W/${await readTag(path)}`), FAILED, 'weak tags never match');
  t.match(await patch('"another-server"'), FAILED);
  t.match(await patch('""'), FAILED);
  t.match(await patch(await readTag('/items/counters?filter[id][_eq]=4')), FAILED, 'the tag of a list');
  for (const text of ['1.a.b', '"a" "b"', '"a', '*, "a"', ','])
    t.match(await patch(text), failure(400, 'INVALID_QUERY'), text);
  const gzip = await send('GET', path, undefined, { headers: { 'accept-encoding': 'gzip' } });
  t.match(tagOf(gzip), /-gzip"$/);
  t.equal((await patch(tagOf(gzip))).status, 200, 'the row part is the same in every encoding');
  const whole = await readTag(path);
  t.equal((await patch(`"${rowOf(whole)}"`)).status, 200, 'the row part alone is enough');
});

t.test('conditions that have no effect are refused', async (t) => {
  const refused = failure(400, 'INVALID_QUERY');
  t.match(await send('POST', '/items/counters', { name: 'a' }, { match: '*' }), refused);
  t.match(await send('PATCH', '/items/counters', { keys: [5], data: { value: 1 } }, { match: '*' }), refused);
  t.match(await send('DELETE', '/items/counters', [5], { match: '*', headers: { 'content-length': '3' } }), refused);
  t.match(await send('PATCH', '/items/counters/5', { value: 1 }, { none: '*' }), refused);
  t.match(await send('POST', '/items/counters', { name: 'a' }, { none: '"a.b"' }), refused);
});

t.test('routes that compare no tags refuse conditions', async (t) => {
  const refused = failure(400, 'INVALID_QUERY');
  for (const [method, path, body] of [
    ['POST', '/utils/sort/counters', { item: 1, to: 2 }],
    ['POST', '/utils/import/counters', [{ name: 'imported' }]],
    ['PATCH', '/fields/counters/name', { meta: { note: 'x' } }],
    ['POST', '/collections', { collection: 'conditional', schema: {} }],
    ['DELETE', '/collections/counters', undefined],
    ['POST', '/graphql', { query: 'mutation { update_counters_item(id: 1, data: { name: "x" }) { id } }' }],
    ['POST', '/auth/logout', {}],
    ['POST', '/utils/cache/clear', {}],
  ] as const)
    for (const condition of [{ match: '"1"' }, { none: '*' }])
      t.match(await send(method, path, body, condition), refused, `${method} ${path} ${JSON.stringify(condition)}`);
  t.equal((await sql`select from counters where name in ('imported', 'x')`).length, 0);
  t.equal((await send('SEARCH', '/items/counters', { query: { limit: 1 } }, { none: '"1"' })).status, 200, 'a read');
});

t.test('the own account has a tag, and takes conditions and preferences', async (t) => {
  const caller = await makeCaller(sql, 'self', [
    {
      permissions: [
        { collection: 'service_users', action: 'read' },
        { collection: 'service_users', action: 'update' },
      ],
    },
  ]);
  const { token } = caller;
  await inForce(service, caller, '/users/me');
  const read = await send('GET', '/users/me?fields=first_name', undefined, { token });
  const tag = String(read.headers.etag);
  t.match(tag, /^"-?\d+\.[^.]+\.[^.]+"$/);
  t.equal((await send('GET', '/users/me?fields=first_name', undefined, { token, none: tag })).status, 304);
  const change = (match: string, prefer = '') =>
    send('PATCH', '/users/me?fields=first_name', { first_name: 'Ada' }, { token, match, headers: { prefer } });
  const changed = await change(tag);
  t.strictSame(changed.json, { data: { first_name: 'Ada' } });
  t.match(await change(tag), failure(412, 'PRECONDITION_FAILED'));
  const minimal = await change(String(changed.headers.etag), 'return=minimal');
  t.strictSame([minimal.status, minimal.text, minimal.headers['preference-applied']], [204, '', 'return=minimal']);
  const failed = await change(tag, 'return=minimal');
  t.match(failed, failure(412, 'PRECONDITION_FAILED'));
  t.equal(failed.headers['preference-applied'], undefined, 'an error honours no preference');
});

t.test('fifty clients that change one counter lose no change', async (t) => {
  const path = '/items/counters/6';
  let [successes, failures] = [0, 0];
  const client = async (): Promise<void> => {
    for (let done = 0; done < 1; ) {
      const answer = await send('GET', path);
      const { value } = (answer.json as { data: { value: number } }).data;
      const { status } = await send('PATCH', `${path}?fields=value`, { value: value + 1 }, { match: tagOf(answer) });
      if (status === 200) done++;
      else t.equal(status, 412);
      if (status === 200) successes++;
      else failures++;
    }
  };
  await Promise.all(Array.from({ length: 50 }, client));
  const [row] = await sql`select value from counters where id = 6`;
  t.equal(successes, 50);
  t.equal(row?.['value'], successes);
  t.ok(failures > 0, `${failures} attempts met a change`);
});

t.test('of many writes with one tag, one succeeds, flat or nested', async (t) => {
  const bodies = [
    { value: 1 },
    { value: 1, lines: { create: [{ text: 'x' }] } },
    { lines: { create: [{ text: 'y' }] }, name: 'n' },
  ];
  for (const [position, body] of bodies.entries()) {
    const path = `/items/counters/${7 + position}`;
    const match = await readTag(path);
    const answers = await Promise.all(Array.from({ length: 20 }, () => send('PATCH', path, body, { match })));
    t.equal(answers.filter(({ status }) => status === 200).length, 1);
    t.equal(answers.filter(({ status }) => status === 412).length, 19);
    const lines = await sql`select from lines where counter = ${7 + position}`;
    t.equal(lines.length, 'lines' in body ? 1 : 0, 'a refused write leaves nothing');
  }
  const path = '/items/counters/10';
  const match = await readTag(path);
  const [changed, deleted] = await Promise.all([
    send('PATCH', path, { value: 9 }, { match }),
    send('DELETE', path, undefined, { match }),
  ]);
  t.ok([200, 403].includes(changed.status) && [204, 412].includes(deleted.status));
  t.equal(changed.status === 200, deleted.status === 412);
});

t.test('a write that waits for a lock compares the row as it is then', async (t) => {
  const path = '/items/counters/11';
  const match = await readTag(path);
  for (const body of [{ value: 1 }, { value: 1, lines: { create: [{ text: 'x' }] } }, undefined]) {
    const held = connectSql(databaseUrl);
    let waiting: Promise<Answer> | null = null;
    await held.begin(async (transaction) => {
      await transaction`update counters set secret = 'changed' where id = 11`;
      waiting = send(body ? 'PATCH' : 'DELETE', path, body, { match });
      await waitFor(async () => (await sql`select from pg_locks where not granted`).length > 0, 20_000);
    });
    t.match(await waiting, FAILED);
    await held.end();
  }
});

t.test('nested writes compare before they write', async (t) => {
  const path = '/items/counters/12';
  const match = await readTag(path);
  const nested = { lines: { create: [{ text: 'one' }] } };
  const onlyNested = await send('PATCH', `${path}?fields=*,lines.text`, nested, { match });
  t.match(onlyNested, { status: 200, json: { data: { lines: [{ text: 'one' }] } } });
  t.equal(rowOf(tagOf(onlyNested)), rowOf(match), 'the row did not change');
  t.equal((await send('PATCH', path, { value: 1, ...nested }, { match })).status, 200);
  t.match(await send('PATCH', path, nested, { match }), FAILED);
  t.match(await send('PATCH', path, {}, { match }), FAILED, 'an empty change');
  t.equal((await sql`select from lines where counter = 12`).length, 2);
  const self = { value: 3, parent: { id: 13, name: 'a parent' } };
  t.match(await send('PATCH', path, self, { match }), FAILED);
  t.equal((await send('PATCH', path, self, { match: await readTag(path) })).status, 200, 'nested items need no tag');
  t.strictSame([...(await sql`select name from counters where id = 13`)], [{ name: 'a parent' }]);
});

t.test('the rights of the caller', async (t) => {
  const own = { id: { _lt: 30 } };
  const caller = await makeCaller(sql, 'editor', [
    {
      permissions: [
        { collection: 'counters', action: 'read', fields: ['id', 'name', 'value'] },
        { collection: 'counters', action: 'update', permissions: own, fields: ['value'] },
        { collection: 'counters', action: 'delete', permissions: own },
      ],
    },
  ]);
  const blind = await makeCaller(sql, 'blind', [{ permissions: [{ collection: 'counters', action: 'update' }] }]);
  await inForce(service, caller, '/items/counters/20');
  const token = caller.token;
  const match = await readTag('/items/counters/20', token);
  t.equal((await send('PATCH', '/items/counters/20', { value: 1 }, { match, token })).status, 200);
  t.match(await send('PATCH', '/items/counters/20', { value: 1 }, { match, token }), FAILED);
  t.match(await send('PATCH', '/items/counters/20', { name: 'a' }, { match, token }), FORBIDDEN, 'a field');
  for (const tag of [await readTag('/items/counters/40', token), '"1.a.b"', '*'])
    for (const method of ['PATCH', 'DELETE']) {
      const body = method === 'PATCH' ? { value: 1 } : undefined;
      t.match(await send(method, '/items/counters/40', body, { match: tag, token }), FORBIDDEN, `${method} ${tag}`);
    }
  const before = await readTag('/items/counters/21', token);
  await sql`update counters set secret = 'other' where id = 21`;
  t.match(await send('PATCH', '/items/counters/21', { value: 1 }, { match: before, token }), FAILED, 'a hidden column');
  t.equal(
    (
      await send('DELETE', '/items/counters/21', undefined, {
        match: await readTag('/items/counters/21', token),
        token,
      })
    ).status,
    204,
  );
  const known = await readTag('/items/counters/22');
  const unread = await send('PATCH', '/items/counters/22', { value: 1 }, { match: known, token: blind.token });
  t.equal(unread.status, 204, 'a caller who may not read can use the tag of another caller');
  t.equal(unread.headers['etag'], undefined);
  t.match(await send('PATCH', '/items/counters/22', { value: 1 }, { match: known, token: blind.token }), FAILED);
});

t.test('views, partitioned tables, keys of several columns, triggers', async (t) => {
  const paths = ['/items/shown_counters/30', '/items/measured/1~2026-01-01', '/items/pairs/1~2', '/items/triggered/1'];
  for (const path of paths) {
    const field = path.includes('triggered') ? { name: 'b' } : { value: 1 };
    const other = path.includes('triggered') ? { name: 'c' } : { value: 2 };
    const match = await readTag(path);
    t.match(match, /^"-?\d+\.[-a-z0-9]+\.[-a-z0-9]+"$/, path);
    t.equal(await readTag(path), match);
    const changed = await send('PATCH', path, field, { match });
    t.equal(changed.status, 200, path);
    t.not(rowOf(tagOf(changed)), rowOf(match));
    t.match(await send('PATCH', path, other, { match }), FAILED, path);
    t.equal((await send('PATCH', path, other, { match: tagOf(changed) })).status, 200, path);
    t.match(await send('DELETE', path, undefined, { match }), FAILED, path);
    if (path.includes('shown')) continue;
    t.equal((await send('DELETE', path, undefined, { match: await readTag(path) })).status, 204, path);
  }
  const match = await readTag('/items/shown_counters/31');
  await sql`update counters set secret = 'unseen' where id = 31`;
  t.equal(await readTag('/items/shown_counters/31'), match, 'a digest covers what the view shows');
});

t.test('singletons and system collections', async (t) => {
  const path = '/items/preferences';
  t.match(await send('PATCH', path, { theme: 'dark' }, { match: '*' }), FAILED, 'there is no item yet');
  t.match(tagOf(await send('GET', path)), /^"[-a-z0-9]+\.[-a-z0-9]+"$/);
  const made = await send('PATCH', path, { theme: 'dark' });
  t.equal(tagOf(made), await readTag(path));
  t.equal((await send('PATCH', path, { theme: 'blue' }, { match: tagOf(made) })).status, 200);
  t.match(await send('PATCH', path, { theme: 'red' }, { match: tagOf(made) }), FAILED);
  const role = await send('POST', '/roles', { name: 'tagged' });
  const rolePath = `/roles/${(role.json as { data: { id: string } }).data.id}`;
  t.equal(tagOf(role), await readTag(rolePath));
  t.equal((await send('PATCH', rolePath, { name: 'again' }, { match: tagOf(role) })).status, 200);
  t.match(await send('PATCH', rolePath, { name: 'late' }, { match: tagOf(role) }), FAILED);
  t.match(await send('DELETE', rolePath, undefined, { match: tagOf(role) }), FAILED);
  t.equal((await send('DELETE', rolePath, undefined, { match: await readTag(rolePath) })).status, 204);
});

t.test('POST with If-None-Match: * creates, or fails with 412', async (t) => {
  const path = '/items/counters';
  t.match(await send('POST', path, { id: 50, name: 'taken' }, { none: '*' }), FAILED);
  t.equal((await send('POST', path, { id: 1050, name: 'new' }, { none: '*' })).status, 200);
  t.match(await send('POST', path, { id: 1050, name: 'new' }, { none: '*' }), FAILED);
  t.equal((await send('POST', path, { name: 'no key' }, { none: '*' })).status, 200);
  t.match(await send('POST', '/items/pairs', { a: 7, b: 8 }, { none: '*' }), { status: 200 });
  t.match(await send('POST', '/items/pairs', { a: 7, b: 8 }, { none: '*' }), FAILED);
  t.match(await send('POST', '/items/named?on_conflict=name', { name: 'books' }, { none: '*' }), FAILED);
  t.match(await send('POST', '/items/named', { name: 'books' }, { none: '*' }), failure(400, 'FAILED_VALIDATION'));
  const together = await Promise.all(
    Array.from({ length: 20 }, () => send('POST', path, { id: 2000, name: 'one' }, { none: '*' })),
  );
  t.equal(together.filter(({ status }) => status === 200).length, 1);
  t.equal(together.filter(({ status }) => status === 412).length, 19);
});

t.test('a repeated request with an Idempotency-Key is answered as the first', async (t) => {
  const path = '/items/counters/51';
  const match = await readTag(path);
  const headers = { 'idempotency-key': 'matched' };
  const first = await send('PATCH', path, { value: 4 }, { match, headers });
  t.equal(first.status, 200);
  const again = await send('PATCH', path, { value: 4 }, { match, headers });
  t.equal(again.status, 200);
  t.equal(tagOf(again), tagOf(first));
  t.match(await send('PATCH', path, { value: 5 }, { match, headers: { 'idempotency-key': 'other' } }), FAILED);
});

t.test('GraphQL reads the row part as _etag and takes it as if_match', async (t) => {
  const run = async (query: string, variables: object = {}, token = ADMIN_TOKEN) =>
    (await send('POST', '/graphql', { query, variables }, { token })).json as {
      data: Record<string, Record<string, string>> | null;
      errors?: readonly { extensions: { code: string } }[];
    };
  const read = async (): Promise<string> =>
    (await run('{ counters_by_id(id: 52) { value _etag } }')).data?.['counters_by_id']?.['_etag'] ?? '';
  const tag = await read();
  t.equal(tag, `"${rowOf(await readTag('/items/counters/52'))}"`);
  const update =
    'mutation ($tag: String) { update_counters_item(id: 52, data: { value: 1 }, if_match: $tag) { value _etag } }';
  const changed = await run(update, { tag });
  t.match(changed, { data: { update_counters_item: { value: 1, _etag: /^"\d+"$/ } } });
  t.equal(changed.data?.['update_counters_item']?.['_etag'], await read());
  t.match(await run(update, { tag }), { data: null, errors: [{ extensions: { code: 'PRECONDITION_FAILED' } }] });
  t.match(await run(update, { tag: 'unquoted' }), { data: null, errors: [{ extensions: { code: 'INVALID_QUERY' } }] });
  t.match(await run(update, { tag: null }), { data: { update_counters_item: { value: 1 } } });
  t.match(await run(update, { tag: await readTag('/items/counters/52') }), { data: { update_counters_item: {} } });
  const remove = 'mutation ($tag: String) { delete_counters_item(id: 52, if_match: $tag) { id } }';
  t.match(await run(remove, { tag }), { data: null, errors: [{ extensions: { code: 'PRECONDITION_FAILED' } }] });
  t.match(await run(remove, { tag: await read() }), { data: { delete_counters_item: { id: '52' } } });
  t.match(await run(remove, { tag }), { data: null, errors: [{ extensions: { code: 'FORBIDDEN' } }] });
  const theme = 'mutation ($tag: String) { update_preferences(data: { theme: "x" }, if_match: $tag) { _etag } }';
  t.match(await run(theme, { tag }), { data: null, errors: [{ extensions: { code: 'PRECONDITION_FAILED' } }] });
  const nested = await run('{ counters(filter: { id: { _eq: 12 } }) { parent { id _etag } lines { _etag } } }');
  t.match(nested, { data: { counters: [{ parent: { _etag: /^"\d+"$/ }, lines: [{ _etag: /^"\d+"$/ }] }] } });
  t.match(await run('{ shown_counters(limit: 1) { _etag } }'), { data: { shown_counters: [{ _etag: /^"-?\d+"$/ }] } });
});

t.test('Prefer: wait answers when the row changes', async (t) => {
  const path = '/items/counters/53';
  const tag = await readTag(path);
  const unchanged = await send('GET', path, undefined, { none: tag, headers: { prefer: 'wait=1' } });
  t.equal(unchanged.status, 304);
  const waiting = send('GET', path, undefined, { none: tag, headers: { prefer: 'wait=20' } });
  await passTime(500, 'the request waits');
  await sql`update counters set value = 77 where id = 53`;
  const changed = await waiting;
  t.match(changed, { status: 200, json: { data: { value: 77 } } });
  t.equal(tagOf(changed), await readTag(path));
});

t.test('a transaction takes its conditions in its operations', async (t) => {
  const operations = [{ method: 'POST', path: '/items/counters', body: { value: 1 } }];
  t.match(await send('POST', '/transactions', { operations }, { match: '"1"' }), { status: 400, text: /If-Match/ });
});
