/**
 * Scalars other than GraphQL's own. Values on their way out are written by PostgreSQL, so only input is read here; what a
 * value must be to fit its column is the planner's business.
 */

import { GraphQLError, GraphQLFloat, GraphQLID, GraphQLInt, GraphQLScalarType, Kind, type ValueNode } from 'graphql';
import { assertNever } from '../../base/assert-never.js';
import { Digits, readNumber, wholeDigits } from '../../base/exact-json.js';

type Variables = Readonly<Record<string, unknown>> | null | undefined;

export const JSON_SCALAR = jsonScalar('JSON', 'Any JSON value.');

/** Dates, times and instants, as text. */
export const DATE_SCALAR = textScalar('Date', 'A date, a time or an instant as ISO 8601 text.');
export const HASH_SCALAR = textScalar('Hash', 'A secret: accepted, and shown masked.');
export const GEOMETRY_SCALAR = jsonScalar('GraphQLGeoJSON', 'A GeoJSON object.');

/**
 * GraphQL's own scalars of numbers. They keep all digits of a number, and a float may also be a value that JSON cannot write as a number.
 * A schema has one type of each name, so these replace the library's types everywhere.
 */
export const FLOAT_SCALAR = new GraphQLScalarType({
  ...GraphQLFloat.toConfig(),
  parseValue: (value) => {
    if (value instanceof Digits || isNotFinite(value)) return value;
    return GraphQLFloat.parseValue(value);
  },
  parseLiteral: (node, variables) => {
    if (node.kind === Kind.INT || node.kind === Kind.FLOAT) return readNumber(node.value);
    if (node.kind === Kind.STRING && isNotFinite(node.value)) return node.value;
    return GraphQLFloat.parseLiteral(node, variables);
  },
});

export const INT_SCALAR = new GraphQLScalarType({
  ...GraphQLInt.toConfig(),
  parseValue: (value) => GraphQLInt.parseValue(value instanceof Digits ? Number(value) : value),
});

export const ID_SCALAR = new GraphQLScalarType({
  ...GraphQLID.toConfig(),
  parseValue: (value) => (value instanceof Digits ? wholeDigits(value.text) : null) ?? GraphQLID.parseValue(value),
});

function isNotFinite(value: unknown): boolean {
  return value === 'NaN' || value === 'Infinity' || value === '-Infinity';
}

/** Numbers beyond what JavaScript holds exactly: text on the way out, text or an integer on the way in. */
export const BIG_INT_SCALAR = new GraphQLScalarType({
  name: 'GraphQLBigInt',
  description: 'A 64-bit integer, written as a string so that no digit is lost.',
  parseValue: (value) => {
    if (typeof value === 'string' || (typeof value === 'number' && Number.isInteger(value))) return String(value);
    if (value instanceof Digits) return wholeDigits(value.text) ?? value.text;
    throw new GraphQLError('A big integer must be a string or a whole number');
  },
  parseLiteral: (node) => {
    if (node.kind === Kind.INT || node.kind === Kind.STRING) return node.value;
    throw new GraphQLError('A big integer must be a string or a whole number', { nodes: node });
  },
});

/** Values that numbers are compared with: variables such as `$NOW` are strings. */
export const STRING_OR_FLOAT_SCALAR = new GraphQLScalarType({
  name: 'GraphQLStringOrFloat',
  description: 'A number, or a string that stands for one.',
  parseValue: (value) => {
    if (typeof value === 'string' || typeof value === 'number' || value instanceof Digits) return value;
    throw new GraphQLError('Must be a number or a string');
  },
  parseLiteral: (node) => {
    // Digits stay text: a number would lose those that JavaScript cannot hold.
    if (node.kind === Kind.INT || node.kind === Kind.FLOAT || node.kind === Kind.STRING) return node.value;
    throw new GraphQLError('Must be a number or a string', { nodes: node });
  },
});

export const JSON_FILTER_SCALAR = jsonScalar(
  'GraphQLJsonFilter',
  'Conditions on paths into a JSON value: {"a.b": {"_eq": 1}}.',
);

/** The type of a field that has nothing to say. */
export const VOID_SCALAR = new GraphQLScalarType({
  name: 'Void',
  description: 'Nothing.',
  serialize: () => null,
  parseValue: () => null,
  parseLiteral: () => null,
});

function jsonScalar(name: string, description: string): GraphQLScalarType {
  return new GraphQLScalarType({ name, description, parseValue: (value) => value, parseLiteral: literalValue });
}

function textScalar(name: string, description: string): GraphQLScalarType {
  return new GraphQLScalarType({
    name,
    description,
    parseValue: (value) => {
      if (typeof value === 'string') return value;
      throw new GraphQLError(`${name} must be a string`);
    },
    parseLiteral: (node) => {
      if (node.kind === Kind.STRING) return node.value;
      throw new GraphQLError(`${name} must be a string`, { nodes: node });
    },
  });
}

function literalValue(node: ValueNode, variables: Variables): unknown {
  switch (node.kind) {
    case Kind.STRING:
    case Kind.BOOLEAN:
    case Kind.ENUM:
      return node.value;
    case Kind.INT:
    case Kind.FLOAT:
      return readNumber(node.value);
    case Kind.NULL:
      return null;
    case Kind.LIST:
      return node.values.map((each) => literalValue(each, variables));
    case Kind.OBJECT:
      return Object.fromEntries(node.fields.map((each) => [each.name.value, literalValue(each.value, variables)]));
    case Kind.VARIABLE:
      return variables?.[node.name.value] ?? null;
    default:
      return assertNever(node);
  }
}
