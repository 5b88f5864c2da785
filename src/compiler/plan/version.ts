/** `version`: items are shown with the changes of a content version, and only those that have it. */
import { forbidden, forbiddenCollection, forbiddenField, invalidQuery } from '../../base/errors.js';
import { hasVersions } from '../model/item-key.js';
import type { Collection, Field, Model } from '../model/model.js';
import type { ReadRequest, Slot } from '../request/ast.js';
import { unrestrictedCollection } from './access.js';
import type { Condition, RowLevel, VersionPlan } from './plan.js';

export const VERSIONS = 'service_versions';

/** The name under which Directus 12 shows the version of an item. Requests do not ask for it, so only Directus clients get it. */
const META = '$meta';

/** Returns null if the request names no version. If the version does not exist, the statement finds no item. */
export function planVersion(request: ReadRequest, collection: Collection, model: Model): VersionPlan | null {
  const { version, query } = request;
  if (version === undefined) return null;
  if (query.aggregate || query.groupBy) throw invalidQuery('"version" does not apply to aggregates');
  if (!hasVersions(collection))
    throw forbidden(`Content versioning is not enabled for collection "${collection.name}".`);
  const versions = model.collections.get(VERSIONS);
  if (!versions) throw forbiddenCollection(VERSIONS);
  const field = (name: string): Field => {
    const found = versions.fields.get(name);
    if (!found) throw forbiddenField(name, VERSIONS, 'version');
    return found;
  };
  const item = field('item');
  const toMany = {
    collection: versions,
    field: item,
    columns: [item],
    via: null,
    named: { field: field('collection'), collection: collection.name },
    origin: collection,
    key: collection.key,
  };
  const delta = unrestrictedCollection(versions).fields.get('delta');
  if (!delta) throw new Error(`"${VERSIONS}" has no field "delta"`);
  const id = request.showsVersion && model.synonyms && !collection.fields.has(META) ? versions.fields.get('id') : null;
  return { toMany, where: isNamed(field('key'), version), delta, ...(id && { id }) };
}

function isNamed(field: Field, slot: Slot): Condition {
  const value = { kind: 'slot', slot, codec: 'text', composite: null, label: 'version' } as const;
  return { kind: 'compare', operand: { kind: 'field', through: [], field }, operator: 'eq', value };
}

/** Items that have the version. */
export function ofVersion(version: VersionPlan | null): Condition[] {
  if (!version) return [];
  return [{ kind: 'exists', through: [], toMany: version.toMany, negated: false, where: version.where }];
}

export function shownAs(level: RowLevel, version: VersionPlan | null): RowLevel {
  if (!version) return level;
  const outputs: RowLevel['outputs'] = version.id ? [...level.outputs, { kind: 'version', name: META }] : level.outputs;
  return { ...level, outputs, version };
}
