/** Names of theirs in values: `directus_users` is `service_users` here, where we have such a table. */
import { type Fragment, join, literal, parameter, sql } from '../sql/fragment.js';
import type { Installations } from './source.js';

export function constant(value: string): Fragment {
  return sql`${parameter({ kind: 'constant', value })}::text`;
}

/** Whether a name is that of a system table of theirs. */
export function isSystemName(name: Fragment): Fragment {
  return sql`${name} like 'directus\\_%'`;
}

/** Whether a name is that of a system table which we have as well. */
export function isShared({ shared }: Installations, name: Fragment): Fragment {
  const names = shared.map((each) => literal(`directus_${each}`));
  return names.length === 0 ? sql`false` : sql`${name} in (${join(names, sql`, `)})`;
}

export function renamed(places: Installations, name: Fragment): Fragment {
  return sql`case when ${isShared(places, name)} then 'service_' || substr(${name}, 10) else ${name} end`;
}

/** Of a comma separated list. */
export function renamedList(places: Installations, list: Fragment): Fragment {
  return sql`(select string_agg(${renamed(places, sql`trim(entry.name)`)}, ',' order by entry.position)
    from pg_catalog.unnest(string_to_array(${list}, ',')) with ordinality entry (name, position))`;
}

/** Of a rule: the places that name a collection are those of `$FOLLOW(collection, field)` and of `item:collection`. */
export function renamedRule({ shared }: Installations, rule: Fragment): Fragment {
  const pattern = `(\\$FOLLOW\\(\\s*|\\w:)directus_(${shared.join('|')})\\M`;
  return sql`regexp_replace(${rule}::text, ${constant(pattern)}, '\\1service_\\2', 'g')::json`;
}

/** The value where it is one of these, else the other. */
export function oneOf(value: Fragment, allowed: readonly string[], otherwise: Fragment): Fragment {
  return sql`case when ${value} in (${join(
    allowed.map((each) => literal(each)),
    sql`, `,
  )}) then ${value} else ${otherwise} end`;
}
