-- Who may do what: a tree of roles, policies with permissions, and the links that hand policies to roles, users and the
-- public; with them the users' sessions and the settings of the project.

create table service_roles (
  id uuid primary key default gen_random_uuid(),
  name varchar(255) not null,
  icon varchar(255) not null default 'supervised_user_circle',
  description text,
  parent uuid constraint service_roles_parent_foreign references service_roles (id) on delete set null,
  constraint service_roles_parent_check check (parent <> id)
);

create index service_roles_parent_index on service_roles (parent);

create table service_policies (
  id uuid primary key default gen_random_uuid(),
  name varchar(255) not null,
  icon varchar(255) not null default 'badge',
  description text,
  ip_access text,
  enforce_tfa boolean not null default false,
  admin_access boolean not null default false,
  app_access boolean not null default false
);

create table service_users (
  id uuid primary key default gen_random_uuid(),
  first_name varchar(255),
  last_name varchar(255),
  email varchar(255),
  password varchar(255),
  location varchar(255),
  title varchar(255),
  description text,
  tags json,
  avatar uuid,
  language varchar(255),
  appearance varchar(255),
  theme_light varchar(255),
  theme_dark varchar(255),
  theme_light_overrides json,
  theme_dark_overrides json,
  tfa_secret varchar(255),
  status varchar(255) not null default 'active' constraint service_users_status_check
    check (status::text in ('draft', 'invited', 'unverified', 'active', 'suspended', 'archived')),
  role uuid constraint service_users_role_foreign references service_roles (id) on delete set null,
  token text constraint service_users_token_unique unique,
  last_access timestamp with time zone,
  last_page varchar(255),
  provider varchar(255) not null default 'default',
  external_identifier varchar(255) constraint service_users_external_identifier_unique unique,
  auth_data json,
  email_notifications boolean not null default true
);

comment on column service_users.token is 'SHA-256 digest of the static token';

create unique index service_users_email_unique on service_users (pg_catalog.lower(email));
create index service_users_role_index on service_users (role);

create table service_access (
  id uuid primary key default gen_random_uuid(),
  role uuid constraint service_access_role_foreign references service_roles (id) on delete cascade,
  "user" uuid constraint service_access_user_foreign references service_users (id) on delete cascade,
  policy uuid not null constraint service_access_policy_foreign references service_policies (id) on delete cascade,
  sort integer,
  constraint service_access_holder_check check (pg_catalog.num_nonnulls(role, "user") <= 1)
);

comment on table service_access is 'Links a policy to a role, to a user, or (both null) to the public';

create index service_access_role_index on service_access (role);
create index service_access_user_index on service_access ("user");
create index service_access_policy_index on service_access (policy);

create table service_permissions (
  id serial primary key,
  policy uuid not null constraint service_permissions_policy_foreign references service_policies (id) on delete cascade,
  collection varchar(255) not null,
  action varchar(255) not null constraint service_permissions_action_check
    check (action::text in ('create', 'read', 'update', 'delete', 'share')),
  permissions json,
  validation json,
  presets json,
  fields text
);

create index service_permissions_policy_index on service_permissions (policy);

create table service_sessions (
  token text primary key,
  "user" uuid not null constraint service_sessions_user_foreign references service_users (id) on delete cascade,
  expires timestamp with time zone not null,
  ip varchar(255),
  user_agent text,
  origin varchar(255),
  next_token text
);

create index service_sessions_user_index on service_sessions ("user");
create index service_sessions_expires_index on service_sessions (expires);

create table service_settings (
  id integer primary key default 1 constraint service_settings_single_check check (id = 1),
  project_name varchar(255) not null default 'Lateral',
  project_descriptor varchar(255),
  project_url varchar(255),
  project_color varchar(255) not null default '#4263eb',
  public_note text,
  default_language varchar(255) not null default 'en-US',
  default_appearance varchar(255) not null default 'auto' constraint service_settings_default_appearance_check
    check (default_appearance::text in ('auto', 'light', 'dark')),
  auth_login_attempts integer default 25 constraint service_settings_auth_login_attempts_check
    check (auth_login_attempts > 0),
  auth_password_policy varchar(255),
  public_registration boolean not null default false,
  public_registration_verify_email boolean not null default true,
  public_registration_role uuid constraint service_settings_public_registration_role_foreign
    references service_roles (id) on delete set null,
  public_registration_email_filter json
);

create index service_settings_public_registration_role_index on service_settings (public_registration_role);

insert into service_settings default values;

insert into service_collections (collection, hidden, singleton, accountability, note) values
  ('service_roles', true, false, 'all', 'Groups of users, as a tree'),
  ('service_policies', true, false, 'all', 'Named sets of permissions'),
  ('service_users', true, false, 'all', 'People and programs that use the API'),
  ('service_access', true, false, 'all', 'Policies handed to roles, users and the public'),
  ('service_permissions', true, false, 'all', 'What a policy allows'),
  ('service_sessions', true, false, null, 'Open sessions'),
  ('service_settings', true, true, 'all', 'Settings of the project');

insert into service_fields (collection, field, special, sort) values
  ('service_roles', 'parent', 'm2o', 1),
  ('service_roles', 'children', 'o2m', 2),
  ('service_roles', 'users', 'o2m', 3),
  ('service_roles', 'policies', 'm2m', 4),
  ('service_policies', 'ip_access', 'cast-csv', 1),
  ('service_policies', 'permissions', 'o2m', 2),
  ('service_policies', 'users', 'm2m', 3),
  ('service_policies', 'roles', 'm2m', 4),
  ('service_users', 'password', 'hash,conceal', 1),
  ('service_users', 'tags', 'cast-json', 2),
  ('service_users', 'theme_light_overrides', 'cast-json', 3),
  ('service_users', 'theme_dark_overrides', 'cast-json', 4),
  ('service_users', 'tfa_secret', 'conceal', 5),
  ('service_users', 'role', 'm2o', 6),
  ('service_users', 'token', 'conceal', 7),
  ('service_users', 'auth_data', 'cast-json,conceal', 8),
  ('service_users', 'policies', 'm2m', 9),
  ('service_access', 'role', 'm2o', 1),
  ('service_access', 'user', 'm2o', 2),
  ('service_access', 'policy', 'm2o', 3),
  ('service_permissions', 'policy', 'm2o', 1),
  ('service_permissions', 'permissions', 'cast-json', 2),
  ('service_permissions', 'validation', 'cast-json', 3),
  ('service_permissions', 'presets', 'cast-json', 4),
  ('service_permissions', 'fields', 'cast-csv', 5),
  ('service_sessions', 'token', 'conceal', 1),
  ('service_sessions', 'user', 'm2o', 2),
  ('service_sessions', 'next_token', 'conceal', 3),
  ('service_settings', 'public_registration_role', 'm2o', 1),
  ('service_settings', 'public_registration_email_filter', 'cast-json', 2);

insert into service_relations
  (many_collection, many_field, one_collection, one_field, junction_field, sort_field, one_deselect_action) values
  ('service_roles', 'parent', 'service_roles', 'children', null, null, 'nullify'),
  ('service_users', 'role', 'service_roles', 'users', null, null, 'nullify'),
  ('service_access', 'role', 'service_roles', 'policies', 'policy', 'sort', 'delete'),
  ('service_access', 'user', 'service_users', 'policies', 'policy', 'sort', 'delete'),
  ('service_access', 'policy', 'service_policies', 'users', 'user', null, 'delete'),
  ('service_access', 'policy', 'service_policies', 'roles', 'role', null, 'delete'),
  ('service_permissions', 'policy', 'service_policies', 'permissions', null, null, 'delete');
