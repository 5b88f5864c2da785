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
}

type Json = Readonly<Record<string, unknown>>;

export async function loadOperations(): Promise<Operation[]> {
  const { text } = await call('GET', '/server/specs/oas');
  const api = JSON.parse(text) as {
    paths: Record<string, Record<string, Json>>;
    components: { parameters: Record<string, Json> };
  };
  const paths = Object.entries(api.paths);
  // What is the caller's own first.
  const ordered = [...paths.filter(isItems), ...paths.filter((entry) => !isItems(entry))];
  return ordered.flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]) => ({
      method: method.toUpperCase(),
      path,
      summary: String(operation['summary'] ?? operation['description'] ?? ''),
      group: groupOf(path),
      parameters: listOf(operation['parameters']).map((each) => parameterOf(resolve(each, api.components.parameters))),
      takesBody: operation['requestBody'] !== undefined,
    })),
  );
}

function isItems([path]: readonly [string, unknown]): boolean {
  return path.startsWith('/items/');
}

function groupOf(path: string): string {
  const [, first = '', second = ''] = path.split('/');
  return first === 'items' ? second : first;
}

function listOf(value: unknown): Json[] {
  return Array.isArray(value) ? (value as Json[]) : [];
}

function resolve(parameter: Json, known: Readonly<Record<string, Json>>): Json {
  const reference = parameter['$ref'];
  return typeof reference === 'string' ? (known[reference.split('/').at(-1) ?? ''] ?? {}) : parameter;
}

function parameterOf(json: Json): Parameter {
  return {
    name: String(json['name'] ?? ''),
    in: String(json['in'] ?? ''),
    description: String(json['description'] ?? ''),
    required: json['required'] === true,
  };
}
