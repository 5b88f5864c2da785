/**
 * The model as a caller may read it. It has only what rules grant, and it says which rows may be seen, and which
 * fields in some of these rows only. Names are resolved against this model, so every part of a request at every level is
 * covered, and what is forbidden looks like what does not exist.
 */

import { onlyOf } from '../base/narrow.js';
import type { Collection, CollectionMeta, Field, Model, RelationMeta } from '../mirror/model.js';
import type { Grant, PlannedRule, RestrictedCollection, RestrictedModel } from '../plan/access.js';
import { ALWAYS, type Condition, isAlways } from '../plan/plan.js';
import { planRule } from '../plan/rules.js';
import type { Filter } from '../request/ast.js';
import type { Input } from '../request/parse-context.js';

export interface Rule {
  /** Rows it concerns; null for all. */
  readonly where: Filter | null;
  /** The filter as text: rules with the same are one. */
  readonly text: string;
  /** Null for all. */
  readonly fields: ReadonlySet<string> | null;
  readonly validation: Filter | null;
  readonly presets: Input;
}

export function restrictModel(
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

/** Those that group something visible, at any depth. */
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
export function planGrant(rules: readonly Rule[], collection: Collection, model: Model): Grant | null {
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
