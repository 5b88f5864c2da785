/**
 * The activity of a schema change: an entry for each collection, field and relation that it creates, changes or deletes, from
 * their descriptions before and after it. Pure.
 */
import { isObject } from '../../../base/exact-json.js';
import { mapSteps, type Steps } from '../../../base/time-slices.js';
import { describeCollection, describeFields, describeRelations } from '../../../compiler/model/describe-model.js';
import type { Model } from '../../../compiler/model/model.js';
import type { DdlStatement } from './ddl-statement.js';

/** An entry of the activity, with its revision. */
interface SchemaActivity {
  readonly action: 'create' | 'update' | 'delete';
  readonly collection: string;
  readonly item: string;
  /** The description, or null if the revisions are not kept. */
  readonly data: Properties | null;
  /** The properties that changed. */
  readonly delta: Properties | null;
}

type Properties = Readonly<Record<string, unknown>>;

/** The collections that a step may change, with their fields and relations. */
export function touchedBy(step: DdlStatement): readonly string[] {
  switch (step.kind) {
    case 'add-relation':
      return [String(step.values['many_collection'])];
    case 'add-foreign-key':
      return [step.table, step.target];
    default:
      if ('table' in step) return [step.table];
      return 'collection' in step ? [step.collection] : [];
  }
}

/** A collection, field or relation. */
interface Described {
  /** A name that is the same before and after. */
  readonly name: string;
  /** The id of its metadata, or null without. */
  readonly id: unknown;
  readonly properties: Properties;
}

export function* schemaActivity(before: Model, after: Model, touched: ReadonlySet<string>): Steps<SchemaActivity[]> {
  const entries: SchemaActivity[] = [];
  for (const [table, describe] of Object.entries(DESCRIPTIONS)) {
    const { accountability } = after.collections.get(table) ?? { accountability: null };
    if (accountability === null) continue;
    const former = new Map((yield* describe(before, touched)).map((each) => [each.name, each]));
    const current = new Map((yield* describe(after, touched)).map((each) => [each.name, each]));
    for (const name of new Set([...current.keys(), ...former.keys()])) {
      const change = compare(former.get(name), current.get(name));
      if (change) entries.push({ ...change, ...(accountability === 'all' ? {} : NO_REVISION), collection: table });
      yield;
    }
  }
  return entries;
}

const NO_REVISION = { data: null, delta: null };

/** The revision of a deletion has what was deleted, since its key is a number that nothing else explains. */
function compare(
  before: Described | undefined,
  after: Described | undefined,
): Omit<SchemaActivity, 'collection'> | null {
  const item = String(after?.id ?? before?.id ?? after?.name ?? before?.name);
  if (!after) return before ? { action: 'delete', item, data: before.properties, delta: null } : null;
  if (!before) return { action: 'create', item, data: after.properties, delta: after.properties };
  const delta = changesOf(before.properties, after.properties);
  return Object.keys(delta).length === 0 ? null : { action: 'update', item, data: after.properties, delta };
}

/** The changed properties, also those of the metadata and the column. */
function changesOf(before: Properties, after: Properties): Properties {
  const changed = Object.entries(after).filter(([name, value]) => !isSame(value, before[name]));
  return Object.fromEntries(
    changed.map(([name, value]) => {
      const former = before[name];
      return [name, isObject(value) && isObject(former) ? changesOf(former, value) : value];
    }),
  );
}

/** As texts: a comparison of the values would overflow the stack where metadata is nested thousands of levels deep. */
function isSame(one: unknown, other: unknown): boolean {
  return one === other || JSON.stringify(one) === JSON.stringify(other);
}

type Describe = (model: Model, touched: ReadonlySet<string>) => Steps<Described[]>;

const DESCRIPTIONS: Readonly<Record<string, Describe>> = {
  service_collections: function* (model, touched) {
    const found = yield* mapSteps([...touched], (name) => describeCollection(model, name));
    return found.flatMap((each) =>
      each ? [{ name: each.collection, id: each.collection, properties: { ...each } }] : [],
    );
  },

  service_fields: function* (model, touched) {
    const collections = [...touched].flatMap((name) => model.collections.get(name) ?? []);
    const found = yield* mapSteps(collections, describeFields);
    return (
      found
        .flat()
        // The list that a relation names is no field of its own before it has metadata.
        .filter(({ schema, meta }) => schema !== null || meta !== null)
        .map((each) => ({
          name: `${each.collection}.${each.field}`,
          id: each.meta?.['id'] ?? null,
          properties: { ...each, schema: each.schema && withoutReference(each.schema) },
        }))
    );
  },

  service_relations: function* (model, touched) {
    return describeRelations(model)
      .filter((each) => touched.has(each.collection) || touched.has(each.related_collection ?? ''))
      .map((each) => ({
        name: `${each.collection}.${each.field}`,
        id: each.meta['id'] ?? null,
        properties: { ...each },
      }));
  },
};

/** The foreign key is a part of the relation. */
function withoutReference(schema: Properties): Properties {
  const { foreign_key_table: _, foreign_key_column: __, ...column } = schema;
  return column;
}
