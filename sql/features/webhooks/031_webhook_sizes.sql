-- Webhooks with large rows and with many changes: the trigger leaves out what no webhook needs and values that are too large to be sent,
-- and one row stands for many changes if a table makes too many of them.

-- Compression takes most of the time that a large row costs its writer. A change is stored for a short time only.
alter table service_webhook_changes
  alter column image set storage external,
  alter column previous set storage external,
  add column omitted text[],
  add column too_large text[];

comment on column service_webhook_changes.omitted is 'Columns that no webhook needed';
comment on column service_webhook_changes.too_large is 'Columns that are not recorded because of the size of their values';

alter table service_webhook_deliveries add column bytes integer;

comment on column service_webhook_deliveries.bytes is 'The size of the payload; null if an earlier version of the service has made it';

create index service_webhook_deliveries_resync_index on service_webhook_deliveries (webhook, collection)
  where status::text = 'pending' and event::text = 'resync';

-- The item of a change, or with a minus sign the item before it.
create function service_webhook_image(reference text) returns json language sql stable return (
  select case when pg_catalog.starts_with(reference, '-') then c.previous else c.image end
  from service_webhook_changes c where c.id operator(pg_catalog.=) pg_catalog.abs(reference::bigint));

-- The statement that reads the changed rows in a way that suits all of them. Its parameters are the table and the most rows. Images are
-- made after rows before and after the change are joined: PostgreSQL would have to keep them for the join.
create function service_webhook_rows(relation oid, operation text, key_columns text[], needed_columns text[], whole_columns text[], max_bytes bigint)
  returns text language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  has_key constant boolean := cardinality(key_columns) > 0;
  row_values text;
  images text[];
  unneeded text[];
begin
  with named as (
    select a.attnum, a.attname, a.atttypid, a.attlen, a.attname = any (key_columns) as is_key,
      needed_columns is null or a.attname = any (needed_columns || key_columns) as is_needed,
      case when a.atttypid < 16384 then format('r.%I', a.attname)
        else format('case when r.%1$I is distinct from null then concat(r.%1$I) end', a.attname) end as value
    from pg_attribute a where a.attrelid = relation and a.attnum > 0 and not a.attisdropped
  ), measured as (
    -- The first types say how long a value is without reading it. A value that is small in its table is not very large.
    select n.*, case when max_bytes is null or not n.is_needed or n.attlen <> -1 or n.is_key or n.attname = any (whole_columns) then null
      when n.atttypid in (25, 1042, 1043) then format('octet_length(r.%I) > %s', n.attname, max_bytes)
      when n.atttypid = 17 then format('octet_length(r.%I) > %s', n.attname, max_bytes / 2)
      else format('case when pg_column_size(r.%1$I) > 2000 then octet_length(concat(r.%1$I)) > %2$s else false end', n.attname, max_bytes)
      end as is_large
    from named n
  )
  select concat_ws(', ',
      string_agg(case when m.is_large is null then format('%s as c%s', m.value, m.attnum)
        else format('case when %s then null else %s end as c%s', m.is_large, m.value, m.attnum) end, ', ') filter (where m.is_needed),
      format('array_remove(array[%s]::text[], null) as large',
        string_agg(format('case when %s then %L end', m.is_large, m.attname), ', ') filter (where m.is_large is not null)),
      case cardinality(key_columns) when 0 then 'null::text as item'
        when 1 then format('to_json(%s) #>> ''{}'' as item', max(m.value) filter (where m.is_key))
        else format('json_build_array(%s)::text as item', string_agg(format('to_json(%s) #>> ''{}''', m.value), ', '
          order by array_position(key_columns, m.attname::text)) filter (where m.is_key)) end),
    array(select format('(select row_to_json(q.*) from (select %s) q)', string_agg(format('%s.c%s as %I', side.name, m.attnum, m.attname), ', '
        order by m.attnum) filter (where m.is_needed))
      from measured m cross join (values ('n'), ('o')) side (name) group by side.name order by side.name),
    array_agg(m.attname::text) filter (where not m.is_needed)
  into row_values, images, unneeded from measured m;
  return case when operation = 'UPDATE' and has_key then
      format('select $1, case when o.item is null then ''create'' when n.item is null then ''delete'' else ''update'' end,
          coalesce(n.item, o.item), case when n.item is null then %2$s else %1$s end,
          case when n.item is not null and o.item is not null then %2$s end,
          %3$L::text[], nullif(array_cat(n.large, o.large), ''{}'')
        from (select %4$s from new_rows r) n full join (select %4$s from old_rows r) o on o.item = n.item limit $2',
        images[1], images[2], unneeded, row_values)
    else format('select $1, %1$L, n.item, %2$s, null::json, %3$L::text[], nullif(n.large, ''{}'') from (select %4$s from %5$s r) n limit $2',
        case operation when 'INSERT' then 'create' when 'DELETE' then 'delete' else 'update' end,
        images[1], unneeded, row_values, case operation when 'DELETE' then 'old_rows' else 'new_rows' end)
    end;
end
$$;

revoke all on function service_webhook_rows(oid, text, text[], text[], text[], bigint) from public;

-- The arguments of a trigger are how many changes may wait and the largest payload, the columns of the item's key, those that webhooks
-- need (all if it is empty), and those that are recorded at any size, because filters need them. Triggers of an earlier version of the
-- service have how many changes may wait, and the columns of the key. It runs with the rights of its owner, who may write to the table of
-- changes, so it calls nothing that somebody else may have made: columns of other types than PostgreSQL's own are written by their
-- output functions, because a cast to JSON may be a function of anybody. Whatever goes wrong must not fail the writer: a change that is
-- missed leaves a row with the event `gap`.
--
-- There are two ways to record rows. One is planned once for each table. The other makes a statement from the columns of the table. It is
-- for keys of several columns, for types that are not PostgreSQL's own, for large rows, and for JSON that PostgreSQL cannot read.
--
-- Numbers of changes that were rolled back are not used again, so a difference of numbers that is too large may mean little: then the
-- changes are counted. A table with more than half of the changes that may wait gets one row with the event `resync` for each
-- statement. Beyond twice that many changes none are recorded, and a sequence says so, because it stays as it is when the writer rolls
-- back. Changes of the writer itself are no reason for either.
do $do$
begin
  execute pg_catalog.format($format$
create or replace function %1$I.service_webhook_change() returns trigger language plpgsql security definer
  set search_path = pg_catalog, pg_temp set extra_float_digits = 1 set datestyle = 'ISO, YMD' set intervalstyle = postgres
  set timezone = 'UTC' set bytea_output = 'hex' as $$
declare
  limits constant text[] := string_to_array(TG_ARGV[0], '/');
  max_changes constant bigint := limits[1];
  max_bytes constant bigint := limits[2];
  key_columns constant text[] := case when max_bytes is null then TG_ARGV[1:] else TG_ARGV[1]::text[] end;
  root constant oid := coalesce(pg_partition_root(TG_RELID), TG_RELID);
  -- Of this transaction. Anybody may set it, and an error here would fail the writer.
  own_changes constant bigint := coalesce(substring(current_setting('lateral.webhook_changes', true) from '^[0-9]{1,15}$')::bigint, 0);
  is_general boolean := cardinality(key_columns) > 1;
  has_key boolean;
  waiting bigint;
  of_table bigint;
  changed bigint;
begin
  loop
    begin
      if pg_sequence_last_value(%2$L::regclass) - coalesce(pg_sequence_last_value(%4$L::regclass), 0) > max_changes / 2 then
        if pg_sequence_last_value(%6$L::regclass) is not null then
          return null;
        end if;
        select count(*), count(*) filter (where w.relation = root) into waiting, of_table
        from (select c.relation from %1$I.service_webhook_changes c limit 2 * max_changes + own_changes + 1) w;
        if waiting - own_changes > 2 * max_changes then
          perform setval(%6$L::regclass, 1);
          perform pg_notify('service_webhooks', %3$L);
          return null;
        end if;
        if of_table - own_changes > max_changes / 2 then
          raise exception using errcode = 'LW001',
            message = format('more than %%s changes of "%%s" waited (WEBHOOK_MAX_BACKLOG)', max_changes / 2, TG_TABLE_NAME);
        end if;
      end if;
      if TG_OP <> 'TRUNCATE' then
        -- The types of columns cannot change while the writer holds its lock.
        select is_general or coalesce(bool_or(a.atttypid >= 16384), false),
            count(*) filter (where a.attname = any (key_columns)) = cardinality(key_columns)
          into is_general, has_key from pg_attribute a
          where a.attrelid = TG_RELID and a.attnum > 0 and not a.attisdropped;
        if not has_key then
          raise exception using errcode = 'undefined_column', message = format('the key column of "%%s" was renamed', TG_TABLE_NAME);
        end if;
        -- With values outside of the rows, or with other tables below it, the table may have large rows. Null: the rows have to be measured.
        if max_bytes is not null and not is_general then
          select case when t.bytes > 65536 * greatest(c.reltuples, 1) then true
              when t.bytes > 0 or c.relhassubclass or c.relkind = 'p' then null else false end
          into is_general from pg_class c
          cross join lateral (select coalesce(pg_relation_size(nullif(c.reltoastrelid, 0)), 0) as bytes) t where c.oid = TG_RELID;
        end if;
        if is_general is null then
          is_general := false;
          if TG_OP <> 'DELETE' then
            is_general := exists (select from new_rows r where pg_column_size(r.*) > 8192);
          end if;
          if TG_OP <> 'INSERT' and not is_general then
            is_general := exists (select from old_rows r where pg_column_size(r.*) > 8192);
          end if;
        end if;
      end if;
      if TG_OP = 'TRUNCATE' then
        insert into %1$I.service_webhook_changes (relation, event) values (root, 'truncate');
      elsif is_general then
        execute concat('insert into %1$I.service_webhook_changes (relation, event, item, image, previous, omitted, too_large) ',
          %1$I.service_webhook_rows(TG_RELID, TG_OP, key_columns, case when max_bytes is not null then nullif(TG_ARGV[2], '')::text[] end,
            case when max_bytes is not null then TG_ARGV[3]::text[] end, max_bytes))
          using root, max_changes + 1;
      elsif TG_OP = 'INSERT' then
        insert into %1$I.service_webhook_changes (relation, event, item, image)
        select root, 'create', n.image ->> key_columns[1], n.image from (select row_to_json(r.*) as image from new_rows r) n
        limit max_changes + 1;
      elsif TG_OP = 'DELETE' then
        insert into %1$I.service_webhook_changes (relation, event, item, image)
        select root, 'delete', o.image ->> key_columns[1], o.image from (select row_to_json(r.*) as image from old_rows r) o
        limit max_changes + 1;
      elsif cardinality(key_columns) = 0 then
        insert into %1$I.service_webhook_changes (relation, event, image)
        select root, 'update', row_to_json(r.*) from new_rows r limit max_changes + 1;
      else
        insert into %1$I.service_webhook_changes (relation, event, item, image, previous)
        select root, case when o.item is null then 'create' when n.item is null then 'delete' else 'update' end,
          coalesce(n.item, o.item), coalesce(n.image, o.image), case when n.item is not null then o.image end
        from (select i.image, i.image ->> key_columns[1] as item from (select row_to_json(r.*) as image from new_rows r) i) n
        full join (select i.image, i.image ->> key_columns[1] as item from (select row_to_json(r.*) as image from old_rows r) i) o
          on o.item = n.item
        limit max_changes + 1;
      end if;
      get diagnostics changed = row_count;
      if changed > max_changes then
        raise exception using errcode = 'LW001', message = format('a statement changed more than %%s rows (WEBHOOK_MAX_BACKLOG)', max_changes);
      end if;
      -- The service cannot see how many they are before the commit.
      if own_changes + changed > max_changes then
        raise exception using errcode = 'LW001', message = format('a transaction made more than %%s changes (WEBHOOK_MAX_BACKLOG)', max_changes);
      end if;
      perform set_config('lateral.webhook_changes', (own_changes + changed)::text, true);
      exit;
    exception
      when others then
        if sqlstate = '22P05' and not is_general then
          is_general := true;
        else
          begin
            insert into %1$I.service_webhook_changes (relation, event, image)
            values (root, case sqlstate when 'LW001' then 'resync' else 'gap' end, json_build_object('reason', sqlerrm));
            changed := 1;
          exception when others then
            raise log 'service_webhook_change: %%', sqlerrm;
            changed := 0;
          end;
          exit;
        end if;
    end;
  end loop;
  -- Transactions that notify commit one after the other.
  if changed > 0 and pg_sequence_last_value(%5$L::regclass) is null then
    perform pg_notify('service_webhooks', %3$L);
  end if;
  return null;
end
$$
$format$, current_schema(),
    pg_catalog.concat(pg_catalog.quote_ident(current_schema()), '.service_webhook_changes_id_seq'), current_schema(),
    pg_catalog.concat(pg_catalog.quote_ident(current_schema()), '.service_webhook_drained'),
    pg_catalog.concat(pg_catalog.quote_ident(current_schema()), '.service_webhook_looking'),
    pg_catalog.concat(pg_catalog.quote_ident(current_schema()), '.service_webhook_overfull'));
end
$do$;
