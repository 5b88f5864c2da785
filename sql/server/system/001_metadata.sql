-- What the service knows about collections, fields and relations beyond the structure of the database itself.
-- No row here names a table through a foreign key: metadata may describe tables that come and go.

create table service_collections (
  collection varchar(255) primary key,
  icon varchar(255),
  note text,
  color varchar(255),
  display_template varchar(255),
  hidden boolean not null default false,
  singleton boolean not null default false,
  translations json,
  archive_field varchar(255),
  archive_app_filter boolean not null default true,
  archive_value varchar(255),
  unarchive_value varchar(255),
  sort_field varchar(255),
  accountability varchar(255) default 'all' constraint service_collections_accountability_check
    check (accountability::text in ('all', 'activity')),
  item_duplication_fields json,
  sort integer,
  "group" varchar(255) constraint service_collections_group_foreign
    references service_collections (collection) on update cascade on delete set null,
  collapse varchar(255) not null default 'open' constraint service_collections_collapse_check
    check (collapse::text in ('open', 'closed', 'locked')),
  preview_url varchar(255),
  versioning boolean not null default false,
  status varchar(255) not null default 'active' constraint service_collections_status_check
    check (status::text in ('active', 'inactive')),
  autosave_revision_interval integer,
  primary_key text
);

comment on column service_collections.primary_key is 'The column that identifies an item of a view';

create index service_collections_group_index on service_collections ("group");

create table service_fields (
  id serial primary key,
  collection varchar(255) not null,
  field varchar(255) not null,
  special text,
  interface varchar(255),
  options json,
  display varchar(255),
  display_options json,
  readonly boolean not null default false,
  hidden boolean not null default false,
  required boolean default false,
  searchable boolean not null default true,
  sort integer,
  width varchar(255) default 'full' constraint service_fields_width_check
    check (width::text in ('half', 'half-left', 'half-right', 'half-space', 'full', 'fill')),
  "group" varchar(255),
  translations json,
  note text,
  conditions json,
  validation json,
  validation_message text,
  constraint service_fields_collection_field_unique unique (collection, field)
);

create table service_relations (
  id serial primary key,
  many_collection varchar(255) not null,
  many_field varchar(255) not null,
  one_collection varchar(255),
  one_field varchar(255),
  one_collection_field varchar(255),
  one_allowed_collections text,
  junction_field varchar(255),
  sort_field varchar(255),
  one_deselect_action varchar(255) not null default 'nullify' constraint service_relations_one_deselect_action_check
    check (one_deselect_action::text in ('nullify', 'delete'))
);

-- One relation per reference. The exception is a link table of ours whose one reference shows as two lists of a policy.
create unique index service_relations_many_unique on service_relations (many_collection, many_field)
  where not (many_collection::text = 'service_access' and many_field::text = 'policy');

create index service_relations_one_index on service_relations (one_collection);

insert into service_collections (collection, hidden, accountability, note) values
  ('service_collections', true, 'all', 'Metadata of collections'),
  ('service_fields', true, 'all', 'Metadata of fields'),
  ('service_relations', true, 'all', 'Metadata of relations');

insert into service_fields (collection, field, special, sort) values
  ('service_collections', 'translations', 'cast-json', 1),
  ('service_collections', 'item_duplication_fields', 'cast-json', 2),
  ('service_fields', 'options', 'cast-json', 1),
  ('service_fields', 'display_options', 'cast-json', 2),
  ('service_fields', 'translations', 'cast-json', 3),
  ('service_fields', 'conditions', 'cast-json', 4),
  ('service_fields', 'validation', 'cast-json', 5),
  ('service_relations', 'one_allowed_collections', 'cast-csv', 1);
