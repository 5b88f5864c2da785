-- How running instances learn of changes: a version of the metadata, and notifications on two channels whose payload is
-- the name of the schema that changed ('service_model': the structure; 'service_access': who may do what).

create table service_schema (
  id boolean primary key default true constraint service_schema_single_check check (id),
  version bigint not null default 1
);

insert into service_schema default values;

create function service_touch_model() returns trigger language plpgsql set search_path from current as $$
begin
  update service_schema set version = version + 1;
  perform pg_catalog.pg_notify('service_model', TG_TABLE_SCHEMA);
  return null;
end
$$;

create function service_touch_access() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_catalog.pg_notify('service_access', TG_TABLE_SCHEMA);
  return null;
end
$$;

create trigger service_touch_model after insert or update or delete or truncate on service_collections
  for each statement execute function service_touch_model();
create trigger service_touch_model after insert or update or delete or truncate on service_fields
  for each statement execute function service_touch_model();
create trigger service_touch_model after insert or update or delete or truncate on service_relations
  for each statement execute function service_touch_model();

-- Not on every update: the time of the last access changes all the time and nothing remembers it.
create trigger service_touch_access
  after insert or update of id, email, password, tfa_secret, status, role, token, provider, external_identifier
  or delete or truncate on service_users
  for each statement execute function service_touch_access();
create trigger service_touch_access after insert or update or delete or truncate on service_roles
  for each statement execute function service_touch_access();
create trigger service_touch_access after insert or update or delete or truncate on service_policies
  for each statement execute function service_touch_access();
create trigger service_touch_access after insert or update or delete or truncate on service_access
  for each statement execute function service_touch_access();
create trigger service_touch_access after insert or update or delete or truncate on service_permissions
  for each statement execute function service_touch_access();

-- The two functions below see every DDL statement of the database. They only notify: a row to count the changes would
-- make concurrent DDL wait for each other. Whatever goes wrong in them must not fail the statement that fired them.
create function service_watch_definitions() returns event_trigger language plpgsql
  set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_catalog.pg_notify('service_model', touched.schema_name)
  from (
    select distinct command.schema_name
    from pg_catalog.pg_event_trigger_ddl_commands() command
    where command.schema_name is not null
      and command.schema_name !~ '^pg_(temp|toast)'
      and command.command_tag not in ('REFRESH MATERIALIZED VIEW', 'REINDEX')
  ) touched;
exception when others then
  null;
end
$$;

create function service_watch_drops() returns event_trigger language plpgsql
  set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_catalog.pg_notify('service_model', touched.schema_name)
  from (
    select distinct dropped.schema_name
    from pg_catalog.pg_event_trigger_dropped_objects() dropped
    where dropped.schema_name is not null
      and not dropped.is_temporary
      and dropped.schema_name !~ '^pg_(temp|toast)'
  ) touched;
exception when others then
  null;
end
$$;

-- Event triggers belong to the database and ask for a superuser. Without them changes made by others are found by the
-- version, or when a statement meets them. One that exists under the same (shortened) name serves this schema too.
do $$
declare
  home constant text := pg_catalog.current_schema();
begin
  if not (select rolsuper from pg_catalog.pg_roles where rolname = current_user) then
    return;
  end if;
  execute pg_catalog.format(
    'create event trigger %I on ddl_command_end execute function %I.service_watch_definitions()',
    'service_watch_' || home, home
  );
  execute pg_catalog.format(
    'create event trigger %I on sql_drop execute function %I.service_watch_drops()',
    'service_drops_' || home, home
  );
exception when insufficient_privilege or duplicate_object then
  null;
end
$$;
