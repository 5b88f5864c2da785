-- All policies with their permissions, as one document.
select coalesce(json_agg(json_build_object(
  'id', policy.id,
  'name', policy.name,
  'ip_access', policy.ip_access,
  'enforce_tfa', policy.enforce_tfa,
  'admin_access', policy.admin_access,
  'app_access', policy.app_access,
  'permissions', coalesce((
    select json_agg(json_build_object(
      'collection', permission.collection,
      'action', permission.action,
      'permissions', permission.permissions,
      'validation', permission.validation,
      'presets', permission.presets,
      'fields', permission.fields) order by permission.id)
    from service_permissions permission where permission.policy = policy.id
  ), '[]')) order by policy.id), '[]')::text
from service_policies policy
