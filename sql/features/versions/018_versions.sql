-- Content versions: changes of an item that are kept beside it until somebody promotes them.
create table service_versions (
  id uuid primary key default gen_random_uuid(),
  key varchar(64) not null,
  name varchar(255),
  collection varchar(255) not null constraint service_versions_collection_foreign
    references service_collections (collection) on delete cascade,
  item varchar(255) not null,
  hash varchar(255),
  date_created timestamp with time zone not null default now(),
  date_updated timestamp with time zone,
  user_created uuid constraint service_versions_user_created_foreign references service_users (id) on delete set null,
  user_updated uuid constraint service_versions_user_updated_foreign references service_users (id) on delete set null,
  delta jsonb,
  constraint service_versions_key_unique unique (collection, item, key)
);

comment on column service_versions.hash is 'Digest of the item as it was when the version was made';
comment on column service_versions.delta is 'What the version changes, as a payload would';

create index service_versions_user_created_index on service_versions (user_created);
create index service_versions_user_updated_index on service_versions (user_updated);
create index service_revisions_version_index on service_revisions (version) where version is not null;

-- What was saved to a version goes with it.
create function service_forget_version() returns trigger language plpgsql set search_path from current as $$
begin
  delete from service_revisions where version = old.id;
  return null;
end
$$;

create trigger service_forget_version after delete on service_versions
  for each row execute function service_forget_version();

insert into service_collections (collection, hidden, accountability, note) values
  ('service_versions', true, 'activity', 'Changes of items that are not published yet');

insert into service_fields (collection, field, special, sort) values
  ('service_versions', 'date_created', 'date-created', 1),
  ('service_versions', 'date_updated', 'date-updated', 2),
  ('service_versions', 'user_created', 'm2o,user-created', 3),
  ('service_versions', 'user_updated', 'm2o,user-updated', 4),
  ('service_versions', 'delta', 'cast-json', 5);

insert into service_relations (many_collection, many_field, one_collection, one_field) values
  ('service_versions', 'user_created', 'service_users', null),
  ('service_versions', 'user_updated', 'service_users', null);
