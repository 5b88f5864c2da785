/** The part of the model that a set of rules lets a caller see, in the terms that the schema of GraphQL is built from. */
import type { SchemaAccess } from '../graphql/schema-access.js';
import type { Model } from '../model/model.js';
import { isMasked } from '../plan/access.js';
import type { Permissions } from './permissions.js';

const known = new WeakMap<
  Model,
  { readonly whole: SchemaAccess; readonly restricted: WeakMap<Permissions, SchemaAccess> }
>();

/** `permissions` is null for administrators. */
export function schemaAccessOf(permissions: Permissions | null, model: Model): SchemaAccess {
  const cached = known.get(model) ?? { whole: everything(model), restricted: new WeakMap() };
  known.set(model, cached);
  if (!permissions) return cached.whole;
  const before = cached.restricted.get(permissions);
  if (before) return before;
  const access = restricted(permissions, model);
  cached.restricted.set(permissions, access);
  return access;
}

function everything(model: Model): SchemaAccess {
  return {
    key: 'everything',
    readable: model,
    model,
    writable: () => 'all',
    mayDelete: () => true,
    isCertain: () => true,
  };
}

function restricted(permissions: Permissions, model: Model): SchemaAccess {
  return {
    key: permissions.key,
    readable: permissions.view(model),
    model,
    writable: ({ name }, action) => writableFields(permissions.permitted(action, name, model)),
    mayDelete: ({ name }) => permissions.permitted('delete', name, model).length > 0,
    isCertain: (collection, field) => !isMasked(collection, field),
  };
}

function writableFields(rules: ReturnType<Permissions['permitted']>): ReturnType<SchemaAccess['writable']> {
  if (rules.length === 0) return null;
  if (rules.some(({ fields }) => fields === null)) return 'all';
  return new Set(rules.flatMap(({ fields }) => [...(fields ?? [])]));
}
