/**
 * Explains whether a user may do something with an item. It evaluates each rule that applies to the user on the item, part by part, with
 * the variables replaced by that user's values. An administrator may read every item, so the results depend only on the rules.
 */
import { call, itemsPath, messageOf } from '../api';
import type { Row } from '../data/edits';
import { filterByKey } from '../data/item';
import { describeRule, type FilterJson, fromJson, type Group, type Rule } from '../filter/filter';
import { type Access, type Action, type Permission, policiesOf, rolesOf, type User } from './policies';

export interface Part {
  readonly text: string;
  /** Whether the condition holds, or null if it could not be evaluated. */
  readonly holds: boolean | null;
  readonly note: string | null;
  /** The values that were compared: those of the item, and those of the rule's variables. */
  readonly values: readonly string[];
}

export interface RuleVerdict {
  readonly policy: string;
  readonly permission: Permission;
  readonly holds: boolean;
  readonly parts: readonly Part[];
}

export interface Verdict {
  readonly allowed: boolean;
  readonly summary: string;
  readonly rules: readonly RuleVerdict[];
}

export interface Question {
  /** The user, or null if the caller is the public. */
  readonly user: User | null;
  readonly action: Action;
  readonly collection: string;
  /** The columns of its key. */
  readonly key: Row;
}

export async function explainAccess(question: Question, access: Access): Promise<Verdict> {
  const { user, action, collection } = question;
  if (!(await matches(question, null)))
    return { allowed: false, summary: `${collection} has no item with this key.`, rules: [] };
  const policies = policiesOf(user, access);
  const administrator = policies.find((policy) => policy.admin_access);
  if (administrator)
    return { allowed: true, summary: `The policy “${administrator.name}” allows everything.`, rules: [] };
  const rules: RuleVerdict[] = [];
  for (const policy of policies) {
    for (const permission of policy.permissions) {
      if (permission.action !== action || permission.collection !== collection) continue;
      rules.push(await judge(question, policy.name, permission, access));
    }
  }
  if (rules.length === 0) {
    const names = policies.map(({ name }) => `“${name}”`).join(', ');
    const summary = `No policy allows ${action} in ${collection}. ${names === '' ? 'No policy applies here.' : `Applicable policies: ${names}.`}`;
    return { allowed: false, summary, rules };
  }
  const good = rules.find((rule) => rule.holds);
  const summary = good ? `A rule of “${good.policy}” holds for this item.` : 'No rule holds for this item.';
  return { allowed: good !== undefined, summary, rules };
}

async function judge(question: Question, policy: string, permission: Permission, access: Access): Promise<RuleVerdict> {
  const rule = permission.permissions;
  if (rule === null || Object.keys(rule).length === 0)
    return { policy, permission, holds: true, parts: [{ text: 'all rows', holds: true, note: null, values: [] }] };
  const parts: Part[] = [];
  for (const part of partsOf(rule)) parts.push(await ask(question, part, access));
  const whole = await ask(question, rule, access);
  return { policy, permission, holds: whole.holds === true, parts };
}

/** The conditions that must hold together. */
function partsOf(rule: FilterJson): FilterJson[] {
  return Object.entries(rule).flatMap(([name, value]) =>
    name === '_and' && Array.isArray(value)
      ? value.flatMap((each) => partsOf(each as FilterJson))
      : [{ [name]: value }],
  );
}

async function ask(question: Question, part: FilterJson, access: Access): Promise<Part> {
  const text = describe(part);
  try {
    const filter = (await withValues(part, question.user, access)) as FilterJson;
    return { text, holds: await matches(question, filter), note: null, values: await compared(question, part, filter) };
  } catch (error) {
    return { text, holds: null, note: messageOf(error), values: [] };
  }
}

/** `part` has variables where `filter` has their values; otherwise they are equal. */
async function compared(question: Question, part: FilterJson, filter: FilterJson): Promise<string[]> {
  const [rules, resolved] = [rulesOf(fromJson(part)), rulesOf(fromJson(filter))];
  const paths = [...new Set(rules.map(({ path }) => path.replace(/\._(?:some|none)(?=\.|$)/g, '')))];
  const query = { fields: paths, limit: 1, filter: filterByKey(question.key) };
  const { data } = await call<Row[]>('SEARCH', itemsPath(question.collection), { body: { query } });
  const variables = rules.flatMap(({ value }, at) =>
    typeof value === 'string' && value.startsWith('$') ? [`${value} = ${shown(resolved[at]?.value)}`] : [],
  );
  return [...paths.map((path) => `${path} = ${shown(valueAt(data[0], path.split('.')))}`), ...new Set(variables)];
}

function rulesOf({ entries }: Group): Rule[] {
  return entries.flatMap((entry) => (entry.kind === 'rule' ? [entry] : rulesOf(entry)));
}

function valueAt(value: unknown, [name, ...rest]: readonly string[]): unknown {
  if (name === undefined) return value;
  if (Array.isArray(value)) return value.map((each) => valueAt(each, [name, ...rest]));
  return valueAt((value as Row | null | undefined)?.[name] ?? null, rest);
}

const MOST_SHOWN = 120;

function shown(value: unknown): string {
  const text = JSON.stringify(value ?? null);
  return text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)}…` : text;
}

function describe(part: FilterJson): string {
  const { entries, join } = fromJson(part);
  return entries
    .map((entry) => (entry.kind === 'rule' ? describeRule(entry) : JSON.stringify(part)))
    .join(join === '_or' ? ' or ' : ' and ');
}

async function matches({ collection, key }: Question, filter: FilterJson | null): Promise<boolean> {
  const own = filterByKey(key);
  const query = { fields: Object.keys(key), limit: 1, filter: filter ? { _and: [own, filter] } : own };
  const { data } = await call<unknown[]>('SEARCH', itemsPath(collection), { body: { query } });
  return data.length > 0;
}

const NOBODY = '00000000-0000-0000-0000-000000000000';

/** The values of a rule's variables for this user. */
async function withValues(value: unknown, user: User | null, access: Access): Promise<unknown> {
  if (Array.isArray(value)) return Promise.all(value.map((each) => withValues(each, user, access)));
  if (typeof value === 'object' && value !== null) {
    const entries = Object.entries(value).map(async ([name, inner]) => [name, await withValues(inner, user, access)]);
    return Object.fromEntries(await Promise.all(entries));
  }
  if (value === '$CURRENT_USER') return user?.id ?? NOBODY;
  if (value === '$CURRENT_ROLE') return user?.role ?? NOBODY;
  if (value === '$CURRENT_ROLES') return rolesOf(user, access.roles);
  if (value === '$CURRENT_POLICIES') return policiesOf(user, access).map(({ id }) => id);
  if (typeof value === 'string' && value.startsWith('$CURRENT_USER.') && user) return fieldOf(user, value);
  return value;
}

async function fieldOf(user: User, variable: string): Promise<unknown> {
  const path = variable.slice('$CURRENT_USER.'.length);
  const { data } = await call<unknown>('GET', `/users/${user.id}?fields=${encodeURIComponent(path)}`);
  return path
    .split('.')
    .reduce<unknown>((found, name) => (found as Record<string, unknown> | null)?.[name] ?? null, data);
}
