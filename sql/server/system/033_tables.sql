-- The tables of the service. They stay tables of the service, which nobody reads as a collection, where a feature was left out later.
create table service_tables (
  name varchar(255) primary key
);

-- Those of features that every version had until now. Other files are recorded when they run.
insert into service_tables (name)
select made.name
from (values
  ('016_adoption.sql', 'service_adopted'),
  ('018_versions.sql', 'service_versions'),
  ('020_files.sql', 'service_files'),
  ('020_files.sql', 'service_files_removed'),
  ('028_webhooks.sql', 'service_webhooks'),
  ('028_webhooks.sql', 'service_webhook_changes'),
  ('028_webhooks.sql', 'service_webhook_deliveries')
) made (migration, name)
where exists (select from service_migrations applied where applied.name operator(pg_catalog.=) made.migration);
