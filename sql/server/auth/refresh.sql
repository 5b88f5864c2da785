-- Exchanges the refresh token with the digest $1 for the one with the digest $3. A token that is not good any more, whose
-- family $2 is still there, was used before: by its owner or by a thief, so all that came from that login ends.
with renewed as (
  update service_sessions session
  set token = $3::text, expires = now() + ($4::float8 * interval '1 millisecond'),
    ip = $5::text, user_agent = $6::text, origin = $7::text
  where session.token = $1::text and session.kind = 'refresh' and session.expires > now()
    and (
      exists (select from service_users holder where holder.id = session."user" and holder.status = 'active')
      or exists (select from service_shares share where share.id = session.share
        and coalesce(share.date_start <= now(), true) and coalesce(share.date_end > now(), true))
    )
  returning session."user", session.share, (select role from service_shares share where share.id = session.share) as role
), ended as (
  delete from service_sessions where family = $2::text and not exists (select from renewed)
), seen as (
  update service_users set last_access = now() from renewed where id = renewed."user"
)
select "user", share, role from renewed
