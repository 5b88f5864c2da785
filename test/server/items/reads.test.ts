/**
 * Reads from the outside: entity tags, cursors through every kind of sort, SEARCH bodies, singletons, variables, `$FOLLOW`,
 * explanations, deep and alias, and a structure that changes between two requests.
 */
import t from 'tap';
import {
  type Answer,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  withSql,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'reads');
await withSql(databaseUrl, (sql) =>
  sql
    .unsafe(`
      create table settings (id serial primary key, title text not null default 'Untitled', size integer default 3, bare text, made timestamptz default now());
      insert into service_collections (collection, singleton) values ('settings', true);
      create table notes (id uuid primary key default gen_random_uuid(), owner uuid, role uuid, label text, at timestamptz);
      create table samples (
        id integer primary key, grade integer, word text, price numeric, ratio double precision, at timestamptz, day date,
        flag boolean not null, article integer references articles (id), doc jsonb, span interval, code uuid
      );
      insert into samples
        select n, nullif(n % 4, 0), case when n % 5 < 3 then 'w"\\,' || n % 5 end, nullif(n % 3, 1) * 1.10, nullif(n % 6, 2) / 3.0,
          case when n % 7 > 1 then timestamptz '2024-01-01 00:00:00.123456+02' + n % 3 * interval '1 hour 1 microsecond' end,
          case when n % 4 > 0 then date '2024-02-28' + n % 3 end, n % 2 = 0, nullif(n % 11, 0),
          case when n % 3 > 0 then jsonb_build_object('k', n % 2, 'list', '[1, 2]'::jsonb) end,
          case when n % 4 > 1 then make_interval(days => n % 3) end,
          case when n % 3 > 0 then ('00000000-0000-0000-0000-00000000000' || n % 4)::uuid end
        from generate_series(1, 60) n;`)
    .simple(),
);
const service = await startTestService({ databaseUrl });
const wrong = { status: 400, json: { errors: [{ extensions: { code: 'INVALID_QUERY' } }] } };
const badPayload = { status: 400, json: { errors: [{ extensions: { code: 'INVALID_PAYLOAD' } }] } };

t.test('entity tags', async (t) => {
  for (const path of [
    '/items/articles?sort=id',
    '/items/articles/1',
    '/items/settings',
    '/items/articles?aggregate[count]=*',
  ]) {
    const first = await get(service, path);
    const tag = String(first.headers.etag);
    t.match(tag, /^"[^"]+"$/, `${path} has a strong tag`);
    t.equal((await get(service, path)).headers.etag, tag, 'the same for the same bytes');
    for (const held of [tag, `W/${tag}`, `"other", ${tag}`, `"other" ,W/${tag}`, '*']) {
      const again = await get(service, path, { headers: { 'if-none-match': held } });
      t.match(again, { status: 304, text: '', headers: { etag: tag } }, `${held} is known`);
    }
    for (const held of ['"other"', tag.slice(1, -1), `"${tag}"`, 'W/', ',']) {
      t.match(await get(service, path, { headers: { 'if-none-match': held } }), { status: 200 }, `${held} is not`);
    }
    const head = await request(service, 'HEAD', path);
    t.match(head, { status: 200, text: '', headers: { etag: tag } }, 'HEAD has the same');
    t.equal(Number(head.headers['content-length']), Buffer.byteLength(first.text));
    t.match(await request(service, 'HEAD', path, { headers: { 'if-none-match': tag } }), { status: 304 });
  }
  const before = String((await get(service, '/items/tags/4')).headers.etag);
  await withSql(databaseUrl, (sql) => sql`update tags set name = 'used' where id = 4`);
  const after = await get(service, '/items/tags/4', { headers: { 'if-none-match': before } });
  t.match(after, { status: 200, json: { data: { name: 'used' } } }, 'changed data has another tag');
  t.match(await get(service, '/items/tags/404', { headers: { 'if-none-match': '*' } }), { status: 403 });
  t.match(await get(service, '/items/tags?fields=x', { headers: { 'if-none-match': '*' } }), { status: 403 });
});

const SORTS = [
  'id',
  '-id',
  'grade',
  '-grade',
  'grade,-word',
  '-grade,word',
  '-grade,-word,-price',
  'price',
  '-price',
  'ratio',
  '-ratio',
  'at',
  '-at',
  'day,-at',
  'flag',
  '-flag,grade',
  'year(at)',
  '-month(day),word',
  '-hour(at),second(at)',
  'article.title',
  '-article.title',
  'article.author.name,-grade',
  '-article.author.born',
  'article.year(published_at),-article.rating',
  'article.comments.created',
  '-article.comments.author.name',
  'count(article.comments)',
  '-article.count(tags),grade',
  'json(doc, k)',
  '-json(doc, list[0]),grade',
  'span',
  '-span,code',
  'code',
];

t.test('cursors visit every row once, whatever the sort', async (t) => {
  for (const sort of SORTS) {
    for (const limit of [7, 20]) {
      const base = `/items/samples?fields=id&sort=${encodeURIComponent(sort)}&limit=`;
      const whole = ids(await get(service, `${base}100`));
      t.equal(whole.length, 60, sort);
      const seen: unknown[] = [];
      let cursor: string | null = '';
      for (let page = 0; cursor !== null && page < 30; page++) {
        const answer: Answer = await get(service, `${base}${limit}&cursor=${cursor}`);
        if (answer.status !== 200) return void t.fail(`${sort}: ${answer.text}`);
        seen.push(...ids(answer));
        cursor = (answer.json as { meta: { next_cursor: string | null } }).meta.next_cursor;
      }
      t.strictSame(seen, whole, `${sort} by ${limit}`);
    }
  }
});

t.test('cursors and the rest of a query', async (t) => {
  const first = await get(service, '/items/samples?cursor=&limit=5&filter[flag][_eq]=true&meta=*&sort=-grade');
  const { meta } = first.json as { meta: { next_cursor: string; filter_count: number } };
  t.match(meta, { total_count: 60, filter_count: 30 });
  t.match(meta.next_cursor, /^[\w-]+$/, 'may stand in a URL');
  const second = await get(
    service,
    `/items/samples?cursor=${meta.next_cursor}&limit=5&filter[flag][_eq]=true&meta=*&sort=-grade`,
  );
  t.match(second.json, { meta: { filter_count: 30 } }, 'counts do not depend on the page');
  const body = { query: { cursor: meta.next_cursor, limit: 5, filter: { flag: true }, sort: ['-grade'], meta: '*' } };
  t.equal((await search(service, 'samples', body)).text, second.text, 'SEARCH takes them too');
  const last = await get(service, '/items/samples?cursor=&limit=100');
  t.match(last.json, { meta: { next_cursor: null } });
  t.strictSame((await get(service, '/items/samples?cursor=&limit=0')).json, { meta: { next_cursor: null }, data: [] });
  t.match(await get(service, '/items/articles?cursor=&limit=2&fields=id,comments.id'), {
    json: { data: [{ comments: [{ id: 1 }] }] },
  });
  for (const extra of ['offset=1', 'page=2', 'limit=-1', 'export=csv', 'aggregate[count]=*', 'groupBy=grade']) {
    t.match(await get(service, `/items/samples?cursor=&${extra}`), wrong, extra);
  }
});

t.test('cursors that are none', async (t) => {
  const encode = (value: unknown): string =>
    Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');
  const tampered = [
    'x',
    '%00',
    'a=b',
    '....',
    encode('null'),
    encode('{}'),
    encode('"1"'),
    encode('[1'),
    encode([1]),
    encode([['1']]),
    encode([{}]),
    encode([]),
    encode(['1', '2', '3']),
    encode(['one']),
    encode(['1\u0000']),
    encode(['99999999999999']),
    encode(["1'; select 1"]),
    Buffer.from([0xff, 0xfe]).toString('base64url'),
  ];
  for (const cursor of tampered) t.match(await get(service, `/items/samples?cursor=${cursor}`), wrong, cursor);
  for (const sort of ['grade', 'at', 'price', 'code', 'flag', 'span', 'json(doc,k)', 'year(at)']) {
    const answer = await get(service, `/items/samples?sort=${sort}&cursor=${encode(['no value', '1'])}`);
    t.ok([200, 400].includes(answer.status), `${sort}: ${answer.status}`);
  }
  t.match(await get(service, `/items/samples?sort=grade&cursor=${encode(['1'])}`), wrong, 'of another sort');
  t.match(await search(service, 'samples', { query: { cursor: 7 } }), wrong);
});

t.test('SEARCH', async (t) => {
  const ordinary = await get(
    service,
    '/items/articles?fields=id,title&filter[status][_eq]=draft&sort=-id&limit=2&meta=*',
  );
  const query = { fields: ['id', 'title'], filter: { status: { _eq: 'draft' } }, sort: ['-id'], limit: 2, meta: '*' };
  t.equal((await search(service, 'articles', { query })).text, ordinary.text, 'means what GET means');
  const texts = {
    fields: 'id,title',
    filter: '{"status":"draft"}',
    sort: '-id',
    limit: '2',
    meta: ['total_count', 'filter_count'],
  };
  t.equal((await search(service, 'articles', { query: texts })).text, ordinary.text, 'texts as in a URL');
  t.strictSame(ids(await search(service, 'articles', { keys: [3, '1', 3, 99] })), [1, 3], 'keys alone');
  t.strictSame(
    ids(
      await search(service, 'articles', { keys: [1, 2, 3], query: { sort: ['-id'], filter: { views: { _gt: 0 } } } }),
    ),
    [2, 1],
    'both',
  );
  t.strictSame(ids(await search(service, 'articles', { keys: [] })), [], 'no keys, no items');
  t.strictSame(
    ids(await search(service, 'articles', { keys: [2, 4], query: { aggregate: undefined, limit: 1 } })),
    [2],
  );
  t.match(await search(service, 'articles', { keys: [1, 2], query: { aggregate: { count: '*' } } }), {
    json: { data: [{ count: 2 }] },
  });
  for (const body of ['{}', '', undefined]) t.equal(ids(await search(service, 'articles', body)).length, 10, `${body}`);
  const url = '/items/articles?limit=1&fields=id';
  const headers = { 'content-type': 'application/json' };
  t.match(
    await request(service, 'SEARCH', url, { headers, body: '{}' }),
    { json: { data: { length: 1 } } },
    'the URL counts',
  );
  t.match(
    await request(service, 'SEARCH', url, { headers, body: '{"query":{"limit":3}}' }),
    { json: { data: { length: 3 } } },
    'unless the body says it',
  );
  for (const name of ['limit=1', 'filter[id]=1', 'search=x', 'sort=id', 'page=2', 'deep[comments][_limit]=1'])
    t.match(
      await request(service, 'SEARCH', `/items/articles?${name}`, { headers, body: '{"query":{"fields":["id"]}}' }),
      { status: 400, json: { errors: [{ message: /must be in the "query" of the body/ }] } },
      `${name} is not dropped`,
    );
  t.match(await request(service, 'SEARCH', url, { headers, body: '{"keys":[2]}' }), { json: { data: [{ id: 2 }] } });
  t.equal((await search(service, 'articles', { query: {} })).headers.etag, undefined);

  for (const body of [
    '[]',
    'null',
    '1',
    '"x"',
    '{',
    '{"query":[]}',
    '{"query":null}',
    '{"query":"x"}',
    '{"keys":1}',
    '{"keys":{}}',
    '{"keys":[null]}',
    '{"keys":[{}]}',
    '{"keys":[[1]]}',
    '{"data":{}}',
    '{"query":{},"x":1}',
    '\u0000',
  ]) {
    t.match(await search(service, 'articles', body), badPayload, body);
  }
  t.match(
    await request(service, 'SEARCH', url, { headers, body: Buffer.from([0x7b, 0xff, 0x7d]) }),
    badPayload,
    'bytes that are no text',
  );
  for (const key of ['x', '1.5', 1e30, true, '']) {
    const { status } = await search(service, 'articles', { keys: [1, key] });
    t.ok(status === 400 || status === 403, `the key ${key}: ${status}`);
  }
  for (const type of ['text/plain', 'application/xml', 'multipart/form-data', '', 'application/jsonx']) {
    const answer = await request(service, 'SEARCH', url, {
      headers: type === '' ? {} : { 'content-type': type },
      body: '{}',
    });
    t.match(answer, { status: 415, json: { errors: [{ extensions: { code: 'UNSUPPORTED_MEDIA_TYPE' } }] } }, type);
  }
  const json = { 'content-type': 'Application/JSON; charset=UTF-8' };
  t.match(await request(service, 'SEARCH', url, { headers: json, body: '{"keys":[2]}' }), { status: 200 });
  t.match(await search(service, 'nothing', {}), { status: 403 });
  t.match(await request(service, 'SEARCH', '/items/articles/1', { headers, body: '{}' }), { status: 404 });
});

t.test('singletons', async (t) => {
  const blank = await get(service, '/items/settings');
  t.match(
    blank,
    { status: 200, json: { data: { id: null, title: 'Untitled', size: 3, bare: null } } },
    'before the first write',
  );
  t.strictSame((await get(service, '/items/settings?fields=size,id')).json, { data: { size: 3, id: null } });
  await withSql(databaseUrl, (sql) => sql`insert into settings (id, title) values (7, 'Mine'), (9, 'Other')`);
  t.match(await get(service, '/items/settings?fields=id,title'), { text: '{"data":{"id":7,"title":"Mine"}}' });
  t.match(await get(service, '/items/settings?fields=id&filter[id][_eq]=9&limit=0&sort=-id&meta=*'), {
    status: 200,
    json: { data: { id: 7 } },
  });
  t.match(await get(service, '/items/settings?aggregate[count]=*'), { json: { data: [{ count: 2 }] } });
  t.match(await search(service, 'settings', {}), { json: { data: { id: 7 } } });
});

t.test('variables', async (t) => {
  const [me] = await withSql(
    databaseUrl,
    (sql) => sql`select u.id, u.role, u.email, r.name from service_users u join service_roles r on r.id = u.role`,
  );
  await withSql(databaseUrl, async (sql) => {
    await sql`insert into notes (owner, role, label, at) values
      (${me?.['id']}, null, 'mine', now() - interval '2 hours'), (null, ${me?.['role']}, 'of my role', now() + interval '2 hours'),
      (null, null, ${me?.['name']}, null), (null, null, ${me?.['email']}, '2020-02-29T00:00:00Z')`;
  });
  const labels = async (filter: unknown): Promise<unknown> => {
    const answer = await search(service, 'notes', { query: { fields: ['label'], filter, sort: ['label'] } });
    return answer.status === 200 ? (answer.json as { data: { label: string }[] }).data.map((row) => row.label) : answer;
  };
  t.strictSame(await labels({ owner: { _eq: '$CURRENT_USER' } }), ['mine']);
  t.strictSame(await labels({ owner: '$CURRENT_USER' }), ['mine']);
  t.strictSame(await labels({ owner: { _in: ['$CURRENT_USER'] } }), ['mine']);
  t.strictSame(await labels({ owner: { _neq: '$CURRENT_USER' } }), []);
  t.strictSame(await labels({ role: { _eq: '$CURRENT_ROLE' } }), ['of my role']);
  t.strictSame(await labels({ role: { _in: '$CURRENT_ROLES' } }), ['of my role']);
  t.strictSame(await labels({ role: { _in: ['$CURRENT_POLICIES'] } }), []);
  t.match(await labels({ role: { _eq: '$CURRENT_ROLES' } }), wrong, 'a list is no value');
  t.strictSame(await labels({ label: { _eq: '$CURRENT_USER.role.name' } }), [me?.['name']]);
  t.strictSame(await labels({ label: { _eq: '$CURRENT_ROLE.name' } }), [me?.['name']]);
  t.strictSame(await labels({ label: { _in: '$CURRENT_ROLES.name' } }), [me?.['name']]);
  t.strictSame(await labels({ label: { _in: ['$CURRENT_USER.email'] } }), [me?.['email']]);
  t.strictSame(await labels({ owner: { _eq: '$CURRENT_USER.id' } }), ['mine']);
  t.match(await labels({ label: { _eq: '$CURRENT_USER.password' } }), { status: 403 }, 'no secrets');
  t.match(await labels({ label: { _eq: '$CURRENT_USER.token' } }), { status: 403 });
  t.match(await labels({ label: { _eq: '$CURRENT_USER.nothing' } }), { status: 403 });
  t.match(await labels({ label: { _contains: '$CURRENT_USER.email' } }), wrong);
  t.strictSame(await labels({ label: { _eq: '$CURRENT_USERS' } }), [], 'an unknown variable is a text');
  // The caller's value is of another type: a text that is no uuid.
  t.match(await labels({ owner: { _eq: '$CURRENT_USER.email' } }), wrong);
  t.strictSame(await labels({ at: { _lt: '$NOW' } }), [me?.['email'], 'mine'].sort());
  t.strictSame(await labels({ at: { _gt: '$NOW(-1 day)', _lt: '$NOW(-1 hour)' } }), ['mine']);
  t.strictSame(await labels({ at: { _between: ['$NOW(-3 hours)', '$NOW(+3h)'] } }), ['mine', 'of my role']);
  t.strictSame(await labels({ at: { _gt: '$NOW(+1 hour)' } }), ['of my role']);
  const times = ['+1 nonsense', '-500 garbage', '-1 year 2', '--1 day', 'x', '-999999999 years', '1 day) or (1'];
  for (const time of ['$NOW(', '$NOW(-1 day', '$NOW -1 day', ...times.map((each) => `$NOW(${each})`)]) {
    t.match(await labels({ at: { _gt: time } }), wrong, time);
    t.match(await labels({ at: { _between: ['2020-01-01', time] } }), wrong, `${time} in a list`);
  }
  t.strictSame(await labels({ at: { _lt: '$NOW(-3000 years)' } }), []);
  t.match(await get(service, '/items/notes?filter[at][_lt]=$NOW(-1%20month)&fields=label'), {
    json: { data: [{ label: me?.['email'] }] },
  });
});

t.test('$FOLLOW', async (t) => {
  const found = async (key: string, inner: unknown): Promise<unknown> => {
    const answer = await search(service, 'articles', { query: { fields: ['id'], filter: { [key]: inner } } });
    return answer.status === 200 ? ids(answer) : answer;
  };
  t.strictSame(await found('$FOLLOW(comments,article)', { body: { _eq: 'Nice!' } }), [1]);
  t.strictSame(await found('$FOLLOW(comments, article)', { author: { name: { _eq: 'Ada Lovelace' } } }), [6, 8]);
  t.strictSame(await found('$FOLLOW(samples,article)', { grade: { _eq: 1 } }), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  t.strictSame(await found('$FOLLOW(samples,article)', { _null: true }), []);
  t.strictSame(await found('$FOLLOW(comments,article)', { _none: { id: { _gt: 0 } } }), [3, 4, 5, 7, 9, 10]);
  const blocks = await search(service, 'block_text', {
    query: { fields: ['id'], filter: { '$FOLLOW(articles_blocks,item,collection)': { articles_id: 1 } } },
  });
  t.strictSame(ids(blocks), [1], 'through many-to-any');
  for (const key of [
    '$FOLLOW(comments)',
    '$FOLLOW()',
    '$FOLLOW(comments,article',
    '$FOLLOW(a,b,c,d)',
    `$FOLLOW(comments,${'x'.repeat(600)})`,
  ]) {
    t.match(await found(key, { id: 1 }), wrong, key);
  }
  for (const key of [
    '$FOLLOW(nothing,article)',
    '$FOLLOW(comments,nothing)',
    '$FOLLOW(comments,body)',
    '$FOLLOW(comments,author)',
    '$FOLLOW(service_users,role)',
  ]) {
    t.match(await found(key, { id: 1 }), { status: 403 }, key);
  }
});

t.test('explanations', async (t) => {
  const path = '/items/articles?filter[title][_eq]=Beta&fields=id,author.name';
  const explained = await get(service, path, { headers: { prefer: 'explain' } });
  t.match(explained, {
    status: 200,
    json: {
      data: {
        sql: /^select .*\$1/s,
        parameters: ['Beta'],
        plan_kind: /^(generic|custom|fenced)$/,
        plan: [{ Plan: { 'Total Cost': Number } }],
      },
    },
  });
  t.notMatch(explained.text, /Actual Rows/);
  const analyzed = await get(service, path, { headers: { prefer: 'explain=analyze' } });
  t.match(analyzed.text, /Actual Rows/);
  t.match(await get(service, '/items/articles/1', { headers: { prefer: 'explain' } }), {
    json: { data: { parameters: ['1'] } },
  });
  t.match(await get(service, '/items/articles?limit=-1', { headers: { prefer: 'explain' } }), {
    json: { data: { sql: /^select/ } },
  });
  t.match(await get(service, '/items/articles?export=csv', { headers: { prefer: 'explain' } }), {
    json: { data: { sql: /^select/ } },
  });
  t.match(
    await get(service, path, { headers: { prefer: 'return=minimal' } }),
    { json: { data: [{ id: 8 }] } },
    'other preferences',
  );
  t.match(
    await get(service, path, { headers: { prefer: 'return=minimal, explain' } }),
    { json: { data: { sql: /^select/ } } },
    'among others',
  );
  t.match(await get(service, path, { headers: { prefer: 'explain' }, token: null }), { status: 403 });
  t.match(await get(service, path, { headers: { prefer: 'explain' }, token: 'nobodys-token-at-all' }), { status: 401 });
  t.match(await get(service, '/items/articles?filter[views][_eq]=x', { headers: { prefer: 'explain' } }), wrong);
  t.match(await get(service, '/items/articles?filter[published_at][_gt]=x', { headers: { prefer: 'explain' } }), wrong);
});

t.test('deep, alias and backlink', async (t) => {
  const one = async (query: string): Promise<unknown> => {
    const answer = await get(service, `/items/articles/1?${query}`);
    return answer.status === 200 ? (answer.json as { data: unknown }).data : answer;
  };
  t.strictSame(await one('fields=comments&deep[comments][_limit]=2&deep[comments][_sort]=-id'), { comments: [3, 2] });
  t.strictSame(
    await one(
      'alias[first]=comments&alias[last]=comments&fields=first.id,last.id&deep[first][_limit]=1&deep[last][_limit]=1&deep[last][_sort]=-id',
    ),
    { first: [{ id: 1 }], last: [{ id: 3 }] },
  );
  t.strictSame(await one('alias[name]=title&alias[k]=json(meta,k)&alias[n]=count(comments)&fields=name,k,n'), {
    name: 'Hello World',
    k: 1,
    n: 3,
  });
  t.strictSame(await one('fields=author.name&deep[author][_filter][name][_eq]=x'), { author: null });
  t.strictSame(
    await one(
      'fields=comments.author.name&deep[comments][_filter][author][_nnull]=true&deep[comments][author][_filter][name][_starts_with]=A',
    ),
    { comments: [{ author: { name: 'Alan Turing' } }, { author: null }] },
  );
  t.strictSame(
    await one(
      'fields=blocks.item:block_text.text,blocks.item:block_image.caption&deep[blocks][item:block_text][_filter][id][_eq]=9',
    ),
    { blocks: [{ item: { caption: 'One' } }, { item: null }, { item: 1 }] },
  );
  t.strictSame(
    await one(
      'fields=comments&deep[comments][_aggregate][count]=*&deep[comments][_groupBy]=author&deep[comments][_sort]=author',
    ),
    {
      comments: [
        { author: 2, count: 1 },
        { author: 3, count: 1 },
        { author: null, count: 1 },
      ],
    },
  );
  const aliased = (fields: string, deep: object) => one(`fields=${fields}&deep=${JSON.stringify({ blocks: deep })}`);
  t.strictSame(await aliased('blocks.aliased:block_text.text', { _alias: { aliased: 'item' } }), {
    blocks: [{ aliased: 1 }, { aliased: { text: 'Intro text' } }, { aliased: 1 }],
  });
  const scoped = { _alias: { a: 'item' }, 'a:block_image': { _filter: { id: 9 } } };
  t.strictSame(
    await aliased('blocks.a:block_image.caption,blocks.a:block_text.text', scoped),
    { blocks: [{ a: null }, { a: { text: 'Intro text' } }, { a: 1 }] },
    'with a query of its own',
  );
  t.strictSame(await aliased('blocks.a.id', { _alias: { a: 'item:block_text' } }), {
    blocks: [{ a: 1 }, { a: { id: 1 } }, { a: 1 }],
  });
  t.strictSame(await one('alias[a]=comments&fields=a.b&deep[a][_alias][b]=body&deep[a][_search]=nice'), {
    a: [{ b: 'Nice!' }],
  });
  const back = (await one('fields=comments.*.*&backlink=false')) as {
    comments: { article: unknown; author: unknown }[];
  };
  t.match(back.comments[0], { article: 1, author: { id: 2 } }, 'the way back is not expanded');
  const forth = (await one('fields=comments.*.*')) as { comments: { article: unknown }[] };
  t.match(forth.comments[0], { article: { id: 1 } });
  t.match(await one('alias[a]=comments.author&fields=a'), wrong);
  t.match(await one('alias[a]=nothing&fields=a'), { status: 403 });
});

t.test('names that every JavaScript object has are names like others', async (t) => {
  await withSql(databaseUrl, (sql) =>
    sql
      .unsafe(
        `create table odd (id integer primary key, "constructor" text, "toString" text, "__proto__" text, "hasOwnProperty" text); insert into odd values (1, 'a', 'b', 'c', 'd'), (2, 'e', 'f', 'g', 'h')`,
      )
      .simple(),
  );
  await until(() => get(service, '/items/odd'), 200);
  for (const [name, value] of Object.entries({ constructor: 'a', toString: 'b', hasOwnProperty: 'd' })) {
    t.strictSame(ids(await get(service, `/items/odd?filter[${name}][_eq]=${value}`)), [1], `brackets: ${name}`);
    t.strictSame(ids(await get(service, `/items/odd?filter={"${name}":"${value}"}`)), [1], `JSON: ${name}`);
    t.match(
      await get(service, `/items/odd/1?alias[${name}]=id&fields=${name}`),
      { text: `{"data":{"${name}":1}}` },
      `alias ${name}`,
    );
  }
  t.strictSame(ids(await get(service, '/items/odd?filter={"__proto__":"c"}')), [1]);
  const proto = await get(service, '/items/odd?filter[__proto__][_eq]=c');
  t.ok(proto.status === 400 || ids(proto).length === 1, 'brackets with __proto__ are not dropped in silence');
  t.match(await get(service, '/items/odd/1?fields=__proto__,toString'), {
    text: '{"data":{"__proto__":"c","toString":"b"}}',
  });
  for (const name of ['constructor', 'toString', '__proto__', 'hasOwnProperty']) {
    t.match(await get(service, `/items/${name}`), { status: 403 });
    t.match(await get(service, `/items/articles?fields=${name}`), { status: 403 });
    t.match(await get(service, `/items/articles?aggregate[${name}]=id`), wrong, `aggregate ${name}`);
  }
});

t.test('a structure that changes between two requests', async (t) => {
  await withSql(databaseUrl, async (sql) => {
    await sql`create table shifting (id integer primary key, one text, two text)`;
    await sql`insert into shifting values (1, 'a', 'b')`;
    await until(() => get(service, '/items/shifting'), 200);
    const paths = [
      '/items/shifting',
      '/items/shifting/1',
      '/items/shifting?limit=-1',
      '/items/shifting?fields=id,two',
      '/items/shifting?filter[two][_eq]=b',
      '/items/shifting?sort=two&export=csv',
      '/items/shifting?groupBy=two',
    ];
    const changes = [
      'alter table shifting drop column two',
      'alter table shifting add column two integer',
      'alter table shifting alter column two type text',
      'alter table shifting rename column two to three',
      'alter table shifting add column two json',
      'alter table shifting drop column two',
      'alter table shifting add column two uuid',
      'alter table shifting rename to shifted',
      'alter table shifted rename to shifting',
      'alter table shifting alter column id type bigint',
      'alter table shifting drop constraint shifting_pkey',
      'alter table shifting add primary key (id)',
      'drop table shifting',
      'create table shifting (id text primary key, two date)',
    ];
    for (const change of changes) {
      await Promise.all(paths.map((path) => get(service, path)));
      await sql.unsafe(change);
      for (const { status, text } of await Promise.all(paths.map((path) => get(service, path)))) {
        if (![200, 400, 403].includes(status)) t.fail(`${change}: ${status} ${text}`);
      }
    }
    await until(() => get(service, '/items/shifting?fields=id,two'), 200);
    t.pass('never a failure of the service');
  });
});

function ids(answer: Answer): unknown[] {
  if (answer.status !== 200) return [answer.text];
  return (answer.json as { data: { id: unknown }[] }).data.map((row) => row.id);
}

function search(target: { readonly url: string }, collection: string, body: unknown): Promise<Answer> {
  const text = typeof body === 'string' ? body : body === undefined ? '' : JSON.stringify(body);
  return request(target, 'SEARCH', `/items/${collection}`, {
    headers: { 'content-type': 'application/json' },
    body: text,
  });
}

/** A change of the schema is heard of a moment later. */
async function until(ask: () => Promise<Answer>, status: number): Promise<void> {
  for (let tries = 0; tries < 100; tries++) {
    if ((await ask()).status === status) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`never ${status}`);
}
