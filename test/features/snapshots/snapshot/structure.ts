/** The structure of a database as PostgreSQL describes it, independently of snapshots, and what of it two databases do not share. */
import { withSql } from '../../../support/service.js';

interface Fact {
  readonly fact: string;
  /** What a line about it contains if a snapshot leaves it out. */
  readonly mark: string | null;
}

const FACTS = `
  with tables as (
    select class.* from pg_class class where class.relnamespace = 'public'::regnamespace and class.relkind in ('r', 'p', 'v', 'm')
      and not class.relispartition and class.relname !~ '^service_'
      and not exists (select from pg_depend where classid = 'pg_class'::regclass and objid = class.oid and deptype = 'e')
  )
  select format('table %I', relname) as fact, case relkind when 'v' then format('"view %I"', relname) when 'm' then format('"materialized view %I"', relname) else null end as mark from tables
  union all
  select format('column %I.%I %s%s%s%s', relname, attname, format_type(atttypid, atttypmod), '',
      case when attcollation <> typcollation then ' collate ' || collname end, ' identity ' || nullif(attidentity::text, '')),
    case relkind when 'v' then format('"view %I"', relname) when 'm' then format('"materialized view %I"', relname)
      else case attgenerated when 'v' then format('"%I.%I": is a virtual', relname, attname) else null end end
  from tables join pg_attribute on attrelid = tables.oid and attnum > 0 and not attisdropped
  join pg_type on pg_type.oid = atttypid left join pg_collation on pg_collation.oid = attcollation
  union all
  select format('not null %I.%I', relname, attname), format('"%s.%s": may be null', relname, attname)
  from tables join pg_attribute on attrelid = tables.oid and attnum > 0 and attnotnull and not attisdropped
  union all
  select format('%s %I.%I %s', case when attgenerated = '' then 'default' else 'generated' end, relname, attname, pg_get_expr(adbin, adrelid)),
    format('"%s %I.%I"', case when attgenerated = '' then 'default' else 'generated' end, relname, attname)
  from tables join pg_attribute on attrelid = tables.oid join pg_attrdef on adrelid = tables.oid and adnum = attnum
  where attgenerated <> 'v'
  union all
  select format('constraint %I.%I %s', relname, conname, pg_get_constraintdef(pg_constraint.oid)), format('"constraint %I.%I"', relname, conname)
  from tables join pg_constraint on conrelid = tables.oid and contype not in ('n', 't') and conparentid = 0
  union all
  select format('index %I.%I %s', tables.relname, named.relname, regexp_replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON ')), format('"index %I.%I"', tables.relname, named.relname)
  from tables join pg_index on indrelid = tables.oid join pg_class named on named.oid = indexrelid where tables.relkind <> 'm' or true
  union all
  select format('%s %I %s %s', relkind, relname, reloptions, pg_get_viewdef(oid)), format('view %I"', relname) from tables where relkind in ('v', 'm')
  union all
  select format('sequence %I %s', relname, to_jsonb(pg_sequence) - 'seqrelid') , null from pg_class join pg_sequence on seqrelid = pg_class.oid
  where relnamespace = 'public'::regnamespace and relname !~ '^service_'
  union all
  select format('type %I %s %s', typname, typtype, coalesce(
      (select string_agg(enumlabel, ',' order by enumsortorder) from pg_enum where enumtypid = pg_type.oid),
      (select string_agg(format('%I %s', attname, format_type(atttypid, atttypmod)), ',' order by attnum) from pg_attribute where attrelid = typrelid),
      format_type(typbasetype, typtypmod) || typnotnull || coalesce(typdefault, '') || coalesce((select string_agg(conname || pg_get_constraintdef(oid), ',' order by conname) from pg_constraint where contypid = pg_type.oid), ''))),
    format('type %I', typname)
  from pg_type left join pg_class on pg_class.oid = typrelid
  where typnamespace = 'public'::regnamespace and (typtype in ('e', 'd', 'r') or (typtype = 'c' and relkind = 'c'))
    and not exists (select from pg_depend where classid = 'pg_type'::regclass and objid = pg_type.oid and deptype = 'e')
  union all
  select format('extension %I', extname) , null from pg_extension
  union all
  select format('comment on %s %s', pg_describe_object(classoid, objoid, objsubid), description),
    case when classoid = 'pg_proc'::regclass then pg_describe_object(classoid, objoid, 0)
      when objsubid > 0 then format('"%s": its comments on columns', (select relname from pg_class where oid = objoid))
      else regexp_replace(pg_describe_object(classoid, objoid, 0), '^(table|view|materialized view|index|constraint \\S+ on table) ', '') end
  from pg_description
  where objoid >= 16384 and classoid not in ('pg_extension'::regclass, 'pg_namespace'::regclass)
    and not exists (select from pg_depend where classid = classoid and objid = objoid and deptype in ('e', 'i'))
    and pg_describe_object(classoid, objoid, objsubid) !~ 'service_'
  union all
  select format('trigger %I.%I', relname, tgname), format('"%I": its trigger %s', relname, tgname)
  from tables join pg_trigger on tgrelid = tables.oid and not tgisinternal and tgname !~ '^service_' and tgparentid = 0
  union all
  select format('rule %I.%I', relname, rulename), format('"%I": its rule %s', relname, rulename)
  from tables join pg_rewrite on ev_class = tables.oid and rulename <> '_RETURN'
  union all
  select format('policy %I.%I', relname, polname), format('"%I": its row-level security policy %s', relname, polname)
  from tables join pg_policy on polrelid = tables.oid
  union all
  select format('security %I', relname), format('"%I": row-level security is enabled', relname) from tables where relrowsecurity
  union all
  select format('options %I %s', relname, reloptions), format('"%I": its storage parameters', relname) from tables where reloptions is not null and relkind in ('r', 'p')
  union all
  select format('unlogged %I', relname), format('"%I": is unlogged', relname) from tables where relpersistence <> 'p'
  union all
  select format('replica identity %I %s', relname, relreplident), format('"%I": its replica identity', relname) from tables where relkind = 'r' and relreplident <> 'd'
  union all
  select format('partitioned %I', relname), format('"%I": its partitions', relname) from tables where relkind = 'p'
  union all
  select format('inherits %I', relname), format('"%I": inherits', relname) from tables join pg_inherits on inhrelid = tables.oid
  union all
  select format('grants %I %s', relname, relacl), format('"%I": its grants', relname) from tables where relacl is not null
  union all
  select format('storage %I.%I', relname, attname), format('"%I.%I": its storage', relname, attname)
  from tables join pg_attribute on attrelid = tables.oid and attnum > 0 and not attisdropped join pg_type on pg_type.oid = atttypid
  where tables.relkind in ('r', 'p') and (attstorage <> typstorage or attoptions is not null or coalesce(attstattarget, -1) <> -1)
  union all
  select format('routine %s', pg_describe_object('pg_proc'::regclass, pg_proc.oid, 0)), pg_describe_object('pg_proc'::regclass, pg_proc.oid, 0)
  from pg_proc where pronamespace = 'public'::regnamespace and proname !~ '^service_'
    and not exists (select from pg_depend where classid = 'pg_proc'::regclass and objid = pg_proc.oid and deptype in ('e', 'i'))
  union all
  select format('statistics %s', pg_describe_object('pg_statistic_ext'::regclass, oid, 0)), pg_describe_object('pg_statistic_ext'::regclass, oid, 0)
  from pg_statistic_ext
  order by 1`;

export async function factsOf(url: string): Promise<Fact[]> {
  return withSql(url, async (sql) =>
    (await sql.unsafe(FACTS)).map((row) => ({ fact: respelled(row['fact']), mark: row['mark'] })),
  );
}

/** PostgreSQL reads `(ARRAY['a'::character varying])::text[]`, and writes a cast of each element from then on. */
function respelled(fact: string): string {
  return fact.replace(/\(ARRAY\[([^\]]*)\]\)::text\[\]/g, (_, list: string) => {
    const elements = list.split(', ').map((each) => `(${each})::text`);
    return `ARRAY[${elements.join(', ')}]`;
  });
}

export interface Comparison {
  readonly facts: number;
  readonly differing: readonly string[];
  /** Those of the differing that no line lists as left out. */
  readonly unlisted: readonly string[];
}

/** `leftOut`: what `lateral schema snapshot` printed. */
export async function compareStructure(left: string, right: string, leftOut: string): Promise<Comparison> {
  const [before, after] = [await factsOf(left), await factsOf(right)];
  const lines = leftOut.split('\n');
  const only = (facts: readonly Fact[], others: readonly Fact[]): Fact[] => {
    const known = new Set(others.map(({ fact }) => fact));
    return facts.filter(({ fact }) => !known.has(fact));
  };
  const differing = [...only(before, after), ...only(after, before)];
  return {
    facts: before.length,
    differing: differing.map(({ fact }) => fact),
    unlisted: differing.flatMap(({ fact, mark }) =>
      mark !== null && lines.some((line) => line.includes(mark)) ? [] : [fact],
    ),
  };
}
