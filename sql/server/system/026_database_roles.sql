-- The database role that statements of a role's users run as, with DATABASE_CALLER=role. Roles below it in the tree inherit it.
alter table service_roles add column database_role varchar(63);
