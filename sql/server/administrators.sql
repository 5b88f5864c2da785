-- Who may do everything, and from which addresses: users, active or not, by a policy of their own or by one of their role or of
-- a role above it, and the public, which is no user.
with recursive granted as (
  select access.role, access."user", policy.ip_access
  from service_access access join service_policies policy on policy.id = access.policy
  where policy.admin_access
), holders (role, ip_access) as (
  select role, ip_access from granted where role is not null
  union
  select service_roles.id, holders.ip_access from service_roles join holders on service_roles.parent = holders.role
), found ("user", ip_access) as (
  select service_users.id, holders.ip_access from service_users join holders on service_users.role = holders.role
  union
  select "user", ip_access from granted where role is null
)
select coalesce(json_agg(json_build_object(
  'user', found."user",
  'addresses', found.ip_access,
  'active', coalesce(service_users.status = 'active', false))), '[]')::text
from found left join service_users on service_users.id = found."user"
