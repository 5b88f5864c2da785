-- Ends a statement from inside: what it wrote is undone, and the caller reads the reason from the SQLSTATE and the message.
-- Its result has a type so that it can stand in a select list.
create function service_raise(reason text) returns boolean language plpgsql volatile
  set search_path = pg_catalog, pg_temp as $$
begin
  raise exception using errcode = 'LT403', message = reason;
end
$$;
