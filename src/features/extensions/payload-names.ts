/** The names in a payload: one that is no field is refused before hooks see the payload. */
import { invalidPayload } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import type { Collection, Field, Model } from '../../compiler/model/model.js';
import { ownValue } from '../../compiler/model/synonyms.js';
import type { Access, WriteAction } from '../../compiler/plan/access.js';
import { Guard } from '../../compiler/plan/write/guard.js';
import { operatorIn } from '../../compiler/plan/write/operators.js';
import type { Payload } from '../../compiler/plan/write/payload-row.js';
import { SET } from '../../compiler/request/update-operators.js';
import { targetsOf } from './extensions.js';

/** The plan refuses payloads that are nested more deeply. */
export const MAX_DEPTH = 1_000;

const UPSERT: readonly WriteAction[] = ['create', 'update'];

export class PayloadNames {
  constructor(
    private readonly model: Model,
    private readonly access: Access | null,
  ) {}

  /** `path` is '' for the payload of one item. */
  check(collection: Collection, payload: Payload, rights: readonly WriteAction[], path: string): void {
    this.#item({ collection, rights, path, depth: 0 }, payload);
  }

  #item(place: Place, payload: Payload): void {
    const { collection, path, depth } = place;
    if (depth > MAX_DEPTH) return;
    for (const name of Object.keys(payload)) {
      const field = collection.fields.get(name);
      const fieldPath = path === '' ? name : `${path}.${name}`;
      if (!field) throw this.#unknown(place, name, fieldPath);
      if (!field.relation || !isNesting(payload[name])) continue;
      const target = this.#targetOf(field, payload);
      if (target)
        this.#related({ collection: target, rights: UPSERT, path: fieldPath, depth: depth + 1 }, field, payload);
    }
  }

  #related(place: Place, field: Field, payload: Payload): void {
    const value = payload[field.name];
    const named = isObject(value) ? operatorIn(field, value, this.model) : null;
    // The plan refuses other operators of relations.
    if (named?.operator || named?.isMixed) return;
    const meant = named && isObject(value) ? value[SET] : value;
    if (Array.isArray(meant)) this.#entries(place, meant);
    else if (isObject(meant) && field.relation?.kind === 'one-to-many') {
      for (const list of ['create', 'update']) this.#entries({ ...place, path: `${place.path}.${list}` }, meant[list]);
    } else if (isObject(meant)) this.#item(place, meant);
  }

  #entries(place: Place, entries: unknown): void {
    if (!Array.isArray(entries)) return;
    for (const [position, entry] of entries.entries())
      if (isObject(entry)) this.#item({ ...place, path: `${place.path}.${position}` }, entry);
  }

  #targetOf({ relation }: Field, payload: Payload): Collection | undefined {
    if (!relation) return undefined;
    const { collections, synonyms } = this.model;
    const name =
      relation.kind === 'many-to-any' ? ownValue(synonyms, payload[relation.collectionField]) : targetsOf(relation)[0];
    return collections.get(String(name));
  }

  /** The error that the plan would throw. Without the right to write every field, it does not name the fields that exist. */
  #unknown({ collection, rights, path }: Place, name: string, fieldPath: string): Error {
    const { access, model } = this;
    const right = rights.find((each) => access?.grant(each, collection, model)) ?? rights[0];
    if (access && right) new Guard(access, model).check(right, collection, [name], path);
    return invalidPayload(`"${fieldPath}" is not a field of "${collection.name}"`);
  }
}

/** An item of a payload. */
interface Place {
  readonly collection: Collection;
  /** Those by which it may be written. */
  readonly rights: readonly WriteAction[];
  readonly path: string;
  readonly depth: number;
}

function isNesting(value: unknown): boolean {
  return typeof value === 'object' && value !== null;
}
