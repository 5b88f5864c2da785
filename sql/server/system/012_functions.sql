-- Functions of the database that may be called through the API. Nothing is callable without a row here, and nobody but an
-- administrator calls what no policy of theirs allows: a permission with the action `execute` whose collection is the name.
create table service_functions (
  name varchar(255) primary key,
  schema varchar(255),
  function varchar(255),
  arguments json constraint service_functions_arguments_check check (pg_catalog.json_typeof(arguments) in ('array', 'null')),
  note text
);

comment on column service_functions.name is 'The name under /rpc, in GraphQL and in permissions';
comment on column service_functions.schema is 'Where the function is; null for the schema that is mirrored';
comment on column service_functions.function is 'Its name in the database; null for the same';
comment on column service_functions.arguments is 'The names of the arguments that callers may give; null for all';

create trigger service_touch_model after insert or update or delete or truncate on service_functions
  for each statement execute function service_touch_model();

-- A filter, a validation or presets would mean nothing for a call, and must not seem to limit it.
alter table service_permissions drop constraint service_permissions_action_check;
alter table service_permissions
  add constraint service_permissions_action_check
    check (action::text in ('create', 'read', 'update', 'delete', 'share', 'execute')),
  add constraint service_permissions_execute_check
    check (action::text <> 'execute' or (coalesce(permissions::text, 'null') in ('null', '{}')
      and coalesce(validation::text, 'null') in ('null', '{}') and coalesce(presets::text, 'null') in ('null', '{}')));

-- What a call with an Idempotency-Key has answered. Databases that got the migration before when it dropped the former answers have no
-- such column.
alter table service_receipts add column if not exists answer text;

comment on column service_receipts.answer is 'Of a function: it has made no items that could be read again';

insert into service_collections (collection, hidden, accountability, note) values
  ('service_functions', true, 'all', 'Functions that may be called');

insert into service_fields (collection, field, special, sort) values
  ('service_functions', 'arguments', 'cast-json', 1);
