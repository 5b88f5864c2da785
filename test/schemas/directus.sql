-- An installation of Directus as versions 11 and 12 make it, with a few tables of a project: the columns that matter for an adoption, and
-- rows that have every kind of relation, rule and doubt. The password of everybody is "pass-editor@example.org".

create table directus_migrations (version varchar(255) primary key, name varchar(255) not null, timestamp timestamptz default now());
create table directus_settings (
  id serial primary key, project_name varchar(100) not null default 'Directus', project_url varchar(255),
  project_color varchar(255) not null default '#6644FF', project_logo uuid, public_note text, auth_login_attempts integer default 25,
  auth_password_policy varchar(100), default_language varchar(255) not null default 'en-US', project_descriptor varchar(100),
  default_appearance varchar(255) not null default 'auto', public_registration boolean not null default false,
  public_registration_verify_email boolean not null default true, public_registration_role uuid,
  public_registration_email_filter json, license_key varchar(255)
);
create table directus_collections (
  collection varchar(64) primary key, icon varchar(64), note text, display_template varchar(255), hidden boolean not null default false,
  singleton boolean not null default false, translations json, archive_field varchar(64), archive_app_filter boolean not null default true,
  archive_value varchar(255), unarchive_value varchar(255), sort_field varchar(64), accountability varchar(255) default 'all',
  color varchar(255), item_duplication_fields json, sort integer, "group" varchar(64) references directus_collections,
  collapse varchar(255) not null default 'open', preview_url varchar(255), versioning boolean not null default false,
  status varchar(255) not null default 'active', autosave_revision_interval real
);
create table directus_fields (
  id serial primary key, collection varchar(64) not null, field varchar(64) not null, special varchar(64), interface varchar(64),
  options json, display varchar(64), display_options json, readonly boolean not null default false, hidden boolean not null default false,
  sort integer, width varchar(30) default 'full', translations json, note text, conditions json, required boolean default false,
  "group" varchar(64), validation json, validation_message text, searchable boolean not null default true
);
create table directus_relations (
  id serial primary key, many_collection varchar(64) not null, many_field varchar(64) not null, one_collection varchar(64),
  one_field varchar(64), one_collection_field varchar(64), one_allowed_collections text, junction_field varchar(64),
  sort_field varchar(64), one_deselect_action varchar(255) not null default 'nullify'
);
create table directus_roles (
  id uuid primary key, name varchar(100) not null, icon varchar(64) not null default 'supervised_user_circle', description text,
  parent uuid references directus_roles
);
create table directus_policies (
  id uuid primary key, name varchar(100) not null, icon varchar(64) not null default 'badge', description text, ip_access text,
  enforce_tfa boolean not null default false, admin_access boolean not null default false, app_access boolean not null default false
);
create table countries (code varchar(2) primary key, name varchar(255));
create table directus_users (
  id uuid primary key, first_name varchar(50), last_name varchar(50), email varchar(128) unique, password varchar(255),
  location varchar(255), title varchar(50), description text, tags json, avatar uuid, language varchar(255), tfa_secret varchar(255),
  status varchar(16) not null default 'active', role uuid references directus_roles on delete set null, token varchar(255) unique,
  last_access timestamptz, last_page varchar(255), provider varchar(128) not null default 'default',
  external_identifier varchar(255) unique, auth_data json, email_notifications boolean default true, appearance varchar(255),
  theme_dark varchar(255), theme_light varchar(255), theme_light_overrides json, theme_dark_overrides json,
  text_direction varchar(255) not null default 'auto', nickname varchar(255),
  home varchar(2) constraint directus_users_home_foreign references countries on delete set null
);
create table directus_access (
  id uuid primary key, role uuid references directus_roles on delete cascade, "user" uuid references directus_users on delete cascade,
  policy uuid not null references directus_policies on delete cascade, sort integer
);
create table directus_permissions (
  id serial primary key, collection varchar(64) not null, action varchar(10) not null, permissions json, validation json, presets json,
  fields text, policy uuid not null references directus_policies on delete cascade
);
create table directus_activity (
  id serial primary key, action varchar(45) not null, "user" uuid, timestamp timestamptz not null default now(), ip varchar(50),
  user_agent text, collection varchar(64) not null, item varchar(255) not null, origin varchar(255)
);
create table directus_revisions (
  id serial primary key, activity integer not null references directus_activity on delete cascade, collection varchar(64) not null,
  item varchar(255) not null, data json, delta json, parent integer references directus_revisions, version uuid
);
create table directus_flows (id uuid primary key, name varchar(255) not null, trigger varchar(255), status varchar(255) not null default 'active',
  options json, operation uuid);
create table directus_operations (id uuid primary key, name varchar(255), key varchar(255) not null, type varchar(255) not null, options json,
  resolve uuid, reject uuid, flow uuid not null references directus_flows on delete cascade);
create table directus_files (id uuid primary key, storage varchar(255) not null default 'local', filename_disk varchar(255),
  filename_download varchar(255) not null default 'a.jpg', title varchar(255), type varchar(255), folder uuid, uploaded_by uuid,
  created_on timestamptz not null default '2024-01-01T00:00:00Z', modified_by uuid, modified_on timestamptz not null default '2024-01-01T00:00:00Z',
  charset varchar(50), filesize bigint, width integer, height integer, duration integer, embed varchar(200), description text,
  location text, tags text, metadata json, focal_point_x integer, focal_point_y integer, tus_id varchar(64), tus_data json,
  uploaded_on timestamptz);
create table directus_sessions (token varchar(64) primary key, "user" uuid references directus_users on delete cascade, expires timestamptz not null);

create table authors (id serial primary key, name varchar(255) not null, account uuid references directus_users on delete set null);
create table articles (
  id serial primary key, title varchar(255), status varchar(255) default 'draft', body text, views integer default 0,
  author integer constraint articles_author_foreign references authors on delete set null,
  cover uuid references directus_files on delete set null,
  user_created uuid constraint articles_user_created_foreign references directus_users, date_created timestamptz
);
create table categories (id serial primary key, name varchar(255), parent integer references categories on delete set null);
create table tags (id serial primary key, name varchar(255));
create table articles_tags (id serial primary key, articles_id integer references articles on delete cascade, tags_id integer references tags, sort integer);
create table block_text (id serial primary key, text text);
create table articles_blocks (id serial primary key, articles_id integer references articles, item varchar(255), collection varchar(255));
create table languages (code varchar(10) primary key, name varchar(255));
create table articles_translations (id serial primary key, articles_id integer references articles, languages_code varchar(10) references languages, title varchar(255));

insert into directus_migrations values ('20260909A', 'Add folder type');
insert into directus_settings (project_name, project_color, auth_password_policy, public_note) values ('Old project', '#123456', '/^.{8,}$/', 'Welcome');
insert into directus_collections (collection, "group", icon, sort, autosave_revision_interval) values ('content', null, 'folder', 1, null), ('articles', 'content', 'article', 2, 1.6);
insert into directus_collections (collection, hidden) values
  ('authors', false), ('categories', false), ('tags', false), ('articles_tags', true), ('block_text', false), ('articles_blocks', true), ('languages', false), ('articles_translations', true), ('countries', false);
insert into directus_fields (collection, field, special, interface, options, validation, validation_message, conditions, translations, note, "group", width) values
  ('articles', 'title', null, 'input', '{"trim":true}', '{"title":{"_nempty":true}}', 'A title is needed', '[{"name":"c","rule":{"status":{"_eq":"draft"}},"required":true}]', '[{"language":"de-DE","translation":"Titel"}]', 'The title', 'details', 'half'),
  ('articles', 'details', 'alias,no-data,group', 'group-raw', null, null, null, null, null, null, null, 'full'),
  ('articles', 'author', 'm2o', 'select-dropdown-m2o', null, null, null, null, null, null, null, 'full'),
  ('articles', 'tags', 'm2m', 'list-m2m', null, null, null, null, null, null, null, 'full'),
  ('articles', 'blocks', 'm2a', 'list-m2a', null, null, null, null, null, null, null, 'full'),
  ('articles', 'translations', 'translations', 'translations', null, null, null, null, null, null, null, 'full'),
  ('articles', 'user_created', 'user-created', null, null, null, null, null, null, null, null, 'full'),
  ('articles', 'date_created', 'date-created', null, null, null, null, null, null, null, null, 'full'),
  ('articles', 'removed', null, 'input', null, null, null, null, null, null, null, 'full'),
  ('articles', 'title', null, 'input', null, null, null, null, null, 'described twice', null, 'full'),
  ('authors', 'articles', 'o2m', 'list-o2m', null, null, null, null, null, null, null, 'full'),
  ('categories', 'children', 'o2m', 'list-o2m', null, null, null, null, null, null, null, 'full'),
  ('directus_users', 'nickname', null, 'input', null, null, null, null, null, 'of the project', null, 'full'),
  ('directus_users', 'home', 'm2o', 'select-dropdown-m2o', null, null, null, null, null, null, null, 'full'),
  ('directus_users', 'written', 'o2m', 'list-o2m', null, null, null, null, null, null, null, 'full');
insert into directus_relations (many_collection, many_field, one_collection, one_field, one_collection_field, one_allowed_collections, junction_field, sort_field) values
  ('articles', 'author', 'authors', 'articles', null, null, null, null),
  ('articles', 'user_created', 'directus_users', 'written', null, null, null, null),
  ('articles', 'cover', 'directus_files', null, null, null, null, null),
  ('authors', 'account', 'directus_users', null, null, null, null, null),
  ('categories', 'parent', 'categories', 'children', null, null, null, null),
  ('articles_tags', 'articles_id', 'articles', 'tags', null, null, 'tags_id', 'sort'),
  ('articles_tags', 'tags_id', 'tags', null, null, null, 'articles_id', null),
  ('articles_blocks', 'articles_id', 'articles', 'blocks', null, null, 'item', null),
  ('articles_blocks', 'item', null, null, 'collection', 'block_text,directus_users', 'articles_id', null),
  ('articles_translations', 'articles_id', 'articles', 'translations', null, null, 'languages_code', null),
  ('articles_translations', 'languages_code', 'languages', null, null, null, 'articles_id', null),
  ('directus_users', 'home', 'countries', null, null, null, null, null);

insert into directus_roles values
  ('00000000-0000-4000-8000-000000000001', 'Administrator', 'verified', '$t:admin_description', null),
  ('00000000-0000-4000-8000-000000000002', 'Member', 'people', null, null),
  ('00000000-0000-4000-8000-000000000003', 'Editor', 'edit', null, '00000000-0000-4000-8000-000000000002');
insert into directus_policies (id, name, description, ip_access, admin_access, app_access) values
  ('abf8a154-5b1c-4a46-ac9c-7300570f4f17', '$t:public_label', '$t:public_description', null, false, false),
  ('00000000-0000-4000-8000-00000000000a', 'Administrator', '$t:admin_description', null, true, true),
  ('00000000-0000-4000-8000-00000000000b', 'Reading', null, null, false, false),
  ('00000000-0000-4000-8000-00000000000c', 'Editing', null, '127.0.0.1,10.0.0.0/8', false, true);
insert into countries values ('DE', 'Germany');
insert into directus_users (id, email, role, token, tfa_secret, status, nickname, home, tags, provider) values
  ('00000000-0000-4000-8000-0000000000a1', 'admin@example.org', '00000000-0000-4000-8000-000000000001', 'old-admin-static-token', null, 'active', 'Boss', 'DE', '["a"]', 'default'),
  ('00000000-0000-4000-8000-0000000000a2', 'Editor@example.org', '00000000-0000-4000-8000-000000000003', 'old-editor-static-token', null, 'active', 'Ed', null, null, 'default'),
  ('00000000-0000-4000-8000-0000000000a3', 'careful@example.org', '00000000-0000-4000-8000-000000000003', '', 'JBSWY3DPEHPK3PXP', 'active', null, null, null, 'default'),
  ('00000000-0000-4000-8000-0000000000a4', 'external@example.org', '00000000-0000-4000-8000-000000000002', null, null, 'inactive-license', null, null, null, 'github');
update directus_users set password = '$argon2id$v=19$m=65536,t=3,p=4$lxEVSVZffmJ/7ngdXvzCIw$J4NllfZv0DMSniuzgNGZ8/tZQZcfD0lh1mbjVnYJU3c';
insert into directus_files (id, filename_disk, title, type, tags, uploaded_by) values
  ('00000000-0000-4000-8000-0000000000d1', '00000000-0000-4000-8000-0000000000d1.jpg', 'A picture', 'image/jpeg', '["a","b"]', '00000000-0000-4000-8000-0000000000a1'),
  ('00000000-0000-4000-8000-0000000000d2', 'an odd name.png', 'Odd', 'image/png', null, null);
update directus_users set avatar = '00000000-0000-4000-8000-0000000000d1' where id = '00000000-0000-4000-8000-0000000000a1';
insert into directus_access values
  ('00000000-0000-4000-8000-0000000000c1', null, null, 'abf8a154-5b1c-4a46-ac9c-7300570f4f17', 1),
  ('00000000-0000-4000-8000-0000000000c2', '00000000-0000-4000-8000-000000000001', null, '00000000-0000-4000-8000-00000000000a', null),
  ('00000000-0000-4000-8000-0000000000c3', '00000000-0000-4000-8000-000000000002', null, '00000000-0000-4000-8000-00000000000b', 1),
  ('00000000-0000-4000-8000-0000000000c4', '00000000-0000-4000-8000-000000000003', '00000000-0000-4000-8000-0000000000a4', '00000000-0000-4000-8000-00000000000c', 1);
insert into directus_permissions (policy, collection, action, permissions, validation, presets, fields) values
  ('abf8a154-5b1c-4a46-ac9c-7300570f4f17', 'countries', 'read', '{}', null, null, '*'),
  ('00000000-0000-4000-8000-00000000000b', 'articles', 'read', '{"_or":[{"status":{"_eq":"published"}},{"user_created":{"_eq":"$CURRENT_USER"}}]}', null, null, 'id,title,author,status,user_created'),
  ('00000000-0000-4000-8000-00000000000b', 'authors', 'read', '{"$FOLLOW(articles,author)":{"_some":{"status":{"_eq":"published"}}}}', null, null, '*'),
  ('00000000-0000-4000-8000-00000000000c', 'articles', 'create', null, '{"title":{"_nnull":true}}', '{"status":"draft"}', 'title,status,body'),
  ('00000000-0000-4000-8000-00000000000c', 'articles', 'update', '{"user_created":{"_eq":"$CURRENT_USER"}}', null, null, 'title'),
  ('00000000-0000-4000-8000-00000000000c', 'directus_users', 'read', '{"id":{"_eq":"$CURRENT_USER"}}', null, null, 'id,email,nickname'),
  ('00000000-0000-4000-8000-00000000000c', 'tags', 'read', '{"no_such_field":{"_eq":1}}', null, null, '*'),
  ('00000000-0000-4000-8000-00000000000c', 'directus_flows', 'read', '{}', null, null, '*');

insert into authors values (1, 'Ada', '00000000-0000-4000-8000-0000000000a2'), (2, 'Bob', null);
insert into articles (id, title, status, author, user_created) values
  (1, 'One', 'published', 1, '00000000-0000-4000-8000-0000000000a1'), (2, 'Two', 'draft', 2, '00000000-0000-4000-8000-0000000000a1'), (3, 'Three', 'draft', 1, '00000000-0000-4000-8000-0000000000a2');
select setval('articles_id_seq', 3), setval('authors_id_seq', 2);
insert into categories values (1, 'Root', null), (2, 'Kid', 1);
insert into tags values (1, 'news'), (2, 'tech');
insert into articles_tags values (1, 1, 1, 2), (2, 1, 2, 1);
insert into block_text values (1, 'Intro');
insert into articles_blocks values (1, 1, '1', 'block_text'), (2, 1, '00000000-0000-4000-8000-0000000000a2', 'directus_users');
insert into languages values ('de-DE', 'Deutsch');
insert into articles_translations values (1, 1, 'de-DE', 'Eins');
insert into directus_activity (action, "user", collection, item) values
  ('create', '00000000-0000-4000-8000-0000000000a1', 'articles', '1'), ('create', '00000000-0000-4000-8000-0000000000a1', 'directus_users', '00000000-0000-4000-8000-0000000000a2');
insert into directus_revisions (activity, collection, item, data, delta) values (1, 'articles', '1', '{"title":"One"}', '{"title":"One"}');
insert into directus_flows values
  ('00000000-0000-4000-8000-0000000000f1', 'Mails', 'event', 'active', '{"type":"action","scope":["items.create"],"collections":["articles"]}', '00000000-0000-4000-8000-0000000000e1'),
  ('00000000-0000-4000-8000-0000000000f2', 'Search index', 'event', 'active', '{"type":"action","scope":["items.create","items.update"],"collections":["articles"]}', '00000000-0000-4000-8000-0000000000e2'),
  ('00000000-0000-4000-8000-0000000000f3', 'Nightly', 'schedule', 'inactive', '{"cron":"0 0 * * *"}', '00000000-0000-4000-8000-0000000000e3'),
  ('00000000-0000-4000-8000-0000000000f4', 'Chat', 'event', 'active', '{"type":"action","scope":["items.create"],"collections":["articles"]}', '00000000-0000-4000-8000-0000000000e4');
insert into directus_operations (id, key, type, options, flow) values
  ('00000000-0000-4000-8000-0000000000e1', 'mail', 'mail', '{"to":"a@example.com"}', '00000000-0000-4000-8000-0000000000f1'),
  ('00000000-0000-4000-8000-0000000000e2', 'index', 'request',
   '{"method":"POST","url":"https://search.example.com/hook","headers":[{"header":"X-Key","value":"k"}],"body":"{{$trigger}}"}', '00000000-0000-4000-8000-0000000000f2'),
  ('00000000-0000-4000-8000-0000000000e3', 'night', 'request', '{"method":"POST","url":"https://x.example.com"}', '00000000-0000-4000-8000-0000000000f3'),
  ('00000000-0000-4000-8000-0000000000e4', 'chat', 'request', '{"method":"POST","url":"https://chat.example.com","body":"{\"text\":\"{{$trigger.key}}\"}"}', '00000000-0000-4000-8000-0000000000f4');
