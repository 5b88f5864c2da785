-- Renews the session $1 as $2. The former stays good for a moment, and whoever renews it meanwhile gets the same new one; after
-- that moment it ends all that came from its login.
with held as (
  select session.token, session.next_token, session.family, session."user", session.share
  from service_sessions session
  where session.token = $1::text and session.kind = 'session' and session.expires > now()
    and (
      exists (select from service_users holder where holder.id = session."user" and holder.status = 'active')
      or exists (select from service_shares share where share.id = session.share
        and coalesce(share.date_start <= now(), true) and coalesce(share.date_end > now(), true))
    )
  for update of session
), renewed as (
  update service_sessions session
  set next_token = $2::text, expires = least(session.expires, now() + ($4::float8 * interval '1 millisecond'))
  from held
  where session.token = held.token and held.next_token is null
  returning held."user", held.share, held.family
), made as (
  insert into service_sessions (token, kind, family, "user", share, expires, ip, user_agent, origin)
  select $2::text, 'session', family, "user", share, now() + ($3::float8 * interval '1 millisecond'), $5::text, $6::text, $7::text
  from renewed
), seen as (
  update service_users set last_access = now() from renewed where id = renewed."user"
), ended as (
  delete from service_sessions where family in (
    select family from service_sessions
    where token = $1::text and kind = 'session' and next_token is not null and expires <= now()
  )
)
select "user", share, (select role from service_shares where id = held.share) as role, coalesce(next_token, $2::text) as token
from held
