-- Who holds the static token with the digest $1, who is the user $2 (in the session $3, if it is given), anybody with the role $4,
-- or the public where none is given: their role, its ancestors, and the policies that follow. Nobody who is not active, and no session that has
-- ended. Policies come in the order in which they overrule each other: those of the farthest ancestor first, the holder's own
-- last. Who has no role has the policies of the public.
with recursive holder as (
  select id, role, email, null::timestamp with time zone as expires
  from service_users where token = $1::text and status = 'active'
  union all
  select id, role, email, null from service_users where id = $2::uuid and $3::text is null and status = 'active'
  union all
  select holder.id, holder.role, holder.email, session.expires
  from service_sessions session join service_users holder on holder.id = session."user"
  where session.token = $3::text and session.kind = 'session' and session.expires > now()
    and holder.id = $2::uuid and holder.status = 'active'
  union all
  select null, id, null, null from service_roles where id = $4::uuid
  union all
  select null, null, null, null where num_nonnulls($1::text, $2::uuid, $3::text, $4::uuid) = 0
), roles (id, distance) as (
  select role, 0 from holder where role is not null
  union
  select parent, distance + 1 from service_roles parents join roles on roles.id = parents.id where parent is not null and distance < 100
), handed as (
  select access.policy, case when access."user" is not null then -1 else coalesce(roles.distance, 0) end as distance,
    access.sort, access.id
  from holder
  join service_access access on access."user" = holder.id
    or access.role in (select roles.id from roles)
    or (holder.role is null and access.role is null and access."user" is null)
  left join roles on roles.id = access.role
), policies as (
  select policy.id, policy.ip_access, policy.admin_access, policy.app_access, policy.enforce_tfa,
    row_number() over (order by min(-handed.distance), min(handed.sort), policy.id) as place
  from handed
  join service_policies policy on policy.id = handed.policy
  group by policy.id
)
select
  holder.id as "user",
  holder.role,
  holder.email,
  (
    select service_roles.database_role from roles join service_roles on service_roles.id = roles.id
    where service_roles.database_role is not null order by roles.distance limit 1
  ) as database_role,
  coalesce((select json_agg(id order by distance) from (select id, min(distance) as distance from roles group by id) as found), '[]') as roles,
  coalesce((select json_agg(policies order by place) from policies), '[]') as policies,
  extract(epoch from holder.expires)::float8 * 1000 as expires
from holder
