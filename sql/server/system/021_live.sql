-- Live queries without the log of PostgreSQL: triggers of tables, installed on request, tell which rows a statement has changed.
-- The arguments of a trigger are the columns of the primary key. Where there are none, where many rows have changed, and where the keys
-- do not fit into one notification, only that something has changed is told. Whatever goes wrong must not fail the user's statement.
-- It runs with the rights of whoever writes, and needs none: with others, whoever attached it to a table of theirs could use them.
-- Keys are written by the output functions of their types, not by casts: a cast may be a function of somebody else.
create function service_live_change() returns trigger language plpgsql
  set search_path = pg_catalog, pg_temp as $$
declare
  most constant int := 1000;
  collect constant text := 'select count(*), ''['' || string_agg(%s, '','') || '']'' from (select * from %I limit %s) found';
  key text;
  old_count int;
  new_count int;
  old_keys text;
  new_keys text;
  payload text;
begin
  if TG_OP = 'TRUNCATE' then
    null;
  elsif TG_NARGS = 0 then
    if TG_OP = 'DELETE' then
      if not exists (select from old_rows) then return null; end if;
    elsif not exists (select from new_rows) then
      return null;
    end if;
  else
    select string_agg(format('to_json(concat(found.%I))::text', name), ' || '','' || ') into key from unnest(TG_ARGV) name;
    if TG_NARGS > 1 then key := format('''['' || %s || '']''', key); end if;
    if TG_OP <> 'INSERT' then
      execute format(collect, key, 'old_rows', most + 1) into old_count, old_keys;
      if old_count = 0 then return null; end if;
    end if;
    if TG_OP <> 'DELETE' and (TG_OP = 'INSERT' or old_count <= most) then
      execute format(collect, key, 'new_rows', most + 1) into new_count, new_keys;
      if new_count = 0 then return null; end if;
    end if;
    if greatest(old_count, new_count) <= most then
      -- With the time, since equal notifications of one transaction arrive once.
      payload := concat('{"t":', TG_RELID, ',"x":', pg_current_xact_id(), ',"p":"', pg_current_wal_insert_lsn(),
        '","at":', date_part('epoch', clock_timestamp()), ',"a":"', lower(TG_OP), '","k":', array_to_json(TG_ARGV),
        ',"o":' || case when old_keys is distinct from new_keys then old_keys end, ',"n":' || new_keys, '}');
    end if;
  end if;
  if payload is null or octet_length(payload) > 7900 then
    payload := concat('{"t":', TG_RELID, ',"x":', pg_current_xact_id(), '}');
  end if;
  -- The command needs no right, unlike the function.
  execute format('notify service_live, %L', payload);
  return null;
exception when others then
  begin
    execute format('notify service_live, %L', concat('{"t":', TG_RELID, ',"x":', pg_current_xact_id(), '}'));
  exception when others then
    raise log 'service_live_change: %', sqlerrm;
  end;
  return null;
end
$$;
