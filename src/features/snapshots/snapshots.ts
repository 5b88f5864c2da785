/**
 * Snapshots of the connected database: taken in one view of it, compared, and applied. Transactions only read and change; what
 * takes long with thousands of tables is computed outside them, in slices. Applying holds the lock of all changes of the schema and
 * compares the catalogs with those it was planned on, so that what was compared is what is changed.
 */
import { invalidPayload, ServiceError, unprocessable } from '../../base/errors.js';
import { parseOwnJson } from '../../base/narrow.js';
import { runInSlices, type Steps, TimeSlice } from '../../base/time-slices.js';
import { behaviourOf } from '../../compiler/model/columns.js';
import type { Deferrable, Model } from '../../compiler/model/model.js';
import { quoteIdentifier } from '../../compiler/sql/fragment.js';
import { systemTables } from '../../server/postgres/catalog/system-tables.js';
import type { CatalogVersion } from '../../server/postgres/catalog/watch.js';
import { readSql } from '../../server/postgres/read-sql.js';
import type { Draft, SchemaChanger } from '../../server/schema/change/change.js';
import { asSchemaChangeError, isBlocked } from '../../server/schema/change/change-errors.js';
import type { ColumnType, DdlStatement, ExactType } from '../../server/schema/change/ddl-statement.js';
import { planSnapshot } from './apply.js';
import {
  type Difference,
  type DifferenceBody,
  type DifferenceMode,
  differenceOf,
  digestOf,
  patchSnapshot,
} from './difference.js';
import type { ObjectEntry } from './objects.js';
import { type EnumName, enumKey, type Snapshot } from './parse-snapshot.js';
import { createMissing, type ObjectPlan, ownSequences, planObjects, unmetObjects } from './plan-objects.js';
import {
  checkHolders,
  checkPermissions,
  concernsPolicies,
  policyEntries,
  readPolicyRows,
  watchLastAdministrator,
} from './policies.js';
import { entriesOf, type PresentObjects, presentObjects } from './present-objects.js';
import { type Omission, omittedFromSnapshot, snapshotOf } from './snapshot.js';
import { type Details, SnapshotScope } from './snapshot-scope.js';

const DETAILS = readSql('features', 'snapshots', 'snapshot.sql');
const OBJECTS = readSql('features', 'snapshots', 'objects.sql');

interface TakenSnapshot {
  readonly snapshot: Snapshot;
  /** One sentence for each thing that the snapshot cannot hold. */
  omitted(): readonly string[];
}

/** Called before each step. */
type Progress = (step: DdlStatement, position: number, total: number) => void;

/** The sections that a snapshot has only on request. */
export interface Parts {
  readonly objects: boolean;
  readonly policies: boolean;
}

export async function takeSnapshot(schemaChanges: SchemaChanger, parts: Parts): Promise<TakenSnapshot> {
  const { snapshot, scope, present } = await presentState(schemaChanges, parts);
  const refused = [...scope.model.refused].map(([name, reason]) => ({ name, reason }));
  return {
    snapshot,
    omitted: () =>
      [...omittedFromSnapshot(scope, present?.omissions ?? []), ...refused].map(
        ({ name, reason }) => `"${name}": ${reason}`,
      ),
  };
}

/** The first cell of a statement. */
type ReadCell = (text: string, parameters: readonly string[]) => Promise<Buffer | null>;

/** Things that a snapshot of served tables leaves out. `functions` are the rows of service_functions. */
export async function readOmissions(
  cell: ReadCell,
  model: Model,
  functions: Details['functions'],
): Promise<readonly Omission[]> {
  const catalog = parseOwnJson<Catalog>(await readDetails(cell, model));
  const scope = new SnapshotScope(model, byCollection(catalog, model, functions));
  const { fields } = await runInSlices(snapshotOf(scope));
  const { omissions } = presentObjects(parseOwnJson(await readObjects(cell, model)), scope, fields);
  return omittedFromSnapshot(scope, omissions);
}

/** The changes that turn the database into the snapshot, with the digest of its current state, or null if nothing differs. */
export async function compareSnapshot(
  schemaChanges: SchemaChanger,
  wanted: Snapshot,
  mode: DifferenceMode,
): Promise<DifferenceBody | null> {
  const present = await presentState(schemaChanges, partsOf(wanted));
  const diff = await runInSlices(differenceOf(present.snapshot, wanted, mode));
  if (!diff) return null;
  // A difference that could never be applied is refused here.
  const { steps } = await runInSlices(planDifference(present, diff));
  if (concernsPolicies(steps)) await schemaChanges.read((draft) => checkHolders(draft, steps));
  // Permissions of collections that the difference creates are checked when it is applied.
  if (steps.every((step) => concernsPolicies([step]))) checkPermissions(steps, present.scope.model);
  // Over HTTP no objects are applied, so a digest is of the other parts.
  const { policies, objects: _, ...schema } = present.snapshot;
  const hashed = diff.policies && policies ? { ...schema, policies } : schema;
  return { hash: await runInSlices(digestOf(hashed)), diff };
}

/** One transaction. With `force`, also a difference that was taken from another state, if it fits. */
export async function applyDifference(
  schemaChanges: SchemaChanger,
  body: DifferenceBody,
  force: boolean,
): Promise<void> {
  const [first] = body.diff.objects ?? [];
  if (first)
    throw invalidPayload(
      `The diff changes objects such as "${first.name}", which only the command line applies: use lateral schema apply`,
    );
  await applyPlanned(
    schemaChanges,
    { progress: () => {}, parts: { objects: false, policies: body.diff.policies !== undefined } },
    function* (present) {
      if (!force && (yield* digestOf(present.snapshot)) !== body.hash)
        throw invalidPayload(
          "Provided hash does not match the current instance's schema hash: the schema has changed since the diff was created. Create it again",
        );
      return { diff: body.diff, ...(yield* planDifference(present, body.diff)) };
    },
  );
}

/** Compares and applies in one go. `confirm` gets the difference and may refuse it. Returns null if nothing differs. */
export async function applySnapshot(
  schemaChanges: SchemaChanger,
  wanted: Snapshot,
  mode: DifferenceMode,
  { confirm, progress }: { readonly confirm: (diff: Difference) => void; readonly progress: Progress },
): Promise<Difference | null> {
  return applyPlanned(schemaChanges, { progress, parts: partsOf(wanted) }, function* (present) {
    const diff = yield* differenceOf(present.snapshot, wanted, mode);
    if (!diff) return null;
    confirm(diff);
    return { diff, ...(yield* planDifference(present, diff)) };
  });
}

function partsOf({ objects, policies }: Snapshot): Parts {
  return { objects: objects !== undefined, policies: policies !== undefined };
}

interface Plan {
  readonly steps: readonly DdlStatement[];
  /** Changes of objects, or null if the snapshot has no such section. */
  readonly objects: ObjectPlan | null;
}

interface Planned extends Plan {
  readonly diff: Difference;
}

/**
 * Plans before the transaction, so that it is not idle meanwhile. If the schema has changed until it holds the lock of all changes,
 * it plans again.
 */
async function applyPlanned(
  schemaChanges: SchemaChanger,
  { progress, parts }: { readonly progress: Progress; readonly parts: Parts },
  plan: (present: SchemaState) => Steps<Planned | null>,
): Promise<Difference | null> {
  const expected = await presentCatalogs(schemaChanges, parts);
  const planned = await runInSlices(plan(await stateOf(expected, schemaChanges)));
  if (!planned) return null;
  return schemaChanges.change(async (draft) => {
    const found = await readCatalogs(draft, schemaChanges.model, parts);
    const isExpected =
      found.catalog.digest === expected.catalog.digest &&
      found.details === expected.details &&
      found.objects === expected.objects &&
      found.policies === expected.policies;
    const current = isExpected ? planned : await runInSlices(plan(await stateOf(found, schemaChanges)));
    if (current && concernsPolicies(current.steps)) await executeWithPolicies(draft, current, progress);
    else if (current) await executePlan(draft, current, progress);
    return current?.diff ?? null;
  });
}

function* planDifference({ scope, snapshot, present }: SchemaState, diff: Difference): Steps<Plan> {
  const { model, details } = scope;
  const wanted = yield* patchSnapshot(snapshot, diff);
  const steps = yield* planSnapshot(wanted, { model, details, snapshot });
  if (!present || !wanted.objects) return { steps, objects: null };
  yield;
  const { fields, objects } = wanted;
  return { steps, objects: planObjects({ wanted: objects, fields, model, present: present.objects, steps }) };
}

interface SchemaState {
  readonly snapshot: Snapshot;
  readonly scope: SnapshotScope;
  /** The objects, or null if nobody asked for them. */
  readonly present: PresentObjects | null;
}

/** The texts that a state is computed from, as one transaction reads them. */
interface Catalogs {
  readonly catalog: CatalogVersion;
  /** The result of sql/features/snapshots/snapshot.sql. */
  readonly details: string;
  /** The result of sql/features/snapshots/objects.sql, or null without objects. */
  readonly objects: string | null;
  /** The result of sql/features/snapshots/policy-snapshot.sql, or null without policies. */
  readonly policies: string | null;
}

async function presentState(schemaChanges: SchemaChanger, parts: Parts): Promise<SchemaState> {
  return stateOf(await presentCatalogs(schemaChanges, parts), schemaChanges);
}

function presentCatalogs(schemaChanges: SchemaChanger, parts: Parts): Promise<Catalogs> {
  return schemaChanges.read((draft) => readCatalogs(draft, schemaChanges.model, parts));
}

async function readCatalogs(draft: Draft, model: Model, { objects, policies }: Parts): Promise<Catalogs> {
  const catalog = await draft.schema();
  const cell: ReadCell = (text, parameters) => draft.cell(text, parameters);
  return {
    catalog,
    details: await readDetails(cell, model),
    objects: objects ? await readObjects(cell, model) : null,
    policies: policies ? await readPolicyRows(draft) : null,
  };
}

async function readDetails(cell: ReadCell, { schemas, system, schema }: Model): Promise<string> {
  const details = await cell(DETAILS, [JSON.stringify(schemas), system, schema]);
  if (!details) throw new Error('the catalog statement gave no row');
  return details.toString();
}

async function readObjects(cell: ReadCell, { schemas, system, schema }: Model): Promise<string> {
  const parameters = [JSON.stringify(schemas), schema, JSON.stringify([...systemTables().keys()]), system];
  return String(await cell(OBJECTS, parameters));
}

async function stateOf(
  { catalog, details, objects, policies }: Catalogs,
  schemaChanges: SchemaChanger,
): Promise<SchemaState> {
  const slice = new TimeSlice();
  const model = await schemaChanges.modelOf(catalog);
  await slice.rest();
  const found = parseOwnJson<Catalog>(details);
  await slice.rest();
  const scope = new SnapshotScope(model, byCollection(found, model, catalog.document.function_rows ?? []));
  const snapshot = await runInSlices(snapshotOf(scope));
  const present = objects === null ? null : presentObjects(parseOwnJson(objects), scope, snapshot.fields);
  const entries = present?.objects.flatMap(({ entry, isEntry }) => (isEntry ? [entry] : []));
  return {
    scope,
    present,
    snapshot: {
      ...snapshot,
      ...(entries ? { objects: entries } : {}),
      ...(policies === null ? {} : { policies: policyEntries(policies) }),
    },
  };
}

/** The result of sql/features/snapshots/snapshot.sql, by schema and table. */
interface Catalog {
  readonly types: readonly (TableName & { readonly types: Details['types'][string] })[];
  readonly indexes: readonly (TableName & Details['indexes'][number])[];
  readonly primary_keys: readonly (TableName & { readonly fields: readonly string[] })[];
  readonly foreign_keys: readonly (TableName & ForeignKeyFacts)[];
  readonly enums: readonly (EnumName & { readonly values: readonly string[] })[];
  readonly virtual: readonly (TableName & { readonly name: string })[];
  readonly domain_defaults: readonly (TableName & { readonly name: string })[];
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
  /** Only of tables that are collections. */
  const located = <Entry extends TableName, Detail>(
    entries: readonly Entry[],
    detailOf: (collection: string, entry: Entry) => Detail,
  ): Detail[] =>
    entries.flatMap((entry) => {
      const collection = names.get(keyOf(entry));
      return collection === undefined ? [] : [detailOf(collection, entry)];
    });
  return {
    types: Object.fromEntries(located(catalog.types, (collection, { types }) => [collection, types])),
    indexes: located(catalog.indexes, (collection, { schema: _, table: __, ...index }) => ({ ...index, collection })),
    primaryKeys: new Map(located(catalog.primary_keys, (collection, { fields }) => [collection, fields] as const)),
    foreignKeys: located(catalog.foreign_keys, (collection, key) => ({
      collection,
      name: key.name,
      some: key.some,
      fields: key.fields,
      related_collection: names.get(keyOf({ schema: key.target_schema, table: key.target_table })) ?? '',
      related_fields: key.related_fields,
      ...behaviourOf(key.on_delete, key.on_update, key.full, key.deferrable),
    })),
    virtual: located(catalog.virtual, (collection, { name }) => ({ collection, name })),
    domainDefaults: located(catalog.domain_defaults, (collection, { name }) => ({ collection, name })),
    constraints: located(catalog.constraints, (collection, { name, type }) => ({ collection, name, type })),
    enums: new Map(catalog.enums.map((each) => [enumKey(each), each.values])),
    functions,
  };
}

function keyOf({ schema, table }: TableName): string {
  return JSON.stringify([schema, table]);
}

/** Objects are created as the catalog shows that they are missing, so that it is what the snapshot says at the end. */
async function executePlan(draft: Draft, { steps, objects: plan }: Plan, progress: Progress): Promise<void> {
  if (!plan) return execute(draft, steps, progress);
  const present = async (): Promise<ObjectEntry[]> => {
    const rows = await readObjects((text, parameters) => draft.cell(text, parameters), await draft.model());
    return entriesOf(parseOwnJson(rows));
  };
  await execute(draft, plan.before, progress);
  await execute(draft, createMissing(plan, await present(), 'types'), progress);
  await execute(draft, plan.tables, progress);
  await execute(draft, ownSequences(plan, await present()), progress);
  await execute(draft, createMissing(plan, await present(), 'keys'), progress);
  await execute(draft, plan.foreignKeys, progress);
  await execute(draft, createMissing(plan, await present(), 'rest'), progress);
  await execute(draft, plan.after, progress);
  const unmet = unmetObjects(plan, await present());
  if (unmet.length > 0) throw unprocessable(`PostgreSQL did not create ${unmet.map((each) => `"${each}"`).join(', ')}`);
}

async function execute(draft: Draft, steps: readonly DdlStatement[], progress: Progress): Promise<void> {
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

/** Permissions are checked on the schema that the other steps leave. */
async function executeWithPolicies(draft: Draft, plan: Plan, progress: Progress): Promise<void> {
  const { steps } = plan;
  const checkAdministrators = await watchLastAdministrator(draft);
  await checkHolders(draft, steps);
  await executePlan(draft, plan, progress);
  checkPermissions(steps, await draft.model());
  await checkAdministrators();
}

/** PostgreSQL's error would name a missing type, but not its column. Snapshots contain no domains or composite types. */
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

/** A type of columns that no step creates: quoted, without modifiers. */
interface NeededType {
  readonly type: string;
  readonly fields: readonly string[];
}

/** Not types, but accepted as such in a column definition. */
const SERIAL = /^(small|big)?serial$|^serial[248]$/;

function neededTypes(steps: readonly DdlStatement[]): NeededType[] {
  // The rows of a table are a type too.
  const created = new Set(
    steps.flatMap((step) =>
      step.kind === 'create-enum'
        ? [enumKey({ schema: step.schema, name: step.type })]
        : step.kind === 'create-table'
          ? [enumKey({ schema: null, name: step.table })]
          : [],
    ),
  );
  const needed = new Map<string, string[]>();
  for (const { field, type } of steps.flatMap(typedColumns)) {
    if (type.type !== 'exact') continue;
    const { names } = type.name;
    const own = names.at(-1) ?? '';
    if (created.has(enumKey({ schema: names.length === 1 ? null : (names[0] ?? null), name: own })) || SERIAL.test(own))
      continue;
    const name = names.map(quoteIdentifier).join('.');
    needed.set(name, [...(needed.get(name) ?? []), field]);
  }
  return [...needed].map(([type, fields]) => ({ type, fields }));
}

interface TypedColumn {
  readonly field: string;
  readonly type: ColumnType | ExactType;
}

function typedColumns(step: DdlStatement): TypedColumn[] {
  switch (step.kind) {
    case 'create-table':
      return step.columns.map(({ name, type }) => ({ field: `${step.table}.${name}`, type }));
    case 'add-column':
      return [{ field: `${step.table}.${step.column.name}`, type: step.column.type }];
    case 'change-type':
      return [{ field: `${step.table}.${step.column}`, type: step.type }];
    default:
      return [];
  }
}

function refuseMissing(missing: readonly NeededType[]): void {
  if (missing.length === 0) return;
  const list = missing.map(({ type, fields }) => `the type ${type} of ${fields.map((each) => `"${each}"`).join(', ')}`);
  throw invalidPayload(`The database does not have ${list.join(', nor ')}: create it there first`);
}

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
