-- Failed logins slow the next ones down; they suspend nobody unless an administrator wants that. Whoever knows an address could
-- switch off its account otherwise. A number other than the former default was somebody's choice, and stays.

alter table service_settings alter column auth_login_attempts set default null;

update service_settings set auth_login_attempts = null where auth_login_attempts = 25;

comment on column service_settings.auth_login_attempts is 'Failed logins after which a user is suspended; null: never';
