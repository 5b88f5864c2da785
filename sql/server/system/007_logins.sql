-- How people come in: what is remembered of attempts, and sessions that can be renewed, replayed and ended.

create table service_logins (
  "user" uuid primary key constraint service_logins_user_foreign references service_users (id) on delete cascade,
  failures integer not null default 0,
  failed_at timestamp with time zone,
  otp_step bigint
);

comment on column service_logins.failures is 'Refused attempts since the last good one';
comment on column service_logins.otp_step is 'The last one-time password that was used: it is good once';

alter table service_sessions
  add column kind varchar(255) not null default 'refresh' constraint service_sessions_kind_check
    check (kind::text in ('refresh', 'session')),
  add column family text not null default gen_random_uuid()::text;

comment on column service_sessions.token is 'SHA-256 digest of the refresh token, or of the name of the session';
comment on column service_sessions.family is 'The same for all that came from one login: they end together';

create index service_sessions_family_index on service_sessions (family);

-- Sessions are remembered one by one, so an end is told one by one. Refresh tokens are never remembered.
create function service_touch_session() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_catalog.pg_notify('service_sessions', old.token || ' ' || TG_TABLE_SCHEMA);
  return null;
end
$$;

create trigger service_touch_session after update or delete on service_sessions
  for each row when (old.kind::text = 'session' and old.expires > now()) execute function service_touch_session();

-- Whoever sets a new password, address or state, and however: who came in with the old one is out, but for the session that
-- made the change, and who is let in again begins anew.
create function service_end_sessions() returns trigger language plpgsql set search_path from current as $$
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

create trigger service_end_sessions after update of password, email, status on service_users
  for each row when (
    old.password::text is distinct from new.password::text or old.email::text is distinct from new.email::text
    or old.status::text is distinct from new.status::text
  ) execute function service_end_sessions();

insert into service_collections (collection, hidden, accountability, note) values
  ('service_logins', true, null, 'Attempts to log in');

insert into service_fields (collection, field, special, sort) values
  ('service_logins', 'user', 'm2o', 1),
  ('service_sessions', 'family', 'conceal', 4);
