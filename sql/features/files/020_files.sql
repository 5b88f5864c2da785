-- Files: what is known of them. Their bytes are in a storage location (STORAGE_LOCATIONS) under `filename_disk`, which begins with the key of its
-- row: no row can name the bytes of another one, or anything outside of its location.
create table service_files (
  id uuid primary key default gen_random_uuid(),
  storage varchar(255) not null,
  filename_disk varchar(255),
  filename_download varchar(255) not null,
  title varchar(255),
  type varchar(255),
  folder uuid constraint service_files_folder_foreign references service_folders (id) on delete set null,
  uploaded_by uuid constraint service_files_uploaded_by_foreign references service_users (id) on delete set null,
  created_on timestamp with time zone not null default now(),
  modified_by uuid constraint service_files_modified_by_foreign references service_users (id) on delete set null,
  modified_on timestamp with time zone not null default now(),
  charset varchar(50),
  filesize bigint,
  width integer,
  height integer,
  duration integer,
  embed varchar(200),
  description text,
  location text,
  tags json,
  metadata json,
  focal_point_x integer,
  focal_point_y integer,
  tus_id varchar(64),
  tus_data json,
  uploaded_on timestamp with time zone,
  constraint service_files_filename_disk_check check (
    pg_catalog.starts_with(filename_disk, id::text) and pg_catalog.substr(filename_disk, 37) ~ '^(-[0-9a-f]{1,32})?(\.[A-Za-z0-9]{1,20})?$'
  )
);

comment on column service_files.filename_disk is 'The name of its bytes in the storage location; null while there are none';

create index service_files_folder_index on service_files (folder);
create index service_files_uploaded_by_index on service_files (uploaded_by);
create index service_files_modified_by_index on service_files (modified_by);

-- Bytes that no row names any more. They are removed after the change is committed, and if that fails, later: whoever deleted or changed the row.
create table service_files_removed (
  id bigserial primary key,
  file uuid not null,
  storage varchar(255) not null,
  filename_disk varchar(255) not null
);

create function service_note_removed_file() returns trigger language plpgsql set search_path from current as $$
begin
  insert into service_files_removed (file, storage, filename_disk) values (old.id, old.storage, old.filename_disk);
  perform pg_catalog.pg_notify('service_files', TG_TABLE_SCHEMA);
  return null;
end
$$;

create trigger service_note_removed_file after delete on service_files
  for each row when (old.filename_disk is not null) execute function service_note_removed_file();
create trigger service_note_replaced_file after update of filename_disk on service_files
  for each row when (old.filename_disk::text is distinct from new.filename_disk::text and old.filename_disk is not null)
  execute function service_note_removed_file();

-- Values from before there were files stay as they are: only new ones are checked. `lateral adopt` copies both sides in one transaction, in any
-- order, so these foreign keys can be deferred.
alter table service_users add constraint service_users_avatar_foreign
  foreign key (avatar) references service_files (id) on delete set null deferrable not valid;
create index service_users_avatar_index on service_users (avatar);

alter table service_settings add column project_logo uuid constraint service_settings_project_logo_foreign
  references service_files (id) on delete set null deferrable;
alter table service_settings add column public_foreground uuid constraint service_settings_public_foreground_foreign
  references service_files (id) on delete set null deferrable;
alter table service_settings add column public_background uuid constraint service_settings_public_background_foreign
  references service_files (id) on delete set null deferrable;
alter table service_settings add column public_favicon uuid constraint service_settings_public_favicon_foreign
  references service_files (id) on delete set null deferrable;
alter table service_settings add column storage_asset_transform varchar(7) not null default 'all'
  constraint service_settings_storage_asset_transform_check check (storage_asset_transform::text in ('all', 'presets', 'none'));
alter table service_settings add column storage_asset_presets json;
alter table service_settings add column storage_default_folder uuid
  constraint service_settings_storage_default_folder_foreign references service_folders (id) on delete set null deferrable;

create index service_settings_project_logo_index on service_settings (project_logo);
create index service_settings_public_foreground_index on service_settings (public_foreground);
create index service_settings_public_background_index on service_settings (public_background);
create index service_settings_public_favicon_index on service_settings (public_favicon);
create index service_settings_storage_default_folder_index on service_settings (storage_default_folder);

insert into service_collections (collection, hidden, accountability, note) values
  ('service_files', true, 'all', 'Uploaded files'),
  ('service_files_removed', true, null, 'Bytes of files that are about to be removed');

insert into service_fields (collection, field, special, sort) values
  ('service_files', 'folder', 'm2o', 1),
  ('service_files', 'uploaded_by', 'm2o,user-created', 2),
  ('service_files', 'created_on', 'date-created', 3),
  ('service_files', 'modified_by', 'm2o,user-updated', 4),
  ('service_files', 'modified_on', 'date-updated', 5),
  ('service_files', 'tags', 'cast-json', 6),
  ('service_files', 'metadata', 'cast-json', 7),
  ('service_files', 'tus_data', 'cast-json', 8),
  ('service_users', 'avatar', 'm2o,file', 10),
  ('service_settings', 'project_logo', 'm2o,file', 3),
  ('service_settings', 'public_foreground', 'm2o,file', 4),
  ('service_settings', 'public_background', 'm2o,file', 5),
  ('service_settings', 'public_favicon', 'm2o,file', 6),
  ('service_settings', 'storage_asset_presets', 'cast-json', 7),
  ('service_settings', 'storage_default_folder', 'm2o', 8);

insert into service_relations (many_collection, many_field, one_collection, one_field, one_deselect_action) values
  ('service_files', 'folder', 'service_folders', null, 'nullify'),
  ('service_files', 'uploaded_by', 'service_users', null, 'nullify'),
  ('service_files', 'modified_by', 'service_users', null, 'nullify'),
  ('service_users', 'avatar', 'service_files', null, 'nullify'),
  ('service_settings', 'project_logo', 'service_files', null, 'nullify'),
  ('service_settings', 'public_foreground', 'service_files', null, 'nullify'),
  ('service_settings', 'public_background', 'service_files', null, 'nullify'),
  ('service_settings', 'public_favicon', 'service_files', null, 'nullify'),
  ('service_settings', 'storage_default_folder', 'service_folders', null, 'nullify');
