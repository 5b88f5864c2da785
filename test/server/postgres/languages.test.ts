/** What the service answers does not depend on the language in which PostgreSQL words its errors. */
import t from 'tap';
import {
  type Answer,
  connectSql,
  createDatabase,
  request,
  type Sql,
  startDatabase,
  startTestService,
} from '../../support/service.js';
import { translateServer, type WordOrder } from '../../support/translated-server.js';

const SCHEMA = `
  create extension if not exists btree_gist;
  create domain positive as integer check (value > 0);
  create table makers (
    id serial primary key,
    name varchar(10) not null,
    email text unique,
    country text,
    city text,
    "quo""te" text unique,
    age positive,
    size smallint check (size < 100),
    during int4range,
    parent integer references makers (id),
    unique (country, city),
    exclude using gist (during with &&)
  );
  create unique index on makers (lower(name)) where country = 'expression';
  create unique index makers_partial on makers (size) where country = 'partial';
  create table goods (
    id serial primary key,
    name text,
    maker integer references makers (id),
    tester integer references makers (id) on delete restrict,
    country text,
    city text,
    foreign key (country, city) references makers (country, city)
  );
  create table days (
    id integer, day integer, maker integer references makers (id), primary key (id)
  ) partition by range (id);
  create table days_first partition of days for values from (0) to (100);
  create table plain (id serial primary key, value text, maker integer);
  create function refuse() returns trigger language plpgsql as $$
  begin
    if new.value = 'refused' then raise exception 'not this one'; end if;
    if new.value = 'inner' then insert into makers (name, email) values ('x', 'a@example.com'); end if;
    return new;
  end $$;
  create trigger refuse before insert on plain for each row execute function refuse();
  insert into makers (name, email, country, city, "quo""te", during, size)
    values ('first', 'a@example.com', 'a', 'b', 'q', '[1,5)', 7), ('second', 'b@example.com', 'a', 'c', null, null, 8);
  insert into makers (name, country, size) values ('third', 'expression', 1), ('fourth', 'partial', 2);
  insert into goods (name, maker, country, city) values ('good', 1, 'a', 'b'), ('tested', null, null, null);
  update goods set tester = 2 where id = 2;
  insert into makers (name, country, city) values ('fifth', 'x', 'y');
  insert into goods (name, country, city) values ('pair', 'x', 'y');
  insert into plain (value, maker) values ('1', 999), ('1', 1);`;

/** A request with what is answered: the status, and of each error its code, or what is wrong with which field. */
type Step = readonly [answer: string, method: string, path: string, body?: unknown] | readonly [sql: string];

const STEPS: readonly Step[] = [
  // Constraints.
  ['400 unique makers.email', 'POST', '/items/makers', { name: 'new', email: 'a@example.com' }],
  ['400 unique makers.country, city', 'POST', '/items/makers', { name: 'new', country: 'a', city: 'b' }],
  ['400 unique makers.quo"te', 'POST', '/items/makers', { name: 'new', 'quo"te': 'q' }],
  ['400 unique makers.during', 'POST', '/items/makers', { name: 'new', during: '[2,3)' }],
  ['400 unique makers.name', 'POST', '/items/makers', { name: 'THIRD', country: 'expression' }],
  ['400 unique makers.size', 'POST', '/items/makers', { name: 'new', country: 'partial', size: 2 }],
  ['400 unique makers.id', 'POST', '/items/makers', { id: 1, name: 'new' }],
  ['400 required makers.name', 'POST', '/items/makers', { email: 'c@example.com' }],
  ['400 nnull makers.name', 'PATCH', '/items/makers/1', { name: null }],
  ['400 too_long makers.name', 'POST', '/items/makers', { name: 'a name that is too long' }],
  ['400 check makers.age', 'POST', '/items/makers', { name: 'new', age: -1 }],
  ['400 check makers.null', 'POST', '/items/makers', { name: 'new', size: 1_000 }],
  ['400 out_of_range makers.size', 'POST', '/items/makers', { name: 'new', size: 100_000 }],
  ['400 foreign_key makers.parent', 'POST', '/items/makers', { name: 'new', parent: 999 }],
  ['400 foreign_key goods.maker', 'POST', '/items/goods', { name: 'new', maker: 999 }],
  ['400 foreign_key goods.tester', 'POST', '/items/goods', { name: 'new', tester: 999 }],
  ['400 foreign_key goods.country, city', 'POST', '/items/goods', { name: 'new', country: 'no', city: 'where' }],
  ['400 foreign_key days_first.maker', 'POST', '/items/days', { id: 1, maker: 999 }],
  ['200', 'POST', '/items/days', { id: 2, maker: 5 }],
  ['400 unique days_first.id', 'POST', '/items/days', { id: 2 }],
  ['400 foreign_key goods.maker', 'DELETE', '/items/makers/1'],
  ['400 foreign_key goods.tester', 'DELETE', '/items/makers/2'],
  ['400 foreign_key goods.null', 'DELETE', '/items/makers/5'],
  ['400 check null.null', 'POST', '/items/plain', { value: 'refused' }],
  ['400 unique makers.email', 'POST', '/items/plain', { value: 'inner' }],
  // A key that was supplied, and that the sequence comes to afterwards.
  ['200', 'POST', '/items/plain', { id: 3, value: 'supplied' }],
  ['200', 'POST', '/items/plain', { value: 'next' }],
  ['400 unique plain.id', 'POST', '/items/plain', [{ value: 'next' }, { id: 5, value: 'x' }, { value: 'next' }]],
  [
    '400 foreign_key goods.maker foreign_key goods.tester',
    'POST',
    '/utils/import/goods',
    [{ name: 'new' }, { name: 'new', maker: 999 }, { name: 'new', tester: 999 }],
  ],
  [
    '400 foreign_key makers.parent unique makers.email',
    'POST',
    '/utils/import/makers',
    [
      { name: 'new', parent: 999 },
      { name: 'new', email: 'b@example.com' },
    ],
  ],
  // Reads.
  ['400 INVALID_QUERY', 'GET', '/items/makers?filter[age][_gt]=x'],
  ['403 FORBIDDEN', 'GET', '/items/makers/x'],
  ['400 INVALID_QUERY', 'GET', '/items/makers?filter[size][_eq]=100000'],
  // Changes of the schema.
  [
    '400 foreign_key plain.maker',
    'POST',
    '/relations',
    { collection: 'plain', field: 'maker', related_collection: 'makers' },
  ],
  ['400 unique plain.value', 'PATCH', '/fields/plain/value', { schema: { is_unique: true } }],
  ['400 INVALID_PAYLOAD', 'PATCH', '/fields/makers/country', { type: 'integer' }],
  ['422 UNPROCESSABLE_CONTENT', 'DELETE', '/collections/makers'],
  // Statements that were planned before a type changed.
  ['200', 'POST', '/users?fields=email', { email: 'one@example.com', password: 'long-enough-1' }],
  ['alter table service_settings alter auth_password_policy type varchar(300)'],
  ['200', 'POST', '/users?fields=email', { email: 'two@example.com', password: 'long-enough-2' }],
];

const server = await startDatabase();

for (const order of ['german', 'japanese'] as const) {
  t.test(`errors are the same in another language, in the order of words of ${order}`, async (t) => {
    const [native, translated] = await Promise.all([open(order, null), open(order, order)]);
    for (const step of STEPS) {
      const [expected, found] = await Promise.all([run(native, step), run(translated, step)]);
      if (expected) t.equal(summary(expected), step[0]);
      t.equal(found?.text, expected?.text, JSON.stringify(step));
    }
  });
}

interface Side {
  readonly service: { readonly url: string };
  readonly sql: Sql;
}

async function open(name: string, order: WordOrder | null): Promise<Side> {
  const url = await createDatabase(server, `${name}_${order === null ? 'native' : 'translated'}`);
  const options = { WORKERS: '1' };
  await (await startTestService({ databaseUrl: url, ...options })).stop();
  const sql = connectSql(url);
  t.teardown(() => sql.end());
  await sql.unsafe(SCHEMA).simple();
  const databaseUrl = order === null ? url : await translateServer(url, order);
  return { service: await startTestService({ databaseUrl, ...options }), sql };
}

async function run({ service, sql }: Side, step: Step): Promise<Answer | null> {
  if (step.length === 1) {
    await sql.unsafe(step[0]);
    return null;
  }
  const [, method, path, body] = step;
  const headers = { 'content-type': 'application/json' };
  const options = body === undefined ? {} : { headers, body: JSON.stringify(body) };
  return request(service, method, path, options);
}

function summary({ status, json }: Answer): string {
  const { errors = [] } = (json ?? {}) as { errors?: { extensions: Record<string, unknown> }[] };
  const parts = errors.map(({ extensions: { code, type, collection, field } }) =>
    code === 'FAILED_VALIDATION' ? `${type} ${collection}.${field}` : code,
  );
  return [status, ...parts].join(' ');
}
