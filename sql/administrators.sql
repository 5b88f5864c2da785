-- The active users who may do everything: by a policy of their own, or by one of their role or of a role above it.
with recursive holders (role) as (
  select access.role from service_access access join service_policies policy on policy.id = access.policy
  where policy.admin_access and access.role is not null
  union
  select service_roles.id from service_roles join holders on service_roles.parent = holders.role
), found as (
  select service_users.id from service_users join holders on service_users.role = holders.role
  where service_users.status = 'active'
  union
  select service_users.id
  from service_access access
  join service_policies policy on policy.id = access.policy
  join service_users on service_users.id = access."user"
  where policy.admin_access and service_users.status = 'active'
)
select coalesce(json_agg(id), '[]')::text from found
