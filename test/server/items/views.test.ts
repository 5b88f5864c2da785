/** Views: without a declared key they are read as lists, as tables without a key are; with one they are collections like others. */
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
import {
  type Answer,
  connectSql,
  createDatabase,
  get,
  type RequestOptions,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'views');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table films (id integer primary key, title text, rating numeric, secret text);
  insert into films values (1, 'Alien', 8.5, 'a'), (2, 'Brazil', 7.9, 'b'), (3, 'Charade', 7.9, 'c');
  create view film_list as select title, rating, secret from films;
  create materialized view ratings as select rating, count(*) as films from films group by rating;
  create unique index on ratings (rating);
  create materialized view later as select title from films with no data;
  create extension pg_stat_statements`);
const service = await startTestService({ databaseUrl });

function send(method: string, path: string, body: unknown, options: RequestOptions = {}): Promise<Answer> {
  if (body === undefined) return request(service, method, path, options);
  const text = JSON.stringify(body);
  const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(text)) };
  return request(service, method, path, { ...options, headers: { ...headers, ...options.headers }, body: text });
}

const ALL = [
  { title: 'Alien', rating: '8.5', secret: 'a' },
  { title: 'Brazil', rating: '7.9', secret: 'b' },
  { title: 'Charade', rating: '7.9', secret: 'c' },
];

t.test('a view without a declared key is listed, filtered, aggregated and exported', async (t) => {
  t.strictSame((await get(service, '/items/film_list?sort=title')).json, { data: ALL });
  t.strictSame((await get(service, '/items/film_list?fields=title&filter[rating][_gt]=8')).json, {
    data: [{ title: 'Alien' }],
  });
  t.strictSame((await get(service, '/items/film_list?aggregate[count]=*&groupBy=rating&sort=rating')).json, {
    data: [
      { rating: '7.9', count: 2 },
      { rating: '8.5', count: 1 },
    ],
  });
  t.strictSame((await get(service, '/items/ratings?sort=films&meta=total_count')).json, {
    data: [
      { rating: '8.5', films: '1' },
      { rating: '7.9', films: '2' },
    ],
    meta: { total_count: 2 },
  });
  t.equal(
    (await get(service, '/items/film_list?export=csv&fields=title&sort=title')).text.trim(),
    'title\nAlien\nBrazil\nCharade',
  );
  const query = '{ film_list(sort: ["-title"], limit: 1) { title } film_list_aggregated { countAll } }';
  t.strictSame((await send('POST', '/graphql', { query })).json, {
    data: { film_list: [{ title: 'Charade' }], film_list_aggregated: [{ countAll: 3 }] },
  });
});

t.test('no item of it can be named or written, and it says so', async (t) => {
  const refusal = { status: 403, text: /\\"film_list\\" has no key/ };
  t.match(await get(service, '/items/film_list/Alien'), refusal);
  t.match(await send('SEARCH', '/items/film_list', { keys: ['Alien'] }), refusal);
  t.match(await send('POST', '/items/film_list', { title: 'Dune' }), refusal);
  t.match(await send('PATCH', '/items/film_list/Alien', { title: 'Dune' }), refusal);
  t.match(await send('DELETE', '/items/film_list', { query: { limit: -1 } }), refusal);
  t.equal((await sql`select from films`).length, 3);
  const { paths } = (await get(service, '/server/specs/oas')).json as { paths: Record<string, object> };
  t.ok(paths['/items/film_list']);
  t.notOk(paths['/items/film_list/{key}']);
});

t.test('permissions count for it as for tables', async (t) => {
  t.match(await get(service, '/items/film_list', { token: null }), { status: 403 }, 'nobody sees it by default');
  const rule = {
    collection: 'film_list',
    action: 'read',
    fields: ['title'],
    permissions: { rating: { _lt: 8 } },
  } as const;
  const { token } = await makeCaller(sql, 'reader', [{ permissions: [rule] }]);
  await waitFor(async () => (await get(service, '/items/film_list', { token })).status === 200, 5_000);
  t.strictSame((await get(service, '/items/film_list?sort=title', { token })).json, {
    data: [{ title: 'Brazil' }, { title: 'Charade' }],
  });
  t.match(await get(service, '/items/film_list?fields=secret', { token }), { status: 403 });
});

t.test('a key that is declared gives it items', async (t) => {
  await sql`insert into service_collections (collection, primary_key) values ('film_list', 'title')`;
  await waitFor(async () => (await get(service, '/items/film_list/Alien')).status === 200, 5_000);
  t.match(await send('PATCH', '/items/film_list/Alien?fields=rating', { rating: '8.6' }), {
    status: 200,
    json: { data: { rating: '8.6' } },
  });
});

t.test('a materialized view that was never filled is a 503 that says so', async (t) => {
  t.match(await get(service, '/items/later'), { status: 503, text: /later/ });
  await sql`refresh materialized view later`;
  t.match(await get(service, '/items/later?limit=1'), { status: 200 });
});

t.test('views of extensions are served once their key is declared', async (t) => {
  t.match(await get(service, '/items/pg_stat_statements_info'), {
    status: 403,
    text: /is a view of the extension pg_stat_statements/,
  });
});

/** Their rows cannot be locked: `select … for update` of them fails. Triggers write the tables below. */
const UNLOCKABLE = {
  outer: 'select f.id, f.title, n.note from films f left join notes n on n.film = f.id',
  grouped:
    'select f.id, max(f.title) as title, max(n.note) as note from films f join notes n on n.film = f.id group by f.id',
  nested: 'select * from outer_notes',
  distinct: 'select distinct f.id, f.title, null::text as note from films f',
  ranked: 'select f.id, f.title, (rank() over (order by f.rating))::text as note from films f',
  both: 'select f.id, f.title, n.note from films f, notes n where n.film = f.id union select id + 10, title, null from films',
  stored: 'select id, title, null::text as note from stored_films',
};

t.test('a view whose rows PostgreSQL cannot lock is written by its triggers and rules', async (t) => {
  await sql.unsafe(`
    create table notes (film integer primary key references films on delete cascade, note text);
    insert into notes select id, 'old' from films;
    create materialized view stored_films as select id, title from films;
    create function write_note() returns trigger language plpgsql as $$
    begin
      if tg_op = 'DELETE' then
        delete from notes where film = old.id;
        return old;
      end if;
      update films set title = new.title where id = new.id;
      insert into notes values (new.id, new.note) on conflict (film) do update set note = excluded.note;
      return new;
    end $$;
    ${Object.entries(UNLOCKABLE)
      .map(
        ([name, query]) => `
          create view ${name}_notes as ${query};
          create trigger write instead of update or delete on ${name}_notes for each row execute function write_note();
          insert into service_collections (collection, primary_key) values ('${name}_notes', 'id');`,
      )
      .join('')}
    create view ruled_notes as ${UNLOCKABLE.outer};
    create rule change as on update to ruled_notes do instead
      update notes set note = new.note where film = new.id returning film, ''::text, note;
    insert into service_collections (collection, primary_key) values ('ruled_notes', 'id')`);
  const token = await writer(
    'noter',
    [...Object.keys(UNLOCKABLE), 'ruled'].map((name) => `${name}_notes`),
  );
  await waitFor(async () => (await get(service, '/items/ruled_notes/1', { token })).status === 200, 5_000);
  for (const name of [...Object.keys(UNLOCKABLE), 'ruled']) {
    const noteOf = async (): Promise<unknown> => (await sql`select note from notes where film = 1`)[0]?.['note'];
    const path = `/items/${name}_notes`;
    t.match(await send('PATCH', `${path}/1`, { note: `${name} 1` }), { status: 200 }, name);
    t.equal(await noteOf(), `${name} 1`);
    t.match(await send('PATCH', `${path}/1`, { note: `${name} 2` }, { token }), { status: 200 }, `${name} with a rule`);
    t.equal(await noteOf(), `${name} 2`);
    t.match(await send('PATCH', `${path}/3`, { note: 'x' }, { token }), { status: 403 }, `${name} beyond the rule`);
    const query = { filter: { id: { _eq: 1 } } };
    t.match(await send('PATCH', path, { query, data: { note: `${name} 3` } }), { status: 200 }, `${name} by a query`);
    t.equal(await noteOf(), `${name} 3`);
    const etag = (await get(service, `${path}/1`)).headers.etag ?? '';
    const headers = { 'if-match': etag };
    t.match(
      await send('PATCH', `${path}/1`, { note: `${name} 4` }, { headers }),
      { status: 200 },
      `${name} with a tag`,
    );
    t.equal(await noteOf(), `${name} 4`);
    t.match(await send('PATCH', `${path}/1`, { note: 'x' }, { headers: { 'if-match': '"other"' } }), { status: 412 });
    if (name === 'ruled') continue;
    const restored = sql`insert into notes values (1, 'old')`;
    t.match(await send('DELETE', `${path}/1`, undefined, { token }), { status: 204 }, `${name} deletes with a rule`);
    t.equal(await noteOf(), undefined);
    await restored;
    t.match(await send('DELETE', path, { query }, { token }), { status: 204 }, `${name} deletes by a query`);
    t.equal(await noteOf(), undefined);
    await sql`insert into notes values (1, 'old')`;
  }
});

/** The token of a user who may read and write the items of the collections below 3. */
async function writer(name: string, collections: readonly string[]): Promise<string> {
  const permissions = collections.flatMap((collection) =>
    (['read', 'update', 'delete'] as const).map((action) => ({
      collection,
      action,
      fields: ['*'],
      permissions: { id: { _lt: 3 } },
    })),
  );
  return (await makeCaller(sql, name, [{ permissions }])).token;
}
