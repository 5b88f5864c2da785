/**
 * Every snapshot that the service writes can be applied: databases with types, defaults, expressions, indexes and names of all
 * kinds move, and are the same where they arrive. What cannot go along is left out, and said.
 */
import t from 'tap';
import { runCommand } from '../../support/command.js';
import {
  createDatabase,
  get,
  request,
  startDatabase,
  startTestService,
  databaseUrl as urlOf,
  withSql,
} from '../../support/service.js';

const server = await startDatabase();

/** What a snapshot names but does not make. */
const TYPES = `
  create domain year as integer check (value between 1901 and 2155);
  create domain "Odd domain" as text;
  create type pair as (left_part integer, right_part text);
`;

const ODD = `
  create type rating as enum ('G', 'PG-13', 'it''s', '');
  create type "Mood: odd" as enum ('fine');
  create function ours() returns integer language sql as 'select 7';
  create sequence shared;
  create table film (
    film_id integer primary key default nextval('shared'),
    title varchar(255) not null,
    release_year year,
    odd "Odd domain" default 'x',
    rating rating default 'G',
    mood "Mood: odd" default 'fine',
    moods "Mood: odd"[] default '{fine}',
    rental_duration smallint default 3 not null,
    rental_rate numeric(4, 2) default 4.99 not null,
    fulltext tsvector not null,
    special_features text[] default array['a', 'b''c'],
    numbers integer[] default '{}',
    grid integer[][] default '{{1,2},{3,4}}',
    period tsrange not null default tsrange(now()::timestamp, null::timestamp),
    span int4range default '[1,5)',
    place point default '(1,2)',
    address inet default '127.0.0.1',
    long interval default '1 day',
    exact interval day to second(3),
    at timestamp(3) with time zone default now(),
    today date default current_date,
    epoch timestamp with time zone default '1970-01-01 00:00:00'::timestamp,
    day date default '2020-01-02 10:00:00'::timestamp,
    bits bit(3) default b'101',
    bytes bytea default '\\x00ff',
    document jsonb default '{"a": [1, null]}',
    nothing jsonb default 'null',
    part pair default row(1, 'x')::pair,
    made integer default ours(),
    kin regclass,
    single "char" default 'c',
    padded character(5) default 'ab',
    twice integer generated always as (rental_duration * 2) stored,
    words tsvector generated always as (to_tsvector('simple'::regconfig, coalesce(title, ''))) stored,
    hidden text generated always as (case when rental_rate > 1 then upper(title) else 'x' || rental_duration end) stored,
    "a/b" text,
    "Mixed Case" text,
    "with.dot" integer unique,
    unique (title, "a/b"),
    unique (title, rental_duration)
  );
  create index film_fulltext on film using gist (fulltext);
  create index film_place on film using gist (place);
  create index film_document on film using gin (document);
  create index film_title on film (title);
  create index film_rate on film (rental_rate, title);
  create index film_partial on film (rental_rate) where rental_rate > 1;
  create table "Odd: name" (id serial primary key);
  create table odd_key ("a:b" serial primary key);
  create table composite (a integer, b integer, primary key (a, b));
  create table payment (payment_id bigint, paid_at timestamptz not null, amount money, primary key (payment_id))
    partition by range (payment_id);
  create table payment_1 partition of payment for values from (0) to (100);
  create table rental (
    rental_id bigint generated always as identity primary key,
    film integer references film on update cascade on delete restrict,
    by_dot integer references film ("with.dot"),
    payment bigint references payment,
    parent bigint references rental on delete set null,
    odd integer references odd_key
  );
  create view films as select film_id, title from film;
  comment on table film is 'It''s a "film"';
  comment on column film.title is 'Says: \\ and $$';
`;

const headers = { 'content-type': 'application/json' };

async function snapshotOf(service: { readonly url: string }): Promise<unknown> {
  return ((await get(service, '/schema/snapshot')).json as { data: unknown }).data;
}

t.test('a database of all kinds moves, and is the same there', async (t) => {
  const url = await createDatabase(server, 'odd');
  await withSql(url, (sql) => sql.unsafe(TYPES + ODD));
  const source = await startTestService({ databaseUrl: url });
  await withSql(
    url,
    (sql) => sql`
      insert into service_collections (collection, primary_key, "group") values ('films', 'film_id', null), ('film', null, 'films')`,
  );
  const snapshot = await snapshotOf(source);
  const body = JSON.stringify(snapshot);
  t.equal((await request(source, 'POST', '/schema/diff', { headers, body })).status, 204, 'it is what is there');

  const empty = await createDatabase(server, 'odd_copy');
  await withSql(empty, (sql) => sql.unsafe(TYPES));
  const copy = await startTestService({ databaseUrl: empty });
  const difference = await request(copy, 'POST', '/schema/diff', { headers, body });
  t.equal(difference.status, 200, difference.text.slice(0, 300));
  const applied = await request(copy, 'POST', '/schema/apply', {
    headers,
    body: JSON.stringify((difference.json as { data: unknown }).data),
  });
  t.equal(applied.status, 204, applied.text.slice(0, 300));
  t.strictSame(await snapshotOf(copy), snapshot);
  t.equal((await request(copy, 'POST', '/schema/diff', { headers, body })).status, 204, 'and nothing is left to do');
});

t.test('omitted objects are reported', async (t) => {
  const url = urlOf(server, 'odd');
  const { code, complaints } = await runCommand(['schema', 'snapshot'], { DATABASE_URL: url });
  t.equal(code, 0, complaints);
  for (const line of [
    '"Odd: name"',
    '"odd_key"',
    '"payment": its partitions; in another database it becomes one table',
    '"films": the metadata of the view',
    '"film.a/b"',
    '"film.kin"',
    '"film.mood"',
    '"film.moods"',
    '"default film.made": it needs function ours()',
    '"constraint film."film_title_a/b_key"": it needs film."a/b"',
  ])
    t.match(complaints, line);
});

t.test('constraints and columns of new kinds in PostgreSQL 18 do not become plain ones', async (t) => {
  const databaseUrl = await createDatabase(server, 'eighteen');
  await withSql(databaseUrl, (sql) =>
    sql.unsafe(`
      create extension btree_gist;
      create table rooms (id integer, during daterange, price integer, primary key (id, during without overlaps));
      create table stays (id serial primary key, room integer, during daterange, guest text,
        unique (guest, during without overlaps), foreign key (room, period during) references rooms (id, period during));
      create table guests (id serial primary key, name text, loud text generated always as (upper(name)) virtual);
      create table wishes (id serial primary key, guest integer references guests not enforced);
      insert into guests (name) values ('ann');
      insert into rooms values (1, '[2026-01-01,2027-01-01)', 5);
      insert into stays (room, during, guest) values (1, '[2026-02-01,2026-03-01)', 'ann');
      insert into wishes (guest) values (1), (7)`),
  );
  const source = await startTestService({ databaseUrl });
  t.strictSame((await get(source, '/items/guests?fields=loud')).json, { data: [{ loud: 'ANN' }] });
  t.match((await get(source, '/items/stays')).json, { data: [{ room: 1, guest: 'ann' }] });
  t.match((await get(source, '/items/wishes?fields=guest.name')).json, {
    data: [{ guest: { name: 'ann' } }, { guest: null }],
  });
  const refused = await request(source, 'PATCH', '/items/guests/1', { headers, body: '{"loud":"x"}' });
  t.equal(refused.status, 400, refused.text);

  const snapshot = await snapshotOf(source);
  const body = JSON.stringify(snapshot);
  const same = await request(source, 'POST', '/schema/diff', { headers, body });
  t.equal(same.status, 204, `it is what is there ${same.text.slice(0, 300)}`);
  t.notMatch(body, /"rooms"|"loud"/);
  const copy = await startTestService({ databaseUrl: await createDatabase(server, 'eighteen_copy') });
  const difference = await request(copy, 'POST', '/schema/diff', { headers, body });
  const applied = await request(copy, 'POST', '/schema/apply', {
    headers,
    body: JSON.stringify((difference.json as { data: unknown }).data),
  });
  t.equal(applied.status, 204, applied.text.slice(0, 300));
  const made = await withSql(
    urlOf(server, 'eighteen_copy'),
    (sql) =>
      sql`select conname from pg_constraint where contype = 'f' and conrelid in ('stays'::regclass, 'wishes'::regclass)`,
  );
  t.strictSame([...made], []);

  const { complaints } = await runCommand(['schema', 'snapshot'], { DATABASE_URL: databaseUrl });
  for (const line of [
    '"rooms": it, or its key, has a name',
    '"constraint stays.stays_room_during_fkey": it needs rooms.during',
    '"guests.loud": is a virtual generated column',
  ])
    t.match(complaints, line);
});
