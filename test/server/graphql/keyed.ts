/**
 * Tables of several schemas whose keys are not one column, beside those of library.sql: rooms and what refers to them by two columns, a
 * junction whose key is its references, payments in partitions, and visits without a key.
 */
export const KEYED_SQL = `
  create schema sales;
  create table sales.rooms (building text, number integer, name text, floor integer, primary key (building, number));
  create table desks (
    id serial primary key, label text, house text, room integer,
    foreign key (house, room) references sales.rooms (building, number)
  );
  create table sales.lamps (
    building text, number integer, lamp integer, watt integer, primary key (building, number, lamp),
    foreign key (building, number) references sales.rooms (building, number)
  );
  create table authors_rooms (
    author integer references authors, building text, number integer, note text, primary key (building, number, author),
    foreign key (building, number) references sales.rooms (building, number)
  );
  create table sales.payments (
    paid date, author integer references authors, amount numeric(8, 2), primary key (paid, author)
  ) partition by range (paid);
  create table sales.payments_first partition of sales.payments for values from ('2024-01-01') to ('2024-07-01');
  create table sales.payments_second partition of sales.payments for values from ('2024-07-01') to ('2025-01-01');
  create table visits (place integer, reason text, author integer references authors);

  insert into sales.rooms values
    ('A', 1, 'Aurora', 0), ('A', 2, 'Atlas', 1), ('B~1', 1, 'Bravo', 0), ('\\', 3, 'Slash', null), ('C', 1, null, 2);
  insert into desks (label, house, room) values
    ('one', 'A', 1), ('two', 'A', 1), ('three', 'B~1', 1), ('four', 'A', null), ('five', '\\', 3), ('six', null, null);
  insert into sales.lamps values ('A', 1, 1, 60), ('A', 1, 2, 40), ('A', 2, 1, 25), ('B~1', 1, 7, null);
  insert into authors_rooms values (1, 'A', 1, 'likes'), (2, 'A', 1, null), (1, 'B~1', 1, 'rents'), (3, '\\', 3, 'owns');
  insert into sales.payments values
    ('2024-02-29', 1, 1.50), ('2024-08-01', 1, 20), ('2024-08-01', 2, 3), ('2024-12-31', 3, null);
  insert into visits values (1, 'seen', 1), (2, 'seen', 1), (3, null, 2), (4, 'heard', null);

  insert into service_collections (collection, sort_field) values ('visits', 'place');
  insert into service_fields (collection, field, special, options) values
    ('desks', 'place', 'm2o', '{"columns": ["house", "room"]}'),
    ('sales_lamps', 'place', 'm2o', '{"columns": ["building", "number"]}'),
    ('authors_rooms', 'place', 'm2o', '{"columns": ["building", "number"]}');
  insert into service_relations (many_collection, many_field, one_collection, one_field, one_deselect_action) values
    ('desks', 'place', 'sales_rooms', 'desks', 'nullify'),
    ('sales_lamps', 'place', 'sales_rooms', 'lamps', 'delete'),
    ('authors_rooms', 'place', 'sales_rooms', 'authors', 'delete'),
    ('authors_rooms', 'author', 'authors', 'rooms', 'delete'),
    ('sales_payments', 'author', 'authors', 'payments', 'delete'),
    ('visits', 'author', 'authors', 'visits', 'nullify');`;

/** Information about the service started with. */
export const KEYED_SCHEMAS = 'public,sales';
