/** GraphQL over HTTP: what a request carries, and which media type and status its answer has. */
import { build } from 'fast-json-stringify';
import qs from 'qs';
import { invalidPayload, invalidQuery } from '../../../base/errors.js';
import { isObject, parseJson } from '../../../base/exact-json.js';
import type { ResponseError } from '../../../compiler/graphql/failure.js';
import type { Exchange } from '../../http/exchange.js';
import { JSON_TYPE, type Reply } from '../../http/reply.js';

export interface Parameters {
  readonly query: string | null;
  readonly operationName: string | null;
  readonly variables: Record<string, unknown>;
  readonly extensions: Record<string, unknown>;
}

export async function readParameters(exchange: Exchange): Promise<Parameters> {
  if (exchange.method !== 'POST') return readUrl(exchange.queryString);
  const body = await exchange.json(parseJson);
  if (body === undefined) throw invalidPayload('Must provide query string');
  if (Array.isArray(body))
    throw invalidPayload('Batches of operations are not supported: send one operation per request');
  if (!isObject(body)) throw invalidPayload('The body must be an object');
  return checkParameters(body);
}

function readUrl(queryString: string): Parameters {
  const { query, operationName, variables, extensions } = qs.parse(queryString, { depth: 0, parameterLimit: 100 });
  return checkParameters({
    query,
    operationName,
    variables: readJson(variables, 'variables'),
    extensions: readJson(extensions, 'extensions'),
  });
}

function readJson(text: unknown, name: string): unknown {
  if (text === undefined || text === '') return undefined;
  try {
    return parseJson(String(text));
  } catch {
    throw invalidQuery(`"${name}" is not valid JSON`);
  }
}

export function checkParameters({
  query,
  operationName,
  variables,
  extensions,
}: Readonly<Record<string, unknown>>): Parameters {
  if (query !== undefined && query !== null && typeof query !== 'string')
    throw invalidPayload('"query" must be a string');
  if (operationName !== undefined && operationName !== null && typeof operationName !== 'string')
    throw invalidPayload('"operationName" must be a string');
  return {
    query: query ? query : null,
    operationName: operationName ? operationName : null,
    variables: readMap(variables, 'variables'),
    extensions: readMap(extensions, 'extensions'),
  };
}

function readMap(value: unknown, name: string): Record<string, unknown> {
  if (value === undefined || value === null) return {};
  if (!isObject(value)) throw invalidPayload(`"${name}" must be an object`);
  return value;
}

const RESPONSE_TYPE = 'application/graphql-response+json; charset=utf-8';

/** How the answer is to be written. */
export interface Negotiated {
  readonly type: string;
  /** Clients that name `application/json` alone read errors from answers with status 200. */
  readonly lenient: boolean;
}

const BY_DEFAULT: Negotiated = { type: JSON_TYPE, lenient: false };

export function negotiate(accept: string): Negotiated {
  if (accept === '' || accept === '*/*') return BY_DEFAULT;
  const qualities = new Map<string, number>();
  for (const range of accept.split(',')) {
    const [type = '', ...parameters] = range.split(';').map((each) => each.trim().toLowerCase());
    const quality = parameters.find((each) => each.startsWith('q='));
    qualities.set(type, quality ? Number(quality.slice(2)) || 0 : 1);
  }
  const response = qualities.get('application/graphql-response+json') ?? 0;
  const json = qualities.get('application/json') ?? 0;
  if (response > 0 && response >= json) return { type: RESPONSE_TYPE, lenient: false };
  return json > 0 ? { type: JSON_TYPE, lenient: true } : BY_DEFAULT;
}

/** Whether a person with a browser asks. */
export function wantsPage({ method, headers, queryString }: Exchange): boolean {
  return (
    (method === 'GET' || method === 'HEAD') &&
    /\btext\/html\b/i.test(headers.accept) &&
    !/(^|&)query=/.test(queryString)
  );
}

const error = {
  type: 'object',
  properties: {
    message: { type: 'string' },
    locations: {
      type: 'array',
      items: { type: 'object', properties: { line: { type: 'integer' }, column: { type: 'integer' } } },
    },
    path: { type: 'array', items: { type: ['string', 'integer'] } },
    extensions: { type: 'object', properties: { code: { type: 'string' } }, additionalProperties: true },
  },
} as const;

const errorsBody = build({ type: 'object', properties: { errors: { type: 'array', items: error } } });
const failedBody = build({
  type: 'object',
  properties: { errors: { type: 'array', items: error }, data: { type: 'null' } },
});

/** The operation was not carried out. */
export function refusal(errors: readonly ResponseError[], { type, lenient }: Negotiated, status = 400): Reply {
  return { status: lenient ? 200 : status, type, body: errorsBody({ errors }) };
}

/** The operation was carried out and failed as a whole. */
export function failure(errors: readonly ResponseError[], { type }: Negotiated): Reply {
  return { status: 200, type, body: failedBody({ errors, data: null }) };
}

export function success(body: Buffer | string, { type }: Negotiated): Reply {
  return { status: 200, type, body };
}
