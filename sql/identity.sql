-- The holder of the static token with the digest $1, if active: their role, its ancestors, the policies that follow, and
-- whether one of these makes them an administrator. Policies come in the order in which they overrule each other: those of
-- the farthest ancestor first, the holder's own last. Who has no role has the policies of the public.
with recursive holder as (
  select id, role from service_users where token = $1 and status = 'active'
), roles (id, distance) as (
  select role, 0 from holder where role is not null
  union
  select parent, distance + 1 from service_roles join roles using (id) where parent is not null and distance < 100
), handed as (
  select access.policy, case when access."user" is not null then -1 else coalesce(roles.distance, 0) end as distance,
    access.sort, access.id
  from holder
  join service_access access on access."user" = holder.id
    or access.role in (select roles.id from roles)
    or (holder.role is null and access.role is null and access."user" is null)
  left join roles on roles.id = access.role
), policies as (
  select policy.id, policy.admin_access, row_number() over (order by min(-handed.distance), min(handed.sort), policy.id) as place
  from handed
  join service_policies policy on policy.id = handed.policy
  group by policy.id
)
select
  holder.id as "user",
  holder.role,
  coalesce((select json_agg(id order by distance) from (select id, min(distance) as distance from roles group by id) as found), '[]') as roles,
  coalesce((select json_agg(id order by place) from policies), '[]') as policies,
  exists (select from policies where admin_access) as administrator
from holder
