-- The types of what is compared are exact, so that no operator of another schema fits better than PostgreSQL's own.
create or replace function service_end_sessions() returns trigger language plpgsql set search_path from current as $$
begin
  delete from service_sessions
  where "user" = new.id
    and (new.status::text <> 'active' or token::text is distinct from pg_catalog.current_setting('service.session', true));
  if new.status::text = 'active' and old.status::text <> 'active' then
    update service_logins set failures = 0, failed_at = null where "user" = new.id;
  end if;
  return null;
end
$$;
