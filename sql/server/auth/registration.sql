-- The settings that registration goes by. The role may have every right, by a policy of its own or of a role above it.
with recursive holders (role) as (
  select access.role
  from service_access access join service_policies policy on policy.id = access.policy
  where policy.admin_access and access.role is not null
  union
  select service_roles.id from service_roles join holders on service_roles.parent = holders.role
)
select
  public_registration as open,
  public_registration_verify_email as verify,
  public_registration_role as role,
  public_registration_email_filter as filter,
  coalesce(public_registration_role in (select role from holders), false) as unlimited
from service_settings
