/** Relations that several columns hold, made, changed and deleted over /relations. */
import t from 'tap';
import { openService, post } from '../../features/snapshots/snapshot/support.js';
import { type Answer, connectSql, databaseUrl, get, request, startDatabase } from '../../support/service.js';

const server = await startDatabase();
const service = await openService(
  server,
  'composite_relations',
  `create table rooms (building text, number integer, name text, code text, wing integer, primary key (building, number),
     unique (code, wing));
   create table desks (id serial primary key, label text, house text, room integer, code text, wing integer);
   create table chairs (id serial primary key, house text, room integer,
     foreign key (room, house) references rooms (number, building) on delete cascade);
   insert into rooms values ('A', 1, 'Aurora', 'a', 1);
   insert into desks (label, house, room, code, wing) values ('one', 'A', 1, 'a', 1);`,
);
const sql = connectSql(databaseUrl(server, 'composite_relations'));
t.teardown(() => sql.end());

async function send(method: string, path: string, content: unknown = {}): Promise<Answer> {
  const body = JSON.stringify(content);
  const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)) };
  return request(service, method, path, { headers, body });
}

async function constraints(table: string): Promise<string[]> {
  const rows = await sql`select pg_get_constraintdef(oid) as text from pg_constraint
    where contype = 'f' and conrelid = ${table}::regclass order by 1`;
  return rows.map(({ text }) => text as string);
}

const relation = {
  collection: 'desks',
  field: 'place',
  related_collection: 'rooms',
  schema: { columns: ['house', 'room'], on_delete: 'SET NULL', match: 'FULL', deferrable: 'INITIALLY DEFERRED' },
  meta: { one_field: 'desks' },
};

t.test('it is made with its foreign key, and read from both sides at once', async (t) => {
  const made = await post(service, '/relations', relation);
  t.match(made, {
    status: 200,
    json: {
      data: {
        collection: 'desks',
        field: 'place',
        related_collection: 'rooms',
        schema: {
          table: 'desks',
          columns: ['house', 'room'],
          foreign_key_table: 'rooms',
          foreign_key_columns: ['building', 'number'],
          on_delete: 'SET NULL',
          on_update: 'NO ACTION',
          match: 'FULL',
          deferrable: 'INITIALLY DEFERRED',
        },
        meta: { many_field: 'place', one_field: 'desks' },
      },
    },
  });
  t.strictSame(await constraints('desks'), [
    'FOREIGN KEY (house, room) REFERENCES rooms(building, number) MATCH FULL ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED',
  ]);
  t.match(await get(service, '/items/desks?fields=place.name'), { json: { data: [{ place: { name: 'Aurora' } }] } });
  t.match(await get(service, '/items/rooms?fields=desks.label'), { json: { data: [{ desks: [{ label: 'one' }] }] } });
  t.match(await get(service, '/relations/desks/place'), { json: (made.json ?? {}) as object });
  t.match(await post(service, '/relations', relation), { status: 400 }, 'once');
});

t.test('its actions can be changed, its columns cannot', async (t) => {
  const path = '/relations/desks/place';
  const changed = await send('PATCH', path, { schema: { on_delete: 'CASCADE' }, meta: { one_field: 'tables' } });
  t.match(changed, { status: 200, json: { data: { schema: { on_delete: 'CASCADE', match: 'FULL' } } } });
  t.strictSame(await constraints('desks'), [
    'FOREIGN KEY (house, room) REFERENCES rooms(building, number) MATCH FULL ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED',
  ]);
  t.match(await get(service, '/items/rooms?fields=tables'), { json: { data: [{ tables: [1] }] } });
  t.match(await send('PATCH', path, (changed.json as { data: object }).data), { status: 200 }, 'as it was read');
  t.match(await send('PATCH', path, { schema: { columns: ['code', 'wing'] } }), {
    status: 400,
    text: /cannot be changed/,
  });
});

t.test('it may refer to other columns than the key, or have no foreign key', async (t) => {
  const other = { ...relation, field: 'by_code', meta: {} };
  const schema = { columns: ['code', 'wing'], foreign_key_columns: ['code', 'wing'] };
  t.match(await post(service, '/relations', { ...other, schema }), {
    status: 200,
    json: { data: { schema: { foreign_key_columns: ['code', 'wing'] } } },
  });
  t.match(await get(service, '/items/desks?fields=by_code.name'), {
    json: { data: [{ by_code: { name: 'Aurora' } }] },
  });
  t.match(await send('PATCH', '/relations/desks/place', { schema: null }), {
    status: 200,
    json: { data: { schema: null } },
  });
  t.equal((await constraints('desks')).length, 1);
  t.match(await get(service, '/items/desks?fields=place.name'), { json: { data: [{ place: { name: 'Aurora' } }] } });
  t.match(await send('PATCH', '/relations/desks/place', { schema: { on_delete: 'RESTRICT' } }), { status: 200 });
  t.equal((await constraints('desks')).length, 2);
});

t.test('a foreign key that is there is taken as it is', async (t) => {
  const chairs = {
    collection: 'chairs',
    field: 'place',
    related_collection: 'rooms',
    schema: { columns: ['house', 'room'] },
  };
  t.match(await post(service, '/relations', chairs), {
    status: 200,
    json: { data: { schema: { on_delete: 'CASCADE' } } },
  });
  t.equal((await constraints('chairs')).length, 1);
});

t.test('it is deleted with its foreign key and its field', async (t) => {
  for (const field of ['place', 'by_code'])
    t.match(await request(service, 'DELETE', `/relations/desks/${field}`), { status: 204 });
  t.strictSame(await constraints('desks'), []);
  t.match(await get(service, '/items/desks'), { json: { data: [{ id: 1, house: 'A', room: 1 }] } });
  t.notMatch((await get(service, '/fields/desks')).text, /place/);
  t.match(await request(service, 'DELETE', '/relations/desks/place'), { status: 403 });
});

t.test('an impossible relation is refused, and changes nothing', async (t) => {
  for (const [change, reason] of [
    [{ schema: { columns: ['house'] } }, /must be a list of several columns/],
    [{ schema: { columns: ['house', 'house'] } }, /each once/],
    [{ schema: { columns: 'house,room' } }, /must be a list/],
    [{ schema: { columns: ['house', 'nothing'] } }, /has no column \\"nothing\\"/],
    [{ schema: { columns: ['house', 'room', 'wing'] } }, /no key of 3 columns/],
    [{ schema: { columns: ['house', 'room'], foreign_key_columns: ['name', 'none'] } }, /has no column \\"none\\"/],
    [{ schema: { columns: ['room', 'house'] } }, /types do not match/],
    [{ schema: { columns: ['house', 'room'], on_delete: 'EXPLODE' } }, /must be one of/],
    [{ schema: { columns: ['house', 'room'], deferrable: true } }, /must be one of/],
    [{ schema: {} }, /doesn't exist/],
    [{ field: 'label' }, /is a column/],
    [{ field: 'a b' }, /name of a field/],
    [{ related_collection: null }, /related_collection/],
    [{ related_collection: 'nothing' }, /doesn't exist/],
  ] as const)
    t.match(
      await post(service, '/relations', { ...relation, ...change }),
      { status: 400, text: reason },
      JSON.stringify(change),
    );
  t.strictSame(await constraints('desks'), []);
  t.strictSame([...(await sql`select field from service_fields where collection = 'desks'`)], []);
});
