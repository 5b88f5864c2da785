-- Shares: an item for who has the link, and maybe a password, without an account.
create table service_shares (
  id uuid primary key default gen_random_uuid(),
  name varchar(255),
  collection varchar(255) not null constraint service_shares_collection_foreign
    references service_collections (collection) on delete cascade,
  item varchar(255) not null,
  role uuid constraint service_shares_role_foreign references service_roles (id) on delete cascade,
  password varchar(255),
  user_created uuid constraint service_shares_user_created_foreign references service_users (id) on delete cascade,
  date_created timestamp with time zone not null default now(),
  date_start timestamp with time zone,
  date_end timestamp with time zone,
  times_used integer not null default 0,
  max_uses integer constraint service_shares_max_uses_check check (max_uses >= 0)
);

comment on column service_shares.role is 'Whose permissions apply, as far as the user who made the share has them; null for the public';

create index service_shares_collection_index on service_shares (collection);
create index service_shares_role_index on service_shares (role);
create index service_shares_user_created_index on service_shares (user_created);

-- Who comes in by a share has a session without a user.
alter table service_sessions
  alter column "user" drop not null,
  add column share uuid constraint service_sessions_share_foreign references service_shares (id) on delete cascade,
  add constraint service_sessions_holder_check check (pg_catalog.num_nonnulls("user", share) = 1);

create index service_sessions_share_index on service_sessions (share);

-- Not for each use of one: that changes nobody's rights.
create trigger service_touch_access
  after delete or truncate or update of collection, item, role, user_created, date_start, date_end, password on service_shares
  for each statement execute function service_touch_access();

-- Whoever came in with the former password, or to something else, is out.
create function service_end_share_sessions() returns trigger language plpgsql set search_path from current as $$
begin
  delete from service_sessions where share = new.id;
  return null;
end
$$;

create trigger service_end_share_sessions after update of password, role, collection, item on service_shares
  for each row when (
    old.password::text is distinct from new.password::text or old.role is distinct from new.role
    or old.collection::text is distinct from new.collection::text or old.item::text is distinct from new.item::text
  ) execute function service_end_share_sessions();

insert into service_collections (collection, hidden, accountability, note) values
  ('service_shares', true, 'all', 'Items that are open to who has a link');

insert into service_fields (collection, field, special, sort) values
  ('service_shares', 'role', 'm2o', 1),
  ('service_shares', 'password', 'hash,conceal', 2),
  ('service_shares', 'user_created', 'm2o,user-created', 3),
  ('service_shares', 'date_created', 'date-created', 4);

insert into service_relations (many_collection, many_field, one_collection, one_field) values
  ('service_shares', 'role', 'service_roles', null),
  ('service_shares', 'user_created', 'service_users', null);
