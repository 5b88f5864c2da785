-- Lays the changes $2 over those of the version $1, and records who has saved them where its collection asks for that. With $7 they are added
-- to what was recorded last if that was of the same user. Of an item that does not exist yet nothing is recorded.
with saved as (
  update service_versions set delta = coalesce(delta, '{}') || $2::jsonb, date_updated = now(), user_updated = $3::uuid
  where id = $1::uuid
  returning id, collection, item, delta
), latest as (
  select revision.id, activity."user"
  from service_revisions revision join service_activity activity on activity.id = revision.activity
  where $7::boolean and revision.version = $1::uuid
  order by revision.id desc
  limit 1
), added as (
  update service_revisions revision
  set data = (revision.data::jsonb || $2::jsonb)::json, delta = (revision.delta::jsonb || $2::jsonb)::json
  from latest, saved join service_collections parent on parent.collection = saved.collection
  where revision.id = latest.id and latest."user"::text is not distinct from $3::uuid::text and parent.accountability = 'all'
  returning revision.id
), noted as (
  insert into service_activity (action, "user", ip, user_agent, origin, collection, item)
  select 'version_save', $3::uuid, $4::text, $5::text, $6::text, saved.collection, saved.item
  from saved join service_collections parent on parent.collection = saved.collection
  where parent.accountability is not null and saved.item is not null and not exists (select from added)
  returning id
), kept as (
  insert into service_revisions (activity, collection, item, data, delta, version)
  select noted.id, saved.collection, saved.item, $2::json, $2::json, saved.id
  from noted cross join saved join service_collections parent on parent.collection = saved.collection
  where parent.accountability = 'all'
)
select delta::text from saved
