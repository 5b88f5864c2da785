/** Policies of row-level security that fail, or that show nothing, by what they read. */
import { knownSettings } from '../../server/access/database-caller.js';
import { count, type Detail, type Finding, listed } from '../../server/feature/finding.js';
import type { Examined, PolicyFacts, SettingFacts } from './diagnosis.js';

const SECTION = 'Row-level security';

/** Policies that bind the callers of the service. */
export function policyFaults({ config, facts }: Examined): readonly Finding[] {
  const policies = facts.policies.filter(({ binds }) => binds || config.DATABASE_CALLER !== 'service');
  const views = new Map(facts.invoker_views.map(({ relation, reads }) => [relation, reads]));
  const recursive = policies.flatMap((policy) => recursion(policy, policies, views));
  const known = new Set(knownSettings(config.DATABASE_CALLER, config.DATABASE_SETTINGS));
  const settings = policies.flatMap((policy) => unsetSettings(policy, known));
  const advice =
    config.DATABASE_CALLER === 'service'
      ? 'DATABASE_CALLER and DATABASE_SETTINGS give each transaction the settings of its caller'
      : 'DATABASE_SETTINGS gives settings under names of your own, such as app.user=user';
  return [
    ...listed(
      SECTION,
      'problem',
      `${count(recursive.length, 'policy reads its', 'policies read their')} own table, so statements fail with "infinite recursion": read it in a function that is security definer`,
      recursive,
    ),
    ...listed(
      SECTION,
      'problem',
      `policies need settings that nobody sets, so statements fail; ${advice}`,
      settings.flatMap(({ required, detail }) => (required ? [detail] : [])),
    ),
    ...listed(
      SECTION,
      'note',
      `policies read settings that nobody sets; ${advice}`,
      settings.flatMap(({ required, detail }) => (required ? [] : [detail])),
    ),
  ];
}

/** Equal for every caller. */
const PUBLIC = 0;

/** The roles that both lists apply to. */
function common(one: readonly number[], other: readonly number[]): readonly number[] {
  if (one.includes(PUBLIC)) return other;
  return other.includes(PUBLIC) ? one : one.filter((role) => other.includes(role));
}

/**
 * PostgreSQL refuses a table whose policies have subqueries if such a subquery reads the table again, directly or by the policies of other
 * tables, and the policies that show its rows have subqueries too.
 */
function recursion(
  policy: PolicyFacts,
  policies: readonly PolicyFacts[],
  views: ReadonlyMap<number, readonly number[]>,
): Detail[] {
  const seen = new Set<number>();
  const find = (relations: readonly number[], roles: readonly number[]): readonly string[] | null => {
    for (const relation of relations) {
      if (seen.has(relation)) continue;
      const showing = policies.filter(
        (each) => each.relation === relation && each.shows.length > 0 && common(each.roles, roles).length > 0,
      );
      if (relation === policy.relation) {
        if (showing.length > 0) return [policy.table];
        continue;
      }
      seen.add(relation);
      const inView = find(views.get(relation) ?? [], roles);
      if (inView) return inView;
      for (const each of showing) {
        const path = find(each.shows, common(each.roles, roles));
        if (path) return [each.table, ...path];
      }
    }
    return null;
  };
  const path = find(policy.reads, policy.roles);
  return path
    ? [{ name: policy.table, message: `policy ${policy.name} reads ${path.join(', whose policies read ')}` }]
    : [];
}

interface UnsetSetting {
  /** Whether PostgreSQL raises an error, because the policy does not allow for a missing setting. */
  readonly required: boolean;
  readonly detail: Detail;
}

function unsetSettings({ table, name, settings }: PolicyFacts, known: ReadonlySet<string>): UnsetSetting[] {
  const isSet = (each: SettingFacts): boolean => each.set || known.has(each.name.toLowerCase());
  // Another setting may take the place of an optional one. A setting of PostgreSQL, which has no dot in its name, does not.
  const hasOther = (each: SettingFacts): boolean =>
    settings.some((other) => other.function === each.function && other.name.includes('.') && isSet(other));
  const place = (each: SettingFacts): string => `${each.name} ${each.function} ${each.required}`;
  // A function may read a setting several times.
  const distinct = new Map(settings.map((each) => [place(each), each]));
  const unset = [...distinct.values()].filter((each) => !isSet(each) && (each.required || !hasOther(each)));
  return unset.map((each) => {
    const where = each.function === null ? '' : ` in ${each.function}`;
    return { required: each.required, detail: { name: table, message: `policy ${name} reads ${each.name}${where}` } };
  });
}
