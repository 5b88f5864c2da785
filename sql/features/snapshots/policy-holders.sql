-- Of the names of roles $1 and the addresses of users $2, those that do not name exactly one. Before the first user exists, the roles are made.
select json_build_object(
  'roles', coalesce((
    select json_agg(wanted.name) from json_array_elements_text($1::json) wanted (name)
    where (select count(*) from service_roles role where role.name = wanted.name) <> (
      select case when exists (select from service_users) or exists (select from service_roles role where role.name = wanted.name) then 1 else 0 end
    )
  ), '[]'),
  'users', coalesce((
    select json_agg(wanted.email) from json_array_elements_text($2::json) wanted (email)
    where not exists (select from service_users holder where lower(holder.email) = lower(wanted.email))
  ), '[]'))::text
