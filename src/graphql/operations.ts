/**
 * The text of a document and its variables become a `ParsedDocument`. Documents are kept by their text and the schema they were
 * read with, those with literals by the rest of their text too; queries are kept with their values from the second time on, as
 * URLs are: most values never come again.
 */
import { getVariableValues, type OperationDefinitionNode } from 'graphql';
import { LRUCache } from 'lru-cache';
import { writeJson } from '../base/exact-json.js';
import { oneStep, runInSlices, runSteps, type Steps } from '../base/time-slices.js';
import { ParseCache } from '../request/parse-cache.js';
import type { ParseLimits } from '../request/parse-context.js';
import type { CompleteSchema } from './complete-schema.js';
import { DocumentFailure } from './failure.js';
import type { DocumentLimits } from './limits.js';
import { bindLiterals, findLiterals, type LiftedDocument, type LiteralsOfText, liftLiterals } from './literals.js';
import { parseMutationOperation } from './mutation.js';
import type { ParsedDocument, ParsedQueryDocument } from './parsed-document.js';
import { introspectSchema, parseEvents, parseQueryOperation, type QueryOperation } from './query.js';
import type { Variables } from './root-fields.js';
import { type LazySchema, type Schemas, schemaKey } from './schema.js';
import type { RootScope, SchemaAccess } from './schema-access.js';
import { asksForSchema, chooseOperation, type Document, parseDocument } from './validate-document.js';

export interface GraphqlRequest {
  readonly text: string;
  readonly operationName: string | null;
  readonly variables: Record<string, unknown>;
  /** By GET nothing may be changed. */
  readonly safe: boolean;
}

interface PreparedDocument {
  readonly number: number;
  readonly document: Document;
  /** For documents that ask about the schema. */
  readonly completeSchema: CompleteSchema | null;
  /** The answers to `__schema`. */
  readonly introspected: ReadonlyMap<string, string> | null;
  readonly operation: OperationDefinitionNode;
  /** For a query without variables. */
  parsed: ParsedQueryDocument | null;
  /** With variables in the places of its literals; undefined until a second document differs in these alone. */
  lifted: LiftedDocument | null | undefined;
}

/** The memory of a document that was parsed and validated: an object per token, and the request that was parsed from it. */
const BYTES_PER_DOCUMENT = 8_192;
const BYTES_PER_CHARACTER = 100;

/** Does what takes time in proportion to the size of a document: it may refuse to, or do it later. */
export type RunInBudget = <Result>(size: number, work: () => Steps<Result>) => Result | Promise<Result>;

const AT_ONCE: RunInBudget = (_, work) => runSteps(work());

/** A mutation by GET. */
export class UnsafeMethod extends Error {}

export class Operations {
  readonly #prepared: LRUCache<string, PreparedDocument>;
  readonly #parsedQueries = new ParseCache<ParsedQueryDocument>();
  #count = 0;

  /** `memory` in bytes. */
  constructor(
    readonly schemas: Schemas,
    private readonly limits: DocumentLimits,
    private readonly parseLimits: ParseLimits,
    memory: number,
  ) {
    this.#prepared = new LRUCache({
      max: 2_000,
      maxSize: memory,
      sizeCalculation: (_, key) => BYTES_PER_DOCUMENT + key.length * BYTES_PER_CHARACTER,
    });
  }

  /** After a change of the schema: what was read with a former schema would only keep that schema, and its model, alive. */
  forget(): void {
    this.#prepared.clear();
    this.#parsedQueries.clear();
    this.schemas.clear();
  }

  /** Answers at once for a known text. */
  parse(
    request: GraphqlRequest,
    access: SchemaAccess,
    scope: RootScope,
    run: RunInBudget = AT_ONCE,
  ): ParsedDocument | Promise<ParsedDocument> {
    const key = `${schemaKey(access, scope)}\n${request.operationName ?? ''}\n${request.text}`;
    const cached = this.#prepared.get(key);
    if (cached) return cached.completeSchema ? this.#introspect(cached, request) : this.#finish(cached, request);
    const literals = findLiterals(request.text);
    const keys = [key];
    if (literals) {
      const common = `${schemaKey(access, scope)}\n${request.operationName ?? ''}\n${literals.rest}`;
      const alike = this.#prepared.get(common);
      const parsed = alike && this.#finishAlike(alike, literals, request);
      if (parsed) return parsed;
      keys.push(common);
    }
    return this.#prepare(keys, request, this.schemas.get(access, scope), run);
  }

  /** Returns null if the text has to be parsed, to understand it or to report its error. */
  #finishAlike(alike: PreparedDocument, textLiterals: LiteralsOfText, request: GraphqlRequest): ParsedDocument | null {
    // Introspection is executed by graphql-js, with variables as they were sent.
    if (alike.lifted === undefined)
      alike.lifted = alike.completeSchema ? null : liftLiterals(alike.document, textLiterals.literals.length);
    if (!alike.lifted) return null;
    const literals = bindLiterals(alike.lifted, textLiterals, request.text);
    if (!literals) return null;
    const document = { ...alike.lifted.document, locate: literals.locate };
    try {
      const operation = chooseOperation(document, request.operationName);
      return this.#finish({ ...alike, document, operation, parsed: null }, request, literals.variables);
    } catch {
      return null;
    }
  }

  async #prepare(
    keys: readonly string[],
    request: GraphqlRequest,
    schema: LazySchema,
    run: RunInBudget,
  ): Promise<ParsedDocument> {
    const { length } = request.text;
    const document = await run(length, () => parseDocument(request.text, schema, this.limits));
    const operation = chooseOperation(document, request.operationName);
    const completeSchema = asksForSchema(request.text) ? await schema.complete() : null;
    const prepared: PreparedDocument = {
      number: ++this.#count,
      document,
      completeSchema,
      introspected: null,
      operation,
      parsed: null,
      lifted: undefined,
    };
    for (const key of keys) this.#prepared.set(key, prepared);
    if (completeSchema) return this.#introspect(prepared, request);
    return run(length, () => oneStep(() => this.#finish(prepared, request)));
  }

  /** The answer about a schema may be made of ten thousand types: others have their turn in between. */
  async #introspect(prepared: PreparedDocument, request: GraphqlRequest): Promise<ParsedDocument> {
    const { operation: node } = prepared;
    if (prepared.parsed || node.operation !== 'query') return this.#finish(prepared, request);
    const operation = this.#queryOperation(prepared, request, this.#coerce(prepared, request));
    const introspected = await runInSlices(introspectSchema(operation));
    const parsed = this.#finish({ ...prepared, introspected }, request);
    if (parsed.kind === 'query' && (node.variableDefinitions ?? []).length === 0 && sizeOf(parsed) < SMALL)
      prepared.parsed = parsed;
    return parsed;
  }

  /** `literals` are the values that took the places of literals. */
  #finish(prepared: PreparedDocument, request: GraphqlRequest, literals: Variables | null = null): ParsedDocument {
    const { document, operation: node } = prepared;
    if (node.operation === 'mutation' && request.safe) throw new UnsafeMethod();
    if (node.operation === 'query') return this.#query(prepared, request, literals);
    const variables = { ...this.#coerce(prepared, request), ...literals };
    const operation = { document, node, variables, limits: this.parseLimits };
    if (node.operation === 'mutation') return parseMutationOperation(operation);
    return parseEvents(operation) ?? { kind: 'live', query: this.#query(prepared, request, literals) };
  }

  #query(prepared: PreparedDocument, request: GraphqlRequest, literals: Variables | null): ParsedQueryDocument {
    if (prepared.parsed) return prepared.parsed;
    const parse = (): ParsedQueryDocument => {
      const variables = { ...this.#coerce(prepared, request), ...literals };
      return parseQueryOperation(this.#queryOperation(prepared, request, variables));
    };
    const { number, operation } = prepared;
    const definitions = operation.variableDefinitions ?? [];
    const sent = definitions.length > 0 ? writeJson(request.variables) : '';
    // The whole text: places depend on how literals are written.
    if (literals) return this.#parsedQueries.get(`${number}\n${request.text}\n${sent}`, parse);
    if (definitions.length > 0) return this.#parsedQueries.get(`${number} ${sent}`, parse);
    const parsed = parse();
    if (sizeOf(parsed) < SMALL) prepared.parsed = parsed;
    return parsed;
  }

  #queryOperation(prepared: PreparedDocument, request: GraphqlRequest, variables: Variables): QueryOperation {
    const { document, operation: node, completeSchema, introspected } = prepared;
    const sentVariables = request.variables;
    return { document, node, variables, limits: this.parseLimits, sentVariables, completeSchema, introspected };
  }

  #coerce({ document, operation }: PreparedDocument, { variables }: GraphqlRequest): Variables {
    const definitions = operation.variableDefinitions ?? [];
    const values = getVariableValues(document.schema, definitions, variables, { maxErrors: 20 });
    if (values.errors) throw DocumentFailure.of(values.errors, this.limits.introspection);
    return values.coerced;
  }
}

const SMALL = 65_536;

/** Introspection answers a short text with a very long one. */
function sizeOf({ parsed }: ParsedQueryDocument): number {
  return parsed.values.reduce<number>(
    (size, value) => size + (typeof value === 'string' ? value.length : 8),
    parsed.shape.length,
  );
}
