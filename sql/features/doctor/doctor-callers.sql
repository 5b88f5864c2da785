-- What lateral doctor asks about DATABASE_CALLER, as one document. $1: the schemas that are served, a JSON list; $2: the schema of the
-- service's own tables, or ''; $3: the database roles of callers, a JSON list; $4: the names of the service's own tables, a JSON list.
with tables as materialized (
  select class.oid, class.relname, class.relkind, class.relrowsecurity, namespace.nspname
  from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  where namespace.nspname in (select pg_catalog.json_array_elements_text($1::json))
    and class.relkind in ('r', 'p', 'v', 'm', 'f') and not class.relispartition
    and not (namespace.nspname = $2::text and class.relname in (select pg_catalog.json_array_elements_text($4::json)))
),
roles as materialized (
  select wanted.name, role.oid, role.rolsuper, role.rolbypassrls
  from pg_catalog.json_array_elements_text($3::json) wanted (name)
  left join pg_catalog.pg_roles role on role.rolname = wanted.name
)
select pg_catalog.json_build_object(
  'roles', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'name', roles.name,
      'exists', roles.oid is not null,
      'member', roles.oid is not null and pg_catalog.pg_has_role(roles.oid, 'member'),
      'bypasses', coalesce(roles.rolsuper or roles.rolbypassrls, false),
      'closed', (
        select coalesce(pg_catalog.json_agg(namespace.nspname order by namespace.nspname), '[]')
        from pg_catalog.pg_namespace namespace
        where roles.oid is not null and not pg_catalog.has_schema_privilege(roles.oid, namespace.oid, 'usage')
          and (namespace.nspname = $2::text or namespace.nspname in (select pg_catalog.json_array_elements_text($1::json)))
      ),
      'denied', (
        select coalesce(pg_catalog.json_agg(pg_catalog.format('%I.%I', tables.nspname, tables.relname) order by tables.nspname, tables.relname), '[]')
        from tables
        where roles.oid is not null and not pg_catalog.has_any_column_privilege(roles.oid, tables.oid, 'select')
      ),
      -- Sequences of tables that the role may insert into.
      'unnumbered', (
        select coalesce(pg_catalog.json_agg(sequence.oid::pg_catalog.regclass::text order by sequence.oid::pg_catalog.regclass::text), '[]')
        from tables
        join pg_catalog.pg_depend owned on owned.refobjid = tables.oid and owned.deptype = 'a'
          and owned.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and owned.refclassid = owned.classid
        join pg_catalog.pg_class sequence on sequence.oid = owned.objid and sequence.relkind = 'S'
        where roles.oid is not null and pg_catalog.has_any_column_privilege(roles.oid, tables.oid, 'insert')
          and case when sequence.relkind = 'S' then not pg_catalog.has_sequence_privilege(roles.oid, sequence.oid, 'usage') end
      ),
      -- Tables of the service that a column of a readable table refers to.
      'system', (
        select coalesce(pg_catalog.json_agg(distinct pg_catalog.format('%I.%I', namespace.nspname, class.relname)), '[]')
        from tables
        join pg_catalog.pg_constraint reference on reference.conrelid = tables.oid and reference.contype = 'f'
        join pg_catalog.pg_class class on class.oid = reference.confrelid
        join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
        where roles.oid is not null and namespace.nspname = $2::text
          and class.relname in (select pg_catalog.json_array_elements_text($4::json))
          and pg_catalog.has_any_column_privilege(roles.oid, tables.oid, 'select')
          and not pg_catalog.has_any_column_privilege(roles.oid, class.oid, 'select')
      )
    ) order by roles.name), '[]')
    from roles
  ),
  'tables', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'name', pg_catalog.format('%I.%I', tables.nspname, tables.relname),
      'schema', tables.nspname,
      'table', tables.relname,
      'partitioned', tables.relkind = 'p',
      'policies', (
        select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
          'name', policy.polname,
          'condition', pg_catalog.pg_get_expr(policy.polqual, policy.polrelid),
          -- Functions that depend on the caller and say that they do not: a plan that is kept has their result.
          'immutable', (
            select coalesce(pg_catalog.json_agg(distinct called.oid::pg_catalog.regprocedure::text), '[]')
            from pg_catalog.pg_depend used
            join pg_catalog.pg_proc called on called.oid = used.refobjid
            where used.classid = 'pg_catalog.pg_policy'::pg_catalog.regclass and used.objid = policy.oid
              and used.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass
              and called.provolatile = 'i' and called.prokind = 'f'
              and pg_catalog.concat_ws(' ', called.prosrc, pg_catalog.pg_get_function_sqlbody(called.oid))
                ~* 'current_(setting|user|role)|session_user|\mauth\.'
          ),
          -- Columns of the table that the policy reads to find rows, and no index begins with.
          'unindexed', (
            select coalesce(pg_catalog.json_agg(distinct attribute.attname), '[]')
            from pg_catalog.pg_depend used
            join pg_catalog.pg_attribute attribute on attribute.attrelid = tables.oid and attribute.attnum = used.refobjsubid
            where used.classid = 'pg_catalog.pg_policy'::pg_catalog.regclass and used.objid = policy.oid and policy.polqual is not null
              and used.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass and used.refobjid = tables.oid and used.refobjsubid > 0
              and not exists (
                select from pg_catalog.pg_index index
                where index.indrelid = tables.oid and index.indisvalid and index.indkey[0] = used.refobjsubid
              )
          )
        ) order by policy.polname), '[]')
        from pg_catalog.pg_policy policy where policy.polrelid = tables.oid
      )
    ) order by tables.nspname, tables.relname), '[]')
    from tables where tables.relrowsecurity
  )
)::text
