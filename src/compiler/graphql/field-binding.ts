/**
 * The meaning of a field of the schema in the model. The types carry it in their extensions, so that reading a document
 * never has to guess from a name.
 */
import {
  type GraphQLField,
  type GraphQLInputField,
  type GraphQLInputObjectType,
  type GraphQLObjectType,
  getNamedType,
  isObjectType,
} from 'graphql';
import type { AggregateFunction, FunctionCall, Representation } from '../request/ast.js';
import { UPDATE_OPERATORS, type UpdateOperator } from '../request/update-operators.js';
import type { Codec } from '../sql/codec.js';

/** Fields of object types. */
type FieldBinding =
  | { readonly kind: 'value'; readonly field: string; readonly as: Representation }
  | { readonly kind: 'related'; readonly field: string }
  /** The entity tag of the item's row. */
  | { readonly kind: 'tag' }
  /** An object of functions of one field. */
  | { readonly kind: 'functions'; readonly field: string }
  | { readonly kind: 'function'; readonly call: Exclude<FunctionCall['kind'], 'json'> }
  | { readonly kind: 'json' }
  | { readonly kind: 'groups' }
  | { readonly kind: 'rows' }
  | { readonly kind: 'aggregates'; readonly function: AggregateFunction }
  | { readonly kind: 'aggregate'; readonly field: string }
  /** A part of a change event. */
  | { readonly kind: 'event'; readonly part: 'key' | 'event' | 'data' };

/** Keys of filters that are written otherwise in the request AST. */
type FilterBinding =
  /** `item__headings` is `item:headings`. */
  | { readonly kind: 'key'; readonly key: string }
  /** `date_func: {year: ...}` is `year(date): ...`. */
  | { readonly kind: 'functions'; readonly field: string };

/** A field of a payload with another name than the collection's. */
interface InputBinding {
  readonly kind: 'input';
  readonly field: string;
}

/** Root fields. */
export type RootBinding =
  | { readonly kind: 'list' | 'singleton' | 'aggregated' | 'mutated'; readonly collection: string }
  | { readonly kind: 'item'; readonly collection: string; readonly codecs: readonly Codec[] }
  | {
      readonly kind: 'create' | 'update' | 'delete' | 'batch';
      readonly collection: string;
      readonly many: boolean;
      /** Whether what was written may be read back. */
      readonly readable: boolean;
    }
  | { readonly kind: 'update-singleton'; readonly collection: string; readonly readable: boolean }
  /** A REST route carries it out. */
  | { readonly kind: 'service'; readonly field: SystemField }
  /** The caller's account, and the roles it has. */
  | { readonly kind: 'me' | 'my-roles' }
  | { readonly kind: 'update-me'; readonly readable: boolean }
  | FunctionBinding
  | { readonly kind: 'empty' };

/** Types are written as in a schema: `[String!]`. */
export interface SystemField {
  readonly name: string;
  readonly operation: 'query' | 'mutation';
  readonly type: string;
  readonly args: Readonly<Record<string, string>>;
  /** The arguments that become the named segments of the path, in its order. */
  readonly parameters: readonly string[];
  /** The body of the request: the argument `data`, or all arguments that the path does not name. `query` puts these into the URL. */
  readonly body: 'none' | 'data' | 'rest' | 'query';
  /** An operation may contain the field once: many attempts in one request would bypass the limits. */
  readonly once: boolean;
}

/** A call of a function of the database. */
export interface FunctionBinding {
  readonly kind: 'function';
  readonly function: string;
  /** The arguments of the function. The field's other arguments belong to the query. */
  readonly arguments: readonly string[];
  /** Rows of fields, one or several; a value, and how it is shown; or nothing. */
  readonly result: 'list' | 'one' | 'nothing' | { readonly as: Representation };
  /** Whether the rows are grouped. */
  readonly groups: boolean;
}

const KEY = 'lateral';

/** Only `extend` and `typeExtensions` write what is read here. */
function extensionOf<Binding>({ extensions }: { readonly extensions: object }): Binding {
  return (extensions as Record<string, unknown>)[KEY] as Binding;
}

/** Without a prototype: graphql-js would copy the object otherwise, once per field. */
export function extend(binding: FieldBinding | FilterBinding | InputBinding | RootBinding): Record<string, unknown> {
  const extensions: Record<string, unknown> = Object.create(null);
  extensions[KEY] = binding;
  return extensions;
}

export function bindingOf(field: GraphQLField<unknown, unknown>): FieldBinding {
  return extensionOf(field);
}

export function rootBindingOf(field: GraphQLField<unknown, unknown>): RootBinding {
  return extensionOf(field);
}

export function filterBindingOf(field: GraphQLInputField): FilterBinding | undefined {
  return extensionOf(field);
}

/** The collection's name of a field that a payload names so. */
export function writtenField({ name, extensions }: GraphQLInputField): string {
  const binding = extensionOf<Partial<InputBinding> | undefined>({ extensions });
  return binding?.kind === 'input' && binding.field !== undefined ? binding.field : name;
}

/** The collection that a type shows. */
export function collectionOfType(type: GraphQLObjectType): string {
  return extensionOf(type);
}

/** A field that a validated document names. */
export function fieldOfType(type: GraphQLObjectType, name: string): GraphQLField<unknown, unknown> {
  const field = type.getFields()[name];
  if (!field) throw new Error(`${type.name} has no field ${name}`);
  return field;
}

/** The type of objects that a field leads to, be it a list of them. */
export function objectTypeOf(field: GraphQLField<unknown, unknown>): GraphQLObjectType {
  const type = getNamedType(field.type);
  if (!isObjectType(type)) throw new Error(`${field.name} leads to no object`);
  return type;
}

export function typeExtensions(collection: string): Record<string, unknown> {
  return { [KEY]: collection };
}

/** Whether an input type of related items may have `create`, `update` and `delete` instead. */
export function isStaged(type: GraphQLInputObjectType): boolean {
  return type.extensions[KEY] === 'staged';
}

export const STAGED: Record<string, unknown> = { [KEY]: 'staged' };

/** The operator whose operands an input field has, by field; undefined for fields of the item itself. */
export function operatorOf(field: GraphQLInputField): UpdateOperator | undefined {
  return UPDATE_OPERATORS.find((operator) => field.extensions[KEY] === operator);
}

export function operatorExtensions(operator: UpdateOperator): Record<string, unknown> {
  return { [KEY]: operator };
}
