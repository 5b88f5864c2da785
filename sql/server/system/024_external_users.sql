-- Two providers may call different users by the same name: the provider and its name for the user identify the user together.
alter table service_users drop constraint if exists service_users_external_identifier_unique;

alter table service_users
  add constraint service_users_provider_external_identifier_unique unique (provider, external_identifier);
