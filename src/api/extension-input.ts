/** Checks the bodies of extension routes against their schemas: the part of JSON Schema that is listed here. */
import { invalidPayload, StartError } from '../base/errors.js';
import { isObject } from '../base/exact-json.js';
import type { RouteSchema } from '../engine/extensions/definition.js';

const TYPES: Readonly<Record<string, (value: unknown) => boolean>> = {
  object: isObject,
  array: Array.isArray,
  string: (value) => typeof value === 'string',
  number: (value) => typeof value === 'number',
  integer: Number.isInteger,
  boolean: (value) => typeof value === 'boolean',
  null: (value) => value === null,
};

const KEYWORDS: readonly string[] = [
  ...['type', 'properties', 'required', 'additionalProperties', 'items', 'enum', 'minimum', 'maximum'],
  ...['minLength', 'maxLength', 'minItems', 'maxItems', 'pattern', 'description', 'title', 'examples'],
];

/** A keyword that would have no effect is refused at the start. */
export function checkSchema(schema: unknown, place: string): void {
  if (!isObject(schema)) throw new StartError(`${place}: a schema must be an object`);
  for (const [keyword, value] of Object.entries(schema)) {
    if (!KEYWORDS.includes(keyword))
      throw new StartError(`${place}: the keyword "${keyword}" is not supported, only ${KEYWORDS.join(', ')}`);
    if (keyword === 'type' && !typesOf(value).every((type) => Object.hasOwn(TYPES, type)))
      throw new StartError(`${place}: "type" must be one of ${Object.keys(TYPES).join(', ')}`);
    if (keyword === 'items') checkSchema(value, `${place}.items`);
    if (keyword === 'properties' && isObject(value))
      for (const [name, each] of Object.entries(value)) checkSchema(each, `${place}.${name}`);
  }
}

/** Throws for the first part of the body that does not meet the schema. */
export function checkInput(value: unknown, schema: RouteSchema, path = 'The body'): void {
  const { type, enum: allowed } = schema;
  if (type !== undefined && !typesOf(type).some((each) => TYPES[each]?.(value)))
    throw invalidPayload(`${path} must be of type ${typesOf(type).join(' or ')}`);
  if (Array.isArray(allowed) && !allowed.includes(value))
    throw invalidPayload(`${path} must be one of ${allowed.map((each) => JSON.stringify(each)).join(', ')}`);
  if (typeof value === 'number') checkRange(value, schema, ['minimum', 'maximum'], path);
  if (typeof value === 'string') {
    checkRange(value.length, schema, ['minLength', 'maxLength'], `The length of ${path}`);
    const { pattern } = schema;
    if (typeof pattern === 'string' && !new RegExp(pattern, 'u').test(value))
      throw invalidPayload(`${path} does not match ${pattern}`);
  }
  if (Array.isArray(value)) {
    checkRange(value.length, schema, ['minItems', 'maxItems'], `The length of ${path}`);
    const { items } = schema;
    if (isObject(items)) for (const [index, each] of value.entries()) checkInput(each, items, `${path}[${index}]`);
  }
  if (isObject(value)) checkProperties(value, schema);
}

function checkProperties(value: RouteSchema, schema: RouteSchema): void {
  const { required, additionalProperties } = schema;
  const properties = isObject(schema['properties']) ? schema['properties'] : {};
  const missing = Array.isArray(required) ? required.find((name) => !Object.hasOwn(value, String(name))) : undefined;
  if (missing !== undefined) throw invalidPayload(`"${missing}" is required`);
  for (const [name, each] of Object.entries(value)) {
    const own = Object.hasOwn(properties, name) ? properties[name] : undefined;
    if (isObject(own)) checkInput(each, own, `"${name}"`);
    else if (additionalProperties === false) throw invalidPayload(`"${name}" is not allowed`);
    else if (isObject(additionalProperties)) checkInput(each, additionalProperties, `"${name}"`);
  }
}

function checkRange(value: number, schema: RouteSchema, [least, most]: readonly [string, string], path: string): void {
  const [low, high] = [schema[least], schema[most]];
  if (typeof low === 'number' && value < low) throw invalidPayload(`${path} must be at least ${low}`);
  if (typeof high === 'number' && value > high) throw invalidPayload(`${path} must be at most ${high}`);
}

function typesOf(type: unknown): string[] {
  return Array.isArray(type) ? type.map(String) : [String(type)];
}
