/** Validations of policies and fields through a reference that several columns hold, however its columns are written. */
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
import { runCommand } from '../../support/command.js';
import {
  ADMIN_TOKEN,
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
const databaseUrl = await createDatabase(server, 'reference_validations');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table rooms (building text, number integer, name text, primary key (building, number));
  create table desks (
    id serial primary key, label text, house text default 'A', room integer,
    foreign key (house, room) references rooms (building, number)
  );
  create table lamps (
    building text, number integer, lamp integer, watt integer, primary key (building, number, lamp),
    foreign key (building, number) references rooms (building, number)
  );
  insert into rooms values ('A', 1, 'Aurora'), ('A', 2, 'Atlas'), ('B', 1, 'Bravo');
  insert into desks (label, house, room) values ('one', 'A', 1), ('two', 'B', 1), ('three', 'A', null);
  insert into lamps values ('A', 2, 1, 60);`);
await runCommand(['relations', 'suggest', '--apply'], { DATABASE_URL: databaseUrl });
await sql`update service_fields set validation = ${JSON.stringify({ _or: [{ rooms: { _null: true } }, { rooms: { _neq: 'A~2' } }] })}::text::json,
  validation_message = 'Atlas is closed' where collection = 'desks' and field = 'rooms'`;
const service = await startTestService({ databaseUrl });
const read = { collection: 'desks', action: 'read' } as const;
const of = (validation: object) => [
  {
    permissions: [
      read,
      { collection: 'desks', action: 'create' as const, validation },
      { collection: 'desks', action: 'update' as const, validation },
      { collection: 'lamps', action: 'create' as const, validation },
      { collection: 'rooms', action: 'read' as const },
    ],
  },
];
const callers = {
  named: await makeCaller(sql, 'named', of({ rooms: { name: { _in: ['Aurora', 'Bravo'] } } })),
  keyed: await makeCaller(sql, 'keyed', of({ rooms: { _in: ['A~1', 'B~1'] } })),
  held: await makeCaller(sql, 'held', of({ rooms: { _nnull: true } })),
  submitted: await makeCaller(sql, 'submitted', of({ rooms: { _submitted: true } })),
  wrong: await makeCaller(sql, 'wrong', of({ rooms: { _eq: 'A' } })),
};

await waitFor(async () => (await get(service, '/items/desks', callers.wrong)).status === 200, 10_000);

async function send(token: string, method: string, path: string, content: unknown): Promise<Answer> {
  const body = JSON.stringify(content);
  const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)) };
  const answer = await request(service, method, path, { token, headers, body });
  await sql`delete from desks where id > 3`;
  await sql`delete from lamps where lamp > 1`;
  await sql`update desks set label = 'one', house = 'A', room = 1 where id = 1`;
  await sql`update desks set label = 'two', house = 'B', room = 1 where id = 2`;
  return answer;
}

const errorOf = ({ json }: Answer) => (json as { errors?: { extensions: object }[] }).errors?.[0]?.extensions;

for (const [name, cases] of Object.entries({
  named: [
    ['POST', '/items/desks', { rooms: 'A~1' }, 200],
    ['POST', '/items/desks', { house: 'B', room: 1 }, 200],
    ['POST', '/items/desks', { room: 1 }, 200],
    ['POST', '/items/desks', { label: 'x' }, 200],
    ['POST', '/items/desks', [{ label: 'x' }, { rooms: 'B~1' }], 200],
    ['POST', '/items/desks', [{ room: 1 }, { house: 'B', room: 1 }], 200],
    ['POST', '/items/desks', { rooms: null }, 'name'],
    ['POST', '/items/desks', { house: 'Z', room: 1 }, 'name'],
    ['PATCH', '/items/desks/1', { label: 'x' }, 200],
    ['PATCH', '/items/desks/1', { house: 'B' }, 200],
    ['PATCH', '/items/desks/1', { room: null }, 'name'],
    ['PATCH', '/items/desks/2', { rooms: 'A~1' }, 200],
    [
      'PATCH',
      '/items/desks',
      [
        { id: 1, label: 'x' },
        { id: 2, house: 'A' },
      ],
      200,
    ],
    ['POST', '/items/lamps', { building: 'A', number: 1, lamp: 2 }, 204],
    ['POST', '/items/lamps', { rooms: 'A~2', lamp: 2 }, 'name'],
  ],
  keyed: [
    ['POST', '/items/desks', { rooms: 'A~1' }, 200],
    ['POST', '/items/desks', { room: 1 }, 200],
    ['POST', '/items/desks', { rooms: 'B~2' }, 'in'],
    ['POST', '/items/desks', [{ label: 'x' }, { house: 'B', room: 7 }], 'in'],
    ['PATCH', '/items/desks/1', { label: 'x' }, 200],
    ['PATCH', '/items/desks/1', { house: 'B' }, 200],
    ['PATCH', '/items/desks/1', { house: 'C' }, 'in'],
    ['POST', '/items/desks?on_conflict=id', { id: 1, house: 'B' }, 200],
    ['POST', '/items/desks?on_conflict=id', { id: 1, house: 'C' }, 'in'],
    ['POST', '/items/desks?on_conflict=id', { id: 9, room: 1 }, 200],
    ['POST', '/items/desks?on_conflict=id', { id: 9, house: 'B' }, 'in'],
    ['POST', '/items/lamps', { rooms: 'B~1', lamp: 2 }, 204],
    ['POST', '/items/lamps', { rooms: 'A~2', lamp: 2 }, 'in'],
  ],
  held: [
    ['POST', '/items/desks', { rooms: 'A~1' }, 200],
    ['POST', '/items/desks', { rooms: null }, 'nnull'],
    ['PATCH', '/items/desks/3', { house: 'A' }, 'nnull'],
  ],
  submitted: [
    ['POST', '/items/desks', { rooms: 'A~1' }, 200],
    ['POST', '/items/desks', { house: 'A', room: 1 }, 200],
    ['POST', '/items/desks', { room: 1 }, 'submitted'],
    ['PATCH', '/items/desks/1', { label: 'x' }, 'submitted'],
  ],
} as const))
  t.test(`a policy: ${name}`, async (t) => {
    const { token } = callers[name as keyof typeof callers];
    for (const [method, path, content, expected] of cases) {
      const answer = await send(token, method, path, content);
      const said = `${method} ${path} ${JSON.stringify(content)}`;
      if (typeof expected === 'number') t.equal(answer.status, expected, `${said}: ${answer.text}`);
      else {
        t.equal(answer.status, 400, `${said}: ${answer.text}`);
        const failed = expected === 'name' ? { field: 'rooms', type: 'in' } : { field: 'rooms', type: expected };
        t.match(errorOf(answer), { code: 'FAILED_VALIDATION', ...failed }, said);
      }
    }
  });

t.test('a rule whose keys cannot be read lets nothing pass', async (t) => {
  t.equal((await send(callers.wrong.token, 'POST', '/items/desks', { rooms: 'A~1' })).status, 400);
});

t.test('a field', async (t) => {
  for (const content of [{ rooms: 'A~2' }, { house: 'A', room: 2 }, { room: 2 }]) {
    const answer = await send(ADMIN_TOKEN, 'POST', '/items/desks', content);
    t.match(answer.json, { errors: [{ message: 'Atlas is closed' }] }, JSON.stringify(content));
  }
  t.equal((await send(ADMIN_TOKEN, 'PATCH', '/items/desks/1', { room: 2 })).status, 400);
  t.equal((await send(ADMIN_TOKEN, 'PATCH', '/items/desks/1', { house: 'B' })).status, 200);
  t.equal((await send(ADMIN_TOKEN, 'POST', '/items/desks', { label: 'x' })).status, 200);
});
