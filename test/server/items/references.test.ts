/**
 * Foreign keys to unique columns that are not the key: countries have a number as their key, and cities refer to their codes. They
 * are relations like any other, in reads, filters, writes and lists, and a snapshot carries them.
 */
import t from 'tap';
import { makeCaller, type Permission } from '../../support/callers.js';
import {
  type Answer,
  connectSql,
  createDatabase,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

const server = await startDatabase();
const url = await createDatabase(server, 'codes');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table countries (id serial primary key, code text unique, name text);
  create table cities (
    id serial primary key, name text not null, sort integer,
    country text references countries (code) on update cascade
  );
  create table trips (id serial primary key, city integer references cities, home text references countries (code) on update cascade);
  insert into countries (code, name) values ('de', 'Germany'), ('fr', 'France'), (null, 'Nowhere');
  insert into cities (name, country) values ('Berlin', 'de'), ('Paris', 'fr'), ('Hamburg', 'de'), ('Atlantis', null);
  insert into trips (city, home) values (1, 'fr')`);
const service = await startTestService({ databaseUrl: url });
await sql`
  insert into service_relations (many_collection, many_field, one_collection, one_field, sort_field)
  values ('cities', 'country', 'countries', 'cities', null)`;
const { token } = await makeCaller(sql, 'mayor', [
  {
    permissions: [
      { collection: 'cities', action: 'read' },
      { collection: 'cities', action: 'update' },
      {
        collection: 'countries',
        action: 'read',
        fields: ['name', 'cities'],
        permissions: { name: { _neq: 'France' } },
      },
    ],
  },
]);

const headers = { 'content-type': 'application/json' };
const send = (method: string, path: string, body: unknown, by?: string): Promise<Answer> =>
  request(service, method, path, { headers, body: JSON.stringify(body), ...(by ? { token: by } : {}) });
const read = async (path: string): Promise<unknown> => {
  const answer = await get(service, path);
  t.equal(answer.status, 200, answer.text.slice(0, 300));
  return (answer.json as { data: unknown }).data;
};
await waitFor(async () => (await get(service, '/items/countries?fields=cities')).status === 200, 10_000);
const countryOf = async (city: string): Promise<unknown> =>
  (await sql`select country from cities where name = ${city}`)[0]?.['country'];

t.test('read both ways, to any depth', async (t) => {
  t.strictSame(await read('/items/cities?fields=name,country&sort=id&limit=2'), [
    { name: 'Berlin', country: 'de' },
    { name: 'Paris', country: 'fr' },
  ]);
  t.strictSame(await read('/items/cities?fields=name,country.name&sort=id'), [
    { name: 'Berlin', country: { name: 'Germany' } },
    { name: 'Paris', country: { name: 'France' } },
    { name: 'Hamburg', country: { name: 'Germany' } },
    { name: 'Atlantis', country: null },
  ]);
  t.strictSame(await read('/items/countries?fields=name,cities,cities.name,count(cities)&sort=id'), [
    { name: 'Germany', cities: [{ name: 'Berlin' }, { name: 'Hamburg' }], cities_count: 2 },
    { name: 'France', cities: [{ name: 'Paris' }], cities_count: 1 },
    { name: 'Nowhere', cities: [], cities_count: 0 },
  ]);
  t.strictSame(await read('/items/countries/1?fields=cities'), { cities: [1, 3] });
  t.strictSame(await read('/items/trips?fields=city.country.cities.name,home.name'), [
    { city: { country: { cities: [{ name: 'Berlin' }, { name: 'Hamburg' }] } }, home: { name: 'France' } },
  ]);
});

t.test('filtered, sorted and grouped by', async (t) => {
  const names = async (query: string): Promise<unknown> =>
    ((await read(`/items/${query}`)) as { name: string }[]).map(({ name }) => name);
  t.strictSame(await names('cities?filter[country][name][_eq]=Germany&sort=id'), ['Berlin', 'Hamburg']);
  t.strictSame(await names('cities?filter[country][_eq]=fr'), ['Paris']);
  t.strictSame(await names('countries?filter[cities][name][_eq]=Paris'), ['France']);
  t.strictSame(await names('countries?filter[cities][_none][name][_starts_with]=P&sort=id'), ['Germany', 'Nowhere']);
  t.strictSame(await names('countries?filter[count(cities)][_gt]=1'), ['Germany']);
  t.strictSame(await names('cities?sort=-country.name,name&filter[country][_nnull]=true'), [
    'Berlin',
    'Hamburg',
    'Paris',
  ]);
  t.match(await read('/items/cities?aggregate[count]=*&groupBy=country.name&sort=country.name'), [
    { 'country.name': 'France' },
    { 'country.name': 'Germany' },
    {},
  ]);
});

t.test('and in GraphQL', async (t) => {
  const query = '{ cities(sort: "id", limit: 1) { name country { name cities { name } } } }';
  t.match((await send('POST', '/graphql', { query })).json, {
    data: { cities: [{ country: { name: 'Germany', cities: [{ name: 'Berlin' }, { name: 'Hamburg' }] } }] },
  });
  const mutation =
    'mutation { create_cities_item(data: { name: "Rome", country: { code: "it" } }) { country { code } } }';
  t.match((await send('POST', '/graphql', { query: mutation })).json, {
    data: { create_cities_item: { country: { code: 'it' } } },
  });
});

t.test('related objects are written, and referred to by what they have in that column', async (t) => {
  t.match(await send('POST', '/items/cities', { name: 'Bern', country: { code: 'ch', name: 'Switzerland' } }), {
    status: 200,
  });
  t.equal(await countryOf('Bern'), 'ch');
  t.match(await send('POST', '/items/cities', { name: 'Lyon', country: { id: 2, name: 'La France' } }), {
    status: 200,
  });
  t.equal(await countryOf('Lyon'), 'fr', 'looked up by the key');
  t.match(await send('PATCH', '/items/cities/4', { country: { id: 2, code: 'FR' } }), { status: 200 });
  t.strictSame([await countryOf('Atlantis'), await countryOf('Paris')], ['FR', 'FR'], 'changed at the same time');
  t.match(await send('POST', '/items/cities', { name: 'X', country: 'nowhere' }), {
    status: 400,
    json: { errors: [{ extensions: { type: 'foreign_key', field: 'country' } }] },
  });
  t.match(await send('POST', '/items/cities', { name: 'X', country: { name: 'Codeless' } }), {
    status: 400,
    json: { errors: [{ message: /needs "code" of "countries"/ }] },
  });
  t.match(await send('POST', '/items/cities', { name: 'X', country: { id: 3 } }), { status: 403 }, 'it has no code');
  t.match(await send('POST', '/items/cities', { name: 'X', country: { id: 99 } }), { status: 403 });
  t.equal(await countryOf('X'), undefined, 'what fails leaves nothing');
});

t.test('lists are written with what the parent has there', async (t) => {
  const body = { code: 'es', name: 'Spain', cities: [{ name: 'Madrid' }, { name: 'Cadiz' }] };
  const made = await send('POST', '/items/countries?fields=id,cities.name,cities.id', body);
  t.match(made, { status: 200, json: { data: { cities: [{ name: 'Madrid' }, { name: 'Cadiz' }] } } });
  t.equal(await countryOf('Madrid'), 'es');
  const { id, cities } = (made.json as { data: { id: number; cities: { id: number }[] } }).data;
  const kept = { cities: [{ id: cities[0]?.id, name: 'Madrid!' }, { name: 'Seville' }] };
  t.match(await send('PATCH', `/items/countries/${id}?fields=cities.name`, kept), {
    status: 200,
    json: { data: { cities: [{ name: 'Madrid!' }, { name: 'Seville' }] } },
  });
  t.strictSame(
    [await countryOf('Cadiz'), await countryOf('Seville')],
    [null, 'es'],
    'what leaves the list is unlinked',
  );
  const staged = { cities: { create: [{ name: 'Toledo' }], delete: [cities[0]?.id] } };
  t.match(await send('PATCH', `/items/countries/${id}`, staged), { status: 200 });
  t.strictSame([await countryOf('Madrid!'), await countryOf('Toledo')], [null, 'es']);
  t.match(await send('PATCH', `/items/countries/${id}`, { cities: [] }), { status: 200 });
  t.equal(await countryOf('Toledo'), null);
  t.match(await send('PATCH', '/items/countries/3', { cities: [1] }), { status: 403 }, 'it has no code to refer to');
});

t.test('rights hold along it', async (t) => {
  const seen = await get(service, '/items/cities?fields=name,country.name&filter[name][_in]=Berlin,Paris&sort=id', {
    token,
  });
  t.match(seen.json, { data: [{ name: 'Berlin', country: { name: 'Germany' } }, { name: 'Paris' }] });
  t.match(await send('PATCH', '/items/cities/1', { country: { id: 2 } }, token), { status: 403 });
  t.equal(await countryOf('Berlin'), 'de');
  const listed = await get(service, '/items/countries?fields=name,cities.name&filter[name][_eq]=Germany', { token });
  t.match(listed.json, { data: [{ cities: [{ name: 'Berlin' }, { name: 'Hamburg' }] }] });
});

t.test('the items that a reference looks up are read with the rights of the caller', async (t) => {
  const everywhere: Permission[] = (['cities', 'trips'] as const).flatMap((collection) =>
    (['create', 'read', 'update'] as const).map((action) => ({ collection, action })),
  );
  const makes: Permission = { collection: 'countries', action: 'create' };
  const changes: Permission = { collection: 'countries', action: 'update' };
  const reads = (fields: string[], permissions: object | null = null): Permission => ({
    collection: 'countries',
    action: 'read',
    fields,
    permissions,
  });
  const germany = { name: { _eq: 'Germany' } };
  /** Who may refer to Germany (1), and to France (2). */
  const callers: Record<string, { may: Permission[]; refers: [boolean, boolean] }> = {
    maker: { may: [makes], refers: [false, false] },
    editor: { may: [makes, changes], refers: [false, false] },
    'column-less': { may: [makes, changes, reads(['id', 'name', 'cities'])], refers: [false, false] },
    'row-limited': { may: [makes, changes, reads(['*'], germany)], refers: [true, false] },
    masked: { may: [makes, changes, reads(['id', 'name']), reads(['code'], germany)], refers: [true, false] },
    reader: { may: [reads(['code'])], refers: [true, true] },
    all: { may: [makes, changes, reads(['*'])], refers: [true, true] },
  };
  for (const [name, { may, refers }] of Object.entries(callers)) {
    const { token } = await makeCaller(sql, name, [{ permissions: [...everywhere, ...may] }]);
    // The service hears of policies that were written with SQL; the last statement hands them to the caller.
    await waitFor(async () => (await get(service, '/items/trips?limit=1', { token })).status === 200, 10_000);
    for (const [place, id] of [1, 2].entries()) {
      const [city] = await sql`insert into cities (name) values (${`${name} ${id}`}) returning id`;
      const [{ code } = { code: '' }] = await sql<{ code: string }[]>`select code from countries where id = ${id}`;
      const links: [string, string, object][] = [
        ['POST', '/items/cities', { name: 'new', country: { id } }],
        ['PATCH', `/items/cities/${city?.['id']}`, { country: { id } }],
        ['PATCH', '/items/cities', [{ id: city?.['id'], country: { id } }]],
        ['POST', '/items/trips', { city: { id: city?.['id'], country: { id } } }],
        ['POST', '/items/trips', { city: { name: 'new', country: { id } } }],
      ];
      if (may.includes(makes)) {
        links.push(['POST', '/items/trips', { home: { id } }]);
        if (may.includes(changes)) {
          links.push(
            ['PATCH', `/items/countries/${id}`, { cities: { create: [{ name: 'new' }] } }],
            ['PATCH', `/items/countries/${id}`, { cities: { update: [{ id: city?.['id'] }] } }],
            ['POST', '/items/trips', { home: { id, cities: { create: [{ name: 'new' }] } } }],
            ['POST', '/items/trips', { home: { id, name: id === 1 ? 'Germany' : 'La France' } }],
          );
        }
      }
      for (const [method, path, body] of links) {
        const before =
          await sql`select (select count(*) from cities where country = ${code}) as cities, count(*) from trips`;
        const answer = await send(method, path, body, token);
        const said = `${name}: ${method} ${path} ${JSON.stringify(body)}: ${answer.text.slice(0, 200)}`;
        if (refers[place]) {
          t.ok(answer.status === 200 || answer.status === 204, said);
          continue;
        }
        t.equal(answer.status, 403, said);
        t.notOk(answer.text.includes(`"${code}"`), 'nothing of the row is told');
        t.strictSame(
          await sql`select (select count(*) from cities where country = ${code}) as cities, count(*) from trips`,
          before,
          'and nothing is written',
        );
      }
    }
  }
  t.match(await send('POST', '/items/cities', { name: 'new', country: { id: 2 } }), {
    status: 200,
    json: { data: { country: 'FR' } },
  });
});

t.test('described, suggested and carried by snapshots', async (t) => {
  t.match(await read('/relations/cities/country'), {
    related_collection: 'countries',
    schema: { foreign_key_column: 'code', foreign_key_table: 'countries' },
  });
  const snapshot = (await read('/schema/snapshot')) as { relations: { field: string }[] };
  t.match(
    snapshot.relations.find(({ field }) => field === 'country'),
    { related_collection: 'countries', schema: { column: 'code', on_update: 'CASCADE' } },
  );
  t.equal((await send('POST', '/schema/diff', snapshot)).status, 204);
  const copy = await startTestService({ databaseUrl: await createDatabase(server, 'codes_copy') });
  const difference = await request(copy, 'POST', '/schema/diff', { headers, body: JSON.stringify(snapshot) });
  const body = JSON.stringify((difference.json as { data: unknown }).data);
  t.equal((await request(copy, 'POST', '/schema/apply', { headers, body })).status, 204);
  t.strictSame(((await get(copy, '/schema/snapshot')).json as { data: unknown }).data, snapshot);
});
