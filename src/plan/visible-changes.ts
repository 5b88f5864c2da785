/**
 * Of the changes of a content version what a caller may see: fields of the item that they see, and of related items where they may see
 * every row. Which of them a change is about is not looked up.
 */
import { isObject } from '../base/exact-json.js';
import { keyNames } from '../mirror/item-key.js';
import { type Collection, isSecretField, type Model } from '../mirror/model.js';
import { ownValue } from '../mirror/synonyms.js';
import type { Input } from '../request/parse-context.js';
import { isMasked, restrictionOf } from './access.js';
import { isAlways } from './plan.js';
import { CONCEALED } from './write/column-value.js';

/** `model` is the one that the caller may see, `item` what they see of the item. */
export function visibleChanges(
  changes: unknown,
  collection: Collection | undefined,
  model: Model,
  item: Input = {},
): Input {
  if (!collection || !isObject(changes)) return {};
  const shown = Object.entries(changes).flatMap(([name, value]) => {
    const field = collection.fields.get(name);
    const isHidden = field && isMasked(collection, field) && (item[name] ?? null) === null;
    if (!field || isHidden) return [];
    if (isSecretField(field)) return [[name, value === null ? null : CONCEALED] as const];
    const { relation } = field;
    if (!relation) return [[name, value] as const];
    const target =
      relation.kind === 'many-to-any'
        ? ownValue(model.synonyms, changes[relation.collectionField])
        : targetOf(relation, field.name);
    return [[name, visibleValue(value, model.collections.get(String(target)), model)] as const];
  });
  return Object.fromEntries(shown);
}

type Related = Exclude<NonNullable<Parameters<typeof isSecretField>[0]['relation']>, { kind: 'many-to-any' }>;

function targetOf(relation: Related, field: string): string {
  return relation.kind === 'many-to-one' && relation.manyField === field
    ? relation.oneCollection
    : relation.manyCollection;
}

/** A key, an item, a list of both, or what is created, updated and deleted. */
function visibleValue(value: unknown, target: Collection | undefined, model: Model): unknown {
  if (Array.isArray(value)) return value.map((each) => visibleValue(each, target, model));
  if (!isObject(value)) return value;
  const names = Object.keys(value);
  const isDetailed = names.length > 0 && names.every((name) => ['create', 'update', 'delete'].includes(name));
  if (!isDetailed) return visibleChanges(maySeeAll(target) ? value : keyIn(value, target), target, model);
  return Object.fromEntries(names.map((name) => [name, visibleValue(value[name], target, model)]));
}

/** Whether no rule of the caller leaves rows of the collection out. */
export function maySeeAll(target: Collection | undefined): boolean {
  const restriction = target && restrictionOf(target);
  return !restriction || isAlways(restriction.rows);
}

function keyIn(value: Input, target: Collection | undefined): Input {
  const names = target ? keyNames(target) : [];
  return Object.fromEntries(names.flatMap((name) => (name in value ? [[name, value[name]]] : [])));
}
