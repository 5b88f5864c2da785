-- Tables whose keys are not one column: order lines, a junction, texts with the signs of joined keys, moments, partitions, a unique
-- index in the place of a primary key, a declared key, and none.
create table orders (id serial primary key, customer text not null, total numeric(10, 2));
create table products (id integer primary key, name text not null);
create table order_lines (
  order_id integer references orders (id),
  product_id integer references products (id),
  quantity integer not null default 1,
  note text,
  primary key (order_id, product_id)
);
create index on order_lines (product_id);
insert into orders (customer) values ('Ada'), ('Bo'), ('Cy');
insert into products values (11, 'ink'), (42, 'paper'), (72, 'glue');
insert into order_lines values (1, 11, 12, 'first'), (1, 42, 10, null), (1, 72, 5, 'last'), (2, 11, 9, 'again');

create table films (id serial primary key, title text not null);
create table actors (id serial primary key, name text not null);
create table film_actor (
  actor_id integer references actors (id) on delete cascade,
  film_id integer references films (id) on delete cascade,
  updated timestamptz not null default now(),
  primary key (actor_id, film_id)
);
create index on film_actor (film_id);
insert into films (title) values ('Alien'), ('Brazil');
insert into actors (name) values ('Sigourney'), ('John'), ('Jonathan');
insert into film_actor (film_id, actor_id) values (1, 1), (1, 2), (2, 3);

-- The order of the key is not that of the columns.
create table labels (word text, code varchar(20), kind text, primary key (kind, code));
insert into labels values ('plain', 'b', 'a'), ('tilde', 'c~d', 'a~'), ('slash', '\', '\~'), ('blank', '', ''), ('sign', '*', '"');

create table readings (
  at timestamptz, day date, sensor uuid, raw bytea, exact numeric, value double precision,
  primary key (at, day, sensor, raw, exact)
);
insert into readings values
  ('2024-02-29 12:00:00.5+00', '2024-02-29', '6f9619ff-8b86-d011-b42d-00cf4fc964ff', '\xfbff', 1.50, 0.5),
  ('2024-03-01 00:00:00+00', '2024-03-01', '6f9619ff-8b86-d011-b42d-00cf4fc964ff', '', -2, null);

create table payments (
  paid date not null, id serial, amount numeric(8, 2) not null default 0, primary key (paid, id)
) partition by range (paid);
create table payments_first partition of payments for values from ('2024-01-01') to ('2024-07-01');
create table payments_second partition of payments for values from ('2024-07-01') to ('2025-01-01');
insert into payments (paid, amount) values ('2024-02-01', 1), ('2024-08-01', 2), ('2024-08-01', 3);

create table seats (row_letter text not null, seat integer not null, guest text, code text not null, floor integer not null);
create unique index seats_place on seats (row_letter, seat);
create unique index seats_wide on seats (code, floor, seat);
create unique index seats_some on seats (code) where floor > 1;
create unique index seats_expression on seats (lower(code));
insert into seats values ('A', 1, 'Ada', 'a1', 1), ('A', 2, null, 'a2', 1), ('B', 1, 'Bo', 'b1', 2);

create table points (x integer, y integer, label text);
insert into points values (1, 2, 'one'), (3, 4, 'two');

create table notes (at integer, message text, film integer references films (id));
insert into notes values (1, 'seen', 1), (2, 'seen', 1), (3, null, 2), (3, null, 2);
