-- What applications keep in an installation of Directus beside the collections; it comes after directus.sql.

create table directus_folders (id uuid primary key, name varchar(255) not null, parent uuid references directus_folders, type varchar(255) default 'files');
create table directus_presets (
  id serial primary key, bookmark varchar(255), "user" uuid references directus_users on delete cascade,
  role uuid references directus_roles on delete cascade, collection varchar(64), search varchar(100), layout varchar(100) default 'tabular',
  layout_query json, layout_options json, refresh_interval integer, filter json, icon varchar(64) default 'bookmark', color varchar(255)
);
create table directus_comments (
  id uuid primary key, collection varchar(64) not null, item varchar(255) not null, comment text not null,
  date_created timestamptz default now(), date_updated timestamptz, user_created uuid references directus_users on delete set null,
  user_updated uuid references directus_users
);
create table directus_notifications (
  id serial primary key, timestamp timestamptz default now(), status varchar(255) default 'inbox',
  recipient uuid not null references directus_users on delete cascade, sender uuid references directus_users,
  subject varchar(255) not null, message text, collection varchar(64), item varchar(255)
);
create table directus_translations (id uuid primary key, language varchar(255) not null, key varchar(255) not null, value text not null);
create table directus_dashboards (
  id uuid primary key, name varchar(255) not null, icon varchar(64) not null default 'dashboard', note text,
  date_created timestamptz default now(), user_created uuid references directus_users on delete set null, color varchar(255)
);
create table directus_panels (
  id uuid primary key, dashboard uuid not null references directus_dashboards on delete cascade, name varchar(255), icon varchar(64),
  color varchar(10), show_header boolean not null default false, note text, type varchar(255) not null, position_x integer not null,
  position_y integer not null, width integer not null, height integer not null, options json, date_created timestamptz default now(),
  user_created uuid references directus_users on delete set null
);

create table directus_versions (
  id uuid primary key, key varchar(64) not null, name varchar(255), collection varchar(64) not null, item varchar(255),
  hash varchar(255), date_created timestamptz default now(), date_updated timestamptz, user_created uuid references directus_users on delete set null,
  user_updated uuid references directus_users, delta json
);

create table directus_shares (
  id uuid primary key, name varchar(255), collection varchar(64) not null, item varchar(255) not null, role uuid references directus_roles on delete cascade,
  password varchar(255), user_created uuid references directus_users on delete set null, date_created timestamptz default now(),
  date_start timestamptz, date_end timestamptz, times_used integer default 0, max_uses integer
);

insert into directus_folders (id, name, parent) values
  ('00000000-0000-4000-8000-0000000000e2', 'Below', '00000000-0000-4000-8000-0000000000e1'),
  ('00000000-0000-4000-8000-0000000000e1', 'Above', null),
  ('00000000-0000-4000-8000-0000000000e3', 'In itself', '00000000-0000-4000-8000-0000000000e3');
insert into directus_presets (id, bookmark, "user", role, collection, layout_query, filter) values
  (7, 'Mine', '00000000-0000-4000-8000-0000000000a2', null, 'articles', '{"tabular":{"sort":["title"]}}', '{"status":{"_eq":"draft"}}'),
  (8, 'People', null, '00000000-0000-4000-8000-000000000003', 'directus_users', null, null),
  (9, 'Of the boss', '00000000-0000-4000-8000-0000000000a1', null, 'articles', null, null);
insert into directus_comments (id, collection, item, comment, date_created, user_created) values
  ('00000000-0000-4000-8000-0000000000d1', 'articles', '1', 'Well said', '2024-05-06T07:08:09Z', '00000000-0000-4000-8000-0000000000a2'),
  ('00000000-0000-4000-8000-0000000000d2', 'directus_users', '00000000-0000-4000-8000-0000000000a2', 'Our editor', now(), '00000000-0000-4000-8000-0000000000a1');
insert into directus_notifications (id, recipient, sender, subject, collection, item) values
  (3, '00000000-0000-4000-8000-0000000000a2', '00000000-0000-4000-8000-0000000000a1', 'Read this', 'articles', '1'),
  (4, '00000000-0000-4000-8000-0000000000a1', null, 'For the boss', null, null);
insert into directus_translations values
  ('00000000-0000-4000-8000-000000000011', 'de-DE', 'save', 'Sichern'),
  ('00000000-0000-4000-8000-000000000012', 'de-DE', 'save', 'Speichern'),
  ('00000000-0000-4000-8000-000000000013', 'en-US', 'save', 'Save');
insert into directus_dashboards (id, name, user_created) values
  ('00000000-0000-4000-8000-000000000021', 'Figures', '00000000-0000-4000-8000-0000000000a1');
insert into directus_panels (id, dashboard, type, position_x, position_y, width, height, options) values
  ('00000000-0000-4000-8000-000000000022', '00000000-0000-4000-8000-000000000021', 'metric', 1, 1, 12, 6, '{"field":"views"}');
insert into directus_versions (id, key, collection, item, hash, user_created, delta) values
  ('00000000-0000-4000-8000-000000000031', 'draft', 'articles', '1', 'abc', '00000000-0000-4000-8000-0000000000a2',
   '{"_user":"00000000-0000-4000-8000-0000000000a2","_date":"2025-01-01T00:00:00Z","title":"says \"_user\": \"x\"","meta":{"_user":null,"a":1}}'),
  ('00000000-0000-4000-8000-000000000032', 'draft', 'articles', null, null, null, '{"title":"not there yet"}');
insert into directus_versions (id, key, name, collection, item, date_created, date_updated, user_created, user_updated, delta) values
  ('00000000-0000-4000-8000-000000000033', 'second', 'Second edition', 'articles', '2', '2025-02-03T04:05:06Z', '2025-02-04T04:05:06Z',
   '00000000-0000-4000-8000-0000000000a1', '00000000-0000-4000-8000-0000000000a2',
   '{"tags":{"create":[{"tags_id":1,"_user":null,"_date":"2025-02-04T04:05:06Z"}],"update":[],"delete":[]},"views":7}'),
  ('00000000-0000-4000-8000-000000000034', 'empty', null, 'articles', '2', '2025-02-03T04:05:06Z', null, null, null, null);
insert into directus_shares (id, name, collection, item, role, user_created, times_used, max_uses) values
  ('00000000-0000-4000-8000-000000000041', 'For reviewers', 'articles', '1', '00000000-0000-4000-8000-000000000003', '00000000-0000-4000-8000-0000000000a1', 1, 3);
insert into directus_shares values
  ('00000000-0000-4000-8000-000000000042', null, 'directus_users', '00000000-0000-4000-8000-0000000000a2', null,
   '$argon2id$v=19$m=65536,t=3,p=4$c29tZSBzYWx0IGhlcmU$YW5kIGEgaGFzaCB0aGF0IG1hdGNoZXMgbm90aGluZw', '00000000-0000-4000-8000-0000000000a2',
   '2025-03-01T00:00:00Z', '2025-03-02T00:00:00Z', '2099-03-03T00:00:00Z', 0, null);

-- A table of the project may refer to folders.
create table albums (id serial primary key, folder uuid constraint albums_folder_foreign references directus_folders on delete set null);
insert into albums (folder) values ('00000000-0000-4000-8000-0000000000e1');
insert into directus_permissions (policy, collection, action, permissions, fields) values
  ('00000000-0000-4000-8000-00000000000c', 'directus_folders', 'read', '{"parent":{"_eq": "null"}}', '*');
