-- What a login has to know of the user with the address $1.
select
  holder.id,
  holder.email,
  holder.password,
  holder.tfa_secret,
  holder.status,
  coalesce(login.failures >= settings.auth_login_attempts and login.failed_at > (now() - interval '1 minute'), false) as locked
from service_users holder
left join service_logins login on login."user" = holder.id
left join service_settings settings on true
where lower(holder.email) = lower($1::text) and holder.provider = 'default'
