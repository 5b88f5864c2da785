/** The words of JSON Schema and OpenAPI that the description of the API is written in. */
export interface Schema {
  readonly [word: string]: unknown;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: boolean | readonly string[];
  /** The schema of a parameter or a media type. */
  readonly schema?: Schema;
}

export const STRING: Schema = { type: 'string' };
export const INTEGER: Schema = { type: 'integer' };
export const BOOLEAN: Schema = { type: 'boolean' };
export const UUID: Schema = { type: 'string', format: 'uuid' };
export const EMAIL: Schema = { type: 'string', format: 'email' };
/** An object whose properties are not known beforehand. */
export const RECORD: Schema = { type: 'object', additionalProperties: true };
/** The key of an item. */
export const KEY: Schema = { type: ['string', 'integer'] };

/** How a client gets its tokens: in the body, the refresh token as a cookie, or a session as a cookie. */
export const MODES = ['json', 'cookie', 'session'] as const;
export const MODE: Schema = oneOf(...MODES);

export function object(properties: Readonly<Record<string, Schema>>, required: readonly string[] = []): Schema {
  return { type: 'object', properties, ...(required.length > 0 && { required }) };
}

export function list(items: Schema): Schema {
  return { type: 'array', items };
}

export function either(...schemas: readonly Schema[]): Schema {
  return { anyOf: schemas };
}

export function oneOf(...values: readonly string[]): Schema {
  return { type: 'string', enum: values };
}

export function orNull(schema: Schema): Schema {
  return typeof schema['type'] === 'string'
    ? { ...schema, type: [schema['type'], 'null'] }
    : either(schema, { type: 'null' });
}

export function ref(name: string): Schema {
  return { $ref: componentPath(name) };
}

export function componentPath(name: string): string {
  return `#/components/schemas/${name}`;
}

/** The schema in the envelope of every answer. */
export function data(schema: Schema): Schema {
  return object({ data: schema }, ['data']);
}

export function json(schema: Schema): Schema {
  return { 'application/json': { schema } };
}

export function described(schema: Schema, description: unknown): Schema {
  return typeof description === 'string' && description !== '' ? { ...schema, description } : schema;
}

/** A successful answer of an operation. */
export interface Answer {
  readonly status: 200 | 204 | 206 | 302;
  readonly description: string;
  readonly content?: Schema;
}

export const ok = (schema: Schema): Answer => ({ status: 200, description: 'The result.', content: json(schema) });
export const done: Answer = { status: 204, description: 'Done; no content.' };
export const empty: Answer = { status: 200, description: 'Done; the body is empty.' };

/** A form with one file. */
export const FORM: Schema = { schema: object({ file: { type: 'string', format: 'binary' } }, ['file']) };

/** An answer with the given media types; by default it is text. */
export function file(types: readonly string[], schema: Schema = STRING): Answer {
  const content = Object.fromEntries(types.map((type) => [type, { schema }]));
  return { status: 200, description: 'The result.', content };
}

export const TEXT: Answer = file(['text/plain']);

export function responses(answers: readonly Answer[]): Schema {
  const entries = answers.map(({ status, ...answer }) => [status, answer]);
  return { ...Object.fromEntries(entries), default: { $ref: '#/components/responses/Error' } };
}
