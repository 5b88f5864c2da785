-- The triggers of live queries notify on a channel that is their first argument, so that several installations in one database do not
-- hear each other. Triggers that were made for the former function would notify nobody: they go with it, and are installed again.
drop function service_live_change() cascade;

-- The arguments of a trigger are the channel and the columns of the primary key. Where there are none of these, and where the keys of
-- the rows do not fit into one notification, only that something has changed is told. Whatever goes wrong must not fail the user's statement.
-- It runs with the rights of whoever writes, and needs none: with others, whoever attached it to a table of theirs could use them.
-- Keys are written by the output functions of their types, not by casts: a cast may be a function of somebody else.
create function service_live_change() returns trigger language plpgsql
  set search_path = pg_catalog, pg_temp as $$
declare
  longest constant int := 7900;
  key text;
  column_name text;
  is_old boolean;
  found_key text;
  old_keys text := '';
  new_keys text := '';
  payload text;
begin
  if TG_OP = 'TRUNCATE' then
    null;
  elsif TG_NARGS < 2 then
    if TG_OP = 'DELETE' then
      if not exists (select from old_rows) then return null; end if;
    elsif not exists (select from new_rows) then
      return null;
    end if;
  else
    foreach column_name in array TG_ARGV[1:] loop
      key := concat(key || ' || '','' || ', 'to_json(concat(', quote_ident(column_name), '))::text');
    end loop;
    if TG_NARGS > 2 then key := concat('''['' || ', key, ' || '']'''); end if;
    -- One statement, and a plain one: it is planned each time, which takes longer than to read a few rows.
    for is_old, found_key in execute
      case TG_OP
        when 'INSERT' then concat('select false, ', key, ' from new_rows')
        when 'DELETE' then concat('select true, ', key, ' from old_rows')
        else concat('select true, ', key, ' from old_rows union all select false, ', key, ' from new_rows')
      end
    loop
      if is_old then
        old_keys := concat(old_keys, ',', found_key);
      else
        new_keys := concat(new_keys, ',', found_key);
      end if;
      exit when length(old_keys) > longest or length(new_keys) > longest;
    end loop;
    if old_keys = '' and new_keys = '' then return null; end if;
    -- With the time, since equal notifications of one transaction arrive once.
    payload := concat('{"t":', TG_RELID, ',"x":', pg_current_xact_id(), ',"p":"', pg_current_wal_insert_lsn(),
      '","at":', date_part('epoch', clock_timestamp()), ',"a":"', lower(TG_OP), '","k":', array_to_json(TG_ARGV[1:]),
      case when old_keys not in ('', new_keys) then concat(',"o":[', substr(old_keys, 2), ']') end,
      case when new_keys <> '' then concat(',"n":[', substr(new_keys, 2), ']') end, '}');
  end if;
  if payload is null or octet_length(payload) > longest then
    payload := concat('{"t":', TG_RELID, ',"x":', pg_current_xact_id(), '}');
  end if;
  -- The command needs no right, unlike the function.
  execute format('notify %I, %L', TG_ARGV[0], payload);
  return null;
exception when others then
  begin
    execute format('notify %I, %L', TG_ARGV[0], concat('{"t":', TG_RELID, ',"x":', pg_current_xact_id(), '}'));
  exception when others then
    raise log 'service_live_change: %', sqlerrm;
  end;
  return null;
end
$$;
