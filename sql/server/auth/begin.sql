-- Begins a session of the user $1, who has given the one-time password of step $2, if any: it must not have been used before.
with admitted as (
  insert into service_logins as login ("user", otp_step) select id, $2::bigint from service_users
  where id = $1::uuid and status = 'active'
  on conflict ("user") do update
    set failures = 0, failed_at = null, otp_step = coalesce(excluded.otp_step, login.otp_step)
    where excluded.otp_step is null or login.otp_step is null or login.otp_step < excluded.otp_step
  returning "user"
), seen as (
  update service_users set last_access = now() from admitted where id = admitted."user"
), noted as (
  insert into service_activity (action, "user", ip, user_agent, origin, collection, item)
  select 'login', "user", $7::text, $8::text, $9::text, 'service_users', "user"::text from admitted
), purged as (
  delete from service_sessions where "user" = $1::uuid and expires < (now() - ($10::float8 * interval '1 millisecond'))
)
insert into service_sessions (token, kind, family, "user", expires, ip, user_agent, origin)
select $3::text, $4::text, $5::text, "user", now() + ($6::float8 * interval '1 millisecond'), $7::text, $8::text, $9::text
from admitted
returning "user"
