-- Statements that make foreign keys to tables of the other installation ($1: its schema) foreign keys to ours ($2), with the same
-- name and actions; and foreign keys of columns that were added to its system tables, on ours. $3: names of tables that both have, without
-- prefix; $4: pairs of table and added column.
with reference as (
  select key.*, pg_catalog.substr(target.relname, 10) as target_name, target.relname as target_table,
    target.relnamespace = home.oid and target.relname like 'directus\_%'
      and pg_catalog.substr(target.relname, 10) in (select json_array_elements_text($3::json)) as is_system,
    source.relname as source_table, source.relnamespace = home.oid and source.relname like 'directus\_%' as is_theirs,
    target_home.nspname as target_schema,
    source_home.nspname as source_schema,
    (select pg_catalog.array_agg(own.attname::text order by pair.position)
      from pg_catalog.unnest(key.conkey) with ordinality pair (number, position)
      join pg_catalog.pg_attribute own on own.attrelid = key.conrelid and own.attnum = pair.number) as columns,
    (select pg_catalog.array_agg(other.attname::text order by pair.position)
      from pg_catalog.unnest(key.confkey) with ordinality pair (number, position)
      join pg_catalog.pg_attribute other on other.attrelid = key.confrelid and other.attnum = pair.number) as targets
  from pg_catalog.pg_constraint key
  join pg_catalog.pg_class source on source.oid = key.conrelid
  join pg_catalog.pg_namespace source_home on source_home.oid = source.relnamespace
  join pg_catalog.pg_class target on target.oid = key.confrelid
  join pg_catalog.pg_namespace target_home on target_home.oid = target.relnamespace
  cross join pg_catalog.pg_namespace home
  where home.nspname = $1 and key.contype = 'f' and key.conparentid = 0
), definition as (
  select reference.*, pg_catalog.format('foreign key (%s) references %I.%I (%s) on delete %s on update %s%s%s',
    (select pg_catalog.string_agg(pg_catalog.quote_ident(name), ', ') from pg_catalog.unnest(columns) name),
    case when is_system then $2::text else target_schema end, case when is_system then 'service_' || target_name else target_table end,
    (select pg_catalog.string_agg(pg_catalog.quote_ident(name), ', ') from pg_catalog.unnest(targets) name),
    action_of.confdel, action_of.confupd,
    case when condeferrable then ' deferrable' || case when condeferred then ' initially deferred' else '' end else '' end,
    case when convalidated then '' else ' not valid' end) as body
  from reference
  cross join lateral (
    select max(text) filter (where code = confdeltype) as confdel, max(text) filter (where code = confupdtype) as confupd
    from (values ('a'::"char", 'no action'), ('r', 'restrict'), ('c', 'cascade'), ('n', 'set null'), ('d', 'set default')) action (code, text)
  ) action_of
)
select 'switch' as kind, source_table || '.' || columns[1] as field,
  pg_catalog.format('alter table %I.%I drop constraint %I, add constraint %I %s', source_schema, source_table, conname, conname, body) as statement
from definition
where is_system and not is_theirs
union all
select 'own', 'service_' || pg_catalog.substr(source_table, 10) || '.' || columns[1],
  pg_catalog.format('alter table %I.%I add constraint %I %s', $2::text, 'service_' || pg_catalog.substr(source_table, 10), conname, body)
from definition
where is_theirs and columns[1] in (select own."column" from json_to_recordset($4::json) own ("table" text, "column" text) where own."table" = source_table)
  and (is_system or target_table not like 'directus\_%')
  and not exists (
    select from pg_catalog.pg_constraint made
    join pg_catalog.pg_class class on class.oid = made.conrelid
    where class.relnamespace = pg_catalog.to_regnamespace(pg_catalog.quote_ident($2))
      and class.relname = ('service_' || pg_catalog.substr(source_table, 10)) and made.conname = definition.conname
  )
order by 1, 2
