/**
 * Snapshots of the connected database: taken in one view of it, compared, and applied. Applying holds the lock of all
 * changes of the schema from the first look to the last step, so that what was compared is what is changed.
 */
import { invalidPayload, ServiceError } from '../errors.js';
import { behaviourOf } from '../mirror/columns.js';
import type { Deferrable, Model } from '../mirror/model.js';
import { parseOwnJson } from '../narrow.js';
import { systemFields } from '../postgres/system-tables.js';
import { readSql } from '../sql/read-sql.js';
import { planSnapshot } from './apply.js';
import { neededTypes, refuseMissing } from './apply-types.js';
import type { Draft, SchemaChanges } from './change.js';
import { asSchemaChangeError, isBlocked } from './change-errors.js';
import type { DdlStatement } from './ddl-statement.js';
import { type DifferenceMode, differenceOf, digestOf, patchSnapshot } from './difference.js';
import type { Difference, DifferenceBody } from './parse-difference.js';
import { type EnumName, enumKey, type Snapshot } from './parse-snapshot.js';
import { type Details, omittedFromSnapshot, snapshotOf } from './snapshot.js';

const DETAILS = readSql('snapshot.sql');

export interface TakenSnapshot {
  readonly snapshot: Snapshot;
  /** One sentence for each thing that the snapshot cannot hold. */
  readonly omitted: readonly string[];
}

/** Called before each step. */
export type Progress = (step: DdlStatement, position: number, total: number) => void;

export async function takeSnapshot(schemaChanges: SchemaChanges): Promise<TakenSnapshot> {
  return schemaChanges.read(async (draft) => {
    const { snapshot, model, details } = await takePresent(draft);
    return { snapshot, omitted: omittedFromSnapshot(model, details) };
  });
}

/** The changes that turn the database into the snapshot, with the digest of its current state; null where nothing differs. */
export async function compareSnapshot(
  schemaChanges: SchemaChanges,
  wanted: Snapshot,
  mode: DifferenceMode,
): Promise<DifferenceBody | null> {
  return schemaChanges.read(async (draft) => {
    const present = await takePresent(draft);
    const { snapshot } = present;
    const diff = differenceOf(snapshot, wanted, mode);
    if (!diff) return null;
    // A difference that could never be applied is refused here.
    planSnapshot(patchSnapshot(snapshot, diff), present, systemFields());
    return { hash: digestOf(snapshot), diff };
  });
}

/** One transaction. With `force`, also a difference that was taken from another state, if it fits. */
export async function applyDifference(
  schemaChanges: SchemaChanges,
  body: DifferenceBody,
  force: boolean,
): Promise<void> {
  await schemaChanges.change(async (draft) => {
    const present = await takePresent(draft);
    if (!force && digestOf(present.snapshot) !== body.hash)
      throw invalidPayload('The schema has changed since the diff was created: create it again');
    await applyPresent(draft, present, body.diff, () => {});
  });
}

/** Compares and applies in one go. `confirm` sees the difference and may refuse; null where there is none. */
export async function applySnapshot(
  schemaChanges: SchemaChanges,
  wanted: Snapshot,
  mode: DifferenceMode,
  { confirm, progress }: { readonly confirm: (diff: Difference) => void; readonly progress: Progress },
): Promise<Difference | null> {
  return schemaChanges.change(async (draft) => {
    const present = await takePresent(draft);
    const diff = differenceOf(present.snapshot, wanted, mode);
    if (!diff) return null;
    confirm(diff);
    await applyPresent(draft, present, diff, progress);
    return diff;
  });
}

interface SchemaState {
  readonly snapshot: Snapshot;
  readonly model: Model;
  readonly details: Details;
}

async function takePresent(draft: Draft): Promise<SchemaState> {
  const model = await draft.model();
  const cell = await draft.cell(DETAILS, [JSON.stringify(model.schemas), model.system, model.schema]);
  if (!cell) throw new Error('the catalog statement gave no row');
  const { document } = await draft.schema();
  const details = byCollection(parseOwnJson<Catalog>(cell.toString()), model, document.function_rows ?? []);
  return { model, details, snapshot: snapshotOf(model, details, systemFields()) };
}

/** The result of sql/snapshot.sql, by schema and table. */
interface Catalog {
  readonly types: readonly (TableName & { readonly types: Details['types'][string] })[];
  readonly indexes: readonly (TableName & Details['indexes'][number])[];
  readonly primary_keys: readonly (TableName & { readonly fields: readonly string[] })[];
  readonly foreign_keys: readonly (TableName & ForeignKeyFacts)[];
  readonly enums: readonly (EnumName & { readonly values: readonly string[] })[];
  readonly virtual: readonly (TableName & { readonly name: string })[];
  readonly constraints: readonly (TableName & { readonly name: string; readonly type: 'p' | 'u' | 'f' })[];
}

interface TableName {
  readonly schema: string;
  readonly table: string;
}

/** Actions are the letters of pg_constraint. */
interface ForeignKeyFacts extends Pick<Details['foreignKeys'][number], 'name' | 'fields' | 'related_fields' | 'some'> {
  readonly target_schema: string;
  readonly target_table: string;
  readonly on_delete: string;
  readonly on_update: string;
  readonly full: boolean;
  readonly deferrable: Deferrable | null;
}

function byCollection(catalog: Catalog, model: Model, functions: Details['functions']): Details {
  const names = new Map([...model.collections.values()].map((each) => [keyOf(each), each.name]));
  const collectionOf = ({ schema, table }: TableName): string | undefined => names.get(keyOf({ schema, table }));
  return {
    types: Object.fromEntries(
      catalog.types.flatMap((each) => {
        const name = collectionOf(each);
        return name === undefined ? [] : [[name, each.types]];
      }),
    ),
    indexes: catalog.indexes.flatMap(({ schema, table, ...index }) => {
      const collection = collectionOf({ schema, table });
      return collection === undefined ? [] : [{ ...index, collection }];
    }),
    primaryKeys: new Map(
      catalog.primary_keys.flatMap((each) => {
        const name = collectionOf(each);
        return name === undefined ? [] : [[name, each.fields] as const];
      }),
    ),
    foreignKeys: catalog.foreign_keys.flatMap((key) => {
      const collection = collectionOf(key);
      const target = collectionOf({ schema: key.target_schema, table: key.target_table });
      if (collection === undefined) return [];
      return {
        collection,
        name: key.name,
        some: key.some,
        fields: key.fields,
        related_collection: target ?? '',
        related_fields: key.related_fields,
        ...behaviourOf(key.on_delete, key.on_update, key.full, key.deferrable),
      };
    }),
    virtual: catalog.virtual.flatMap((each) => {
      const collection = collectionOf(each);
      return collection === undefined ? [] : [{ collection, name: each.name }];
    }),
    constraints: catalog.constraints.flatMap((each) => {
      const collection = collectionOf(each);
      return collection === undefined ? [] : [{ collection, name: each.name, type: each.type }];
    }),
    enums: new Map(catalog.enums.map((each) => [enumKey(each), each.values])),
    functions,
  };
}

function keyOf({ schema, table }: TableName): string {
  return JSON.stringify([schema, table]);
}

async function applyPresent(draft: Draft, present: SchemaState, diff: Difference, progress: Progress): Promise<void> {
  const steps = planSnapshot(patchSnapshot(present.snapshot, diff), present, systemFields());
  await checkTypes(draft, steps);
  for (const [position, step] of steps.entries()) {
    progress(step, position, steps.length);
    try {
      await draft.execute([step]);
    } catch (error) {
      throw isBlocked(error) ? error : withStep(asSchemaChangeError(error), step);
    }
  }
}

/** PostgreSQL would name a missing type but not its column; snapshots hold no domains and composite types. */
async function checkTypes(draft: Draft, steps: readonly DdlStatement[]): Promise<void> {
  const needed = neededTypes(steps);
  if (needed.length === 0) return;
  const cell = await draft.cell(MISSING, [JSON.stringify(needed.map(({ type }) => type))]);
  const missing = new Set(parseOwnJson<string[]>(cell?.toString() ?? '[]'));
  refuseMissing(needed.filter(({ type }) => missing.has(type)));
}

const MISSING = `
  select coalesce(pg_catalog.json_agg(name), '[]')::text
  from pg_catalog.json_array_elements_text($1::json) needed (name)
  where pg_catalog.to_regtype(name) is null`;

/** The properties by which steps name what they change. */
interface Named {
  readonly table?: string;
  readonly collection?: string;
  readonly column?: string | { readonly name: string };
  readonly columns?: readonly unknown[];
  readonly field?: string;
  readonly type?: unknown;
  readonly name?: string;
}

/** Adds to the error which of the steps failed. */
function withStep(error: unknown, step: DdlStatement): unknown {
  if (!(error instanceof ServiceError)) return error;
  const { table, collection = table, column, columns = [], field, type, name } = step as Named;
  const several = columns.every((each) => typeof each === 'string') ? columns.join(', ') : undefined;
  const inner = field ?? (typeof column === 'object' ? column.name : (column ?? several));
  const path = [collection ?? (typeof type === 'string' ? type : name), inner].filter(Boolean).join('.');
  const what = step.kind.replaceAll('-', ' ');
  return new ServiceError(error.code, `${error.message} (${what}: ${path})`, {
    ...error.extensions,
    step: what,
    place: path,
  });
}
