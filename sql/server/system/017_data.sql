-- Data that applications keep beside the collections of a project: views, comments, notifications, texts of screens, folders and dashboards.
-- Nothing here changes what the API does. A name of a collection and a key of an item are texts, as in the activity: both may be gone.

create table service_presets (
  id serial primary key,
  bookmark varchar(255),
  "user" uuid constraint service_presets_user_foreign references service_users (id) on delete cascade,
  role uuid constraint service_presets_role_foreign references service_roles (id) on delete cascade,
  collection varchar(255),
  search varchar(255),
  layout varchar(255) default 'tabular',
  layout_query json,
  layout_options json,
  refresh_interval integer,
  filter json,
  icon varchar(255) default 'bookmark',
  color varchar(255)
);

comment on column service_presets.bookmark is 'Its name; null for the view that is shown first';
comment on column service_presets."user" is 'Whose view it is; null for that of a role, or of everybody';

create index service_presets_user_index on service_presets ("user");
create index service_presets_role_index on service_presets (role);

create table service_comments (
  id uuid primary key default gen_random_uuid(),
  collection varchar(255) not null,
  item varchar(255) not null,
  comment text not null,
  date_created timestamp with time zone default now(),
  date_updated timestamp with time zone,
  user_created uuid constraint service_comments_user_created_foreign references service_users (id) on delete set null,
  user_updated uuid constraint service_comments_user_updated_foreign references service_users (id) on delete set null
);

create index service_comments_item_index on service_comments (collection, item);
create index service_comments_user_created_index on service_comments (user_created);
create index service_comments_user_updated_index on service_comments (user_updated);

create table service_notifications (
  id serial primary key,
  timestamp timestamp with time zone default now(),
  status varchar(255) default 'inbox',
  recipient uuid not null constraint service_notifications_recipient_foreign
    references service_users (id) on delete cascade,
  sender uuid constraint service_notifications_sender_foreign references service_users (id) on delete set null,
  subject varchar(255) not null,
  message text,
  collection varchar(255),
  item varchar(255)
);

create index service_notifications_recipient_index on service_notifications (recipient);
create index service_notifications_sender_index on service_notifications (sender);

create table service_translations (
  id uuid primary key default gen_random_uuid(),
  language varchar(255) not null,
  key varchar(255) not null,
  value text not null,
  constraint service_translations_key_language_unique unique (key, language)
);

create table service_folders (
  id uuid primary key default gen_random_uuid(),
  name varchar(255) not null,
  parent uuid constraint service_folders_parent_foreign references service_folders (id),
  type varchar(255) default 'files',
  constraint service_folders_parent_check check (parent <> id)
);

create index service_folders_parent_index on service_folders (parent);

create table service_dashboards (
  id uuid primary key default gen_random_uuid(),
  name varchar(255) not null,
  icon varchar(255) not null default 'dashboard',
  note text,
  date_created timestamp with time zone default now(),
  user_created uuid constraint service_dashboards_user_created_foreign references service_users (id) on delete set null,
  color varchar(255)
);

create index service_dashboards_user_created_index on service_dashboards (user_created);

create table service_panels (
  id uuid primary key default gen_random_uuid(),
  dashboard uuid not null constraint service_panels_dashboard_foreign references service_dashboards (id) on delete cascade,
  name varchar(255),
  icon varchar(255),
  color varchar(255),
  show_header boolean not null default false,
  note text,
  type varchar(255) not null,
  position_x integer not null,
  position_y integer not null,
  width integer not null,
  height integer not null,
  options json,
  date_created timestamp with time zone default now(),
  user_created uuid constraint service_panels_user_created_foreign references service_users (id) on delete set null
);

create index service_panels_dashboard_index on service_panels (dashboard);
create index service_panels_user_created_index on service_panels (user_created);

insert into service_collections (collection, hidden, accountability, note) values
  ('service_presets', true, null, 'Views of collections: what is shown of them, and how'),
  ('service_comments', true, 'all', 'Comments on items'),
  ('service_notifications', true, 'all', 'Messages to users'),
  ('service_translations', true, 'all', 'Texts of screens, by language'),
  ('service_folders', true, 'all', 'Folders of files, as a tree'),
  ('service_dashboards', true, 'all', 'Dashboards'),
  ('service_panels', true, 'all', 'What a dashboard shows');

insert into service_fields (collection, field, special, sort) values
  ('service_presets', 'user', 'm2o', 1),
  ('service_presets', 'role', 'm2o', 2),
  ('service_presets', 'layout_query', 'cast-json', 3),
  ('service_presets', 'layout_options', 'cast-json', 4),
  ('service_presets', 'filter', 'cast-json', 5),
  ('service_comments', 'date_created', 'date-created', 1),
  ('service_comments', 'date_updated', 'date-updated', 2),
  ('service_comments', 'user_created', 'm2o,user-created', 3),
  ('service_comments', 'user_updated', 'm2o,user-updated', 4),
  ('service_notifications', 'timestamp', 'date-created', 1),
  ('service_notifications', 'recipient', 'm2o', 2),
  ('service_notifications', 'sender', 'm2o', 3),
  ('service_folders', 'parent', 'm2o', 1),
  ('service_dashboards', 'date_created', 'date-created', 1),
  ('service_dashboards', 'user_created', 'm2o,user-created', 2),
  ('service_dashboards', 'panels', 'o2m', 3),
  ('service_panels', 'dashboard', 'm2o', 1),
  ('service_panels', 'options', 'cast-json', 2),
  ('service_panels', 'date_created', 'date-created', 3),
  ('service_panels', 'user_created', 'm2o,user-created', 4);

insert into service_relations (many_collection, many_field, one_collection, one_field, one_deselect_action) values
  ('service_presets', 'user', 'service_users', null, 'nullify'),
  ('service_presets', 'role', 'service_roles', null, 'nullify'),
  ('service_comments', 'user_created', 'service_users', null, 'nullify'),
  ('service_comments', 'user_updated', 'service_users', null, 'nullify'),
  ('service_notifications', 'recipient', 'service_users', null, 'nullify'),
  ('service_notifications', 'sender', 'service_users', null, 'nullify'),
  ('service_folders', 'parent', 'service_folders', null, 'nullify'),
  ('service_dashboards', 'user_created', 'service_users', null, 'nullify'),
  ('service_panels', 'dashboard', 'service_dashboards', 'panels', 'delete'),
  ('service_panels', 'user_created', 'service_users', null, 'nullify');
