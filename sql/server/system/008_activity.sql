-- Who did what, and what items looked like after it. Rows are written by the statement that makes the change. They refer to users
-- and items that may be gone, and a check per row would double what they cost: no foreign keys.
create table service_activity (
  id bigserial primary key,
  action varchar(45) not null,
  "user" uuid,
  timestamp timestamp with time zone not null default now(),
  ip varchar(50),
  user_agent text,
  origin varchar(255),
  collection varchar(255) not null,
  item varchar(255) not null
);

create index service_activity_item_index on service_activity (collection, item);
create index service_activity_user_index on service_activity ("user");
-- Rows come in the order of time: a summary per range of pages finds them, and costs a write next to nothing.
create index service_activity_timestamp_index on service_activity using brin (timestamp);

create table service_revisions (
  id bigserial primary key,
  activity bigint not null,
  collection varchar(255) not null,
  item varchar(255) not null,
  data json,
  delta json,
  parent bigint,
  version uuid
);

create index service_revisions_item_index on service_revisions (collection, item);
create index service_revisions_activity_index on service_revisions (activity);
create index service_revisions_parent_index on service_revisions (parent) where parent is not null;

insert into service_collections (collection, hidden, accountability, note) values
  ('service_activity', true, null, 'Who did what'),
  ('service_revisions', true, null, 'What items looked like after a change');

insert into service_fields (collection, field, special, sort) values
  ('service_activity', 'user', 'm2o', 1),
  ('service_activity', 'revisions', 'o2m', 2),
  ('service_revisions', 'activity', 'm2o', 1),
  ('service_revisions', 'data', 'cast-json', 2),
  ('service_revisions', 'delta', 'cast-json', 3),
  ('service_revisions', 'parent', 'm2o', 4);

insert into service_relations (many_collection, many_field, one_collection, one_field) values
  ('service_activity', 'user', 'service_users', null),
  ('service_revisions', 'activity', 'service_activity', 'revisions'),
  ('service_revisions', 'parent', 'service_revisions', null);
