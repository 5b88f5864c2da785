-- Renews the session $1 as $2. The former stays good for a moment, and whoever renews it meanwhile gets the same new one; after
-- that moment it ends all that came from its login.
with held as (
  select session.token, session.next_token, session.family, session."user"
  from service_sessions session join service_users holder on holder.id = session."user"
  where session.token = $1::text and session.kind = 'session' and session.expires > now() and holder.status = 'active'
  for update of session
), renewed as (
  update service_sessions session
  set next_token = $2::text, expires = least(session.expires, now() + $4::float8 * interval '1 millisecond')
  from held
  where session.token = held.token and held.next_token is null
  returning held."user", held.family
), made as (
  insert into service_sessions (token, kind, family, "user", expires, ip, user_agent, origin)
  select $2::text, 'session', family, "user", now() + $3::float8 * interval '1 millisecond', $5::text, $6::text, $7::text
  from renewed
), seen as (
  update service_users set last_access = now() from renewed where id = renewed."user"
), ended as (
  delete from service_sessions where family in (
    select family from service_sessions
    where token = $1::text and kind = 'session' and next_token is not null and expires <= now()
  )
)
select "user", coalesce(next_token, $2::text) as token from held
