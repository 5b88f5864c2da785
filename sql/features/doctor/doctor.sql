-- What lateral doctor asks of the database beyond sql/introspect.sql, as one document. $1: the schemas that are served, a JSON list;
-- $2: the schema of the service's own tables; $3: their names, a JSON list; $4: functions that may be called, a JSON list of schema and
-- name.
with tables as materialized (
  select class.oid, class.relname, class.relkind, class.relrowsecurity, class.relforcerowsecurity, class.relowner, class.reltuples, namespace.nspname
  from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  where namespace.nspname in (select pg_catalog.json_array_elements_text($1::json))
    and class.relkind in ('r', 'p', 'v', 'm', 'f') and not class.relispartition
    and not (
      namespace.nspname = $2::text and class.relname in (select pg_catalog.json_array_elements_text($3::json))
    )
),
role as (
  select roles.oid, roles.rolname, roles.rolsuper, roles.rolbypassrls, roles.rolconnlimit
  from pg_catalog.pg_roles roles where roles.rolname = current_user
),
-- The texts of functions without comments, apart from those of PostgreSQL and of extensions.
sources as materialized (
  select proc.oid, proc.proname, namespace.nspname, proc.provolatile, proc.prorettype,
    pg_catalog.format('%I.%I', namespace.nspname, proc.proname) as name,
    pg_catalog.regexp_replace(
      coalesce(pg_catalog.pg_get_function_sqlbody(proc.oid), proc.prosrc), '--[^\n]*|/\*.*?\*/', ' ', 'g') as text
  from pg_catalog.pg_proc proc
  join pg_catalog.pg_namespace namespace on namespace.oid = proc.pronamespace
  where namespace.nspname not in ('pg_catalog', 'information_schema') and namespace.nspname !~ '^pg_'
    and proc.prokind in ('f', 'p')
    and not exists (
      select from pg_catalog.pg_depend owner
      where owner.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass and owner.objid = proc.oid and owner.deptype = 'e'
    )
)
select pg_catalog.json_build_object(
  'version', pg_catalog.current_setting('server_version'),
  'database', pg_catalog.current_database(),
  'role', (select rolname from role),
  'superuser', (select rolsuper from role),
  'standby', pg_catalog.pg_is_in_recovery(),
  'settings', (
    select pg_catalog.json_object_agg(name, setting)
    from pg_catalog.pg_settings
    where name::text in ('max_connections', 'superuser_reserved_connections', 'reserved_connections', 'wal_level', 'server_encoding')
  ),
  'role_limit', (select case when rolconnlimit <> -1 then rolconnlimit end from role),
  'database_limit', (
    select case when datconnlimit <> -1 then datconnlimit end from pg_catalog.pg_database where datname = pg_catalog.current_database()
  ),
  -- Of others: the connections of the doctor itself have its name.
  'connections', (
    select pg_catalog.count(*) from pg_catalog.pg_stat_activity
    where backend_type = 'client backend' and application_name::text is distinct from pg_catalog.current_setting('application_name')
  ),
  'watched', exists (
    select from pg_catalog.pg_event_trigger where evtname = ('service_watch_' || $2::text) and evtenabled in ('O', 'A')
  ),
  'extensions', (
    select coalesce(pg_catalog.json_object_agg(extname, extversion), '{}') from pg_catalog.pg_extension
  ),
  'available', (
    select coalesce(pg_catalog.json_agg(name order by name), '[]')
    from pg_catalog.pg_available_extensions where installed_version is null
  ),
  'schemas', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'schema', namespace.nspname,
      'usage', pg_catalog.has_schema_privilege(namespace.oid, 'usage')
    )), '[]')
    from pg_catalog.pg_namespace namespace
    where namespace.nspname in (select pg_catalog.json_array_elements_text($1::json))
  ),
  'tables', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'schema', tables.nspname,
      'table', tables.relname,
      'view', tables.relkind in ('v', 'm'),
      'rows', case when tables.reltuples >= 0 then tables.reltuples::int8 end,
      'column', (
        select attribute.attname from pg_catalog.pg_attribute attribute
        where attribute.attrelid = tables.oid and attribute.attnum > 0 and not attribute.attisdropped
        order by attribute.attnum limit 1
      ),
      -- The columns that an index begins with.
      'indexed', (
        select coalesce(pg_catalog.json_agg(attribute.attname), '[]')
        from pg_catalog.pg_index index
        join pg_catalog.pg_attribute attribute on attribute.attrelid = index.indrelid and attribute.attnum = index.indkey[0]
        where index.indrelid = tables.oid and index.indisvalid and index.indpred is null
      ),
      'missing', (
        select coalesce(pg_catalog.json_agg(privilege.name), '[]')
        from (values ('select'), ('insert'), ('update'), ('delete')) privilege (name)
        where not pg_catalog.has_table_privilege(tables.oid, privilege.name)
          and (privilege.name = 'select' or tables.relkind not in ('v', 'm'))
          -- Rows are deleted as a whole: columns have no such privilege, and asking for it is an error.
          and case when privilege.name = 'delete' then true
            else not pg_catalog.has_any_column_privilege(tables.oid, privilege.name) end
      ),
      -- Privileges on some columns, not on the table.
      'partial', (
        select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('privilege', privilege.name, 'columns', (
          select pg_catalog.json_agg(attribute.attname order by attribute.attnum)
          from pg_catalog.pg_attribute attribute
          where attribute.attrelid = tables.oid and attribute.attnum > 0 and not attribute.attisdropped
            and pg_catalog.has_column_privilege(tables.oid, attribute.attnum, privilege.name)
        ))), '[]')
        from (values ('select'), ('insert'), ('update')) privilege (name)
        where not pg_catalog.has_table_privilege(tables.oid, privilege.name)
          and pg_catalog.has_any_column_privilege(tables.oid, privilege.name)
      ),
      'sequences', (
        select coalesce(pg_catalog.json_agg(pg_catalog.format('%I.%I', namespace.nspname, sequence.relname)), '[]')
        from pg_catalog.pg_depend owner
        join pg_catalog.pg_class sequence on sequence.oid = owner.objid and sequence.relkind = 'S'
        join pg_catalog.pg_namespace namespace on namespace.oid = sequence.relnamespace
        where owner.refobjid = tables.oid and owner.refobjsubid > 0 and owner.deptype = 'a'
          and owner.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
          and owner.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
          -- Only a sequence may be asked about, and conditions have no order.
          and case when sequence.relkind = 'S' then not pg_catalog.has_sequence_privilege(sequence.oid, 'usage') end
      ),
      'row_security', tables.relrowsecurity and not (select rolsuper or rolbypassrls from role)
        and (tables.relforcerowsecurity or not pg_catalog.pg_has_role(tables.relowner, 'usage')),
      'has_policies', tables.relrowsecurity
    ) order by tables.nspname, tables.relname), '[]')
    from tables
  ),
  'functions', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'schema', namespace.nspname,
      'name', proc.proname,
      'arguments', pg_catalog.pg_get_function_identity_arguments(proc.oid),
      'execute', pg_catalog.has_function_privilege(proc.oid, 'execute'),
      -- By its text alone: what it calls may write.
      'idle', proc.provolatile = 'v' and language.lanname in ('sql', 'plpgsql')
        and coalesce(pg_catalog.pg_get_function_sqlbody(proc.oid), proc.prosrc)
          !~* '\m(insert|update|delete|merge|truncate|copy|lock|nextval|setval|set_config|perform|execute|call|notify|create|drop|alter|random|clock_timestamp)\M'
    ) order by namespace.nspname, proc.proname, proc.oid), '[]')
    from pg_catalog.pg_proc proc
    join pg_catalog.pg_namespace namespace on namespace.oid = proc.pronamespace
    join pg_catalog.pg_language language on language.oid = proc.prolang
    where exists (
      select from pg_catalog.json_array_elements($4::json) declared (pair)
      where declared.pair ->> 0 = namespace.nspname and declared.pair ->> 1 = proc.proname
    )
  ),
  -- Functions that set a parameter or a role for the session, by their texts. `called`: volatile, and no trigger.
  'session_setters', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'name', sources.name,
      'called', sources.provolatile = 'v' and sources.prorettype <> 'pg_catalog.trigger'::pg_catalog.regtype
    ) order by sources.nspname, sources.proname, sources.oid), '[]')
    from sources
    where sources.text ~* '\mset_config\s*\([^;]*,\s*(false|''(f|false|off|no|0)'')\s*\)'
      or sources.text ~* '(^|;|''|\m(begin|then|else|loop)\M)\s*set\s+(?!(local|constraints|transaction)\M)[a-z_"]'
  ),
  -- Policies of row-level security. `shows` and `reads`: tables and views that they read in subqueries to show rows, and for anything.
  -- `settings`: names that no session of this login has and no function sets. `required`: an unset one is an error.
  'policies', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'name', policy.polname,
      'table', pg_catalog.format('%I.%I', namespace.nspname, class.relname),
      'relation', class.oid::int8,
      'binds', not (select rolsuper or rolbypassrls from role)
        and (class.relforcerowsecurity or not pg_catalog.pg_has_role(class.relowner, 'usage')),
      'roles', pg_catalog.to_json(policy.polroles::int8[]),
      'shows', case when policy.polcmd in ('r', '*') then pg_catalog.to_json(source.shows) else '[]' end,
      'reads', pg_catalog.to_json(source.reads),
      'settings', (
        select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
          'function', text.function, 'name', found.match[1], 'required', found.match[2] is null,
          'set', pg_catalog.current_setting(found.match[1], true) is not null
            or exists (
              select from sources setter
              where setter.text ~* pg_catalog.concat('\m(set_config\s*\(\s*''|set\s+((local|session)\s+)?)',
                pg_catalog.replace(found.match[1], '.', '\.'), '\M')
            )
        )), '[]')
        from (
          select null as function, pg_catalog.concat_ws(' ', pg_catalog.pg_get_expr(policy.polqual, class.oid),
            pg_catalog.pg_get_expr(policy.polwithcheck, class.oid)) as text
          union all
          select called.name, called.text
          from pg_catalog.pg_depend used
          join sources called on called.oid = used.refobjid
          where used.classid = 'pg_catalog.pg_policy'::pg_catalog.regclass and used.objid = policy.oid
            and used.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass
        ) text
        cross join lateral pg_catalog.regexp_matches(
          text.text, '\mcurrent_setting\s*\(\s*''([\w.]+)''(?:::text)?\s*(,\s*''?t)?', 'gi') found (match)
      )
    ) order by namespace.nspname, class.relname, policy.polname), '[]')
    from pg_catalog.pg_policy policy
    join pg_catalog.pg_class class on class.oid = policy.polrelid and class.relrowsecurity
    join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
    cross join lateral (
      select
        array(
          select read.match[1]::int8 from pg_catalog.regexp_matches(policy.polqual::text, ':relid (\d+)', 'g') read (match)
        ) as shows,
        array(
          select read.match[1]::int8
          from pg_catalog.regexp_matches(pg_catalog.concat_ws(' ', policy.polqual, policy.polwithcheck), ':relid (\d+)', 'g') read (match)
        ) as reads
    ) source
  ),
  -- Views whose tables are read with the policies of the caller.
  'invoker_views', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('relation', view.oid::int8, 'reads', array(
      select distinct read.match[1]::int8
      from pg_catalog.regexp_matches(rule.ev_action::text, ':relid (\d+)', 'g') read (match)
      where read.match[1]::oid <> view.oid
    ))), '[]')
    from pg_catalog.pg_class view
    join pg_catalog.pg_rewrite rule on rule.ev_class = view.oid and rule.rulename = '_RETURN'
    where view.relkind = 'v' and exists (
      select from pg_catalog.pg_options_to_table(view.reloptions) option
      where option.option_name = 'security_invoker' and option.option_value::bool
    )
  )
)::text
