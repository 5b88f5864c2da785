-- The share $1, while it is open; with $2 only in the session of that name.
select
  share.id,
  share.collection,
  share.item,
  share.role,
  share.password,
  share.user_created as creator,
  share.times_used,
  share.max_uses,
  to_json(share.date_start) #>> '{}' as date_start,
  to_json(share.date_end) #>> '{}' as date_end,
  extract(epoch from least(share.date_end, session.expires))::float8 * 1000 as expires
from service_shares share
left join service_sessions session
  on session.share = share.id and session.token = $2::text and session.kind = 'session' and session.expires > now()
where share.id = $1::uuid
  and coalesce(share.date_start <= now(), true) and coalesce(share.date_end > now(), true)
  and ($2::text is null or session.token is not null)
