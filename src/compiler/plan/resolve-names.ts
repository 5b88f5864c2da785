/** Names of a request become objects of the model: fields, joins along relations, functions of fields. */
import { assertNever } from '../../base/assert-never.js';
import { forbiddenField, invalidQuery } from '../../base/errors.js';
import { didYouMean } from '../../base/nearest-name.js';
import { isLongerThan } from '../../base/utf8.js';
import {
  type Collection,
  collectionOf,
  type Field,
  isSecretField,
  type ManyToAny,
  type ManyToOne,
  type Model,
  type OneToMany,
  type OneToOne,
} from '../model/model.js';
import { ownName } from '../model/synonyms.js';
import type { Alias, Expression, FunctionCall } from '../request/ast.js';
import { arrayCodec } from '../sql/codec.js';
import { unrestrictedCollection, unrestrictedModel } from './access.js';
import type { ManyToAnyJoin, ManyToOneJoin, OperandPlan, OperandType, ToManyJoin, ToOneJoin } from './plan.js';

/** A field, with the scope of a many-to-any relation where one was written: `item:headings`. */
interface Named {
  readonly field: Field;
  readonly scope: string | null;
}

export function fieldNamed(collection: Collection, name: string, location: string): Named {
  const whole = collection.fields.get(name);
  if (whole) return { field: whole, scope: null };
  const colon = name.indexOf(':');
  const field = colon > 0 ? collection.fields.get(name.slice(0, colon)) : undefined;
  if (field?.relation?.kind !== 'many-to-any')
    throw forbiddenField(name, collection.name, location, didYouMean(name, collection.fields.keys()));
  const { synonyms } = fieldOf(unrestrictedCollection(collection), field.relation.collectionField);
  return { field, scope: ownName(synonyms, name.slice(colon + 1)) };
}

/** The target of an alias, under the name that the response uses. */
export interface Aliased extends Named {
  readonly name: string;
  readonly call: FunctionCall | null;
}

/** Returns null if the name is not an alias. The scope of a many-to-any relation may follow an alias, as it follows a field: `aliased:headings`. */
export function aliasNamed(
  collection: Collection,
  written: string,
  aliases: readonly Alias[],
  location: string,
): Aliased | null {
  if (aliases.length === 0) return null;
  const isScoped = ({ name }: Alias): boolean => written.startsWith(`${name}:`) && !collection.fields.has(name);
  const found =
    aliases.find(({ name }) => name === written) ??
    (collection.fields.has(written) ? undefined : aliases.find(isScoped));
  if (!found) return null;
  const { name, target } = found;
  const meant = `${target.path[0] ?? ''}${written.slice(name.length)}`;
  return { name, call: target.call, ...fieldNamed(collection, meant, `${location}, alias "${name}"`) };
}

export function fieldOf(collection: Collection, name: string): Field {
  const field = collection.fields.get(name);
  if (!field) throw new Error(`the collection "${collection.name}" has no field "${name}"`);
  return field;
}

/** The join from a field to one item, or null if there is none, its scope is open, or the caller may not see its collection. */
export function toOneOf(model: Model, collection: Collection, named: Named, location: string): ToOneJoin | null {
  const { relation } = named.field;
  if (relation?.kind === 'many-to-one' || relation?.kind === 'one-to-one')
    return toOneJoin(model, collection, named.field, relation);
  if (relation?.kind !== 'many-to-any' || named.scope === null) return null;
  if (!relation.allowedCollections.includes(named.scope))
    throw forbiddenField(`${named.field.name}:${named.scope}`, collection.name, location);
  return anyJoin(model, collection, { field: named.field, scope: named.scope, relation }, location);
}

/** Returns null if the caller may not see the related collection. */
export function toOneJoin(
  model: Model,
  collection: Collection,
  field: Field,
  relation: ManyToOne | OneToOne,
): ManyToOneJoin | null {
  const isOtherSide = relation.kind === 'one-to-one';
  const target = model.collections.get(isOtherSide ? relation.manyCollection : relation.oneCollection);
  if (!target) return null;
  return isOtherSide
    ? {
        kind: 'one',
        field,
        columns: referencedFields(collection, relation),
        target,
        key: holdingFields(model, relation),
      }
    : { kind: 'one', field, columns: holdingFields(model, relation), target, key: referencedFields(target, relation) };
}

type ReferencingRelation = ManyToOne | OneToMany | OneToOne;

/** The columns that hold a reference, and those that they refer to. The caller need not be able to see them. */
export function holdingFields(model: Model, { manyCollection, columns }: ReferencingRelation): Field[] {
  const many = collectionOf(unrestrictedModel(model), manyCollection);
  return columns.map(({ column }) => fieldOf(many, column));
}

export function referencedFields(one: Collection, { columns }: ReferencingRelation): Field[] {
  const whole = unrestrictedCollection(one);
  return columns.map(({ referenced }) => fieldOf(whole, referenced));
}

interface Scoped {
  readonly field: Field;
  readonly relation: ManyToAny;
  readonly scope: string;
}

function anyJoin(
  model: Model,
  collection: Collection,
  { field, relation, scope }: Scoped,
  location: string,
): ManyToAnyJoin {
  const target = model.collections.get(scope);
  if (!target) throw forbiddenField(`${field.name}:${scope}`, collection.name, location);
  const collectionField = fieldOf(unrestrictedCollection(collection), relation.collectionField);
  return { kind: 'any', field, collectionField, target };
}

/** The joins to each collection a many-to-any field may lead to. */
export function anyJoins(model: Model, collection: Collection, field: Field, location: string): ManyToAnyJoin[] {
  const { relation } = field;
  if (relation?.kind !== 'many-to-any') return [];
  return relation.allowedCollections
    .filter((name) => model.collections.has(name))
    .map((scope) => anyJoin(model, collection, { field, relation, scope }, location));
}

/** The way from an alias field to the rows that it lists, or null if the field lists none or they may not be seen. */
export function toManyOf(model: Model, origin: Collection, field: Field): ToManyJoin | null {
  const { relation } = field;
  if (relation?.kind !== 'one-to-many') return null;
  const collection = model.collections.get(relation.manyCollection);
  if (!collection) return null;
  const key = referencedFields(origin, relation);
  const holder = fieldOf(unrestrictedCollection(collection), relation.manyField);
  return { collection, field: holder, columns: holdingFields(model, relation), via: field, named: null, origin, key };
}

export function operandType(operand: OperandPlan): OperandType {
  switch (operand.kind) {
    case 'field':
      return {
        codec: codecOf(operand.field),
        composite: operand.field.column?.composite ?? null,
        label: operand.field.name,
        ...(operand.field.synonyms && { synonyms: operand.field.synonyms.own }),
      };
    case 'date':
      return plainType('int4', `${operand.function}(${operand.field.name})`);
    case 'position':
      return plainType('int4', 'position');
    case 'rank':
      return plainType('float4', `rank(${operand.field.name})`);
    case 'key':
      return plainType(operand.field.column?.base_type ?? 'text', operand.field.name);
    case 'length':
      return plainType('int4', `count(${operand.field.name})`);
    case 'count':
      return plainType('int8', `count(${operand.toMany.collection.name})`);
    case 'json':
      return plainType(operand.as === 'numeric' ? 'numeric' : 'text', operand.field.name);
    case 'first':
      return operandType(operand.operand);
    case 'aggregate': {
      const { aggregate } = operand;
      if (aggregate.operand && (aggregate.function === 'min' || aggregate.function === 'max'))
        return operandType(aggregate.operand);
      return plainType('numeric', aggregate.function);
    }
    default:
      return assertNever(operand);
  }
}

function plainType(codec: string, label: string): OperandType {
  return { codec, composite: null, label };
}

function codecOf({ column }: Field): string {
  if (!column) return 'text';
  if (!column.is_array && (column.base_type === 'geometry' || column.base_type === 'geography')) return 'geojson';
  if (column.is_array) return arrayCodec(column.base_type);
  return column.composite ? 'record' : column.base_type;
}

interface ResolveOptions {
  readonly model: Model;
  readonly location: string;
  /** Whether the path may lead through a to-many relation: only a sort can choose among its rows. */
  readonly many: boolean;
}

/** A path with an optional function at its end becomes a value of the row it starts from. */
export function resolveExpression(
  expression: Expression,
  collection: Collection,
  options: ResolveOptions,
): OperandPlan {
  return resolvePath(expression.path, expression.call, collection, options);
}

function resolvePath(
  path: readonly string[],
  call: FunctionCall | null,
  start: Collection,
  options: ResolveOptions,
): OperandPlan {
  const { model, location } = options;
  const through: ToOneJoin[] = [];
  let collection = start;
  for (const [position, name] of path.entries()) {
    const named = fieldNamed(collection, name, location);
    if (position === path.length - 1) return resolveEnd(named, call, { collection, through }, options);
    const toOne = toOneOf(model, collection, named, location);
    if (toOne) {
      through.push(toOne);
      collection = toOne.target;
      continue;
    }
    const toMany = toManyOf(model, collection, named.field);
    if (!toMany) throw forbiddenField(`${name}.${path[position + 1]}`, collection.name, location);
    if (!options.many) throw invalidQuery(`${location}: "${name}" is a to-many relation`);
    return {
      kind: 'first',
      through,
      toMany,
      operand: resolvePath(path.slice(position + 1), call, toMany.collection, options),
    };
  }
  throw new Error('a path is never empty');
}

/** The collection of a field, and the references that lead to it from the row at hand. */
interface FieldOwner {
  readonly collection: Collection;
  readonly through: readonly ToOneJoin[];
}

function resolveEnd(named: Named, call: FunctionCall | null, owner: FieldOwner, options: ResolveOptions): OperandPlan {
  const { field } = named;
  const { collection, through } = owner;
  if (call) return resolveCall(call, field, owner, options);
  if (!field.column || named.scope !== null) throw invalidQuery(`${options.location}: "${field.name}" has no value`);
  if (isSecretField(field)) throw forbiddenField(field.name, collection.name, options.location);
  return { kind: 'field', through, field };
}

const DATES = new Set(['timestamp', 'dateTime', 'date']);
const TIMES = new Set(['timestamp', 'dateTime', 'time']);
const CLOCK = new Set(['hour', 'minute', 'second']);

export function resolveCall(
  call: FunctionCall,
  field: Field,
  { collection, through }: FieldOwner,
  options: ResolveOptions,
): OperandPlan {
  const refuse = (): never => {
    throw invalidQuery(
      `${options.location}: Invalid function specified: "${call.kind}" does not apply to "${field.name}"`,
    );
  };
  if (isSecretField(field)) return refuse();
  if (call.kind === 'rank') throw invalidQuery(`${options.location}: "rank" can only be used in "sort"`);
  if (call.kind === 'count') {
    const toMany = toManyOf(options.model, collection, field);
    if (toMany) return { kind: 'count', through, toMany };
    if (field.relation?.kind === 'one-to-many') throw forbiddenField(field.name, collection.name, options.location);
    return field.type === 'json' && isJson(field) ? { kind: 'length', through, field } : refuse();
  }
  if (!field.column) return refuse();
  if (call.kind === 'json') {
    return field.type === 'json' && isJson(field)
      ? { kind: 'json', through, field, path: call.path, as: 'json' }
      : refuse();
  }
  const types = CLOCK.has(call.kind) ? TIMES : DATES;
  return types.has(field.type) ? { kind: 'date', through, field, function: call.kind } : refuse();
}

export function isJson(field: Field): boolean {
  return field.column?.base_type === 'json' || field.column?.base_type === 'jsonb';
}

/** Names in a response may be as long as a column name: 63 bytes. */
export function checkName(name: string): string {
  if (isLongerThan(name, 63)) throw invalidQuery(`"${name}" is too long for the name of a field: use an alias`);
  return name;
}
