/** Operators of types of PostgreSQL: arrays, ranges, documents, networks, trees and words of texts. Each is one that an index of its kind can serve. */
import type { Field, InnerType } from '../mirror/model.js';
import type { OperatorSource, typedValue } from '../plan/plan.js';
import type { Operator } from '../request/ast.js';
import { type Fragment, identifier, operatorIn, parameter, sql } from '../sql/fragment.js';
import { matchesWords } from './full-text.js';
import { typeName } from './identifiers.js';

type Typed = ReturnType<typeof typedValue>;

/** Null for operators of other kinds. */
export function compileTypeOperator(
  operator: Operator,
  left: Fragment,
  field: Field,
  typed: Typed,
  using: OperatorSource | undefined,
): Fragment | null {
  const value = parameter({ kind: 'value', ...typed });
  const list = sql`${parameter({ kind: 'list', ...typed })}::${typeName(field)}`;
  switch (operator) {
    case 'contains_all':
      return sql`${left} operator(pg_catalog.@>) ${list}`;
    case 'contains_any':
      return sql`${left} operator(pg_catalog.&&) ${list}`;
    case 'contained_in':
      return sql`${left} operator(pg_catalog.<@) ${list}`;
    case 'contains_value':
      return sql`${left} operator(pg_catalog.@>) ${value}::${innerTypeName(field)}`;
    case 'overlaps':
      return sql`${left} operator(pg_catalog.&&) ${value}::${typeName(field)}`;
    case 'adjacent':
      return sql`${left} operator(pg_catalog.-|-) ${value}::${typeName(field)}`;
    case 'json_contains':
      return sql`${left} operator(pg_catalog.@>) ${value}::jsonb`;
    case 'has_key':
      return sql`${left} operator(pg_catalog.?) ${value}::text`;
    case 'within_network':
      return sql`${left} operator(pg_catalog.<<=) ${value}::inet`;
    case 'descendant_of':
      return sql`${left} ${extensionOperator(field.column?.base_schema, '<@')} ${value}::${typeName(field)}`;
    case 'ancestor_of':
      return sql`${left} ${extensionOperator(field.column?.base_schema, '@>')} ${value}::${typeName(field)}`;
    case 'similar': {
      const schema = using?.kind === 'extension' ? using.schema : undefined;
      return sql`${left} ${extensionOperator(schema, '%')} ${value}::text`;
    }
    case 'fts':
      if (using?.kind !== 'configuration') throw new Error('a full text search has a configuration');
      return matchesWords(left, { field, configuration: using.configuration }, typed.slot);
    default:
      return null;
  }
}

/** Operators of an extension are in its schema, which need not be on the search path. */
function extensionOperator(schema: string | undefined, symbol: string): Fragment {
  if (schema === undefined) throw new Error('the schema of the operator is not known');
  return operatorIn(schema, symbol);
}

function innerTypeName({ name, column }: Field): Fragment {
  const inner: InnerType | null | undefined = column?.inner;
  if (!inner) throw new Error(`the field "${name}" has no inner type`);
  return identifier(inner.schema, inner.type);
}
