-- The holder of the static token with the digest $1, if active: their role, its ancestors, the policies that follow, and
-- whether one of these makes them an administrator.
with recursive holder as (
  select id, role from service_users where token = $1 and status = 'active'
), roles (id) as (
  select role from holder where role is not null
  union
  select parent from service_roles join roles using (id) where parent is not null
), policies as (
  select distinct policy.id, policy.admin_access
  from holder, service_access access
  join service_policies policy on policy.id = access.policy
  where access."user" = holder.id or access.role in (select id from roles)
)
select
  holder.id as "user",
  holder.role,
  coalesce((select json_agg(id) from roles), '[]') as roles,
  coalesce((select json_agg(id) from policies), '[]') as policies,
  exists (select from policies where admin_access) as administrator
from holder
