/** Arguments of lists → the query of the request AST, through the parsers that REST uses. */

import type { GraphQLField } from 'graphql';
import { type GraphQLInputType, getNamedType, isInputObjectType, isListType, isNonNullType } from 'graphql';
import { isObject } from '../base/exact-json.js';
import { propertiesOf } from '../base/narrow.js';
import type { Query } from '../request/ast.js';
import type { ParseContext } from '../request/parse-context.js';
import { parseQuery } from '../request/query-parameters.js';
import type { ValueList } from '../request/values.js';
import { filterBindingOf } from './field-binding.js';

export type Arguments = Readonly<Record<string, unknown>>;

/** The values and limits of an operation while it is parsed. */
export interface DocumentContext extends ParseContext {
  readonly values: ValueList;
}

export function parseQueryArguments(
  field: GraphQLField<unknown, unknown>,
  { filter, sort, limit, offset, page, search, groupBy, having }: Arguments,
  context: ParseContext,
): Query {
  const type = field.args.find((each) => each.name === 'filter')?.type;
  const input = {
    filter: filter && type ? parseFilterArgument(filter, type) : undefined,
    sort: withoutNulls(sort),
    limit,
    offset,
    page,
    search,
    groupBy: withoutNulls(groupBy),
    having,
  };
  return parseQuery(input, context);
}

/** Keys become those of REST: `item:headings`, `year(date)`. Whatever is not a filter's own key is taken as it is. */
function parseFilterArgument(value: unknown, input: GraphQLInputType): unknown {
  const type = isNonNullType(input) ? input.ofType : input;
  if (isListType(type)) {
    return Array.isArray(value) ? value.map((each) => parseFilterArgument(each, type.ofType)) : value;
  }
  const named = getNamedType(type);
  if (!isInputObjectType(named) || !isObject(value)) return value;
  const fields = named.getFields();
  const filter: Record<string, unknown> = {};
  for (const [key, inner] of Object.entries(value)) {
    const field = fields[key];
    if (!field) continue;
    const binding = filterBindingOf(field);
    if (binding?.kind === 'functions') {
      for (const [name, condition] of Object.entries(propertiesOf(inner)))
        filter[`${name}(${binding.field})`] = condition;
    } else filter[binding ? binding.key : key] = parseFilterArgument(inner, field.type);
  }
  return filter;
}

/** The schema allows null as an entry of a list. It has no effect. */
function withoutNulls(list: unknown): unknown {
  if (list === null || list === undefined) return undefined;
  return Array.isArray(list) ? list.filter((each) => each !== null) : list;
}
