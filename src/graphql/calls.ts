/** Root fields that REST routes carry out: which request they stand for, and what is shown of its answer. */
import { type FieldNode, type GraphQLObjectType, type GraphQLOutputType, getNamedType, isObjectType } from 'graphql';
import { forbidden } from '../errors.js';
import type { Arguments } from './arguments.js';
import { type Selections, setsOf } from './selections.js';
import { SERVICE_FIELDS } from './services.js';

export interface Call {
  readonly method: string;
  readonly path: string;
  readonly queryString: string;
  readonly body: unknown;
  /** What an answer without content stands for. */
  readonly otherwise: unknown;
  readonly shown: Projection;
}

/** What is shown of a value; lists are shown entry by entry. */
export type Projection =
  | { readonly kind: 'value' }
  | { readonly kind: 'text' }
  | { readonly kind: 'object'; readonly fields: readonly ProjectedField[] };

type ProjectedField =
  | { readonly output: string; readonly key: string; readonly shown: Projection }
  | { readonly output: string; readonly text: string };

export function readCall(name: string, given: Arguments, nodes: readonly FieldNode[], selections: Selections): Call {
  const field = SERVICE_FIELDS[name];
  if (!field) throw new Error(`there is no operation ${name}`);
  const named = new Set<string>();
  const path = field.path.replace(/:(\w+)/g, (_, key: string) => {
    named.add(key);
    // Nothing is called so, and the path would be that of another route.
    if (given[key] === '') throw forbidden();
    return encodeURIComponent(String(given[key]));
  });
  const rest = Object.fromEntries(
    Object.entries(given).filter(([key, value]) => !named.has(key) && value !== undefined),
  );
  const bodies = { none: undefined, data: given['data'], rest, query: undefined };
  const otherwise = isObjectType(getNamedType(field.type)) ? given : true;
  return {
    method: field.method,
    path,
    queryString: field.body === 'query' ? inUrl(rest) : '',
    body: bodies[field.body],
    otherwise,
    shown: project(field.type, nodes, selections),
  };
}

function inUrl(given: Arguments): string {
  const url = new URLSearchParams();
  for (const [key, value] of Object.entries(given)) if (value !== null) url.set(key, String(value));
  return url.toString();
}

function project(given: GraphQLOutputType, nodes: readonly FieldNode[], selections: Selections): Projection {
  const type = getNamedType(given);
  if (!isObjectType(type)) return { kind: type.name === 'GraphQLBigInt' ? 'text' : 'value' };
  const fields = [...selections.collect(type, setsOf(nodes))].map(([output, found]): ProjectedField => {
    const key = found[0].name.value;
    if (key === '__typename') return { output, text: type.name };
    const field = (type as GraphQLObjectType).getFields()[key];
    if (!field) throw new Error(`${type.name} has no field ${key}`);
    return { output, key, shown: project(field.type, found, selections) };
  });
  return { kind: 'object', fields };
}

export function show(value: unknown, projection: Projection): unknown {
  if (value === null || value === undefined) return null;
  if (Array.isArray(value) && projection.kind === 'object') return value.map((each) => show(each, projection));
  if (projection.kind === 'text') return String(value);
  if (projection.kind === 'value') return value;
  // What is off says `false` in REST.
  if (typeof value !== 'object') return null;
  const record = value as Readonly<Record<string, unknown>>;
  return Object.fromEntries(
    projection.fields.map((field) => [
      field.output,
      'text' in field ? field.text : show(Object.hasOwn(record, field.key) ? record[field.key] : null, field.shown),
    ]),
  );
}
