/**
 * Foreign keys over several columns: after `relations suggest` an alias field beside the columns leads to the item they refer to, and a
 * list leads back. Both are read and written like any other relation.
 */
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
import { runCommand } from '../../support/command.js';
import {
  type Answer,
  connectSql,
  createDatabase,
  get,
  KNOWS_CALLERS,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { StatementRecorder } from '../../support/statement-recorder.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'references');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table rooms (building text, number integer, name text, primary key (building, number));
  create table desks (
    id serial primary key, label text, room integer, house text, spare_room integer, spare_house text,
    foreign key (room, house) references rooms (number, building) on delete set null,
    foreign key (spare_house, spare_room) references rooms (building, number)
  );
  create table lamps (
    building text, number integer, lamp integer, watt integer not null default 40, primary key (building, number, lamp),
    foreign key (building, number) references rooms (building, number)
  );
  create table branches (
    tenant integer, path text, parent_path text, label text, primary key (tenant, path),
    foreign key (tenant, parent_path) references branches (tenant, path)
  );
  create table cables (
    building text, number integer, cable integer, primary key (cable, building, number),
    foreign key (building, number) references rooms (building, number)
  );
  create table stays (
    day date, no serial, label text, next_day date, next_no integer, primary key (day, no),
    foreign key (next_day, next_no) references stays (day, no)
  );
  create table cords (id serial primary key, name text unique);
  create table room_cords (
    building text, number integer, cord integer references cords, metres integer not null default 1,
    primary key (building, number, cord), foreign key (building, number) references rooms (building, number)
  );
  create table room_keys (
    building text, number integer, copies integer, primary key (building, number),
    foreign key (building, number) references rooms (building, number)
  );
  create index on desks (house, room);
  insert into rooms values ('A', 1, 'Aurora'), ('A', 2, 'Atlas'), ('B~1', 1, 'Bravo');
  insert into desks (label, house, room, spare_house, spare_room) values
    ('one', 'A', 1, 'B~1', 1), ('two', 'A', 1, null, null), ('three', 'B~1', 1, null, null), ('four', 'A', null, null, null);
  insert into lamps values ('A', 1, 1, 60), ('A', 1, 2, 40), ('A', 2, 1, 25);`);
const suggested = await runCommand(['relations', 'suggest', '--apply'], { DATABASE_URL: databaseUrl });
// What cannot be cleared, because it is a part of the key, can only stay.
await sql`update service_relations set one_deselect_action = 'nullify' where many_collection = 'cables'`;
const recorder = await StatementRecorder.open(databaseUrl);
const service = await startTestService({ databaseUrl: recorder.url, WORKERS: '1', ...KNOWS_CALLERS });
const headers = { 'content-type': 'application/json' };

function send(method: string, path: string, content: unknown, token?: string): Promise<Answer> {
  const body = JSON.stringify(content);
  const caller = token === undefined ? {} : { authorization: `Bearer ${token}` };
  return request(service, method, path, {
    headers: { ...headers, ...caller, 'content-length': String(Buffer.byteLength(body)) },
    body,
  });
}

function data(answer: Answer): unknown {
  return (answer.json as { data?: unknown } | undefined)?.data ?? answer.text;
}

async function ask(query: string): Promise<unknown> {
  return (await send('POST', '/graphql', { query })).json;
}

t.test('they are suggested once, under names that are free', async (t) => {
  t.equal(suggested.code, 0, suggested.complaints);
  for (const line of [
    /rooms\.desks_by_room_house +one-to-many +desks, by its rooms_by_room_house \(room, house\)/,
    /rooms\.desks_by_spare_house_spare_room +one-to-many +desks, by its rooms_by_spare_house_spare_room/,
    /rooms\.lamps +one-to-many +lamps, by its rooms \(building, number\)/,
    /rooms\.cords +many-to-many +cords, through room_cords \(rooms, cord\)/,
    /cords\.rooms +many-to-many +rooms, through room_cords \(cord, rooms\)/,
    /rooms\.room_keys +one-to-one +room_keys, by its rooms \(building, number\)/,
  ])
    t.match(suggested.output, line);
  const again = await runCommand(['relations', 'suggest'], { DATABASE_URL: databaseUrl });
  t.notMatch(again.output, /-to-/);
});

t.test('read from both sides, in one statement', async (t) => {
  t.strictSame(
    data(
      await get(service, '/items/desks?fields=label,rooms_by_room_house.name,rooms_by_spare_house_spare_room&sort=id'),
    ),
    [
      { label: 'one', rooms_by_room_house: { name: 'Aurora' }, rooms_by_spare_house_spare_room: 'B\\~1~1' },
      { label: 'two', rooms_by_room_house: { name: 'Aurora' }, rooms_by_spare_house_spare_room: null },
      { label: 'three', rooms_by_room_house: { name: 'Bravo' }, rooms_by_spare_house_spare_room: null },
      { label: 'four', rooms_by_room_house: null, rooms_by_spare_house_spare_room: null },
    ],
  );
  t.strictSame(data(await get(service, '/items/rooms?fields=name,desks_by_room_house.label,lamps')), [
    { name: 'Aurora', desks_by_room_house: [{ label: 'one' }, { label: 'two' }], lamps: ['A~1~1', 'A~1~2'] },
    { name: 'Atlas', desks_by_room_house: [], lamps: ['A~2~1'] },
    { name: 'Bravo', desks_by_room_house: [{ label: 'three' }], lamps: [] },
  ]);
  t.strictSame(data(await get(service, '/items/desks?fields=label&filter[rooms_by_room_house][name]=Bravo')), [
    { label: 'three' },
  ]);
  t.strictSame(data(await get(service, '/items/rooms?fields=name&filter[lamps][watt][_gt]=50')), [{ name: 'Aurora' }]);
  t.strictSame(data(await get(service, '/items/desks?fields=label&sort=-rooms_by_room_house.name,id&limit=2')), [
    { label: 'four' },
    { label: 'three' },
  ]);
  t.strictSame(data(await get(service, '/items/rooms?fields=name,count(lamps)&sort=-count(lamps)&limit=1')), [
    { name: 'Aurora', lamps_count: 2 },
  ]);
  t.strictSame(await ask('{ desks(limit: 1) { label rooms_by_room_house { name lamps { watt } } } }'), {
    data: { desks: [{ label: 'one', rooms_by_room_house: { name: 'Aurora', lamps: [{ watt: 60 }, { watt: 40 }] } }] },
  });
  const room = 'rooms_by_room_house';
  for (const [filter, labels] of [
    ['[_null]=true', ['four']],
    ['[_nnull]=true', ['one', 'two', 'three']],
    ['[_eq]=A~1', ['one', 'two']],
    ['[_eq]=B\\~1~1', ['three']],
    ['[_neq]=A~1', ['three']],
    ['[_in]=B\\~1~1,Z~9', ['three']],
    ['[_nin]=B\\~1~1,Z~9', ['one', 'two']],
  ] as const) {
    const found = await get(service, `/items/desks?fields=label&sort=id&filter[${room}]${encodeURI(filter)}`);
    t.strictSame(
      data(found),
      labels.map((label) => ({ label })),
      filter,
    );
  }
  t.strictSame(data(await get(service, '/items/rooms?fields=name&filter[lamps][_eq]=A~1~2')), [{ name: 'Aurora' }]);
  for (const [filter, labels] of [
    ['_eq: "A~1"', ['one', 'two']],
    ['_neq: "A~1"', ['three']],
    ['_in: ["B\\\\~1~1", "Z~9"]', ['three']],
    ['_nin: ["B\\\\~1~1", "Z~9"]', ['one', 'two']],
    ['_null: true', ['four']],
    ['_nnull: true, name: { _eq: "Bravo" }', ['three']],
    ['_or: [{ name: { _eq: "Bravo" } }, { _null: true }]', ['three', 'four']],
  ] as const)
    t.strictSame(
      await ask(`{ desks(sort: "id", filter: { ${room}: { ${filter} } }) { label } }`),
      { data: { desks: labels.map((label) => ({ label })) } },
      filter,
    );
  for (const wrong of ['[_eq]=A', '[_eq]=A~x', '[_in]=A~1~2', '[_gt]=A~1'])
    t.equal((await get(service, `/items/desks?filter[${room}]${wrong}`)).status, 400, wrong);
  const sent = await recorder.during(() =>
    get(service, '/items/rooms?fields=*,desks_by_room_house.*,lamps.rooms.name'),
  );
  t.equal(sent.length, 1);
});

t.test('a caller who may not see the field sees nothing behind it', async (t) => {
  const { token } = await makeCaller(sql, 'guest', [
    {
      permissions: [
        { collection: 'desks', action: 'read', fields: ['label'] },
        { collection: 'rooms', action: 'read', fields: ['name'] },
      ],
    },
  ]);
  await waitFor(async () => (await get(service, '/items/desks', { token })).status === 200, 5_000);
  t.strictSame(data(await get(service, '/items/desks?limit=1', { token })), [{ label: 'one' }]);
  t.equal((await get(service, '/items/desks?fields=rooms_by_room_house.name', { token })).status, 403);
  t.equal((await get(service, '/items/rooms?fields=lamps', { token })).status, 403);
  const hidden = await get(service, '/items/desks?filter[rooms_by_room_house][_eq]=A~1', { token });
  t.equal(hidden.status, 403, 'nor can it be guessed');
  const room = 'rooms_by_room_house';
  const warden = await makeCaller(sql, 'warden', [
    {
      permissions: [
        { collection: 'desks', action: 'read', fields: ['label'], permissions: { [room]: { _in: ['A~1', 'Z~1'] } } },
        { collection: 'desks', action: 'read', fields: [room], permissions: { label: { _eq: 'one' } } },
        { collection: 'rooms', action: 'read' },
      ],
    },
  ]);
  const seen = async (query: string) =>
    data(await get(service, `/items/desks?fields=label&sort=label${query}`, { token: warden.token }));
  await waitFor(async () => Array.isArray(await seen('')), 5_000);
  t.strictSame(await seen(''), [{ label: 'one' }, { label: 'two' }], 'a rule may name keys');
  t.strictSame(await seen(`&filter[${room}][_eq]=A~1`), [{ label: 'one' }], 'where it is hidden it is null');
  t.strictSame(await seen(`&filter[${room}][_null]=true`), [{ label: 'two' }]);
});

t.test('a write of the field needs the right to write its columns', async (t) => {
  const field = 'rooms_by_room_house';
  const all = (collection: string) => ({ collection, action: 'read' as const });
  const alone = await makeCaller(sql, 'alone', [
    {
      permissions: [
        all('desks'),
        { collection: 'desks', action: 'create', fields: ['label', field], presets: { house: 'A' } },
        { collection: 'desks', action: 'update', fields: ['label', field] },
        { collection: 'lamps', action: 'create', fields: ['lamp', 'rooms'], presets: { building: 'A' } },
        { collection: 'lamps', action: 'update', fields: ['watt', 'rooms'] },
        { collection: 'rooms', action: 'update' },
      ],
    },
  ]);
  const whole = await makeCaller(sql, 'whole', [
    {
      permissions: [
        all('desks'),
        { collection: 'desks', action: 'create', fields: ['label', field, 'room', 'house'] },
        { collection: 'desks', action: 'update', fields: ['label', field, 'room', 'house'] },
      ],
    },
  ]);
  await waitFor(async () => (await get(service, '/items/desks', { token: whole.token })).status === 200, 5_000);
  const before = await sql`select * from desks order by id`;
  for (const [method, path, content] of [
    ['POST', '/items/desks', { label: 'x', [field]: 'B\\~1~1' }],
    ['PATCH', '/items/desks/1', { [field]: 'B\\~1~1' }],
    ['PATCH', '/items/desks/1', { [field]: null }],
    ['POST', '/items/lamps', { lamp: 5, rooms: 'B\\~1~1' }],
    ['PATCH', '/items/rooms/A~2', { desks_by_room_house: [3] }],
    ['PATCH', '/items/rooms/A~2', { desks_by_room_house: [{ label: 'x' }] }],
    ['PATCH', '/items/rooms/A~1', { desks_by_room_house: { delete: [1] } }],
    ['PATCH', '/items/rooms/A~2', { lamps: { create: [{ lamp: 5 }] } }],
  ] as const)
    t.equal(
      (await send(method, path, content, alone.token)).status,
      403,
      `${method} ${path} ${JSON.stringify(content)}`,
    );
  t.strictSame(await sql`select * from desks order by id`, before);
  t.equal(
    (await send('PATCH', '/items/lamps/A~1~1', { rooms: 'A~1', watt: 60 }, alone.token)).status,
    204,
    'its own key',
  );
  const made = await send('POST', '/items/desks?fields=id,house', { label: 'x', [field]: 'A~1' }, whole.token);
  t.match(data(made), { house: 'A' });
  const path = `/items/desks/${(data(made) as { id: number }).id}?fields=house`;
  t.strictSame(data(await send('PATCH', path, { [field]: null }, whole.token)), { house: null });
  await sql`delete from desks where label = 'x'`;
});

t.test('writing the object fills the columns', async (t) => {
  const fields = 'label,house,room,rooms_by_room_house.name';
  t.strictSame(
    data(await send('POST', `/items/desks?fields=${fields}`, { label: 'five', rooms_by_room_house: 'A~2' })),
    {
      label: 'five',
      house: 'A',
      room: 2,
      rooms_by_room_house: { name: 'Atlas' },
    },
  );
  const made = await send('POST', `/items/desks?fields=${fields}`, {
    label: 'six',
    rooms_by_room_house: { building: 'C', number: 7, name: 'Corona' },
  });
  t.strictSame(data(made), { label: 'six', house: 'C', room: 7, rooms_by_room_house: { name: 'Corona' } });
  const changed = await send('PATCH', `/items/desks/1?fields=${fields}`, {
    rooms_by_room_house: { building: 'A', number: 2, name: 'Atlantis' },
  });
  t.strictSame(data(changed), { label: 'one', house: 'A', room: 2, rooms_by_room_house: { name: 'Atlantis' } });
  t.match(data(await send('PATCH', `/items/desks/1?fields=${fields}`, { rooms_by_room_house: null })), {
    house: null,
    room: null,
  });
  for (const wrong of ['A', 'A~x', 'A~1~2', 7, ['A~1'], true])
    t.equal((await send('PATCH', '/items/desks/1', { rooms_by_room_house: wrong })).status, 400, JSON.stringify(wrong));
  t.equal((await send('PATCH', '/items/desks/1', { rooms_by_room_house: 'Z~1' })).status, 400, 'no such room');
});

t.test('lists are made, replaced and removed', async (t) => {
  const room = await send('POST', '/items/rooms?fields=name,desks_by_room_house.label,lamps.watt', {
    building: 'D',
    number: 1,
    name: 'Delta',
    desks_by_room_house: [{ label: 'seven' }],
    lamps: [{ lamp: 1 }, { lamp: 2, watt: 5 }],
  });
  t.strictSame(data(room), {
    name: 'Delta',
    desks_by_room_house: [{ label: 'seven' }],
    lamps: [{ watt: 40 }, { watt: 5 }],
  });
  const replaced = await send('PATCH', '/items/rooms/D~1?fields=desks_by_room_house.label,lamps', {
    desks_by_room_house: [2, { label: 'eight' }],
    lamps: [{ lamp: 2, watt: 6 }, { lamp: 3 }],
  });
  t.strictSame(data(replaced), {
    desks_by_room_house: [{ label: 'two' }, { label: 'eight' }],
    lamps: ['D~1~2', 'D~1~3'],
  });
  t.strictSame([...(await sql`select house, room from desks where label = 'seven'`)], [{ house: null, room: null }]);
  const detailed = await send('PATCH', '/items/rooms/D~1?fields=lamps', {
    lamps: { create: [{ lamp: 9 }], update: [{ lamp: 2, watt: 7 }], delete: ['D~1~3'] },
  });
  t.strictSame(data(detailed), { lamps: ['D~1~2', 'D~1~9'] });
  const nested = await send('POST', '/items/desks?fields=rooms_by_room_house.lamps', {
    rooms_by_room_house: { building: 'E', number: 5, lamps: [{ lamp: 1 }] },
  });
  t.strictSame(data(nested), { rooms_by_room_house: { lamps: ['E~5~1'] } });
});

t.test('a list may name items whose key holds the reference to its item', async (t) => {
  await send('POST', '/items/rooms', { building: 'F', number: 1, cables: [{ cable: 1 }, { cable: 2 }] });
  const same = await send('PATCH', '/items/rooms/F~1?fields=cables', { cables: ['1~F~1', { cable: 2 }] });
  t.strictSame(data(same), { cables: ['1~F~1', '2~F~1'] });
  t.match(await send('PATCH', '/items/rooms/F~1', { cables: ['1~F~1'] }), { status: 400, text: /can't be null/ });
});

t.test('new items with keys of several columns refer to each other', async (t) => {
  const next = 'stays_by_next_day_next_no';
  const made = await send('POST', `/items/stays?fields=label,no,${next}.label`, [
    { day: '2024-05-01', label: 'first', [next]: { day: '2024-05-02', label: 'second' } },
    { day: '2024-05-01', no: 70, label: 'third', [next]: { day: '2024-05-02', no: 70, label: 'fourth' } },
  ]);
  t.match(data(made), [
    { label: 'first', no: Number, [next]: { label: 'second' } },
    { label: 'third', no: 70, [next]: { label: 'fourth' } },
  ]);
});

t.test('a reference may share columns with the key of its item', async (t) => {
  const [parent, children] = ['branches_by_tenant_parent_path', 'branches_by_tenant_parent_path_2'];
  const rows = async () =>
    (await sql`select concat_ws(' ', tenant, path, parent_path) as row from branches order by 1`).map(({ row }) => row);
  const tree = { tenant: 1, path: 'a', [children]: [{ path: 'b', [children]: [{ path: 'c' }] }, { path: 'd' }] };
  t.equal((await send('POST', '/items/branches', tree)).status, 200);
  t.strictSame(await rows(), ['1 a', '1 b a', '1 c b', '1 d a']);
  const kept = await send('PATCH', `/items/branches/1~a?fields=${children}`, { [children]: ['1~b'] });
  t.strictSame(data(kept), { [children]: ['1~b'] });
  t.strictSame(await rows(), ['1 a', '1 b a', '1 c b', '1 d'], 'what leaves keeps its key');
  t.equal((await send('PATCH', '/items/branches/1~c', { [parent]: null })).status, 200);
  t.equal((await send('PATCH', '/items/branches/1~d', { [parent]: '1~c' })).status, 200);
  t.equal((await send('POST', '/items/branches', { tenant: 1, path: 'e', [parent]: null })).status, 200);
  t.match(await send('PATCH', '/items/branches/1~d', { [parent]: '2~c' }), { status: 400, text: /part of the key/ });
  t.strictSame(await rows(), ['1 a', '1 b a', '1 c', '1 d c', '1 e']);
});

t.test('an item whose key is the reference is the only one of its item', async (t) => {
  await send('POST', '/items/rooms', { building: 'G', number: 1, room_keys: { copies: 2 } });
  const shown = 'fields=room_keys.copies';
  t.strictSame(data(await send('PATCH', `/items/rooms/G~1?${shown}`, { room_keys: { copies: 3 } })), {
    room_keys: { copies: 3 },
  });
  await send('POST', '/items/rooms', { building: 'G', number: 2 });
  for (const wrong of ['G~1', { building: 'G', number: 1, copies: 4 }, { rooms: 'G~1', copies: 4 }])
    t.match(await send('PATCH', '/items/rooms/G~2', { room_keys: wrong }), { status: 400, text: /key/ });
  t.strictSame([...(await sql`select number, copies from room_keys`)], [{ number: 1, copies: 3 }]);
  t.strictSame(data(await send('PATCH', `/items/rooms/G~1?${shown}`, { room_keys: null })), { room_keys: null });
});

t.test('the field of a reference names the item whose key it is a part of', async (t) => {
  await send('POST', '/items/cords', { id: 3, name: 'red', rooms: [{ rooms: 'A~1' }, { rooms: 'A~2' }] });
  const links = async () =>
    (await sql`select concat_ws(' ', number, metres) as row from room_cords order by 1`).map(({ row }) => row);
  for (const rooms of ['A~1', { building: 'A', number: 1 }]) {
    const kept = await send('PATCH', '/items/cords/3?fields=rooms', { rooms: [{ rooms }, 'A~2~3'] });
    t.strictSame(data(kept), { rooms: ['A~1~3', 'A~2~3'] }, kept.text);
  }
  t.equal((await send('PATCH', '/items/cords/3', { rooms: { update: [{ rooms: 'A~1', metres: 8 }] } })).status, 200);
  t.strictSame(await links(), ['1 8', '2 1']);
  t.equal((await send('PATCH', '/items/room_cords', [{ rooms: 'A~2', cord: 3, metres: 9 }])).status, 200);
  t.strictSame(await links(), ['1 8', '2 9']);
  t.match(await send('PATCH', '/items/room_cords/A~1~3', { rooms: 'A~2' }), { status: 400, text: /cannot be changed/ });
  t.equal((await send('PATCH', '/items/cords/3', { rooms: [{ rooms: 'A~2', metres: 7 }] })).status, 200);
  t.strictSame(await links(), ['2 7']);
});

t.test('with on_conflict the field takes a key or null', async (t) => {
  const parent = 'branches_by_tenant_parent_path';
  await sql`insert into branches (tenant, path) values (8, 'a')`;
  const put = (content: unknown) => send('POST', '/items/branches?on_conflict=tenant,path&fields=parent_path', content);
  const item = { tenant: 8, path: 'b' };
  t.strictSame(data(await put({ ...item, [parent]: '8~a' })), { parent_path: 'a' });
  t.strictSame(data(await put({ ...item, [parent]: null })), { parent_path: null });
  t.strictSame(data(await put({ path: 'b', [parent]: '8~a' })), { parent_path: 'a' });
  t.match(await put({ ...item, [parent]: '9~a' }), { status: 400, text: /part of the key/ });
  t.match(await put({ ...item, [parent]: { path: 'a' } }), { status: 400, text: /cannot be nested/ });
  const file = await send('POST', '/utils/import/branches?on_conflict=tenant,path', [{ ...item, [parent]: null }]);
  t.match(file, { status: 200 }, file.text);
  t.strictSame(
    [...(await sql`select path, parent_path from branches where tenant = 8 order by 1`)],
    [
      { path: 'a', parent_path: null },
      { path: 'b', parent_path: null },
    ],
  );
});

t.test('the error names no referring collection that the caller may not see', async (t) => {
  const { token } = await makeCaller(sql, 'cleaner', [
    {
      permissions: [
        { collection: 'cords', action: 'read' },
        { collection: 'cords', action: 'delete' },
      ],
    },
  ]);
  await sql`insert into cords (id, name) values (77, 'blue')`;
  await sql`insert into room_cords values ('A', 1, 77)`;
  await waitFor(async () => (await get(service, '/items/cords', { token })).status === 200, 5_000);
  const refused = await request(service, 'DELETE', '/items/cords/77', { token });
  t.match(refused, { status: 400, json: { errors: [{ extensions: { type: 'foreign_key', collection: null } }] } });
  t.notMatch(refused.text, /room_cords/);
  t.match((await request(service, 'DELETE', '/items/cords/77')).text, /room_cords/, 'administrators are told');
});
