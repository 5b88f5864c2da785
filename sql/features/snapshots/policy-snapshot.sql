-- All policies with their permissions and the names of their holders, for a snapshot. Users and roles are named as people know them.
select coalesce(json_agg(json_build_object(
  'name', policy.name,
  'icon', policy.icon,
  'description', policy.description,
  'admin_access', policy.admin_access,
  'app_access', policy.app_access,
  'enforce_tfa', policy.enforce_tfa,
  'ip_access', policy.ip_access,
  'public', exists (
    select from service_access access where access.policy = policy.id and access.role is null and access."user" is null
  ),
  'roles', coalesce((
    select json_agg(role.name order by role.name)
    from service_access access join service_roles role on role.id = access.role where access.policy = policy.id
  ), '[]'),
  'users', coalesce((
    select json_agg(coalesce(holder.email, holder.id::text) order by lower(holder.email))
    from service_access access join service_users holder on holder.id = access."user" where access.policy = policy.id
  ), '[]'),
  'permissions', coalesce((
    select json_agg(json_build_object(
      'collection', permission.collection,
      'action', permission.action,
      'permissions', permission.permissions,
      'validation', permission.validation,
      'presets', permission.presets,
      'fields', permission.fields))
    from service_permissions permission where permission.policy = policy.id
  ), '[]')) order by policy.name, policy.id), '[]')::text
from service_policies policy
