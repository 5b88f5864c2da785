/** The callers that ask two servers, whether two responses say the same, and where they do not, whether that is known. */

import { StartError } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import { sql } from '../../compiler/sql/fragment.js';
import { digestToken } from '../../server/access/tokens.js';
import type { Session } from '../../server/postgres/pools/sessions.js';
import type { Question } from './questions.js';
import { constant, count, type Installations, ours, run, theirs } from './source.js';

export interface ServerAnswer {
  readonly status: number;
  readonly body: unknown;
}

export interface TestCaller {
  /** The name of a role, or other text that identifies the caller. */
  readonly name: string;
  /** The token, or null if requests are sent as the public. */
  readonly token: string | null;
  /** Collections with permissions that the other server ignores. */
  readonly ignored: ReadonlySet<string>;
  /** Collections of which not all rows may be read. */
  readonly limited: ReadonlySet<string>;
  /** Limited collections whose rules read related items. */
  readonly related: ReadonlySet<string>;
  /** Collections with fields that may be read in some rows only. */
  readonly uneven: ReadonlySet<string>;
}

export interface Callers {
  readonly callers: readonly TestCaller[];
  /** Names of roles of whose users none has a static token. */
  readonly silent: readonly string[];
}

/** The public, an administrator, and for each role a user with a static token. `shown` are the keys of permissions that the other server shows, and so applies. */
export async function findCallers(
  session: Session,
  places: Installations,
  token: string,
  shown: ReadonlySet<number>,
): Promise<Callers> {
  if ((await count(session, sql`from ${ours(places, 'users')} where token = ${constant(digestToken(token))}`)) === 0)
    throw new StartError('--token must be a static token of a user that was adopted: run lateral adopt first');
  const users = await run<{
    role: string | null;
    name: string | null;
    email: string | null;
    token: string;
    user: string;
  }>(
    session,
    sql`select distinct on (coalesce(users.role, users.id)) users.role, role.name, users.email, users.token, users.id as "user"
      from ${theirs(places, 'users')} users left join ${theirs(places, 'roles')} role on role.id = users.role
      where users.status = 'active' and users.token <> '' and users.token <> ${constant(token)}
      order by coalesce(users.role, users.id), users.email`,
  );
  const silent = await run<{ name: string }>(
    session,
    sql`select role.name from ${theirs(places, 'roles')} role where not exists (
        select from ${theirs(places, 'users')} users where users.role = role.id and users.status = 'active' and users.token <> '')
      order by role.name`,
  );
  const limitsOfHolder = async (holder: Holder): Promise<Limits> =>
    limitsOf(await findRules(session, places, holder), shown);
  const asked = users.map(async (each) => ({
    name: each.name === null ? `the user ${each.email ?? each.user}` : `the role "${each.name}"`,
    token: each.token,
    ...(await limitsOfHolder(each)),
  }));
  return {
    callers: [
      { name: 'an administrator', token, ...limitsOf([], shown) },
      { name: 'the public', token: null, ...(await limitsOfHolder({ role: null, user: null })) },
      ...(await Promise.all(asked)),
    ],
    silent: silent.map(({ name }) => name),
  };
}

/** Both are null for the public. */
interface Holder {
  readonly role: string | null;
  readonly user: string | null;
}

function findRules(session: Session, places: Installations, { role, user }: Holder): Promise<Rule[]> {
  return run<Rule>(
    session,
    sql`with recursive above (id) as (
        select ${constant(role ?? '')}::text
        union
        select roles.parent::text from ${ours(places, 'roles')} roles join above on above.id = roles.id::text where roles.parent is not null
      )
      select adopted.source_key::int as id, rule.collection, rule.action = 'read' as reads, rule.fields::text as fields,
        coalesce(rule.permissions::text, '{}') as filter
      from ${ours(places, 'permissions')} rule
      join ${ours(places, 'adopted')} adopted on adopted.source = 'permissions' and adopted.target_key = rule.id::text
      join ${ours(places, 'access')} access on access.policy = rule.policy
      where access.role::text in (select id from above) or access."user"::text = ${constant(user ?? '')}
        or (access.role is null and access."user" is null and ${constant(role ?? '')} = '')`,
  );
}

type Limits = Pick<TestCaller, 'ignored' | 'limited' | 'related' | 'uneven'>;

interface Rule {
  readonly id: number;
  readonly collection: string;
  readonly reads: boolean;
  readonly fields: string | null;
  readonly filter: string;
}

function limitsOf(rules: readonly Rule[], shown: ReadonlySet<number>): Limits {
  const collectionsOf = (some: readonly Rule[]): ReadonlySet<string> =>
    new Set(some.map(({ collection }) => collection));
  const limited = rules.filter(({ reads, filter }) => reads && filter !== '{}' && filter !== 'null');
  const differs = ({ collection, fields }: Rule): boolean =>
    rules.some((other) => other.reads && other.collection === collection && other.fields !== fields);
  return {
    ignored: collectionsOf(rules.filter(({ id }) => !shown.has(id))),
    limited: collectionsOf(limited),
    related: collectionsOf(limited.filter(({ filter }) => leadsElsewhere(JSON.parse(filter)))),
    uneven: collectionsOf(limited.filter(differs)),
  };
}

/** Whether a rule has a condition on a field of a related item. */
function leadsElsewhere(rule: unknown, isBelowField = false): boolean {
  if (Array.isArray(rule)) return rule.some((each) => leadsElsewhere(each, isBelowField));
  if (!isObject(rule)) return false;
  return Object.entries(rule).some(([name, each]) => {
    const isField = !name.startsWith('_');
    return (isField && isBelowField) || leadsElsewhere(each, isBelowField || isField);
  });
}

/** A difference of two responses, and its known reason. */
interface Deviation {
  readonly explanation: string | null;
  readonly detail: string;
}

export function compareAnswers(
  question: Question,
  caller: TestCaller,
  theirs: ServerAnswer,
  ours: ServerAnswer,
): Deviation | null {
  const [left, right] = [contentOf(theirs), contentOf(ours)];
  const detail = firstDifference(left, right, '');
  if (detail === null) return null;
  const explanation = explain(question, caller, { ...theirs, content: left }, { ...ours, content: right });
  return { explanation, detail };
}

/** The data of a response, or the code of its error. */
function contentOf({ status, body }: ServerAnswer): unknown {
  const errors = isObject(body) ? body['errors'] : undefined;
  if (Array.isArray(errors) && errors.length > 0)
    return { error: status < 400 ? 400 : status, code: codeOf(errors[0]) };
  return isObject(body)
    ? { data: body['data'] ?? null, ...(body['meta'] === undefined ? {} : { meta: body['meta'] }) }
    : body;
}

function codeOf(error: unknown): unknown {
  const extensions = isObject(error) ? error['extensions'] : undefined;
  return isObject(extensions) ? extensions['code'] : undefined;
}

function explain(
  question: Question,
  { ignored, limited, related, uneven }: TestCaller,
  theirs: ServerAnswer & { readonly content: unknown },
  ours: ServerAnswer & { readonly content: unknown },
): string | null {
  const { kind, collections, relation } = question;
  const [left, right] = [theirs.content, ours.content];
  if (collections.some((name) => ignored.has(name)))
    return 'version 12 without a licence ignores custom permission rules, which apply here';
  if (theirs.status >= 500 || isFault(left)) return 'the other server failed';
  if (isError(left) && isError(right)) return 'both refuse, with another code';
  if (relation !== undefined && ours.status === 403 && theirs.status === 200 && !mentions(theirs.body, relation))
    return 'a relation that is not granted is left out there where its target cannot be read, and is 403 here';
  if (kind === 'filter' && collections.slice(1).some((name) => limited.has(name)))
    return 'a filter through a relation reads all related rows there, and here those that the caller may read';
  if (firstDifference(withoutEmpty(left, right), right, '') === null)
    return 'a related item of which nothing may be read is its key there, and an empty object here';
  if (firstDifference(unordered(left), unordered(right), '') === null)
    return 'lists come in another order: without a sort order by their keys here';
  if (isAggregate(question) && collections.slice(0, 1).some((name) => related.has(name)))
    return 'a rule that reads related items counts an item once for each of them there, and once here';
  if (kind !== 'list' && kind !== 'item' && collections.some((name) => uneven.has(name)))
    return 'fields that may be read on some rows only are read on all there, or the items are left out, and are null here';
  if (/(?::|%3A)service_/i.test(question.path))
    return 'many-to-any rows that name a collection of Directus lead to ours after a run without --keep-references';
  return null;
}

function isAggregate({ kind, body }: Question): boolean {
  return kind === 'aggregate' || body?.includes('_aggregated') === true;
}

function isError(content: unknown): boolean {
  return isObject(content) && 'error' in content;
}

/** Whether the server failed. GraphQL reports failures of the server with status 200, too. */
function isFault(content: unknown): boolean {
  return isObject(content) && content['code'] === 'INTERNAL_SERVER_ERROR';
}

/** Whether a name is a key anywhere inside. */
function mentions(value: unknown, name: string): boolean {
  if (Array.isArray(value)) return value.some((each) => mentions(each, name));
  return isObject(value) && (name in value || Object.values(value).some((each) => mentions(each, name)));
}

/** The left value with an empty object wherever the right one has one in the place of a key. */
function withoutEmpty(left: unknown, right: unknown): unknown {
  if (Array.isArray(left) && Array.isArray(right))
    return left.map((each, position) => withoutEmpty(each, right[position]));
  if (isObject(left) && isObject(right))
    return Object.fromEntries(Object.entries(left).map(([name, each]) => [name, withoutEmpty(each, right[name])]));
  return isObject(right) && Object.keys(right).length === 0 && left !== null ? right : left;
}

/** The path of the first difference with both values, or null if there is none. Numbers may be texts, and dates are moments. */
function firstDifference(left: unknown, right: unknown, path: string): string | null {
  if (Array.isArray(left) && Array.isArray(right)) {
    if (left.length !== right.length) return `${path || 'answer'}: ${left.length} entries there, ${right.length} here`;
    return firstOf(left.map((each, position) => [`${path}[${position}]`, each, right[position]]));
  }
  if (isObject(left) && isObject(right)) {
    const names = new Set([...Object.keys(left), ...Object.keys(right)]);
    return firstOf([...names].map((name) => [path ? `${path}.${name}` : name, left[name], right[name]]));
  }
  return isSame(left, right) ? null : `${path || 'answer'}: ${show(left)} there, ${show(right)} here`;
}

function firstOf(pairs: readonly (readonly [path: string, left: unknown, right: unknown])[]): string | null {
  for (const [path, left, right] of pairs) {
    const found = firstDifference(left, right, path);
    if (found !== null) return found;
  }
  return null;
}

function isSame(left: unknown, right: unknown): boolean {
  if (left === right) return true;
  if (typeof left === 'string' && typeof right === 'string' && left.replace(/^directus_/, 'service_') === right)
    return true;
  if (isNumeric(left) && isNumeric(right)) return areClose(Number(left), Number(right));
  return (
    typeof left === 'string' && typeof right === 'string' && isMoment(left) && Date.parse(left) === Date.parse(right)
  );
}

function isNumeric(value: unknown): boolean {
  return typeof value === 'number' || (typeof value === 'string' && /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i.test(value));
}

/** Averages are computed with other numbers of digits. */
function areClose(left: number, right: number): boolean {
  return left === right || Math.abs(left - right) <= 1e-9 * Math.max(Math.abs(left), Math.abs(right));
}

function isMoment(text: string): boolean {
  return /^\d{4}-\d\d-\d\d/.test(text);
}

function unordered(value: unknown): unknown {
  if (Array.isArray(value))
    return value.map(unordered).sort((one, other) => (orderText(one) < orderText(other) ? -1 : 1));
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([one], [other]) => (one < other ? -1 : 1))
      .map(([name, each]) => [name, unordered(each)]),
  );
}

/** A number and its text are equal here. */
function orderText(value: unknown): string {
  return JSON.stringify(value, (_, each: unknown) => (isNumeric(each) ? String(Number(each)) : each)) ?? '';
}

function show(value: unknown): string {
  const text = value === undefined ? 'nothing' : JSON.stringify(value);
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}
