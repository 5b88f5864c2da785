/** The permissions of a caller, for applications that show or hide what can be done. */

import type { Permissions } from '../../compiler/access/permissions.js';
import type { Collection, Model } from '../../compiler/model/model.js';
import { shownName } from '../../compiler/model/synonyms.js';
import type { Action } from '../../compiler/plan/access.js';

export interface Allowed {
  readonly access: 'none' | 'partial' | 'full';
  readonly fields?: readonly string[];
  readonly presets?: Readonly<Record<string, unknown>>;
}

export const SCHEMA_TABLES: readonly string[] = ['service_collections', 'service_fields', 'service_relations'];

const ACTIONS = ['create', 'read', 'update', 'delete', 'share'] as const;

/** By collection or function, then by action; of what the caller has nothing to do with there is nothing to say. */
export function describePermissions(model: Model, access: Permissions | null): Record<string, Record<string, Allowed>> {
  const described: Record<string, Record<string, Allowed>> = {};
  for (const collection of model.collections.values()) {
    const actions = Object.fromEntries(
      ACTIONS.map((action) => [action, describeAction(action, collection, model, access)]),
    );
    if (Object.values(actions).some((each) => each.access !== 'none'))
      described[shownName(model.synonyms, collection.name)] = actions;
  }
  for (const name of model.functions.keys())
    if (!access || access.mayExecute(name, model))
      described[name] = { ...described[name], execute: { access: 'full' } };
  return described;
}

/** Users of the app read the tables that describe the schema by /collections, /fields and /relations, as far as their permissions go. */
export function describeSchemaTables({ synonyms }: Pick<Model, 'synonyms'>): Record<string, Record<string, Allowed>> {
  const none: Allowed = { access: 'none' };
  const read: Allowed = { access: 'full', fields: ['*'] };
  const actions = { create: none, read, update: none, delete: none, share: none };
  return Object.fromEntries(SCHEMA_TABLES.map((name) => [shownName(synonyms, name), actions]));
}

export function describeAction(
  action: Action,
  collection: Collection,
  model: Model,
  access: Permissions | null,
): Allowed {
  if (!access) return { access: 'full', fields: ['*'] };
  const rules = access.permitted(action, collection.name, model);
  if (rules.length === 0) return { access: 'none' };
  const names = rules.some(({ fields }) => fields === null)
    ? ['*']
    : [...new Set(rules.flatMap(({ fields }) => [...(fields ?? [])]))];
  const presets: Record<string, unknown> = Object.assign({}, ...rules.map((rule) => rule.presets));
  return {
    access: action === 'create' || rules.some(({ where }) => where === null) ? 'full' : 'partial',
    ...(names.length > 0 && { fields: names }),
    ...(Object.keys(presets).length > 0 && { presets }),
  };
}
