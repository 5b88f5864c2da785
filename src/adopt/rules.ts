/** Permissions whose rules do not fit the fields here: they grant nothing, so the operator must know of them. */
import { buildModel } from '../mirror/introspect.js';
import { planRule, readRuleFilter, readValidation } from '../plan/rules.js';
import { loadSchema } from '../postgres/catalog/catalog.js';
import type { Database } from '../postgres/pools/database.js';
import type { Session } from '../postgres/pools/sessions.js';
import { sql } from '../sql/fragment.js';
import { type Installations, ours, run } from './source.js';

interface Rule {
  readonly policy: string;
  readonly collection: string;
  readonly action: string;
  readonly permissions: unknown;
  readonly validation: unknown;
}

/** Read inside of the transaction that has written them. */
export async function unfitRules(
  session: Session,
  database: Database,
  places: Installations,
): Promise<readonly string[]> {
  const model = buildModel((await loadSchema(session, database)).document, 0, database, false);
  const rules = await run<Rule>(
    session,
    sql`select policy.name as policy, rule.collection, rule.action, rule.permissions, rule.validation
      from ${ours(places, 'permissions')} rule join ${ours(places, 'policies')} policy on policy.id = rule.policy
      join ${ours(places, 'adopted')} adopted on adopted.source = 'permissions' and adopted.target_key = rule.id::text
      order by policy.name, rule.collection, rule.action`,
  );
  return rules.flatMap(({ policy, collection: name, action, permissions, validation }) => {
    const label = `policy "${policy}", ${action} "${name}"`;
    const collection = model.collections.get(name);
    if (!collection) return model.folders.has(name) ? [] : [`${label}: there is no such collection`];
    const [where, valid] = [readRuleFilter(permissions), readValidation(validation)];
    const fits = (filter: typeof where): boolean =>
      filter !== undefined && planRule(filter, collection, model) !== null;
    return fits(where) && fits(valid) ? [] : [`${label}: its rule does not fit the fields, so it grants nothing`];
  });
}
