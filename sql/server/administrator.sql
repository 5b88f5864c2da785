-- The first administrator: $1 address, $2 hash of the password, $3 digest of the static token. Writes nothing where users exist.
-- A snapshot that was applied before the first start may have made the role.
with applied as (
  select role.id from service_roles role
  join service_access access on access.role = role.id
  join service_policies policy on policy.id = access.policy and policy.admin_access
  where role.name = 'Administrator' limit 1
), role as (
  insert into service_roles (name, icon, description)
  select 'Administrator', 'verified', 'May do everything'
  where not exists (select from service_users) and not exists (select from applied)
  returning id
), policy as (
  insert into service_policies (name, icon, description, admin_access, app_access)
  select 'Administrator', 'verified', 'Grants everything', true, true from role
  returning id
), access as (
  insert into service_access (role, policy) select role.id, policy.id from role, policy
)
insert into service_users (first_name, last_name, email, password, token, role)
select 'Admin', 'User', $1, $2, $3, made.id from (select id from role union all select id from applied) made
where not exists (select from service_users)
returning id
