-- Budgets of statements: the longest time that 99 of 100 of them should take. /server/shapes compares them.
create table service_shape_budgets (
  shape varchar(64) primary key,
  p99 double precision not null constraint service_shape_budgets_p99_check check (p99 operator(pg_catalog.>) 0),
  date_updated timestamp with time zone default now(),
  user_updated uuid constraint service_shape_budgets_user_updated_foreign references service_users (id) on delete set null
);

comment on column service_shape_budgets.shape is 'The digest of the statement, as /server/shapes has it';
comment on column service_shape_budgets.p99 is 'Milliseconds';

create index service_shape_budgets_user_updated_index on service_shape_budgets (user_updated);

create function service_notify_budgets() returns trigger language plpgsql set search_path from current as $$
begin
  perform pg_catalog.pg_notify('service_budgets', TG_TABLE_SCHEMA);
  return null;
end
$$;

create trigger service_notify_budgets after insert or update or delete or truncate on service_shape_budgets
  for each statement execute function service_notify_budgets();
