/**
 * Which rows a nested read shows. Its answer brings values that say so: the references and keys of the rows of its levels. A changed row
 * that has none of them cannot change the answer. See docs/decisions/read-cache.md.
 */
import type { Collection, Field } from '../model/model.js';
import { isMasked, restrictionOf } from './access.js';
import { callOf } from './call.js';
import type { ManyToAnyJoin, OperationPlan, Output, ReadPlan, RowLevel, ToManyJoin, ToOneJoin } from './plan.js';
import { type ProbedKind, probedKind } from './row-probe.js';

/** Values that come with an answer: of each row of a level, these columns. */
export interface LinkSet {
  readonly level: RowLevel;
  readonly columns: readonly Field[];
  /** The reference that the columns hold: its mask applies to them. Otherwise null. */
  readonly reference: ToOneJoin | null;
}

export interface LinkedColumn {
  readonly name: string;
  readonly kind: ProbedKind;
}

/** Columns of a changed row, and the set that has their values in the rows that the answer shows. */
export interface LinkSide {
  readonly columns: readonly LinkedColumn[];
  readonly set: number;
}

/** Where a statement reads a table by values of other rows. A changed row concerns the answer if one of the sides has its values. */
export interface Place {
  readonly schema: string;
  readonly table: string;
  /** The columns by which the rows are found. */
  readonly link: LinkSide;
  /** The keys of the rows that are shown: they change the answer when they leave. It is null if the link is the key. */
  readonly keys: LinkSide | null;
}

export interface LinkPlan {
  readonly sets: readonly LinkSet[];
  readonly places: readonly Place[];
}

/** The places below the first levels of the read. */
export function linkPlan(plan: ReadPlan | OperationPlan): LinkPlan {
  const links = new Links();
  const plans = plan.kind === 'read' ? [plan] : plan.parts.flatMap((part) => (part.kind === 'read' ? [part.plan] : []));
  for (const { result, level, stream, cursor } of plans)
    if ((result === 'list' || result === 'item') && level.kind === 'rows' && !stream && !cursor) links.visit(level);
  return links;
}

class Links implements LinkPlan {
  readonly sets: LinkSet[] = [];
  readonly places: Place[] = [];

  visit(level: RowLevel): void {
    // Rows of these do not have the values that are stored in the table.
    if (level.version || level.image !== undefined || level.bare || callOf(level.collection)) return;
    this.#visitAll(level, level.outputs);
  }

  #visitAll(level: RowLevel, outputs: readonly Output[]): void {
    for (const output of outputs) {
      if (output.kind === 'object') this.#visitAll(level, output.outputs);
      else if (output.kind === 'one') this.#visitOne(level, output.toOne, output.level);
      else if (output.kind === 'any')
        for (const { toOne } of output.targets) if (!restrictionOf(toOne.target)) this.#addAny(level, toOne);
      if ((output.kind === 'many' || output.kind === 'keys') && output.level.kind === 'rows')
        this.#visitList(level, output.toMany, output.level);
    }
  }

  #visitOne(parent: RowLevel, toOne: ToOneJoin, level: RowLevel): void {
    // If the caller sees only some rows, a row that is not shown may be hidden: the answer must not depend on it alone.
    if (toOne.kind === 'one' && !restrictionOf(toOne.target) && !level.offset)
      this.#add(toOne.target, toOne.key, { level: parent, columns: toOne.columns, reference: toOne }, level);
    this.visit(level);
  }

  #visitList(parent: RowLevel, { columns, key, via, named, collection }: ToManyJoin, level: RowLevel): void {
    if (via && isMasked(parent.collection, via)) return;
    // Behind an offset, rows that are not shown change the answer when they leave.
    if (!level.offset && !named)
      this.#add(collection, columns, { level: parent, columns: key, reference: null }, level);
    this.visit(level);
  }

  /** The reference is text, whatever the collection that the row names. */
  #addAny(parent: RowLevel, toOne: ManyToAnyJoin): void {
    const { target } = toOne;
    const columns = linkedColumns(target.key);
    if (columns?.length !== 1) return;
    const set = this.#setOf({ level: parent, columns: [toOne.field], reference: toOne });
    this.places.push({ schema: target.schema, table: target.table, link: { columns, set }, keys: null });
  }

  #add(collection: Collection, fields: readonly Field[], found: LinkSet, level: RowLevel): void {
    const columns = linkedColumns(fields);
    const key = linkedColumns(collection.key);
    const values = linkedColumns(found.columns);
    if (!columns || !key || !values || !collection.key.every(({ column }) => column?.is_primary_key)) return;
    if (columns.some(({ kind }, position) => kind !== values[position]?.kind)) return;
    const isKey = columns.length === key.length && columns.every(({ name }, position) => name === key[position]?.name);
    const keys = isKey ? null : { columns: key, set: this.#setOf({ level, columns: collection.key, reference: null }) };
    const link = { columns, set: this.#setOf(found) };
    this.places.push({ schema: collection.schema, table: collection.table, link, keys });
  }

  #setOf({ level, columns, reference }: LinkSet): number {
    const names = columns.map(({ name }) => name).join('\n');
    const known = this.sets.findIndex(
      (set) =>
        set.level === level &&
        set.reference?.field === reference?.field &&
        set.columns.map(({ name }) => name).join('\n') === names,
    );
    return known >= 0 ? known : this.sets.push({ level, columns, reference }) - 1;
  }
}

/** Returns null if equal values of a column may have different texts. */
function linkedColumns(fields: readonly Field[]): readonly LinkedColumn[] | null {
  const columns = fields.flatMap((field) => {
    const kind = probedKind(field);
    return field.column && kind ? { name: field.column.name, kind } : [];
  });
  return columns.length === fields.length && fields.length > 0 ? columns : null;
}
