/** The permissions of a caller, for applications that show or hide what can be done. */
import type { Collection, Model } from '../mirror/model.js';
import { shownName } from '../mirror/synonyms.js';
import type { Action } from '../plan/access.js';
import type { Permissions } from './permissions.js';

export interface Allowed {
  readonly access: 'none' | 'partial' | 'full';
  readonly fields?: readonly string[];
  readonly presets?: Readonly<Record<string, unknown>>;
}

const ACTIONS = ['create', 'read', 'update', 'delete', 'share'] as const;

/** By collection or function, then by action; of what the caller has nothing to do with there is nothing to say. */
export function describePermissions(model: Model, access: Permissions | null): Record<string, Record<string, Allowed>> {
  const described: Record<string, Record<string, Allowed>> = {};
  for (const collection of model.collections.values()) {
    const actions = Object.fromEntries(ACTIONS.map((action) => [action, describeAction(action, collection, access)]));
    if (Object.values(actions).some((each) => each.access !== 'none'))
      described[shownName(model.synonyms, collection.name)] = actions;
  }
  for (const name of model.functions.keys())
    if (!access || access.mayExecute(name)) described[name] = { ...described[name], execute: { access: 'full' } };
  return described;
}

export function describeAction(action: Action, collection: Collection, access: Permissions | null): Allowed {
  if (!access) return { access: 'full', fields: ['*'] };
  const rules = access.rules(action, collection.name);
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
