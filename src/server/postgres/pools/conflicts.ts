/** Conflicts between requests: which failures are worth another attempt, and when. */

import { forbidden } from '../../../base/errors.js';
import { codeOf, messageOf, propertiesOf } from '../../../base/narrow.js';
import { isRaised, takenKey } from '../../../base/sqlstate.js';
import { countedKey, keyNames } from '../../../compiler/model/item-key.js';
import type { Collection, Field } from '../../../compiler/model/model.js';
import type { PlannedWrite, Verb, WriteNode } from '../../../compiler/plan/write/write.js';

/**
 * If the same key collides this often, other requests are not the reason: two spellings of one key in the payload, a row that policies
 * of the database hide, a trigger that chooses the key. It is a value that must be unique and is not.
 */
const MAX_COLLISIONS_OF_KEY = 3;

/** Another request created the item that this one was about to create: the next attempt finds and changes it. */
export class Conflict extends Error {
  /** `cause` is the error of the database, or the one for the client if each attempt meets the key. */
  constructor(
    /** The collection whose key collided. */
    readonly collection: Collection,
    /** As PostgreSQL writes it. */
    readonly key: string,
    cause: unknown,
    /** The maximum number of attempts that meet the same key. */
    readonly last = MAX_COLLISIONS_OF_KEY,
  ) {
    super(`a key of "${collection.name}" was taken meanwhile`, { cause });
  }

  isSame(other: Conflict | null): boolean {
    return other !== null && this.collection.name === other.collection.name && this.key === other.key;
  }
}

export function isConflict(error: unknown): boolean {
  return error instanceof Conflict || isMoved(error) || CONFLICTS.has(codeOf(error));
}

/**
 * A table, or what belongs to it, was dropped or replaced while the statement was on its way to it. PostgreSQL has no code for
 * that; the words are never translated.
 */
export function isMoved(error: unknown): boolean {
  return (
    codeOf(error) === 'XX000' && /^(could not open relation with OID|cache lookup failed for) /.test(messageOf(error))
  );
}

/** Serialization failures, deadlocks, and statements that a connection was thought to have prepared. */
const CONFLICTS: ReadonlySet<string> = new Set(['40001', '40P01', '26000']);

/** An administrator has ended the connection, or the server goes down; a backend that crashed says otherwise. */
export function isTermination(error: unknown): boolean {
  return codeOf(error) === '57P01' && !isRaised(error);
}

/**
 * A key collided that this request found missing, or took from a sequence while another request supplied it. A key that the
 * payload says is new is no conflict: an item has it already, and will have it when the request is repeated.
 */
export function asConflict(error: unknown, { plan, input }: PlannedWrite): Conflict | null {
  if (codeOf(error) === 'LT403' && messageOf(error) === 'missing') return vanishedConflict(plan, error);
  const columnAndKey = takenKey(error);
  if (columnAndKey === null) return asHiddenConflict(error, plan);
  const [column, key] = columnAndKey;
  const { table_name: table } = propertiesOf(error);
  const columns = column.split(', ').map((name) => name.replace(/^"|"$/g, ''));
  const met = plan.nodes.find(({ collection, conflict }) => {
    if (!conflict || (collection.table !== table && collection.kind !== 'partitioned')) return false;
    return conflict.fields.length === columns.length && conflict.fields.every(({ name }) => columns.includes(name));
  });
  // The next attempt finds the item that was made meanwhile.
  if (met) return new Conflict(met.collection, key, error);
  const makers = plan.nodes.flatMap((node, position): Maker[] => {
    const { verb, collection } = node;
    if (collection.table !== table && collection.kind !== 'partitioned') return [];
    if (verb === 'update' || columns.join(', ') !== keyNames(collection).join(', ')) return [];
    const isSole = collection.key.length === 1;
    const rows = input.nodes[position] ?? [];
    // The payload's part of a new key of several columns stays the same in a retry; the next value of a sequence differs.
    if (verb === 'insert' && !isSole) {
      const index = node.columns.findIndex(({ field }) => field === countedKey(collection));
      const isMade = countedKey(collection) !== null && rows.some((row) => row[`c${index}`] === undefined);
      // Parts of it may be those of a new row: it is unknown which entry has the key.
      return [{ verb, collection, names: isMade ? rows.some((row) => saysKey(node, row, key)) : null }];
    }
    const keyOf = (row: Readonly<Record<string, unknown>>): string =>
      isSole ? String(row['k']) : collection.key.map((_, part) => String(row[`k_${part}`])).join(', ');
    const names = rows.some((row) => keyOf(row) === key);
    return [{ verb, collection, names }];
  });
  if (makers.some(({ verb, names }) => verb === 'insert' && names)) return null;
  const named = makers.find(({ names }) => names);
  if (!named && makers.some(({ names }) => names === null)) return null;
  const maker = named ?? makers[0];
  return maker ? new Conflict(maker.collection, key, error) : null;
}

/**
 * With row-level security PostgreSQL names neither the columns nor the values that are taken. The next attempt finds the item, unless a
 * policy hides it: then the caller may not change it, and gets the same refusal as for other items.
 */
function asHiddenConflict(error: unknown, { nodes }: PlannedWrite['plan']): Conflict | null {
  const { table_name: table, constraint_name: name } = propertiesOf(error);
  if (codeOf(error) !== '23505' || isRaised(error)) return null;
  const isOn = ({ column }: Field): boolean => column?.indexes.some((index) => index.name === name) ?? false;
  const met = nodes.find(({ collection, conflict }) => {
    if (!conflict || !collection.hasRowSecurity || collection.table !== table) return false;
    const [only, ...others] = conflict.fields;
    // The model has the names of indexes on one column.
    return only && others.length === 0 ? isOn(only) : ![...collection.fields.values()].some(isOn);
  });
  return met ? new Conflict(met.collection, String(name), forbidden()) : null;
}

/**
 * An upsert met an item that the caller may not change, or that another request deleted while the statement waited for it. Then the next
 * attempt creates it.
 */
export function vanishedConflict({ nodes }: PlannedWrite['plan'], cause: unknown): Conflict | null {
  const met = nodes.find(({ conflict, guard, collection }) => conflict && (guard || collection.hasRowSecurity));
  return met ? new Conflict(met.collection, '', cause, 2) : null;
}

/** A list that may have made the key, and whether it names it; null if that is unknown. */
interface Maker {
  readonly verb: Verb;
  readonly collection: Collection;
  readonly names: boolean | null;
}

/** Whether the payload gives a new row this key, as far as it says its parts. */
function saysKey({ collection, columns }: WriteNode, row: Readonly<Record<string, unknown>>, key: string): boolean {
  const texts = key.split(', ');
  return collection.key.every((part, position) => {
    const value = row[`c${columns.findIndex(({ field }) => field === part)}`];
    if (value === undefined) return !part.column?.sequence;
    return texts.length !== collection.key.length || texts[position] === String(value);
  });
}

export function pause(attempt: number): Promise<void> {
  const milliseconds = Math.min(20 * 2 ** attempt, 1_000) * (0.5 + Math.random());
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
