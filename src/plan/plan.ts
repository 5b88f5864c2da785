/** Plans: a request whose names have become objects of the model. Pure data; the compilers read nothing else. */
import type { Collection, Field, ManyToOne, OneToMany } from '../mirror/model.js';
import type { Slot } from '../request/ast.js';

export interface ReadPlan {
  readonly kind: 'read';
  /** A list of items, or one item that may be missing. */
  readonly result: 'list' | 'item';
  readonly level: Level;
}

/** One `select` over one collection: a page of it, and what is shown of each row. */
export interface Level {
  readonly collection: Collection;
  readonly outputs: readonly Output[];
  /** Only the item with this key. */
  readonly key: Slot | null;
  readonly order: readonly Order[];
  readonly limit: LimitPlan;
  readonly offset: OffsetPlan | null;
}

export type Output =
  | { readonly kind: 'column'; readonly name: string; readonly field: Field }
  | {
      readonly kind: 'one';
      readonly name: string;
      readonly field: Field;
      readonly relation: ManyToOne;
      readonly level: Level;
    }
  | { readonly kind: 'many'; readonly name: string; readonly relation: OneToMany; readonly level: Level }
  /** The keys of the related items, where nothing of them was selected. */
  | { readonly kind: 'keys'; readonly name: string; readonly relation: OneToMany; readonly level: Level };

export interface Order {
  /** To-one relations to follow before the field. */
  readonly through: readonly { readonly field: Field; readonly target: Collection }[];
  readonly field: Field;
  readonly descending: boolean;
}

export type LimitPlan =
  | { readonly kind: 'all' }
  | { readonly kind: 'constant'; readonly value: number }
  | { readonly kind: 'slot'; readonly slot: Slot };

export type OffsetPlan =
  | { readonly kind: 'offset'; readonly slot: Slot }
  | { readonly kind: 'page'; readonly slot: Slot; readonly limit: number | { readonly slot: Slot } };
