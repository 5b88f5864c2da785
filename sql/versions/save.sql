-- Lays the changes $2 over those of the version $1, and records who has saved them where its collection asks for that.
with saved as (
  update service_versions set delta = coalesce(delta, '{}') || $2::jsonb, date_updated = now(), user_updated = $3::uuid
  where id = $1::uuid
  returning id, collection, item, delta
), noted as (
  insert into service_activity (action, "user", ip, user_agent, origin, collection, item)
  select 'version_save', $3::uuid, $4::text, $5::text, $6::text, saved.collection, saved.item
  from saved join service_collections parent using (collection)
  where parent.accountability is not null
  returning id
), kept as (
  insert into service_revisions (activity, collection, item, data, delta, version)
  select noted.id, saved.collection, saved.item, $2::json, $2::json, saved.id
  from noted cross join saved join service_collections parent using (collection)
  where parent.accountability = 'all'
)
select delta::text from saved
