-- All policies with their permissions, and which of them are the public's, as one document.
select json_build_object(
  'policies', coalesce((
    select json_agg(json_build_object(
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
      ), '[]')) order by policy.id)
    from service_policies policy
  ), '[]'),
  'public', coalesce((
    select json_agg(policy order by sort, id) from service_access where role is null and "user" is null
  ), '[]')
)::text
