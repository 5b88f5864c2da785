-- Suspends the user $1, unless they are the last administrator, who only has to wait (see account.sql): else anybody could lock
-- everybody out. A statement of its own, since a mere try would make every instance forget whom it knows.
with recursive granting (role) as (
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
update service_users set status = 'suspended'
where id = $1::uuid and status = 'active'
  and (id not in (select id from administrators) or (select count(*) from administrators) > 1)
