-- Begins a session of the share $1, if it is open and not used up: two at once are counted one after the other.
with used as (
  update service_shares share set times_used = share.times_used + 1
  from service_users holder
  where share.id = $1::uuid and holder.id = share.user_created and holder.status = 'active'
    and coalesce(share.date_start <= now(), true) and coalesce(share.date_end > now(), true)
    and (share.max_uses is null or share.times_used < share.max_uses)
    and share.password::text is not distinct from $9::text
  returning share.id
)
insert into service_sessions (token, kind, family, share, expires, ip, user_agent, origin)
select $2::text, $3::text, $4::text, id, now() + ($5::float8 * interval '1 millisecond'), $6::text, $7::text, $8::text
from used
returning share
