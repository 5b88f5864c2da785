-- Headers may be credentials: they are shown as little as the secret, also in the revisions that were made before.
update service_fields set special = 'cast-json,conceal'
where collection::text operator(pg_catalog.=) 'service_webhooks' and field::text operator(pg_catalog.=) 'headers';

update service_revisions r
set data = (select pg_catalog.json_object_agg(e.key, case when e.key operator(pg_catalog.=) 'headers' and pg_catalog.json_typeof(e.value) operator(pg_catalog.<>) 'null'
      then '"**********"'::json else e.value end) from pg_catalog.json_each(r.data) e),
  delta = (select pg_catalog.json_object_agg(e.key, case when e.key operator(pg_catalog.=) 'headers' and pg_catalog.json_typeof(e.value) operator(pg_catalog.<>) 'null'
      then '"**********"'::json else e.value end) from pg_catalog.json_each(r.delta) e)
where r.collection::text operator(pg_catalog.=) 'service_webhooks';
