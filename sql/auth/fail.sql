-- Counts a refused attempt of the user with the address $1, and suspends who had too many. The last administrator only has to
-- wait (see account.sql): else anybody could lock everybody out.
with recursive counted as (
  insert into service_logins ("user", failures, failed_at)
  select id, 1, now() from service_users
  where lower(email) = lower($1::text) and status = 'active' and provider = 'default'
  on conflict ("user") do update set failures = service_logins.failures + 1, failed_at = now()
  returning "user", failures
), granting (role) as (
  select access.role
  from service_access access join service_policies policy on policy.id = access.policy
  where policy.admin_access and access.role is not null
  union
  select child.id from service_roles child join granting on child.parent = granting.role
), administrators as (
  select id from service_users
  where status = 'active' and (
    role in (select role from granting)
    or id in (
      select access."user"
      from service_access access join service_policies policy on policy.id = access.policy
      where policy.admin_access
    )
  )
)
update service_users holder set status = 'suspended'
from counted, service_settings settings
where holder.id = counted."user"
  and counted.failures >= settings.auth_login_attempts
  and (holder.id not in (select id from administrators) or (select count(*) from administrators) > 1)
