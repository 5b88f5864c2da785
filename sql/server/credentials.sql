-- By what the users of the list $1 are known: a digest for each, which changes with whatever lets somebody in as them.
select coalesce(json_object_agg(id, encode(sha256(convert_to(
  row(email, password, token, status, role, provider, external_identifier, tfa_secret, auth_data)::text, 'utf8'
)), 'hex')), '{}')::text
from service_users
where id in (select json_array_elements_text($1::json)::uuid)
