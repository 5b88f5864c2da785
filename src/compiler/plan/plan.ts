/** Plans: a request whose names have become objects of the model. Pure data; the compilers read nothing else. */

import { onlyOf } from '../../base/narrow.js';
import type { Argument, Collection, Field, Overload, TextSearchConfiguration } from '../model/model.js';
import type { AggregateFunction, DateFunction, MetaCount, Operator, Representation, Slot } from '../request/ast.js';
import type { Codec } from '../sql/codec.js';
import type { Composite } from '../sql/composite.js';

export interface ReadPlan {
  readonly kind: 'read';
  /**
   * A list of items, one item that may be missing, the only item of a singleton, which may not exist yet, or what a function
   * returns, which may be null.
   */
  readonly result: 'list' | 'item' | 'singleton' | 'optional';
  /** Whether the list may be large: its rows then travel one by one. */
  readonly stream: boolean;
  readonly level: Level;
  readonly meta: readonly MetaCount[];
  /** Whether the cursor of the next page is shown. */
  readonly cursor: boolean;
}

/** A call of a function: its rows take the place of a table's. */
export interface CallPlan {
  readonly overload: Overload;
  /** The arguments of the call. An argument that was left out has no slot, and gets its default or an empty VARIADIC list. */
  readonly arguments: readonly { readonly argument: Argument; readonly slot: Slot | null }[];
  /** Whether the function was called before, and its rows are where that statement has left them. */
  readonly fromSetting?: boolean;
}

/** Reads that one statement answers together, each result under its name. */
export interface OperationPlan {
  readonly kind: 'operation';
  readonly parts: readonly PartPlan[];
}

export type PartPlan =
  | {
      readonly kind: 'read';
      readonly name: string;
      readonly plan: ReadPlan;
      /** The error in the answer if the item is missing. */
      readonly missing: number | null;
    }
  | { readonly kind: 'json'; readonly name: string; readonly value: number; readonly error: number | null };

export type Level = RowLevel | GroupLevel;

/** One `select` over one collection: a page of it, and the outputs of each row. */
export interface RowLevel {
  readonly kind: 'rows';
  readonly collection: Collection;
  readonly outputs: readonly Output[];
  readonly where: Condition;
  /** The cursor after which the page begins. It does not apply to counts. */
  readonly after: CursorCondition | null;
  readonly order: readonly Order[];
  readonly limit: LimitPlan;
  readonly offset: OffsetPlan | null;
  /** Whether the rows are about to be written: they are locked, and those that no longer match left out. */
  readonly locked?: boolean;
  /** Whether a row is shown as the value of its only output, or as null if it has none, and not as an object. */
  readonly bare?: boolean;
  /** Whether the row part of its entity tag is shown with each row. */
  readonly tagged?: boolean;
  /** Whether its rows are all found before they are put in order: for values so rare that no index on the order pays. */
  readonly fenced?: boolean;
  /** The content version that its rows are shown as. */
  readonly version?: VersionPlan;
  /** The only row is the recorded one that this text names (service_webhook_image), in place of those of the table. */
  readonly image?: number;
}

/** Where the changes of a content version are found. */
export interface VersionPlan {
  /** From an item to its versions. */
  readonly toMany: ToManyJoin;
  /** Which of them is meant. */
  readonly where: Condition;
  /** The field that holds the changes. */
  readonly delta: Field;
  /** The key of the version, if items say which version they are shown as. */
  readonly id?: Field;
}

/** Aggregates over a collection, by groups. */
export interface GroupLevel {
  readonly kind: 'groups';
  readonly collection: Collection;
  readonly groups: readonly { readonly name: string; readonly operand: OperandPlan }[];
  readonly aggregates: readonly AggregatePlan[];
  /** The keys of a group, or null for the default: groups first, then one key per function. */
  readonly outputs: readonly GroupOutput[] | null;
  readonly where: Condition;
  readonly having: Condition;
  readonly order: readonly { readonly operand: OperandPlan; readonly descending: boolean }[];
  readonly limit: LimitPlan;
  readonly offset: OffsetPlan | null;
}

export interface AggregatePlan {
  readonly function: AggregateFunction;
  /** The key below the function's; null shows the value under the function itself. */
  readonly name: string | null;
  /** Null counts rows. */
  readonly operand: OperandPlan | null;
}

export type GroupOutput =
  /** The groups, as one object. */
  | { readonly kind: 'groups'; readonly name: string }
  | {
      readonly kind: 'aggregate';
      readonly name: string;
      readonly aggregate: AggregatePlan;
      readonly as: Representation;
    }
  | { readonly kind: 'object'; readonly name: string; readonly outputs: readonly GroupOutput[] }
  | { readonly kind: 'constant'; readonly name: string; readonly text: string };

export type Output =
  | { readonly kind: 'value'; readonly name: string; readonly operand: OperandPlan; readonly as?: Representation }
  | { readonly kind: 'object'; readonly name: string; readonly outputs: readonly Output[] }
  | { readonly kind: 'constant'; readonly name: string; readonly text: string }
  /** The entity tag of the row, or null if it has none. */
  | { readonly kind: 'tag'; readonly name: string }
  /** Which version the row is shown as. */
  | { readonly kind: 'version'; readonly name: string }
  /** With `keys` the key of the related item, where nothing of it was selected. */
  | {
      readonly kind: 'one';
      readonly name: string;
      readonly keys: boolean;
      readonly toOne: ToOneJoin;
      readonly level: RowLevel;
    }
  /** A reference that several columns hold, where nothing of its item was selected: the key of the item. */
  | { readonly kind: 'reference'; readonly name: string; readonly toOne: ManyToOneJoin }
  | { readonly kind: 'many'; readonly name: string; readonly toMany: ToManyJoin; readonly level: Level }
  /** The keys of the related items, where nothing of them was selected. */
  | { readonly kind: 'keys'; readonly name: string; readonly toMany: ToManyJoin; readonly level: RowLevel }
  /** An item of one of several collections. The row names the collection. With `keys`, a level without outputs shows the item's key. */
  | {
      readonly kind: 'any';
      readonly name: string;
      readonly keys: boolean;
      readonly targets: readonly { readonly toOne: ManyToAnyJoin; readonly level: RowLevel }[];
    };

/** From a row to the one it refers to, or to the only one that refers to it. */
export type ToOneJoin = ManyToOneJoin | ManyToAnyJoin;

export interface ManyToOneJoin {
  readonly kind: 'one';
  /** The field that shows the related row: a column, or an alias field. */
  readonly field: Field;
  /** The columns on this side of the join: foreign key columns, or for a one-to-one alias field the columns that the foreign key refers to. */
  readonly columns: readonly Field[];
  readonly target: Collection;
  /** The columns of the target that have the same values, in the same order. */
  readonly key: readonly Field[];
}

export interface ManyToAnyJoin {
  readonly kind: 'any';
  readonly field: Field;
  readonly collectionField: Field;
  readonly target: Collection;
}

/** From a row to those that refer to it. */
export interface ToManyJoin {
  readonly collection: Collection;
  /** The field that refers to the row, and the columns that hold the reference. */
  readonly field: Field;
  readonly columns: readonly Field[];
  /** The alias field that shows them, or null if they were found by naming the column. */
  readonly via: Field | null;
  /** References that name their collection: only those that name this one count. */
  readonly named: { readonly field: Field; readonly collection: string } | null;
  /** The collection referred to, and the columns of it that are. */
  readonly origin: Collection;
  readonly key: readonly Field[];
}

/** A value of a row, or of one reached from it. */
export type OperandPlan =
  | { readonly kind: 'field'; readonly through: readonly ToOneJoin[]; readonly field: Field }
  | {
      readonly kind: 'date';
      readonly through: readonly ToOneJoin[];
      readonly field: Field;
      readonly function: DateFunction;
    }
  | { readonly kind: 'length'; readonly through: readonly ToOneJoin[]; readonly field: Field }
  | { readonly kind: 'count'; readonly through: readonly ToOneJoin[]; readonly toMany: ToManyJoin }
  | {
      readonly kind: 'json';
      readonly through: readonly ToOneJoin[];
      readonly field: Field;
      readonly path: Slot;
      readonly as: 'json' | 'text' | 'numeric';
    }
  /** The first value among the rows of a to-many relation, in the direction of the sort. */
  | {
      readonly kind: 'first';
      readonly through: readonly ToOneJoin[];
      readonly toMany: ToManyJoin;
      readonly operand: OperandPlan;
    }
  | { readonly kind: 'aggregate'; readonly aggregate: AggregatePlan }
  /** How well the field meets a full text search. */
  | {
      readonly kind: 'rank';
      readonly through: readonly ToOneJoin[];
      readonly field: Field;
      readonly slot: Slot;
      readonly configuration: TextSearchConfiguration;
    }
  /** A column of the row's key, even if the caller may not see it: it makes an order stable. */
  | { readonly kind: 'key'; readonly field: Field }
  /** The position of the key in a list of keys. */
  | { readonly kind: 'position'; readonly slot: Slot; readonly key: readonly Field[] };

/** The object of the database that an operator needs in addition to its operands. */
export type OperatorSource =
  /** An extension, by the schema in which its operators are. */
  | { readonly kind: 'extension'; readonly schema: string }
  | { readonly kind: 'configuration'; readonly configuration: TextSearchConfiguration };

/** A field of which words are searched, and how they are read. */
export interface FullText {
  readonly field: Field;
  readonly configuration: TextSearchConfiguration;
}

export type Condition =
  | { readonly kind: 'and' | 'or'; readonly conditions: readonly Condition[] }
  | {
      readonly kind: 'key';
      readonly key: readonly Field[];
      readonly slot: Slot;
      readonly many: boolean;
      /** Whether rows count only where the caller may see their keys. */
      readonly shown?: boolean;
      /** Whether the keys are JSON values, as in responses, instead of texts. */
      readonly asJson?: boolean;
      /** For a condition in a filter: it tests the row at the end of the joins. A key that the caller may not see is null. */
      readonly filter?: { readonly through: readonly ToOneJoin[]; readonly negated: boolean };
    }
  /** A condition on a composite reference: whether it is set, or with `keyParameter` which item it names. */
  | {
      readonly kind: 'reference';
      readonly through: readonly ToOneJoin[];
      readonly toOne: ManyToOneJoin;
      readonly negated: boolean;
      readonly keyParameter: { readonly slot: Slot; readonly many: boolean } | null;
    }
  | {
      readonly kind: 'compare';
      readonly operand: OperandPlan;
      readonly operator: Operator;
      readonly value: ValuePlan | null;
      readonly using?: OperatorSource;
    }
  | {
      readonly kind: 'exists';
      readonly through: readonly ToOneJoin[];
      readonly toMany: ToManyJoin;
      readonly negated: boolean;
      readonly where: Condition;
    }
  | {
      readonly kind: 'search';
      readonly slot: Slot;
      readonly fields: readonly Field[];
      readonly vector: FullText | null;
    }
  /** Holds of the row as it is, whatever the caller may see of it. */
  | { readonly kind: 'rule'; readonly rule: Condition };

export interface CursorCondition {
  readonly slot: Slot;
  /** Whether each sort value is null. */
  readonly nulls: readonly boolean[];
}

/** The type of a value that is compared with an operand, and a name for messages. */
export interface OperandType {
  readonly codec: Codec;
  readonly composite: Composite | null;
  readonly label: string;
  /** The operator that takes the value, if its type is not that of the operand. */
  readonly operator?: Operator;
  /** Other names of collections, where the operand holds such names. */
  readonly synonyms?: Readonly<Record<string, string>>;
}

export type ValuePlan =
  | ({ readonly kind: 'slot'; readonly slot: Slot } & OperandType)
  /** A field of the caller's user, role, roles or policies. */
  | {
      readonly kind: 'caller';
      /** As it was written. */
      readonly text: string;
      readonly variable: string;
      readonly collection: Collection;
      readonly operand: OperandPlan;
    };

/** The part of a parameter that says which value of a filter it is. */
export function typedValue({ slot, codec, composite, label, ...rest }: Extract<ValuePlan, { kind: 'slot' }>) {
  const { operator, synonyms } = rest;
  const typed = { slot, codec, composite, field: label, use: 'filter' } as const;
  if (synonyms !== undefined) return { ...typed, synonyms };
  return operator === undefined ? typed : { ...typed, operator };
}

export interface Order {
  readonly operand: OperandPlan;
  readonly descending: boolean;
}

export type LimitPlan =
  | { readonly kind: 'all' }
  | { readonly kind: 'constant'; readonly value: number }
  | { readonly kind: 'slot'; readonly slot: Slot };

export type OffsetPlan =
  | { readonly kind: 'offset'; readonly slot: Slot }
  | { readonly kind: 'page'; readonly slot: Slot; readonly limit: number | { readonly slot: Slot } };

/** The condition that always holds. */
export const ALWAYS: Condition = { kind: 'and', conditions: [] };

export function isAlways(condition: Condition): boolean {
  return condition.kind === 'and' && condition.conditions.every(isAlways);
}

export function both(...conditions: readonly Condition[]): Condition {
  const parts = conditions.flatMap((each) => (each.kind === 'and' ? each.conditions : [each]));
  return onlyOf(parts) ?? { kind: 'and', conditions: parts };
}

/** All rows that meet the condition, in no order. */
export function rowLevel(collection: Collection, outputs: readonly Output[], where: Condition = ALWAYS): RowLevel {
  return { kind: 'rows', collection, outputs, where, after: null, order: [], limit: { kind: 'all' }, offset: null };
}

/** A read without counts, a stream or a cursor. */
export function readPlan<Result extends Level>(
  result: ReadPlan['result'],
  level: Result,
): ReadPlan & { level: Result } {
  return { kind: 'read', result, stream: false, level, meta: [], cursor: false };
}
