/**
 * The permissions of a caller, as the planner sees them. A caller with restricted permissions gets a model of their own: collections
 * and fields that no rule grants are not in it, so that they look as if they did not exist.
 * Collections of such a model carry which of their rows may be seen, and which fields in some of these rows only.
 */
import type { Collection, CollectionPrivileges, Field, Model } from '../model/model.js';
import type { Filter } from '../request/ast.js';
import { ALWAYS, type Condition, type OperandPlan } from './plan.js';

export type Action = 'create' | 'read' | 'update' | 'delete' | 'share' | 'execute';

/** Null means all permissions: administrators, and the service itself. */
export interface Access {
  /** Identifies the set of rules. It is part of every shape. */
  readonly key: string;
  /** The model as far as it may be read. */
  view(model: Model): Model;
  /** The permission to write to a collection, or null if there is none. */
  grant(action: WriteAction, collection: Collection, model: Model): Grant | null;
  /** The privileges of the caller's database role on a collection, or null if it has all or statements run with another role. */
  privileges(collection: Collection, model: Model): CollectionPrivileges | null;
}

export type WriteAction = Exclude<Action, 'read' | 'execute'>;

export interface Grant {
  /** Rows and, of these, fields; each rule alone suffices. */
  readonly rules: readonly PlannedRule[];
  /** All fields that some rule names; null for every field. */
  readonly fields: ReadonlySet<string> | null;
  /** Values for fields that a payload leaves out. */
  readonly presets: Readonly<Record<string, unknown>>;
  /** All of them must hold for written values. */
  readonly validations: readonly Filter[];
}

/** A rule whose filter has become a condition on rows of its collection. */
export interface PlannedRule {
  readonly where: Condition;
  /** The allowed fields, or null if all are. */
  readonly fields: ReadonlySet<string> | null;
}

interface Restriction {
  /** The collection without it. */
  readonly unrestricted: Collection;
  /** Rows that may be seen. */
  readonly rows: Condition;
  /** Fields that may be seen only in some of these rows, by name. */
  readonly masks: ReadonlyMap<string, Condition>;
}

export interface RestrictedCollection extends Collection {
  readonly restriction: Restriction;
}

export interface RestrictedModel extends Model {
  readonly unrestricted: Model;
  /** Collections that the database role of the caller may not read. */
  readonly denied: ReadonlySet<string>;
}

/** Whether PostgreSQL would refuse to read the collection for the caller. */
export function isDenied(model: Model, collection: string): boolean {
  return isRestrictedModel(model) && model.denied.has(collection);
}

/** The model for reads with the service's own permissions, such as fields of the caller. */
export function unrestrictedModel(model: Model): Model {
  return isRestrictedModel(model) ? model.unrestricted : model;
}

export function restrictionOf(collection: Collection): Restriction | null {
  return isRestricted(collection) ? collection.restriction : null;
}

function isRestrictedModel(model: Model): model is RestrictedModel {
  return 'unrestricted' in model;
}

function isRestricted(collection: Collection): collection is RestrictedCollection {
  return 'restriction' in collection;
}

/** The collection with all of its fields, for the service's own use. */
export function unrestrictedCollection(collection: Collection): Collection {
  return restrictionOf(collection)?.unrestricted ?? collection;
}

/** Where the field may be seen, of the rows that may. */
export function maskOf(collection: Collection, field: Field): Condition {
  return restrictionOf(collection)?.masks.get(field.name) ?? ALWAYS;
}

export function isMasked(collection: Collection, field: Field): boolean {
  return restrictionOf(collection)?.masks.has(field.name) ?? false;
}

/** Whether the operand, a value of a row of the collection, is null if the caller may not see it. */
export function isMaskedOperand(collection: Collection, operand: OperandPlan): boolean {
  switch (operand.kind) {
    case 'count':
    case 'first':
      return operand.through.length === 0 && operand.toMany.via !== null && isMasked(collection, operand.toMany.via);
    case 'aggregate':
    case 'position':
    case 'key':
      return false;
    default:
      return operand.through.length === 0 && isMasked(collection, operand.field);
  }
}

/** Whether the caller may see or write something of the collection. */
export function isKnownTo(collection: Collection, access: Access | null, model: Model): boolean {
  if (!access || access.view(model).collections.has(collection.name)) return true;
  return (['create', 'update', 'delete'] as const).some((action) => access.grant(action, collection, model));
}
