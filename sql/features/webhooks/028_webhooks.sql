-- Webhooks: changes of items that are posted to a URL. Triggers on the tables write each change to service_webhook_changes, in the
-- transaction of the writer. The service turns changes into deliveries, one for each webhook that wants it.

create table service_webhooks (
  id uuid primary key default gen_random_uuid(),
  name varchar(255) not null,
  status varchar(20) not null default 'active'
    constraint service_webhooks_status_check check (status::text = 'active' or status::text = 'paused' or status::text = 'inactive'),
  url text not null,
  collections json not null,
  events json not null default '["create","update","delete","truncate"]',
  filter json,
  fields json,
  headers json,
  template json,
  secret text not null default pg_catalog.concat('whsec_', pg_catalog.encode(
    pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.concat(gen_random_uuid(), gen_random_uuid(), gen_random_uuid()), 'UTF8')), 'base64')),
  previous_secret text,
  previous_secret_until timestamp with time zone,
  incomplete_since timestamp with time zone,
  incomplete_reason text,
  date_created timestamp with time zone default now(),
  user_created uuid constraint service_webhooks_user_created_foreign references service_users (id) on delete set null,
  date_updated timestamp with time zone,
  user_updated uuid constraint service_webhooks_user_updated_foreign references service_users (id) on delete set null
);

comment on column service_webhooks.status is 'active; paused: changes are recorded and wait; inactive: changes are not recorded';
comment on column service_webhooks.collections is 'Names of the collections';
comment on column service_webhooks.events is 'create, update, delete, truncate';
comment on column service_webhooks.filter is 'Only items that match it, as in a query';
comment on column service_webhooks.fields is 'Fields of the items that are sent; null for all';
comment on column service_webhooks.headers is 'Headers that are sent with each delivery, by name';
comment on column service_webhooks.template is 'The body that is sent, with placeholders such as {{data.title}}; null for the usual body';
comment on column service_webhooks.secret is 'Key of the signatures; shown when the webhook is created and when the secret is rotated';
comment on column service_webhooks.incomplete_since is 'When a change was first missed; null if none was';

create index service_webhooks_user_created_index on service_webhooks (user_created);
create index service_webhooks_user_updated_index on service_webhooks (user_updated);

-- Changes that the service has not turned into deliveries yet. The order of the ids is the order of the commits for the changes of one
-- item only: the lock of its row makes writers wait for each other.
create table service_webhook_changes (
  id bigint generated always as identity primary key,
  relation oid not null,
  event varchar(20) not null,
  item text,
  image json,
  previous json,
  changed_at timestamp with time zone not null default clock_timestamp()
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);

-- The trigger must read no table: it would make writers of SERIALIZABLE fail, and see an old state in REPEATABLE READ. Sequences
-- say up to which number the service has read the changes, whether it looks for more by itself (null if it waits for NOTIFY), and whether
-- changes were dropped because too many waited (null if not).
create sequence service_webhook_drained minvalue 0;
create sequence service_webhook_looking;
create sequence service_webhook_overfull;

create table service_webhook_deliveries (
  id uuid primary key default gen_random_uuid(),
  webhook uuid not null constraint service_webhook_deliveries_webhook_foreign references service_webhooks (id) on delete cascade,
  sequence bigint not null,
  collection varchar(255) not null,
  event varchar(20) not null,
  item text,
  status varchar(20) not null default 'pending'
    constraint service_webhook_deliveries_status_check check (status::text = 'pending' or status::text = 'delivered' or status::text = 'dead'),
  waits boolean not null default false,
  payload json not null,
  attempts integer not null default 0,
  created_at timestamp with time zone not null default now(),
  next_attempt_at timestamp with time zone not null default now(),
  claimed_until timestamp with time zone,
  claimed_by uuid,
  finished_at timestamp with time zone,
  response_status integer,
  response_ms integer,
  response_body text,
  error text
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

comment on column service_webhook_deliveries.id is 'The header webhook-id of all attempts';
comment on column service_webhook_deliveries.sequence is 'The order of the changes of one item';
comment on column service_webhook_deliveries.item is 'The key of the item; null if the change concerns the whole collection or the table has no key';
comment on column service_webhook_deliveries.status is 'pending, delivered, or dead after the last attempt';
comment on column service_webhook_deliveries.waits is 'Whether it waits for an older delivery of the item';
comment on column service_webhook_deliveries.response_body is 'The first 1,024 bytes of the last answer';

create index service_webhook_deliveries_due_index on service_webhook_deliveries (webhook, next_attempt_at, sequence)
  where status::text = 'pending' and not waits;
create index service_webhook_deliveries_item_index on service_webhook_deliveries (webhook, collection, item, sequence)
  where status::text = 'pending';
create index service_webhook_deliveries_waiting_index on service_webhook_deliveries (webhook, collection, item)
  where status::text = 'pending' and waits;
create index service_webhook_deliveries_dead_index on service_webhook_deliveries (webhook) where status::text = 'dead';
create index service_webhook_deliveries_finished_index on service_webhook_deliveries (finished_at) where status::text <> 'pending';
create index service_webhook_deliveries_webhook_index on service_webhook_deliveries (webhook, created_at);

create function service_notify_webhooks() returns trigger language plpgsql set search_path from current as $$
begin
  perform pg_catalog.pg_notify('service_webhooks', TG_TABLE_SCHEMA);
  return null;
end
$$;

create trigger service_notify_webhooks after insert or update or delete or truncate on service_webhooks
  for each statement execute function service_notify_webhooks();

-- The arguments of a trigger are how many changes may wait, and the columns of the item's key. It runs with the rights of its owner, who may write
-- to the table of changes, so it calls nothing that somebody else may have made: columns of other types than PostgreSQL's own are
-- written by their output functions, because a cast to JSON may be a function of anybody. Whatever goes wrong must not fail the writer:
-- a change that is missed leaves a row with the event `gap`. Numbers of changes that were rolled back are not used again, so a difference
-- of numbers that is too large may mean little: then the changes are counted. If others have made too many, a sequence says so, because
-- it stays as it is when the writer rolls back. Changes of the writer itself are no reason for that.
do $do$
begin
  execute pg_catalog.format($format$
create function %1$I.service_webhook_change() returns trigger language plpgsql security definer
  set search_path = pg_catalog, pg_temp set extra_float_digits = 1 set datestyle = 'ISO, YMD' set intervalstyle = postgres
  set timezone = 'UTC' set bytea_output = 'hex' as $$
declare
  max_changes constant bigint := TG_ARGV[0];
  key_columns constant text[] := TG_ARGV[1:];
  root constant oid := coalesce(pg_partition_root(TG_RELID), TG_RELID);
  own_columns text;
  images text := 'select row_to_json(q) as image from (select %%s from %%s r) q';
  new_images text;
  old_images text;
  item text := 'i.image ->> $2[1]';
  -- Of this transaction. Anybody may set it, and an error here would fail the writer.
  own_changes constant bigint := coalesce(substring(current_setting('lateral.webhook_changes', true) from '^[0-9]{1,15}$')::bigint, 0);
  has_key boolean;
  waiting bigint;
  changed bigint;
begin
  if pg_sequence_last_value(%2$L::regclass) - coalesce(pg_sequence_last_value(%4$L::regclass), 0) > max_changes then
    if pg_sequence_last_value(%6$L::regclass) is not null then
      return null;
    end if;
    select count(*) into waiting from (select from %1$I.service_webhook_changes limit max_changes + own_changes + 1) w;
    if waiting - own_changes > max_changes then
      perform setval(%6$L::regclass, 1);
      perform pg_notify('service_webhooks', %3$L);
      return null;
    end if;
  end if;
  if TG_OP = 'TRUNCATE' then
    insert into %1$I.service_webhook_changes (relation, event) values (root, 'truncate');
  else
    -- The types of columns cannot change while the writer holds its lock.
    select case when bool_or(a.atttypid >= 16384) then
        string_agg(case when a.atttypid < 16384 then format('r.%%I', a.attname)
          else format('case when r.%%1$I is distinct from null then concat(r.%%1$I) end as %%1$I', a.attname) end, ', ' order by a.attnum) end,
        count(*) filter (where a.attname = any (key_columns)) = cardinality(key_columns)
      into own_columns, has_key from pg_attribute a
      where a.attrelid = TG_RELID and a.attnum > 0 and not a.attisdropped;
    if not has_key then
      raise exception using errcode = 'undefined_column', message = format('the key column of "%%s" was renamed', TG_TABLE_NAME);
    end if;
    if own_columns is not null or cardinality(key_columns) > 1 then
      if cardinality(key_columns) > 1 then
        item := '(select json_agg(i.image ->> k.name order by k.position)::text from unnest($2) with ordinality k (name, position))';
      end if;
      if own_columns is null then
        select string_agg(format('r.%%I', a.attname), ', ' order by a.attnum) into own_columns from pg_attribute a
        where a.attrelid = TG_RELID and a.attnum > 0 and not a.attisdropped;
      end if;
      new_images := format('select i.image, %%s as item from (%%s) i', item, format(images, own_columns, 'new_rows'));
      old_images := format('select i.image, %%s as item from (%%s) i', item, format(images, own_columns, 'old_rows'));
      execute 'insert into %1$I.service_webhook_changes (relation, event, item, image, previous) ' || case
        when TG_OP = 'INSERT' then format('select $1, ''create'', n.item, n.image, null from (%%s) n limit $3', new_images)
        when TG_OP = 'DELETE' then format('select $1, ''delete'', o.item, o.image, null from (%%s) o limit $3', old_images)
        when cardinality(key_columns) = 0 then
          format('select $1, ''update'', null, n.image, null from (%%s) n limit $3', new_images)
        else format('select $1, case when o.item is null then ''create'' when n.item is null then ''delete'' else ''update'' end,
          coalesce(n.item, o.item), coalesce(n.image, o.image), case when n.item is not null then o.image end
          from (%%s) n full join (%%s) o on o.item = n.item limit $3', new_images, old_images)
        end using root, key_columns, max_changes + 1;
    elsif TG_OP = 'INSERT' then
      insert into %1$I.service_webhook_changes (relation, event, item, image)
      select root, 'create', n.image ->> key_columns[1], n.image from (select row_to_json(r) as image from new_rows r) n
      limit max_changes + 1;
    elsif TG_OP = 'DELETE' then
      insert into %1$I.service_webhook_changes (relation, event, item, image)
      select root, 'delete', o.image ->> key_columns[1], o.image from (select row_to_json(r) as image from old_rows r) o
      limit max_changes + 1;
    elsif cardinality(key_columns) = 0 then
      insert into %1$I.service_webhook_changes (relation, event, image)
      select root, 'update', row_to_json(r) from new_rows r limit max_changes + 1;
    else
      insert into %1$I.service_webhook_changes (relation, event, item, image, previous)
      select root, case when o.item is null then 'create' when n.item is null then 'delete' else 'update' end,
        coalesce(n.item, o.item), coalesce(n.image, o.image), case when n.item is not null then o.image end
      from (select i.image, i.image ->> key_columns[1] as item from (select row_to_json(r) as image from new_rows r) i) n
      full join (select i.image, i.image ->> key_columns[1] as item from (select row_to_json(r) as image from old_rows r) i) o
        on o.item = n.item
      limit max_changes + 1;
    end if;
  end if;
  get diagnostics changed = row_count;
  if changed > max_changes then
    raise exception 'a statement changed more than %% rows (WEBHOOK_MAX_BACKLOG)', max_changes;
  end if;
  -- The service cannot see how many they are before the commit.
  if own_changes + changed > max_changes then
    raise exception 'a transaction made more than %% changes (WEBHOOK_MAX_BACKLOG)', max_changes;
  end if;
  perform set_config('lateral.webhook_changes', (own_changes + changed)::text, true);
  -- Transactions that notify commit one after the other.
  if changed > 0 and pg_sequence_last_value(%5$L::regclass) is null then
    perform pg_notify('service_webhooks', %3$L);
  end if;
  return null;
exception when others then
  begin
    insert into %1$I.service_webhook_changes (relation, event, image)
    values (root, 'gap', json_build_object('reason', sqlerrm, 'overfull', sqlstate = 'P0001'));
  exception when others then
    raise log 'service_webhook_change: %%', sqlerrm;
  end;
  return null;
end
$$
$format$, current_schema(),
    pg_catalog.concat(pg_catalog.quote_ident(current_schema()), '.service_webhook_changes_id_seq'), current_schema(),
    pg_catalog.concat(pg_catalog.quote_ident(current_schema()), '.service_webhook_drained'),
    pg_catalog.concat(pg_catalog.quote_ident(current_schema()), '.service_webhook_looking'),
    pg_catalog.concat(pg_catalog.quote_ident(current_schema()), '.service_webhook_overfull'));
end
$do$;

-- A role that could attach the function to a table of its own could forge changes.
revoke all on function service_webhook_change() from public;

insert into service_collections (collection, hidden, accountability, note) values
  ('service_webhooks', true, 'all', 'Changes that are posted to a URL'),
  ('service_webhook_deliveries', true, null, 'What was sent to webhooks, and their answers');

insert into service_fields (collection, field, special, sort) values
  ('service_webhooks', 'collections', 'cast-json', 1),
  ('service_webhooks', 'events', 'cast-json', 2),
  ('service_webhooks', 'filter', 'cast-json', 3),
  ('service_webhooks', 'fields', 'cast-json', 4),
  ('service_webhooks', 'headers', 'cast-json', 5),
  ('service_webhooks', 'template', 'cast-json', 12),
  ('service_webhooks', 'secret', 'conceal', 6),
  ('service_webhooks', 'previous_secret', 'conceal', 7),
  ('service_webhooks', 'date_created', 'date-created', 8),
  ('service_webhooks', 'user_created', 'm2o,user-created', 9),
  ('service_webhooks', 'date_updated', 'date-updated', 10),
  ('service_webhooks', 'user_updated', 'm2o,user-updated', 11),
  ('service_webhook_deliveries', 'webhook', 'm2o', 1),
  ('service_webhook_deliveries', 'payload', 'cast-json', 2);

insert into service_relations (many_collection, many_field, one_collection, one_field, one_deselect_action) values
  ('service_webhooks', 'user_created', 'service_users', null, 'nullify'),
  ('service_webhooks', 'user_updated', 'service_users', null, 'nullify'),
  ('service_webhook_deliveries', 'webhook', 'service_webhooks', null, 'nullify');
