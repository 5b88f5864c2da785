-- Counts a refused attempt of the user with the address $1, and tells whether there were too many.
insert into service_logins as login ("user", failures, failed_at)
select id, 1, now() from service_users
where lower(email) = lower($1::text) and status = 'active' and provider = 'default'
on conflict ("user") do update set failures = login.failures + 1, failed_at = now()
returning "user", failures >= (select auth_login_attempts from service_settings) as excessive
