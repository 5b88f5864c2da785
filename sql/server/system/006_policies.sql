-- What a policy allows is held in memory by every instance: a channel of its own tells when it changed, so that changes of
-- users, which come more often, do not have the policies loaded again.
create function service_touch_policies() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_catalog.pg_notify('service_policies', TG_TABLE_SCHEMA);
  return null;
end
$$;

create trigger service_touch_policies after insert or update or delete or truncate on service_policies
  for each statement execute function service_touch_policies();
create trigger service_touch_policies after insert or update or delete or truncate on service_permissions
  for each statement execute function service_touch_policies();
create trigger service_touch_policies after insert or update or delete or truncate on service_access
  for each statement execute function service_touch_policies();

-- Ends a statement whose payload did not pass a validation; the reason says which one.
create function service_refuse(reason text) returns boolean language plpgsql volatile
  set search_path = pg_catalog, pg_temp as $$
begin
  raise exception using errcode = 'LT400', message = reason;
end
$$;

-- Static tokens are kept as digests whoever writes them; the secret of a second factor is the service's to write.
update service_fields set special = 'digest,conceal' where collection::text = 'service_users' and field::text = 'token';
update service_fields set special = 'sealed,conceal' where collection::text = 'service_users' and field::text = 'tfa_secret';
