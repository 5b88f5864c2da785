/**
 * The rules that a set of policies adds up to: which collections, rows and fields a caller may read and write. Filters are
 * parsed once, when the policies are loaded; their values are constants of the rule. A filter that cannot be read grants
 * nothing.
 */
import { isObject } from '../../base/exact-json.js';
import { onlyOf } from '../../base/narrow.js';
import type {
  Collection,
  CollectionMeta,
  CollectionPrivileges,
  Computation,
  Field,
  Model,
  RelationMeta,
  RolePrivileges,
} from '../model/model.js';
import type {
  Access,
  Action,
  Grant,
  PlannedRule,
  RestrictedCollection,
  RestrictedModel,
  WriteAction,
} from '../plan/access.js';
import { ALWAYS, type Condition, isAlways } from '../plan/plan.js';
import { planRule, readRuleFilter, readValidation } from '../plan/rules.js';
import type { Filter } from '../request/ast.js';
import type { Input } from '../request/parse-context.js';

/** A row of service_permissions. */
export interface PermissionRow {
  readonly collection: string;
  readonly action: string;
  readonly permissions: unknown;
  readonly validation: unknown;
  readonly presets: unknown;
  readonly fields: string | null;
}

type Rules = ReadonlyMap<string, readonly Rule[]>;

export class Permissions implements Access {
  readonly key: string;
  readonly #rules: Rules;
  readonly #views = new WeakMap<Model, Model>();
  readonly #grants = new WeakMap<Collection, Map<WriteAction, Grant | null>>();

  /** Without a database role, the privileges of roles do not matter. */
  constructor(
    key: string,
    rules: Rules,
    readonly databaseRole: string | null = null,
  ) {
    this.key = key;
    this.#rules = rules;
  }

  /** These rules for callers with this database role: they grant nothing that the role may not do. */
  forRole(role: string): Permissions {
    return new Permissions(`${this.key}@${role}`, this.#rules, role);
  }

  /** None if the action is not allowed at all. */
  rules(action: Action, collection: string): readonly Rule[] {
    return this.#rules.get(`${action} ${collection}`) ?? [];
  }

  /** A rule about rows or values cannot be kept by a call: it allows none. */
  mayExecute(name: string, model: Model): boolean {
    const privileges = this.#ofRole(model);
    const { overloads } = model.functions.get(name) ?? { overloads: [] };
    if (privileges && overloads.every((overload) => isDenied(privileges, overload))) return false;
    return this.rules('execute', name).some(({ where, validation }) => where === null && validation === null);
  }

  view(model: Model): Model {
    const cached = this.#views.get(model);
    if (cached) return cached;
    const view = restrictModel(
      model,
      (collection) => this.permitted('read', collection, model),
      (name) => this.mayExecute(name, model),
      this.#denied(model),
    );
    this.#views.set(model, view);
    return view;
  }

  /** The rules as far as the database role may follow them. */
  permitted(action: Action, name: string, model: Model): readonly Rule[] {
    const rules = this.rules(action, name);
    const ofRole = this.#ofRole(model);
    const collection = model.collections.get(name);
    // Requests for system collections run with the role of the service.
    if (!ofRole || !collection || collection.system || action === 'execute') return rules;
    const privileges = ofRole.collections.get(name);
    if (action === 'delete') return privileges?.delete === false ? [] : rules;
    const columns = privileges?.[action === 'share' ? 'read' : action] ?? null;
    if (columns?.size === 0) return [];
    const fields = [...collection.fields.values()];
    const usable = fields.filter((field) => isUsable(field, columns, ofRole));
    if (usable.length === fields.length) return rules;
    const names = usable.map((field) => field.name);
    return rules.map((rule) => ({ ...rule, fields: new Set(names.filter((each) => rule.fields?.has(each) ?? true)) }));
  }

  /** The privileges of the database role on a collection, or null if it has all or statements run with the role of the service. */
  privileges({ name, system }: Collection, model: Model): CollectionPrivileges | null {
    return system ? null : (this.#ofRole(model)?.collections.get(name) ?? null);
  }

  #denied(model: Model): ReadonlySet<string> {
    const limited = [...(this.#ofRole(model)?.collections ?? [])];
    const denied = limited.filter(([name, { read }]) => read?.size === 0 && !model.collections.get(name)?.system);
    return new Set(denied.map(([name]) => name));
  }

  #ofRole(model: Model): RolePrivileges | null {
    return this.databaseRole === null ? null : (model.rolePrivileges?.get(this.databaseRole) ?? null);
  }

  grant(action: WriteAction, collection: Collection, model: Model): Grant | null {
    const cached = this.#grants.get(collection) ?? new Map<WriteAction, Grant | null>();
    this.#grants.set(collection, cached);
    const before = cached.get(action);
    if (before !== undefined) return before;
    const grant = planGrant(this.permitted(action, collection.name, model), collection, model);
    cached.set(action, grant);
    return grant;
  }
}

const EVERYTHING: Rule = Object.freeze({ where: null, text: '', fields: null, validation: null, presets: {} });

/** Permissions, and conditions that each row must meet in addition to their rules. */
export class ConditionedPermissions extends Permissions {
  /** `given` is null for all permissions. Shares have no rules of their own, so they show nothing of such collections. */
  constructor(
    key: string,
    private readonly given: Permissions | null,
    private readonly filters: ReadonlyMap<string, readonly Filter[]>,
  ) {
    super(key, new Map(), given?.databaseRole ?? null);
  }

  override rules(action: Action, collection: string): readonly Rule[] {
    const rules = this.given ? this.given.rules(action, collection) : [EVERYTHING];
    const filters = action === 'read' ? (this.filters.get(collection) ?? []) : [];
    if (filters.length === 0) return rules;
    return rules.map((rule) => ({
      ...rule,
      where: { kind: 'and', filters: rule.where ? [rule.where, ...filters] : filters },
      // Rules with different texts stay apart.
      text: `${rule.text} conditioned`,
    }));
  }
}

/** `columns` are those that the role may use, or null for all. The function of a computed field gets the whole row. */
function isUsable({ column, computed }: Field, columns: ReadonlySet<string> | null, role: RolePrivileges): boolean {
  if (computed) return columns === null && !isDenied(role, computed);
  return column === null || (columns?.has(column.name) ?? true);
}

function isDenied({ deniedFunctions }: RolePrivileges, called: Computation): boolean {
  return deniedFunctions.has(`${called.schema}.${called.function}`);
}

/** By action and collection, in the order of the rows. */
export function readRules(rows: readonly PermissionRow[]): Rules {
  const rules = new Map<string, Rule[]>();
  for (const row of rows) {
    const rule = readRule(row);
    if (!rule) continue;
    const name = `${row.action} ${row.collection}`;
    rules.set(name, [...(rules.get(name) ?? []), rule]);
  }
  return rules;
}

function readRule(row: PermissionRow): Rule | null {
  const where = readRuleFilter(row.permissions);
  const validation = readValidation(row.validation);
  if (where === undefined || validation === undefined) return null;
  const names = (row.fields ?? '').split(',').flatMap((name) => name.trim() || []);
  return Object.freeze({
    where,
    text: where ? JSON.stringify(row.permissions) : '',
    fields: names.includes('*') ? null : new Set(names),
    validation,
    presets: isObject(row.presets) ? row.presets : {},
  });
}

interface Rule {
  /** Rows it concerns; null for all. */
  readonly where: Filter | null;
  /** The filter as text: rules with the same are one. */
  readonly text: string;
  /** The allowed fields, or null if all are. */
  readonly fields: ReadonlySet<string> | null;
  readonly validation: Filter | null;
  readonly presets: Input;
}

/**
 * The model as a caller may read it. It has only what rules grant, and it says which rows may be seen, and which
 * fields in some of these rows only. Names are resolved against this model, so every part of a request at every level is
 * covered, and what is forbidden looks like what does not exist.
 */
function restrictModel(
  model: Model,
  rulesOf: (collection: string) => readonly Rule[],
  mayExecute: (name: string) => boolean,
  denied: ReadonlySet<string>,
): RestrictedModel {
  const collections = new Map<string, Collection>();
  for (const collection of model.collections.values()) {
    const rules = planRules(rulesOf(collection.name), collection, model);
    if (rules.length > 0) collections.set(collection.name, restrictCollection(collection, rules));
  }
  const { version, schema, schemas, system, extensions, textSearch, synonyms } = model;
  const refused = new Map<string, string>();
  const folders = foldersOf(collections, model);
  const relationRows = model.relationRows.filter((row) => isVisible(row, collections));
  return Object.freeze({
    version,
    schema,
    schemas,
    system,
    collections,
    refused,
    folders,
    relationRows,
    functions: new Map([...model.functions].filter(([name]) => mayExecute(name))),
    refusedFunctions: new Map(),
    extensions,
    textSearch,
    synonyms,
    unrestricted: model,
    denied,
  });
}

/** The folders that contain a visible collection, at any depth. */
function foldersOf(collections: ReadonlyMap<string, Collection>, model: Model): Model['folders'] {
  const folders = new Map<string, CollectionMeta>();
  for (const { meta } of collections.values()) {
    for (let group = meta?.['group']; typeof group === 'string' && !folders.has(group); ) {
      const folder = model.folders.get(group);
      if (!folder) break;
      folders.set(group, folder);
      group = folder['group'];
    }
  }
  return folders;
}

/** Whether both sides of a relation may be known. */
function isVisible(row: RelationMeta, collections: ReadonlyMap<string, Collection>): boolean {
  const many = collections.get(String(row['many_collection']));
  if (!many?.fields.has(String(row['many_field']))) return false;
  return typeof row['one_collection'] !== 'string' || collections.has(row['one_collection']);
}

/** Presets are merged in the order of the rules, what comes later wins; validations all count. */
function planGrant(rules: readonly Rule[], collection: Collection, model: Model): Grant | null {
  const planned = planRules(rules, collection, model);
  if (planned.length === 0) return null;
  return Object.freeze({
    rules: planned,
    fields: planned.map(({ fields }) => fields).reduce(union),
    presets: Object.assign({}, ...rules.map(({ presets }) => presets)),
    validations: rules.flatMap(({ validation }) => validation ?? []),
  });
}

/** Rules about the same rows are one; one that does not fit the schema grants nothing. */
function planRules(rules: readonly Rule[], collection: Collection, model: Model): PlannedRule[] {
  const byText = new Map<string, PlannedRule>();
  for (const { where, text, fields } of rules) {
    const before = byText.get(text);
    const condition = before?.where ?? planRule(where, collection, model);
    if (condition) byText.set(text, { where: condition, fields: before ? union(before.fields, fields) : fields });
  }
  return [...byText.values()];
}

function union(one: ReadonlySet<string> | null, other: ReadonlySet<string> | null): ReadonlySet<string> | null {
  return one && other ? new Set([...one, ...other]) : null;
}

function restrictCollection(collection: Collection, rules: readonly PlannedRule[]): RestrictedCollection {
  const fields = new Map<string, Field>();
  const masks = new Map<string, Condition>();
  const known = new Map<string, Condition>();
  for (const field of collection.fields.values()) {
    if (WITHHELD.has(`${collection.name}.${field.name}`)) continue;
    const granting = rules.filter((rule) => rule.fields?.has(field.name) ?? true);
    if (granting.length === 0) continue;
    fields.set(field.name, field);
    if (granting.length === rules.length) continue;
    // The same condition is the same object: a statement finds it out once for all fields it concerns.
    const name = granting.map((rule) => rules.indexOf(rule)).join();
    const mask = known.get(name) ?? anyOf(granting.map(({ where }) => where));
    known.set(name, mask);
    if (!isAlways(mask)) masks.set(field.name, mask);
  }
  const { sortField } = collection;
  return Object.freeze({
    ...collection,
    fields,
    sortField: sortField !== null && fields.has(sortField) ? sortField : null,
    restriction: Object.freeze({ unrestricted: collection, rows: anyOf(rules.map(({ where }) => where)), masks }),
  });
}

/** Shown piece by piece: the changes of a version are those of its item, and seen as far as the item is. */
const WITHHELD: ReadonlySet<string> = new Set(['service_versions.delta']);

function anyOf(conditions: readonly Condition[]): Condition {
  if (conditions.some(isAlways)) return ALWAYS;
  return onlyOf(conditions) ?? { kind: 'or', conditions };
}
