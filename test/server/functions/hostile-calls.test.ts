/** Hostile calls: whatever is sent as a name, an argument or a parameter is answered with 200 or 4xx, and changes nothing. */
import t from 'tap';
import {
  type Answer,
  createLibrary,
  get,
  loadSchemas,
  type RequestOptions,
  request,
  startDatabase,
  startTestService,
  withSql,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'hostile_calls');
await loadSchemas(databaseUrl, ['functions.sql']);
await withSql(databaseUrl, (sql) =>
  sql
    .unsafe(`
      create function nap(seconds float) returns integer language plpgsql volatile
        as $$ begin insert into tags (name) values ('napped'); perform pg_sleep(seconds); return 1; end $$;
      create function doze(seconds float) returns integer language plpgsql stable
        as $$ begin perform pg_sleep(seconds); return 1; end $$;
      create function contend(code text) returns integer language plpgsql volatile
        as $$ begin insert into tags (name) values ('contended'); raise exception using errcode = code; end $$;
      insert into service_functions (name) values ('nap'), ('doze'), ('contend')`)
    .simple(),
);
const service = await startTestService({ databaseUrl, DATABASE_STATEMENT_TIMEOUT: '1500ms' });

function call(name: string, body: string, options: RequestOptions = {}): Promise<Answer> {
  const headers = { 'content-type': 'application/json', ...options.headers };
  return request(service, 'POST', `/rpc/${name}`, { ...options, headers, body });
}

const VALUES: readonly string[] = [
  ...[
    'null',
    'true',
    '""',
    '"x"',
    '"\\u0000"',
    '"\\ud800"',
    '[]',
    '{}',
    '[[1],[2,3]]',
    '[null]',
    '-0',
    '1e400',
    '1e-400',
  ],
  ...[
    '99999999999999999999999999',
    '"NaN"',
    '"Infinity"',
    '"-infinity"',
    '"1; drop table tags"',
    '"\'); drop table tags; --"',
  ],
  ...[
    '"$1"',
    '"$NOW"',
    '"$CURRENT_USER.password"',
    '"{1,2"',
    '"(a,b"',
    '{"json":"1"}',
    '{"variable":"$NOW"}',
    '{"constant":1}',
  ],
  ...['{"__proto__":{"a":1}}', '{"toString":1}', `${'['.repeat(500)}${']'.repeat(500)}`, `"${'x'.repeat(50_000)}"`],
];

const TARGETS: readonly (readonly [name: string, argument: string])[] = [
  ...(['number', 'digits', 'moment', 'day', 'flag', 'document', 'key', 'words'] as const).map(
    (argument) => ['echo', argument] as const,
  ),
  ['add', 'a'],
  ['total', 'numbers'],
  ['joined_words', 'glue'],
  ['spread', 'values_of'],
  ['mood_of', 'given'],
  ['grow', 'given'],
  ['articles_of', 'writer'],
  ['article_titled', 'title'],
  ['publish', 'article'],
];

t.test('no value is more than a value', async (t) => {
  for (const [name, argument] of TARGETS) {
    const statuses = new Set<number>();
    for (const value of VALUES) {
      const answer = await call(name, `{${JSON.stringify(argument)}:${value}}`);
      statuses.add(answer.status);
      if (answer.status !== 200 && answer.status !== 400) t.fail(`${name} ${argument} ${value}: ${answer.text}`);
    }
    t.ok(statuses.size > 0, `${name}(${argument}): ${[...statuses].join()}`);
  }
  t.match((await get(service, '/items/tags?aggregate[count]=*')).json, { data: [{ count: 5 }] });
});

t.test('names are names', async (t) => {
  for (const argument of [
    '__proto__',
    'constructor',
    'toString',
    '',
    'a => 1); drop table tags; --',
    '"a"',
    'A',
    'a\u0000',
  ])
    t.match(await call('add', `{"a":1,${JSON.stringify(argument)}:1}`), { status: 400 }, argument);
  for (const name of [
    '__proto__',
    'constructor',
    'add"',
    'add(1,2)',
    'pg_catalog.pg_sleep',
    'ADD',
    '%22add%22',
    'add%00',
  ])
    t.match(await call(name, '{"a":1}'), { status: 403 }, name);
  for (const query of [
    'a[__proto__]=1',
    '__proto__[a]=1',
    'a=1&a=2',
    'a[0]=1',
    'constructor=1&a=1',
    `a=${'1'.repeat(5_000)}`,
  ])
    t.match(await get(service, `/rpc/add?${query}`), { status: 400 }, query);
  const many = Object.fromEntries(Array.from({ length: 20_000 }, (_, number) => [`a${number}`, 1]));
  t.match(await call('add', JSON.stringify(many)), { status: 400 });
  for (const body of ['', '{', '[]', '1', '"x"', 'null', '{"a":1']) {
    const { status } = await call('add', body);
    t.equal(status, 400, body);
  }
});

t.test('a call has a deadline, and leaves nothing behind', async (t) => {
  t.match(await call('doze', '{"seconds":5}'), { status: 400, json: { errors: [{ message: /took too long/ }] } });
  t.match(await call('nap', '{"seconds":5}'), { status: 400, json: { errors: [{ message: /took too long/ }] } });
  t.match((await get(service, '/items/tags?filter[name]=napped')).json, { data: [] });
  t.match(await call('nap', '{"seconds":0}'), { status: 200, json: { data: 1 } });
});

t.test('a conflict is tried again, and then an answer', async (t) => {
  for (const code of ['40001', '40P01'])
    t.match(await call('contend', JSON.stringify({ code })), { status: 503 }, code);
  t.match((await get(service, '/items/tags?filter[name]=contended')).json, { data: [] });
});

t.test('functions that may write are neither explained nor called by reads', async (t) => {
  const prefer = { prefer: 'explain=analyze' };
  t.match(await call('nap', '{"seconds":0}', { headers: prefer }), { status: 400 });
  t.match(await get(service, '/rpc/nap?seconds=0', { headers: prefer }), { status: 405 });
  t.match(await call('add', '{"a":1}', { headers: prefer }), { status: 200, json: { data: { sql: /"add"/ } } });
  t.match(await request(service, 'SEARCH', '/rpc/nap?seconds=0'), { status: 405 });
});
