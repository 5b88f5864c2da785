/** The outputs that a list of fields selects: wildcards become fields, and selections of one field are merged. */
import { assertNever } from '../../base/assert-never.js';
import { forbiddenField } from '../../base/errors.js';
import type { Collection, Field } from '../model/model.js';
import { isReadable } from '../model/write-facts.js';
import type { FunctionCall, Query, Selection } from '../request/ast.js';
import { type Aliased, aliasNamed, fieldNamed } from './resolve-names.js';

/** A level of a request: its collection, its query, and how it was reached. */
export interface Position {
  readonly collection: Collection;
  readonly query: Query;
  readonly location: string;
  /** The field through which the level was reached, or null for the root; wildcards may leave out the way back. */
  readonly from: Field | null;
  readonly backlink: boolean;
}

export interface Wanted {
  readonly field: Field;
  readonly call: FunctionCall | null;
  readonly fields: readonly Selection[];
  /** Collections of a many-to-any field, with the fields wanted of each. */
  readonly scopes: ReadonlyMap<string, readonly Selection[]>;
  /** Whether the request names it: wildcards leave out fields without a value. */
  readonly isNamed: boolean;
  /** Whether the field itself is selected, maybe next to fields below it. */
  readonly isWhole: boolean;
}

export const EVERYTHING: readonly Selection[] = [{ kind: 'wildcard', fields: [] }];

/** By output name, in the order in which they first appear. */
export function expandFields(selections: readonly Selection[], position: Position): Map<string, Wanted> {
  const wanted: WantedFields = new Map();
  const { collection } = position;
  const aliases = position.query.alias;
  const aliased = (name: string): Aliased | null => aliasNamed(collection, name, aliases, position.location);
  for (const selection of selections) {
    switch (selection.kind) {
      case 'function': {
        const { field } = fieldNamed(collection, selection.field, position.location);
        add(wanted, selection.output, { field, call: selection.call, fields: [] });
        break;
      }
      case 'field': {
        const alias = aliased(selection.name);
        if (alias) addNamed(wanted, alias, selection.fields, selection.whole);
        else addField(wanted, selection, position);
        break;
      }
      case 'value':
      case 'related':
      case 'object':
      case 'constant':
      case 'tag':
        throw new Error('a list of fields is shaped as a whole or not at all');
      case 'wildcard':
        for (const field of collection.fields.values()) {
          if (!isReadable(field)) continue;
          const fields = field.relation && !isWayBack(field, position) ? selection.fields : [];
          add(wanted, field.name, { field, call: null, fields, isNamed: false, isWhole: selection.whole });
        }
        for (const { name } of aliases) {
          const alias = aliased(name);
          if (alias) addNamed(wanted, alias, selection.fields, selection.whole);
        }
        break;
      default:
        assertNever(selection);
    }
  }
  return wanted;
}

type WantedFields = Map<string, Wanted>;

function addField(
  wanted: WantedFields,
  { name, fields, whole }: Extract<Selection, { kind: 'field' }>,
  { collection, location }: Position,
): void {
  const { field, scope } = fieldNamed(collection, name, location);
  if (fields.length > 0 && !field.relation)
    throw forbiddenField(`${field.name}.${describeSelection(fields[0])}`, collection.name, location);
  addNamed(wanted, { name: field.name, field, scope, call: null }, fields, whole);
}

function addNamed(
  wanted: WantedFields,
  { name, field, scope, call }: Aliased,
  fields: readonly Selection[],
  isWhole = false,
): void {
  const inner = scope !== null && fields.length === 0 ? EVERYTHING : fields;
  add(wanted, name, { field, call, fields: inner, scope, isWhole });
}

interface Addition extends Pick<Wanted, 'field' | 'call' | 'fields'> {
  readonly scope?: string | null;
  readonly isNamed?: boolean;
  readonly isWhole?: boolean | undefined;
}

/** Merges the selections of one field. */
function add(
  wanted: WantedFields,
  name: string,
  { field, call, fields, scope = null, isNamed = true, isWhole = false }: Addition,
): void {
  const scopes = new Map<string, readonly Selection[]>();
  const before = wanted.get(name) ?? { fields: [], scopes, isNamed, isWhole: false };
  wanted.set(name, {
    field,
    call,
    fields: scope === null ? [...before.fields, ...fields] : before.fields,
    scopes:
      scope === null
        ? before.scopes
        : new Map(before.scopes).set(scope, [...(before.scopes.get(scope) ?? []), ...fields]),
    isNamed: before.isNamed || isNamed,
    isWhole: before.isWhole || isWhole || fields.length === 0,
  });
}

export function describeSelection(selection: Selection | undefined): string {
  return selection?.kind === 'field' ? selection.name : '*';
}

function isWayBack(field: Field, position: Position): boolean {
  const { from } = position;
  if (position.backlink || !from?.relation || !field.relation) return false;
  return (
    from.relation.manyCollection === field.relation.manyCollection &&
    from.relation.manyField === field.relation.manyField
  );
}
