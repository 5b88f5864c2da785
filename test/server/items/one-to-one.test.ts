/**
 * References that are unique: the other side is one item or null, not a list, in reads, filters, sorts, writes, permissions, GraphQL and
 * the descriptions of the API.
 */
import t from 'tap';
import { addPermission, makeCaller } from '../../support/callers.js';
import { runCommand } from '../../support/command.js';
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
const url = await createDatabase(server, 'one_to_one');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table people (id serial primary key, name text not null, code text unique);
  create table offices (id serial primary key, name text);
  create table passports (id serial primary key, number text not null, person integer unique references people, office integer references offices);
  create table stamps (id serial primary key, passport integer references passports, place text);
  create table profiles (person integer primary key references people, bio text);
  create table badges (id serial primary key, holder text unique references people (code), colour text);
  insert into people (name, code) values ('Ada', 'a'), ('Bob', 'b'), ('Cid', null);
  insert into offices (name) values ('Rome'), ('Oslo');
  insert into passports (number, person, office) values ('P2', 2, 1), ('P1', 1, 2), ('P0', null, 1);
  insert into stamps (passport, place) values (1, 'Kyiv'), (1, 'Lima'), (2, 'Bern');
  insert into profiles values (1, 'counts');
  insert into badges (holder, colour) values ('b', 'blue')`);
const suggested = await runCommand(['relations', 'suggest', '--apply'], { DATABASE_URL: url });
const service = await startTestService({ databaseUrl: url });

const headers = { 'content-type': 'application/json' };
const send = (method: string, path: string, body: unknown, token?: string): Promise<Answer> =>
  request(service, method, path, { headers, body: JSON.stringify(body), ...(token ? { token } : {}) });
const read = async (path: string, token?: string): Promise<unknown> => {
  const answer = await get(service, path, token ? { token } : {});
  t.equal(answer.status, 200, answer.text.slice(0, 300));
  return (answer.json as { data: unknown }).data;
};
const graphql = async (query: string): Promise<unknown> => (await send('POST', '/graphql', { query })).json;
const names = (found: unknown): string[] => (found as { name: string }[]).map(({ name }) => name);

t.test('suggested where the column is unique or the key', async (t) => {
  t.equal(suggested.code, 0);
  t.match(suggested.output, /people\.passports +one-to-one +passports, by its person\n/);
  t.match(suggested.output, /people\.profiles +one-to-one +profiles, by its person\n/);
  t.match(suggested.output, /people\.badges +one-to-one +badges, by its holder\n/);
  t.match(suggested.output, /passports\.stamps +one-to-many +stamps, by its passport\n/);
});

t.test('read as an object or null, to any depth', async (t) => {
  t.strictSame(await read('/items/people?sort=id'), [
    { id: 1, name: 'Ada', code: 'a', passports: 2, profiles: 1, badges: null },
    { id: 2, name: 'Bob', code: 'b', passports: 1, profiles: null, badges: 1 },
    { id: 3, name: 'Cid', code: null, passports: null, profiles: null, badges: null },
  ]);
  t.strictSame(
    await read(
      '/items/people?sort=id&fields=name,passports.number,passports.office.name,passports.stamps.place,profiles.bio',
    ),
    [
      {
        name: 'Ada',
        passports: { number: 'P1', office: { name: 'Oslo' }, stamps: [{ place: 'Bern' }] },
        profiles: { bio: 'counts' },
      },
      {
        name: 'Bob',
        passports: { number: 'P2', office: { name: 'Rome' }, stamps: [{ place: 'Kyiv' }, { place: 'Lima' }] },
        profiles: null,
      },
      { name: 'Cid', passports: null, profiles: null },
    ],
  );
  t.strictSame(await read('/items/passports/2?fields=person.passports.id,person.badges'), {
    person: { passports: { id: 2 }, badges: null },
  });
  t.strictSame(await read('/items/people/2?fields=badges.colour'), { badges: { colour: 'blue' } });
  t.strictSame(await read('/items/people/1?fields=*.*'), {
    id: 1,
    name: 'Ada',
    code: 'a',
    badges: null,
    passports: { id: 2, number: 'P1', person: 1, office: 2, stamps: [3] },
    profiles: { person: 1, bio: 'counts' },
  });
});

t.test('filter, sort and narrow through it', async (t) => {
  const found = async (query: string): Promise<string[]> => names(await read(`/items/people?fields=name&${query}`));
  t.strictSame(await found('filter[passports][number][_eq]=P2'), ['Bob']);
  t.strictSame(await found('filter[passports][office][name][_eq]=Oslo'), ['Ada']);
  t.strictSame(await found('filter[passports][stamps][place][_eq]=Lima'), ['Bob']);
  t.strictSame(await found('filter[passports][_eq]=2'), ['Ada']);
  t.strictSame(await found('filter[passports][_null]=true'), ['Cid']);
  t.strictSame(await found('filter[passports][_nnull]=true&sort=id'), ['Ada', 'Bob']);
  t.strictSame(await found('filter[passports][number][_eq]=P1&filter[profiles][bio][_eq]=counts'), ['Ada']);
  t.strictSame(await found('sort=-passports.number&filter[passports][_nnull]=true'), ['Bob', 'Ada']);
  t.strictSame(
    await read('/items/people?fields=passports.number&sort=id&deep[passports][_filter][office][name][_eq]=Rome'),
    [{ passports: null }, { passports: { number: 'P2' } }, { passports: null }],
  );
  t.strictSame(
    await read('/items/people?aggregate[count]=*&groupBy=passports.office.name&sort=passports.office.name'),
    [
      { 'passports.office.name': 'Oslo', count: 1 },
      { 'passports.office.name': 'Rome', count: 1 },
      { 'passports.office.name': null, count: 1 },
    ],
  );
  t.match(await get(service, '/items/people?filter[passports][_some][number]=P1'), {
    status: 400,
    text: /requires a to-many relation/,
  });
  t.match(await get(service, '/items/people?fields=count(passports)'), { status: 400 });
});

t.test('an object makes or changes the item, a key links it, null lets it go', async (t) => {
  const shown = 'fields=name,passports.id,passports.number,passports.stamps.place';
  const made = await send('POST', `/items/people?${shown}`, {
    name: 'Dan',
    passports: { number: 'P4', stamps: [{ place: 'Riga' }] },
  });
  t.strictSame(made.json, {
    data: { name: 'Dan', passports: { id: 4, number: 'P4', stamps: [{ place: 'Riga' }] } },
  });
  const linked = await send('POST', '/items/people?fields=passports.number', { name: 'Eve', passports: 3 });
  t.strictSame(linked.json, { data: { passports: { number: 'P0' } } });
  const changed = await send('PATCH', '/items/people/2?fields=passports', { passports: { id: 1, number: 'P2b' } });
  t.strictSame(changed.json, { data: { passports: 1 } });
  // The former one has to leave before the unique reference can be taken.
  const replaced = await send('PATCH', '/items/people/1?fields=passports.id,passports.number', {
    passports: { number: 'P5' },
  });
  t.strictSame(replaced.json, { data: { passports: { id: 5, number: 'P5' } } });
  t.strictSame(await read('/items/passports/2?fields=person'), { person: null });
  const moved = await send('PATCH', '/items/people/1?fields=passports.id', { passports: 1 });
  t.strictSame(moved.json, { data: { passports: { id: 1 } } });
  t.strictSame(await read('/items/people/2?fields=passports'), { passports: null });
  await send('PATCH', '/items/people/1', { passports: null });
  t.strictSame(await read('/items/people/1?fields=passports'), { passports: null });
  t.match(await send('PATCH', '/items/people/1', { passports: [1] }), { status: 400, text: /is a to-one relation/ });
  t.match(await send('PATCH', '/items/people/1', { passports: 99 }), { status: 403 });
  const byCode = await send('PATCH', '/items/people/1?fields=badges.colour', { badges: 1 });
  t.strictSame(byCode.json, { data: { badges: { colour: 'blue' } } });
});

t.test('a table that shares the key of what it describes', async (t) => {
  const changed = await send('PATCH', '/items/people/1?fields=profiles.*', { profiles: { bio: 'writes' } });
  t.strictSame(changed.json, { data: { profiles: { person: 1, bio: 'writes' } } });
  const made = await send('PATCH', '/items/people/2?fields=profiles.*', { profiles: { bio: 'sings' } });
  t.strictSame(made.json, { data: { profiles: { person: 2, bio: 'sings' } } });
  const both = await send('POST', '/items/people?fields=profiles.*', { id: 70, name: 'Kim', profiles: { bio: 'new' } });
  t.strictSame(both.json, { data: { profiles: { person: 70, bio: 'new' } } });
  const generated = await send('POST', '/items/people?fields=id,profiles.*', [
    { name: 'Lee', profiles: { bio: 'with a key of the sequence' } },
    { name: 'May' },
    { name: 'Noa', profiles: { bio: 'the third' } },
  ]);
  const [lee, may, noa] = (generated.json as { data: { id: number; profiles: unknown }[] }).data;
  t.strictSame(lee?.profiles, { person: lee?.id, bio: 'with a key of the sequence' }, generated.text);
  t.equal(may?.profiles, null);
  t.strictSame(noa?.profiles, { person: noa?.id, bio: 'the third' });
  const upwards = await send('POST', '/items/profiles?fields=person.id,person.name,bio', [
    { person: { name: 'Ola' }, bio: 'made before its person' },
    { person: { id: may?.id, name: 'May B.' }, bio: 'of one that exists' },
    { person: 3, bio: 'of another' },
  ]);
  const [ola, ...others] = (upwards.json as { data: { person: { id: number } }[] }).data;
  t.match(ola, { person: { id: (noa?.id ?? 0) + 1, name: 'Ola' }, bio: 'made before its person' }, upwards.text);
  t.match(others, [{ person: { id: may?.id, name: 'May B.' } }, { person: { id: 3, name: 'Cid' } }]);
  t.match(await read(`/items/profiles/${ola?.person.id}`), { bio: 'made before its person' });
  const taken = await send('POST', '/items/profiles', { person: { id: 3, name: 'Cid' }, bio: 'twice' });
  t.match(taken, { status: 400, json: { errors: [{ extensions: { type: 'unique' } }] } }, taken.text);
  t.match(await send('POST', '/items/profiles', { person: [1] }), { status: 400 });
  const profiles = async () => [...(await sql`select person, bio from profiles order by person`)];
  const before = await profiles();
  for (const content of [{ profiles: 1 }, { profiles: { person: 1, bio: 'not mine' } }, { profiles: { person: 'x' } }])
    t.match(
      await send('PATCH', '/items/people/3', content),
      { status: 400, text: /profiles/ },
      JSON.stringify(content),
    );
  t.match(await send('POST', '/items/people', { name: 'Pat', profiles: 1 }), { status: 400, text: /key/ });
  t.strictSame(await profiles(), before, 'a key is neither given away nor changed');
  const named = { profiles: { person: { id: 3 }, bio: 'named' } };
  for (const same of [{ profiles: 3 }, { profiles: { person: 3, bio: 'same' } }, named])
    t.equal((await send('PATCH', '/items/people/3', same)).status, 200, JSON.stringify(same));
  t.match(await read('/items/profiles/3'), { bio: 'named' });
  const ours = sql`select id from people where name in ('Lee', 'May', 'May B.', 'Noa', 'Ola')`;
  await sql`delete from profiles where person = 3 or person in (${ours})`;
  await sql`delete from people where id in (${ours})`;
  const gone = await send('PATCH', '/items/people/1?fields=profiles', { profiles: null });
  t.strictSame(gone.json, { data: { profiles: null } }, 'what is nothing without its key is deleted');
});

t.test('permissions: rows of the related table, and the field that shows it', async (t) => {
  await sql`update passports set person = case id when 1 then 2 when 2 then 1 end`;
  const { token, policies } = await makeCaller(sql, 'clerk', [
    {
      permissions: [
        { collection: 'people', action: 'read', fields: ['id', 'name', 'profiles'] },
        { collection: 'people', action: 'read', fields: ['passports'], permissions: { name: { _neq: 'Cid' } } },
        {
          collection: 'passports',
          action: 'read',
          fields: ['number'],
          permissions: { office: { name: { _eq: 'Rome' } } },
        },
      ],
    },
  ]);
  const seen = [
    { name: 'Ada', passports: null },
    { name: 'Bob', passports: { number: 'P2b' } },
  ];
  await waitFor(async () => (await get(service, '/items/people', { token })).status === 200, 5_000);
  t.strictSame(await read('/items/people?fields=name,passports.number&sort=id&limit=2', token), seen);
  t.strictSame(names(await read('/items/people?fields=name&filter[passports][number][_contains]=P', token)), ['Bob']);
  t.strictSame(await read('/items/people/2', token), { id: 2, name: 'Bob' }, 'the key of a passport may not be seen');
  t.strictSame(await read('/items/people?fields=name,profiles.bio&limit=1&sort=id', token), [{ name: 'Ada' }]);
  t.match(await get(service, '/items/people?filter[profiles][bio][_eq]=sings', { token }), { status: 403 });
  const [policy] = policies;
  await addPermission(sql, policy ?? '', { collection: 'people', action: 'update', fields: ['passports'] });
  await addPermission(sql, policy ?? '', { collection: 'passports', action: 'create', fields: ['number'] });
  const refused = await send('PATCH', '/items/people/3', { passports: { number: 'mine' } }, token);
  t.match(refused, { status: 403 }, 'the reference is written too');
});

t.test('a field that may not be seen in a row leads nowhere from it', async (t) => {
  const { token } = await makeCaller(sql, 'guest', [
    {
      permissions: [
        { collection: 'people', action: 'read', fields: ['id', 'name'] },
        { collection: 'people', action: 'read', fields: ['passports'], permissions: { name: { _eq: 'Bob' } } },
        { collection: 'passports', action: 'read' },
      ],
    },
  ]);
  await waitFor(async () => (await get(service, '/items/people', { token })).status === 200, 5_000);
  t.strictSame(await read('/items/people?fields=name,passports.number&sort=id&limit=2', token), [
    { name: 'Ada', passports: null },
    { name: 'Bob', passports: { number: 'P2b' } },
  ]);
  t.strictSame(names(await read('/items/people?fields=name&filter[passports][number][_contains]=P', token)), ['Bob']);
});

t.test('GraphQL, OpenAPI and types say so too', async (t) => {
  t.strictSame(await graphql('{ people(limit: 2, sort: "id") { name passports { number person { name } } } }'), {
    data: {
      people: [
        { name: 'Ada', passports: { number: 'P1', person: { name: 'Ada' } } },
        { name: 'Bob', passports: { number: 'P2b', person: { name: 'Bob' } } },
      ],
    },
  });
  t.strictSame(await graphql('{ people(filter: { passports: { number: { _eq: "P1" } } }) { name } }'), {
    data: { people: [{ name: 'Ada' }] },
  });
  t.strictSame(
    await graphql(
      'mutation { create_people_item(data: {name: "Gus", passports: {number: "P9"}}) { passports { number } } }',
    ),
    { data: { create_people_item: { passports: { number: 'P9' } } } },
  );
  const { json } = await get(service, '/server/specs/oas');
  t.match(json, {
    components: {
      schemas: {
        Items_people: {
          properties: {
            passports: {
              anyOf: [{ type: 'integer' }, { $ref: '#/components/schemas/Items_passports' }, { type: 'null' }],
            },
          },
        },
      },
    },
  });
  const types = await runCommand(['types'], { DATABASE_URL: url });
  t.match(types.output, /\n {2}passports: number \| Passports \| null;\n/);
  t.match(types.output, /\n {2}stamps: number\[\] \| Stamps\[\];\n/);
});

t.test('a list that is declared stays one, and a field without its unique index becomes one', async (t) => {
  await sql`update service_fields set special = 'o2m' where collection = 'people' and field = 'badges'`;
  const isList = (path: string) => async () => JSON.stringify(await read(path)).includes('[');
  await waitFor(isList('/items/people/2?fields=badges.colour'), 10_000);
  t.strictSame(await read('/items/people/3?fields=badges.colour,passports'), { badges: [], passports: null });
  await sql`alter table passports drop constraint passports_person_key`;
  await waitFor(isList('/items/people/1?fields=passports.number'), 10_000);
});
