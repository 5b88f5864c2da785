/**
 * How the objects of a database become those of a snapshot. Objects that leave are dropped before the tables change. Missing objects are
 * created after that, as the catalog then shows them: a dropped column may have taken an index along. Pure.
 */
import { invalidPayload, unprocessable } from '../../base/errors.js';
import { groupBy } from '../../base/narrow.js';
import type { Model } from '../../compiler/model/model.js';
import type { ColumnDefinition, DdlStatement, Definition } from '../../server/schema/change/ddl-statement.js';
import { initialOf } from './apply-columns.js';
import {
  alterSequence,
  type Coverage,
  commentObject,
  coverageOf,
  createObject,
  dropObject,
  inOrder,
  isSameObject,
  kindOfObject,
  nameOfObject,
  type ObjectEntry,
  ownSequence,
  renameObject,
} from './objects.js';
import type { FieldEntry } from './parse-snapshot.js';
import { keyOf, type PresentObject } from './present-objects.js';

export interface ObjectPlan {
  readonly wanted: readonly ObjectEntry[];
  /** The first served schema. */
  readonly first: string;
  /** Before the tables change. */
  readonly before: readonly DdlStatement[];
  /** Changes of tables, which leave out what objects define. */
  readonly tables: readonly DdlStatement[];
  readonly foreignKeys: readonly DdlStatement[];
  /** When all objects exist. */
  readonly after: readonly DdlStatement[];
  /** Collections of tables with rows, by table: identities there continue after the present values. */
  readonly filled: ReadonlyMap<string, string>;
}

interface Planning {
  readonly wanted: readonly ObjectEntry[];
  readonly fields: readonly FieldEntry[];
  readonly model: Model;
  readonly present: readonly PresentObject[];
  readonly steps: readonly DdlStatement[];
}

export function planObjects(planning: Planning): ObjectPlan {
  const { wanted, present, model, steps } = planning;
  const first = model.schema;
  const locations = locationsOf(steps, model);
  const removed = removals(planning);
  const tables = withObjects(steps, wanted, first, locations).filter((step) => !removed.names.has(dropKey(step)));
  const parts = groupBy(tables, ({ kind }) =>
    kind === 'drop-constraint' ? 'before' : kind === 'add-foreign-key' ? 'foreign' : 'tables',
  );
  const created = new Set(steps.flatMap((step) => (step.kind === 'create-table' ? [step.table] : [])));
  const names = new Set(wanted.map(({ name }) => name));
  const isGone = ({ entry, isEntry }: PresentObject): boolean => isEntry && !names.has(entry.name);
  const gone = present.filter((each) => isGone(each) && LATE.has(kindOfObject(each.entry)));
  return {
    wanted: inOrder(wanted, first),
    first,
    // Foreign keys leave before the keys that they refer to.
    before: [...dropViews(planning), ...(parts.get('before') ?? []), ...removed.steps],
    tables: parts.get('tables') ?? [],
    foreignKeys: parts.get('foreign') ?? [],
    after: [...gone.map(({ entry }) => dropObject(entry, first)).reverse(), ...usualValues(planning)],
    filled: new Map([...locations].flatMap(([name, table]) => (created.has(name) ? [] : [[table, name] as const]))),
  };
}

/** Columns may have had these until their tables changed. */
const LATE: ReadonlySet<string> = new Set(['enum', 'domain', 'type', 'sequence']);

/** Never dropped: another service of the database may use it. */
const EXTENSION = 'extension';

interface Removals {
  readonly steps: readonly DdlStatement[];
  /** Constraints and indexes, by `dropKey` of a step that would drop them. */
  readonly names: ReadonlySet<string>;
}

/** Constraints, indexes and parts of columns that leave or change. One that only gets another name is renamed. */
function removals({ wanted, present, model, steps }: Planning): Removals {
  const first = model.schema;
  const byName = new Map(wanted.map((each) => [each.name, each]));
  const presentNames = new Set(present.map(({ entry }) => entry.name));
  const added = new Map(
    groupBy(
      wanted.filter(({ name }) => !presentNames.has(name) && /^(constraint|index) /.test(name)),
      (each) => tableOf(each, first),
    ),
  );
  const droppedByTables = new Set(steps.map(dropKey));
  const droppedTables = new Set(steps.flatMap((step) => (step.kind === 'drop-table' ? [step.table] : [])));
  const result: DdlStatement[] = [];
  const names = new Set<string>();
  const remove = (object: PresentObject, step: DdlStatement): void => {
    result.push(step);
    names.add(keyOf(object.collection ?? '', nameOfObject(object.entry).own));
  };
  const isForeign = ({ entry }: PresentObject): boolean => entry.definition.startsWith('FOREIGN KEY');
  for (const object of [...present.filter(isForeign), ...present.filter((each) => !isForeign(each))]) {
    const { entry, isEntry, usualName } = object;
    const kind = kindOfObject(entry);
    if (droppedTables.has(object.collection ?? '') && !isForeign(object)) continue;
    const same = byName.get(entry.name);
    if (LATE.has(kind) || kind === EXTENSION || /view$/.test(kind) || (same && isSameObject(entry, same))) continue;
    const renamed = same ? undefined : added.get(tableOf(entry, first))?.find((each) => isSameObject(each, entry));
    if (renamed && !droppedByTables.has(keyOf(object.collection ?? '', nameOfObject(entry).own))) {
      remove(object, renameObject(entry, nameOfObject(renamed).own, first));
      added.set(
        tableOf(entry, first),
        (added.get(tableOf(entry, first)) ?? []).filter((each) => each !== renamed),
      );
    } else if (same || (isEntry && usualName === null) || isReplaced(entry, byName)) {
      if (kind === 'generated' && same) throw regenerated(entry);
      remove(object, dropObject(entry, first));
    } else if (
      isEntry &&
      usualName !== null &&
      !droppedByTables.has(keyOf(object.collection ?? '', nameOfObject(entry).own))
    )
      remove(object, renameObject(entry, usualName, first));
  }
  return { steps: result, names };
}

/** An identity has a sequence, whose name the sequence of a default may get. */
function isReplaced({ name }: ObjectEntry, wanted: ReadonlyMap<string, ObjectEntry>): boolean {
  return name.startsWith('identity ') && wanted.has(name.replace('identity', 'default'));
}

function regenerated({ name }: ObjectEntry): Error {
  const { table, own } = nameOfObject({ name });
  return invalidPayload(
    `How the field "${table}.${own}" is generated cannot be changed: delete it and create it again`,
  );
}

function tableOf(entry: ObjectEntry, first: string): string {
  const { kind, schema, table } = nameOfObject(entry);
  return keyOf(kind, schema ?? first, table ?? '');
}

/** Identifies a constraint or index in a step that drops it. Empty for other steps. */
function dropKey(step: DdlStatement): string {
  return step.kind === 'drop-constraint' || step.kind === 'drop-index' ? keyOf(step.table, step.name) : '';
}

/** Views that leave or change, and those that read them or a column that leaves. They are created again at the end. */
function dropViews({ wanted, present, model, steps }: Planning): DdlStatement[] {
  const byName = new Map(wanted.map((each) => [each.name, each]));
  const views = present.filter(({ entry }) => /view$/.test(kindOfObject(entry)));
  const locations = locationsOf([], model);
  const changed = new Set(
    steps.flatMap((step) =>
      step.kind === 'drop-column' || step.kind === 'change-type' || step.kind === 'drop-table'
        ? [locations.get(step.table) ?? '']
        : [],
    ),
  );
  const first = model.schema;
  const dropped: PresentObject[] = [];
  for (const view of views) {
    const same = byName.get(view.entry.name);
    const isStale = view.needs.some((name) => changed.has(relationKey(name, first)));
    if (same && isSameObject(view.entry, same) && !isStale) continue;
    if (same && view.isKept)
      throw unprocessable(
        `The ${view.entry.name} must be dropped and created again, which loses its grants and triggers. Drop it first`,
      );
    dropped.push(view);
    changed.add(view.table ?? '');
  }
  return dropped.map(({ entry }) => dropObject(entry, first)).reverse();
}

function relationKey(name: string, first: string): string {
  const { schema, own } = nameOfObject({ name: `view ${name}` });
  return keyOf(schema ?? first, own);
}

/** The tables of collections, also of those that the steps create. */
function locationsOf(steps: readonly DdlStatement[], model: Model): Map<string, string> {
  const locations = new Map([...model.collections.values()].map((each) => [each.name, keyOf(each.schema, each.table)]));
  for (const step of steps)
    if (step.kind === 'create-table')
      locations.set(
        step.table,
        keyOf(step.qualifiedName?.schema ?? model.schema, step.qualifiedName?.name ?? step.table),
      );
  return locations;
}

/** The steps without what objects define: keys, indexes, and the values of columns. */
function withObjects(
  steps: readonly DdlStatement[],
  wanted: readonly ObjectEntry[],
  first: string,
  locations: ReadonlyMap<string, string>,
): DdlStatement[] {
  const covered = new Set<string>();
  const columns = new Map<string, ObjectEntry>();
  for (const entry of wanted) {
    const { kind, schema, table, own } = nameOfObject(entry);
    const at = keyOf(schema ?? first, table ?? '');
    const coverage = coverageOf(entry);
    if (coverage) covered.add(coverageKey(at, coverage));
    if (kind === 'default' || kind === 'identity' || kind === 'generated') columns.set(keyOf(at, own), entry);
  }
  const isCovered = (table: string, kind: Coverage['kind'], names: readonly string[]): boolean =>
    covered.has(coverageKey(locations.get(table) ?? '', { kind, columns: names }));
  const column = (table: string, definition: ColumnDefinition): ColumnDefinition => {
    const entry = columns.get(keyOf(locations.get(table) ?? '', definition.name));
    const primaryKey = definition.primaryKey && !isCovered(table, 'primary', [definition.name]);
    if (!entry) return { ...definition, primaryKey };
    const isGenerated = kindOfObject(entry) === 'generated';
    return {
      ...definition,
      primaryKey,
      autoIncrement: false,
      generated: isGenerated ? { text: entry.definition, columns: [] } : definition.generated,
    };
  };
  return steps.flatMap((step): DdlStatement[] => {
    switch (step.kind) {
      case 'add-unique':
        return isCovered(step.table, 'unique', step.columns) ? [] : [step];
      case 'create-index':
        return isCovered(step.table, 'index', step.columns) ? [] : [step];
      case 'add-foreign-key':
        return isCovered(step.table, 'foreign', step.columns) ? [] : [step];
      case 'add-column':
        return [{ ...step, column: column(step.table, step.column) }];
      case 'create-table':
        return [
          {
            ...step,
            columns: step.columns.map((each) => column(step.table, each)),
            key: isCovered(step.table, 'primary', step.key) ? [] : step.key,
          },
        ];
      default:
        return [step];
    }
  });
}

function coverageKey(table: string, { kind, columns }: Coverage): string {
  return keyOf(table, kind, ...columns);
}

/** Columns whose values objects defined, and fields of the snapshot do: those that count, and those with another default. */
function usualValues({ wanted, present, fields, steps }: Planning): Definition[] {
  const names = new Set(wanted.map(({ name }) => name));
  const wantedFields = new Map(fields.map((each) => [keyOf(each.collection, each.field), each]));
  const altered = new Set(
    steps.flatMap((step) =>
      step.kind === 'add-identity' || step.kind === 'set-default' ? [keyOf(step.table, step.column)] : [],
    ),
  );
  return present.flatMap(({ entry, isEntry, collection: table }): Definition[] => {
    const { kind, own: column } = nameOfObject(entry);
    const path = entry.name.slice(kind.length);
    const schema = wantedFields.get(keyOf(table ?? '', column))?.schema;
    if (!isEntry || !table || !schema || (kind !== 'default' && kind !== 'identity')) return [];
    if (names.has(`default${path}`) || names.has(`identity${path}`) || altered.has(keyOf(table, column))) return [];
    if (schema.has_auto_increment)
      return [
        { kind: 'add-identity', table, column },
        { kind: 'advance-identity', table, column },
      ];
    const initial = initialOf(column, schema);
    return initial ? [{ kind: 'set-default', table, column, initial }] : [];
  });
}

/** Which objects are created: types before tables, keys before foreign keys, views at the end. */
export type Stage = 'types' | 'keys' | 'rest';

const TYPES: ReadonlySet<string> = new Set([EXTENSION, 'enum', 'domain', 'type', 'sequence']);

function isOf(stage: Stage, entry: ObjectEntry, views: ReadonlySet<string>): boolean {
  const kind = kindOfObject(entry);
  if (stage === 'types') return TYPES.has(kind);
  if (TYPES.has(kind)) return false;
  const { schema, table } = nameOfObject(entry);
  const isLast =
    /view$/.test(kind) || entry.definition.startsWith('FOREIGN KEY') || views.has(keyOf(schema ?? '', table ?? ''));
  return stage === (isLast ? 'rest' : 'keys');
}

/** Creates what the database does not have yet. */
export function createMissing(
  { wanted, first, filled }: ObjectPlan,
  present: readonly ObjectEntry[],
  stage: Stage,
): DdlStatement[] {
  const byName = new Map(present.map((entry) => [entry.name, entry]));
  const views = new Set(
    wanted.flatMap((each) => {
      const { kind, schema, own } = nameOfObject(each);
      return kind === 'materialized view' ? [keyOf(schema ?? '', own)] : [];
    }),
  );
  return wanted.flatMap((entry): DdlStatement[] => {
    const former = byName.get(entry.name);
    if (!isOf(stage, entry, views)) return [];
    const comments = (former?.comment ?? null) === entry.comment ? [] : [commentObject(entry, first)];
    if (former && isSameObject(former, entry)) return comments;
    return [...creation(entry, former, first), ...continuation(entry, first, filled), ...comments];
  });
}

function creation(entry: ObjectEntry, former: ObjectEntry | undefined, first: string): DdlStatement[] {
  const kind = kindOfObject(entry);
  if (kind === 'generated') throw regenerated(entry);
  if (kind === EXTENSION && former) throw invalidPayload(`The ${entry.name} is in another schema of the database`);
  if (kind === 'sequence' && former) return [alterSequence(entry, first)];
  return [...(former ? [dropObject(former, first)] : []), createObject(entry, first)];
}

/** A new sequence begins after the values that the table has. */
function continuation(entry: ObjectEntry, first: string, filled: ObjectPlan['filled']): DdlStatement[] {
  const { kind, schema, table, own } = nameOfObject(entry);
  const collection = filled.get(keyOf(schema ?? first, table ?? ''));
  if (collection === undefined || (kind !== 'identity' && !(kind === 'default' && /^nextval\(/.test(entry.definition))))
    return [];
  return [{ kind: 'advance-identity', table: collection, column: own }];
}

/** The columns of sequences, which exist by now. */
export function ownSequences({ wanted, first }: ObjectPlan, present: readonly ObjectEntry[]): DdlStatement[] {
  const byName = new Map(present.map((entry) => [entry.name, entry]));
  return wanted.flatMap((entry) =>
    kindOfObject(entry) === 'sequence' && byName.get(entry.name)?.definition !== entry.definition
      ? [ownSequence(entry, first)]
      : [],
  );
}

/** The names of entries that the database does not have. A definition in other words than PostgreSQL's has been applied by then. */
export function unmetObjects({ wanted }: ObjectPlan, present: readonly ObjectEntry[]): string[] {
  const names = new Set(present.map(({ name }) => name));
  return wanted.flatMap(({ name }) => (names.has(name) ? [] : [name]));
}
