-- The holder of the static token with the digest $1: active, with whether a policy of theirs makes them an administrator.
with recursive holder as (
  select id, role from service_users where token = $1 and status = 'active'
), roles (id) as (
  select role from holder where role is not null
  union
  select parent from service_roles join roles using (id) where parent is not null
)
select
  holder.id as "user",
  exists (
    select from service_access access
    join service_policies policy on policy.id = access.policy
    where policy.admin_access and (access."user" = holder.id or access.role in (select id from roles))
  ) as administrator
from holder
