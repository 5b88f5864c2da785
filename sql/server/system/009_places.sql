-- Our tables may be in a schema of their own: then this says which one they are about.
alter table service_schema add column mirrors text;

comment on column service_schema.mirrors is 'The schema that is mirrored; null where it is this one';

-- Triggers have no schema of their own: it is that of their table. They decide which values a new row may leave out.
create or replace function service_watch_definitions() returns event_trigger language plpgsql
  set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_catalog.pg_notify('service_model', touched.schema_name)
  from (
    select distinct case when command.classid = 'pg_catalog.pg_trigger'::pg_catalog.regclass then (
        select namespace.nspname
        from pg_catalog.pg_trigger trigger
        join pg_catalog.pg_class class on class.oid = trigger.tgrelid
        join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
        where trigger.oid = command.objid
      ) else command.schema_name end as schema_name
    from pg_catalog.pg_event_trigger_ddl_commands() command
    where command.command_tag not in ('REFRESH MATERIALIZED VIEW', 'REINDEX')
  ) touched
  where touched.schema_name is not null and touched.schema_name !~ '^pg_(temp|toast)';
exception when others then
  null;
end
$$;

create or replace function service_watch_drops() returns event_trigger language plpgsql
  set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_catalog.pg_notify('service_model', touched.schema_name)
  from (
    select distinct
      case dropped.object_type when 'trigger' then dropped.address_names[1] else dropped.schema_name end as schema_name
    from pg_catalog.pg_event_trigger_dropped_objects() dropped
    where not dropped.is_temporary
  ) touched
  where touched.schema_name is not null and touched.schema_name !~ '^pg_(temp|toast)';
exception when others then
  null;
end
$$;
