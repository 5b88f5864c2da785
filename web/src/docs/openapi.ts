/** The reference of the caller's REST API, read from `GET /server/specs/oas`. */
import { call } from '../api';

export interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly description: string;
  readonly required: boolean;
}

export interface Operation {
  readonly method: string;
  readonly path: string;
  readonly summary: string;
  readonly group: string;
  readonly parameters: readonly Parameter[];
  readonly takesBody: boolean;
  /** The properties of the body, or empty if it is not an object. */
  readonly body: readonly Member[];
  /** The properties of an item of the response. */
  readonly answer: readonly Member[];
}

export interface Member {
  readonly name: string;
  readonly type: string;
  readonly description: string;
  readonly required: boolean;
}

type Json = Readonly<Record<string, unknown>>;

export async function loadOperations(): Promise<Operation[]> {
  const { text } = await call('GET', '/server/specs/oas');
  const api = JSON.parse(text) as {
    paths: Record<string, Record<string, Json>>;
    components: { parameters: Record<string, Json>; schemas: Record<string, Json> };
  };
  const paths = Object.entries(api.paths);
  // The user's own collections first.
  const ordered = [...paths.filter(isItems), ...paths.filter((entry) => !isItems(entry))];
  return ordered.flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]) => ({
      method: method.toUpperCase(),
      path,
      summary: String(operation['summary'] ?? operation['description'] ?? ''),
      group: groupOf(path),
      parameters: listOf(operation['parameters']).map((each) => parameterOf(resolve(each, api.components.parameters))),
      takesBody: operation['requestBody'] !== undefined,
      body: membersOf(contentOf(operation['requestBody']), api.components.schemas),
      answer: answerOf(operation, api.components.schemas),
    })),
  );
}

function isItems([path]: readonly [string, unknown]): boolean {
  return path.startsWith('/items/');
}

function groupOf(path: string): string {
  const [, first = '', second = ''] = path.split('/');
  return first === 'items' ? decodeURIComponent(second) : first;
}

function listOf(value: unknown): Json[] {
  return Array.isArray(value) ? (value as Json[]) : [];
}

function resolve(parameter: Json, known: Readonly<Record<string, Json>>): Json {
  const reference = parameter['$ref'];
  return typeof reference === 'string' ? (known[reference.split('/').at(-1) ?? ''] ?? {}) : parameter;
}

function objectAt(value: unknown, name: string): Json {
  const found = (value as Json | undefined)?.[name];
  return typeof found === 'object' && found !== null ? (found as Json) : {};
}

/** The schema of JSON that is sent or received. */
function contentOf(message: unknown): Json {
  return objectAt(objectAt(objectAt(message, 'content'), 'application/json'), 'schema');
}

function answerOf(operation: Json, schemas: Readonly<Record<string, Json>>): Member[] {
  const whole = contentOf(objectAt(operation['responses'], '200'));
  return membersOf(objectAt(objectAt(whole, 'properties'), 'data'), schemas);
}

/** The properties of one object, also if the schema is a list of them. */
function membersOf(schema: Json, schemas: Readonly<Record<string, Json>>): Member[] {
  const known = resolve(schema, schemas);
  const [first] = listOf(known['anyOf'] ?? known['oneOf']);
  if (first) return membersOf(first, schemas);
  if (known['items']) return membersOf(objectAt(known, 'items'), schemas);
  const parts = [known, ...listOf(known['allOf']).map((each) => resolve(each, schemas))];
  const required = parts.flatMap((part) => (Array.isArray(part['required']) ? part['required'].map(String) : []));
  return parts.flatMap((part) =>
    Object.entries(objectAt(part, 'properties')).map(([name, member]) => ({
      name,
      type: typeText(member as Json),
      description: String((member as Json)['description'] ?? ''),
      required: required.includes(name),
    })),
  );
}

function typeText(schema: Json): string {
  const reference = schema['$ref'];
  if (typeof reference === 'string') return (reference.split('/').at(-1) ?? '').replace(/^Items_/, '');
  const among = listOf(schema['anyOf'] ?? schema['oneOf'] ?? schema['allOf']);
  if (among.length > 0) return [...new Set(among.map(typeText))].filter((each) => each !== '').join(' | ');
  if (schema['items']) return `${typeText(objectAt(schema, 'items'))}[]`;
  const types = [schema['type'] ?? []].flat().map(String);
  return types.map((each) => (schema['format'] && each !== 'null' ? String(schema['format']) : each)).join(' | ');
}

function parameterOf(json: Json): Parameter {
  return {
    name: String(json['name'] ?? ''),
    in: String(json['in'] ?? ''),
    description: String(json['description'] ?? ''),
    required: json['required'] === true,
  };
}
