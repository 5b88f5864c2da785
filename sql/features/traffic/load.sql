-- The work of PostgreSQL for this database as a JSON object: statements that run now by what they wait for ("CPU" for nothing), the total
-- time of all statements in milliseconds, the connections, and the process that serves this
-- statement. Other roles' statements count only if the role may see them.
select json_build_object(
  'running', (
    select coalesce(json_object_agg(w.kind, w.count), '{}')
    from (
      select coalesce(a.wait_event_type, 'CPU') as kind, count(*) as count
      from pg_stat_activity a
      where a.datname = current_database() and a.state = 'active' and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
      group by 1
    ) w
  ),
  'active_ms', (select d.active_time from pg_stat_database d where d.datname = current_database()),
  'connections', (select count(*) from pg_stat_activity a where a.backend_type = 'client backend'),
  'max_connections', current_setting('max_connections')::integer,
  'pid', pg_backend_pid(),
  'name', current_database()
)::text
