-- The first administrator: $1 address, $2 hash of the password, $3 digest of the static token. Writes nothing where users exist.
with role as (
  insert into service_roles (name, icon, description)
  select 'Administrator', 'verified', 'May do everything' where not exists (select from service_users)
  returning id
), policy as (
  insert into service_policies (name, icon, description, admin_access, app_access)
  select 'Administrator', 'verified', 'Grants everything', true, true from role
  returning id
), access as (
  insert into service_access (role, policy) select role.id, policy.id from role, policy
)
insert into service_users (first_name, last_name, email, password, token, role)
select 'Admin', 'User', $1, $2, $3, role.id from role
returning id
