/**
 * Names of types that come with a request, such as `numeric(10,2)[]`. PostgreSQL's grammar reads them, and what goes into a
 * statement is built again from what was parsed: nothing of the text itself is used.
 */
import { LRUCache } from 'lru-cache';
import { propertiesOf } from '../../base/narrow.js';
import { isLongerThan } from '../../base/utf8.js';
import { type Fragment, identifier, integerLiteral, join, nothing, sql } from './fragment.js';
import { onlyExpression, tryParse } from './grammar.js';

export interface TypeName {
  /** With the schema, where one was given. */
  readonly names: readonly string[];
  /** Lengths, precisions, and the words that some extensions take. */
  readonly modifiers: readonly (number | string)[];
  readonly dimensions: number;
}

/** Ten thousand columns have a few dozen types; parsing a name takes a tenth of a millisecond. */
const known = new LRUCache<string, { readonly type: TypeName | null }>({ max: 500 });

/** Returns null unless the whole text is the name of a type. */
export function readTypeName(text: string): TypeName | null {
  const cached = known.get(text);
  if (cached) return cached.type;
  const type = parseTypeName(text);
  if (text.length <= MAX_LENGTH) known.set(text, { type });
  return type;
}

function parseTypeName(text: string): TypeName | null {
  const node = parse(text);
  if (!node || node.setof || node.pct_type || isLongerThan(text, MAX_LENGTH)) return null;
  const names = (node.names ?? []).map(({ String: each }) => each?.sval);
  const modifiers = (node.typmods ?? []).map(modifierOf);
  if (names.length === 0 || names.length > 2 || !names.every(isName)) return null;
  if (!modifiers.every((each) => each !== undefined)) return null;
  return { names, modifiers, dimensions: (node.arrayBounds ?? []).length };
}

/** `int` and `integer`, `varchar(9)` and `character varying(9)` are the same to the grammar. */
export function isSameType(left: string, right: string): boolean {
  if (left === right) return true;
  const [one, other] = [left, right].map((text) => {
    const type = readTypeName(text);
    return type && JSON.stringify({ ...type, names: type.names.filter((name) => name !== 'pg_catalog') });
  });
  return one !== null && one === other;
}

export function typeFragment({ names, modifiers, dimensions }: TypeName): Fragment {
  const modifierList = modifiers.map((each) => (typeof each === 'number' ? integerLiteral(each) : identifier(each)));
  const size = modifierList.length === 0 ? nothing : sql`(${join(modifierList, sql`, `)})`;
  return join([identifier(...names), size, ...Array.from({ length: dimensions }, () => sql`[]`)], nothing);
}

const MAX_LENGTH = 300;
const MAX_NAME = 63;

interface TypeNode {
  readonly names?: readonly { readonly String?: { readonly sval?: string } }[];
  readonly typmods?: readonly ModifierNode[];
  readonly arrayBounds?: readonly unknown[];
  readonly setof?: boolean;
  readonly pct_type?: boolean;
}

interface ModifierNode {
  readonly A_Const?: { readonly ival?: { readonly ival?: number } };
  readonly ColumnRef?: { readonly fields?: TypeNode['names'] };
}

interface CastNode {
  readonly TypeCast?: {
    readonly arg?: { readonly A_Const?: { readonly isnull?: boolean } };
    readonly typeName?: TypeNode;
  };
}

function parse(text: string): TypeNode | null {
  const expression: CastNode = propertiesOf(onlyExpression(tryParse(`select null::${text}\n`) ?? []));
  return expression.TypeCast?.arg?.A_Const?.isnull ? (expression.TypeCast.typeName ?? null) : null;
}

/** Zero is left out of the tree. */
function modifierOf({ A_Const: constant, ColumnRef: word }: ModifierNode): number | string | undefined {
  if (constant?.ival) return constant.ival.ival ?? 0;
  const name = word?.fields?.length === 1 ? word.fields[0]?.String?.sval : undefined;
  return isName(name) ? name : undefined;
}

function isName(name: string | undefined): name is string {
  return name !== undefined && name !== '' && !isLongerThan(name, MAX_NAME);
}
