/** Root fields that stand for actions of REST routes: the input of the action, and the selected parts of its result. */
import { type FieldNode, type GraphQLOutputType, getNamedType, isObjectType } from 'graphql';
import { forbidden } from '../../base/errors.js';
import { isRecord } from '../../base/narrow.js';
import type { Arguments } from './arguments.js';
import type { SystemField } from './field-binding.js';
import { argumentsOf, type DefinedRoot } from './root-fields.js';
import type { Selections } from './selections.js';

export interface Call {
  /** The field, whose route has the action. */
  readonly name: string;
  /** The named segments of its path. */
  readonly parameters: readonly string[];
  readonly queryString: string;
  readonly body: unknown;
  /** The value if the action returns none. */
  readonly otherwise: unknown;
  readonly projection: Projection;
}

/** The selected parts of a value, or of each entry of a list. */
type Projection =
  | { readonly kind: 'value' }
  | { readonly kind: 'text' }
  | { readonly kind: 'object'; readonly fields: readonly ProjectedField[] };

type ProjectedField =
  | { readonly output: string; readonly key: string; readonly projection: Projection }
  | { readonly output: string; readonly text: string };

export function parseCall(field: SystemField, selected: DefinedRoot): Call {
  const args = argumentsOf(selected);
  const { type } = selected.field;
  const parameters = field.parameters.map((key) => String(args[key]));
  // Nothing has the empty name.
  if (parameters.includes('')) throw forbidden();
  const rest = Object.fromEntries(
    Object.entries(args).filter(([key, value]) => !field.parameters.includes(key) && value !== undefined),
  );
  const bodies = { none: undefined, data: args['data'], rest, query: undefined };
  return {
    name: field.name,
    parameters,
    queryString: field.body === 'query' ? inUrl(rest) : '',
    body: bodies[field.body],
    otherwise: isObjectType(getNamedType(type)) ? args : true,
    projection: projectionOf(type, selected.nodes, selected.selections),
  };
}

function inUrl(args: Arguments): string {
  const url = new URLSearchParams();
  for (const [key, value] of Object.entries(args)) if (value !== null) url.set(key, String(value));
  return url.toString();
}

function projectionOf(output: GraphQLOutputType, nodes: readonly FieldNode[], selections: Selections): Projection {
  const type = getNamedType(output);
  if (!isObjectType(type)) return { kind: type.name === 'GraphQLBigInt' ? 'text' : 'value' };
  const fields = [...selections.collect(type, nodes)].map(([output, fieldNodes]): ProjectedField => {
    const key = fieldNodes[0].name.value;
    if (key === '__typename') return { output, text: type.name };
    const field = type.getFields()[key];
    if (!field) throw new Error(`${type.name} has no field ${key}`);
    return { output, key, projection: projectionOf(field.type, fieldNodes, selections) };
  });
  return { kind: 'object', fields };
}

export function project(value: unknown, projection: Projection): unknown {
  if (value === null || value === undefined) return null;
  if (Array.isArray(value) && projection.kind === 'object') return value.map((each) => project(each, projection));
  if (projection.kind === 'text') return String(value);
  if (projection.kind === 'value') return value;
  // REST shows `false` for a limit that is switched off.
  if (!isRecord(value)) return null;
  return Object.fromEntries(
    projection.fields.map((field) => [
      field.output,
      'text' in field
        ? field.text
        : project(Object.hasOwn(value, field.key) ? value[field.key] : null, field.projection),
    ]),
  );
}
