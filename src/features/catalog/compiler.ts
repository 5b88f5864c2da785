/**
 * The compiler without a service and without a database: `import { createCompiler } from 'lateral/compiler'`. A request and the permissions
 * of its caller become the SQL that the service sends, with its parameters. Requests whose statements depend on rows have none.
 */
import { LRUCache } from 'lru-cache';
import { forbiddenCollection, LateralError, routeNotFound, ServiceError } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import { sha256 } from '../../base/sha256.js';
import { runSteps } from '../../base/time-slices.js';
import { schemaAccessOf } from '../../compiler/access/graphql-access.js';
import { Permissions, readRules } from '../../compiler/access/permissions.js';
import { DocumentFailure, FieldFailure } from '../../compiler/graphql/failure.js';
import { Operations } from '../../compiler/graphql/operations.js';
import type { MutationStep, ParsedDocument } from '../../compiler/graphql/parsed-document.js';
import { Schemas } from '../../compiler/graphql/schema.js';
import type { CatalogDocument } from '../../compiler/model/catalog-document.js';
import { buildModel } from '../../compiler/model/introspect.js';
import type { Model } from '../../compiler/model/model.js';
import { ownName, type Synonyms } from '../../compiler/model/synonyms.js';
import { isKnownTo } from '../../compiler/plan/access.js';
import { checkArguments } from '../../compiler/plan/call-arguments.js';
import { FailedParts } from '../../compiler/plan/operation.js';
import { parseItemWrite, WRITE_METHODS } from '../../compiler/request/item-write.js';
import { parseRead, parseReadBack, parseSearch, tagged } from '../../compiler/request/rest.js';
import { loadGrammar } from '../../compiler/sql/grammar.js';
import { bind } from '../../compiler/sql/parameter.js';
import { isVolatile, type ReadQuery, readStatement } from '../../compiler/statements/read.js';
import { type CompilerLimits, type StageLimits, stageLimits } from './limits.js';
import { type CompilerCaller, NoStatement, WriteStatements } from './write-request.js';

export type { CompilerLimits };
export { LateralError, NoStatement };

/** The output of `lateral catalog`: the tables of a database, and what the service knows about them. */
export interface Catalog {
  /** The first of the schemas. */
  readonly schema: string;
  readonly schemas: readonly string[];
  /** The schema of the tables of the service. */
  readonly system: string;
  /** Other names of the tables of the service, with DIRECTUS_COMPATIBILITY. */
  readonly synonyms?: Synonyms | null;
  readonly document: CatalogDocument;
}

export interface CompilerOptions {
  /** By default those of the service. */
  readonly limits?: Partial<CompilerLimits>;
  /** Makes a key for new items whose UUID the service makes, such as `randomUUID` of `node:crypto`. */
  readonly newUuid?: () => string;
}

/** A rule of a policy, as in `service_permissions`. */
export interface Permission {
  readonly collection: string;
  readonly action: 'create' | 'read' | 'update' | 'delete' | 'execute';
  /** A filter: the rows that the rule is about. By default all. */
  readonly permissions?: object | null;
  /** A filter that written values must meet. */
  readonly validation?: object | null;
  /** Values for fields that a payload leaves out. */
  readonly presets?: object | null;
  /** Names of fields, or `*` for all. */
  readonly fields: string | readonly string[];
}

/** The caller of a request, and what they may read and write. */
export interface CallerPermissions {
  /** `all` for an administrator. */
  readonly rules: 'all' | readonly Permission[];
  /** For `$CURRENT_USER`, and the activity log. */
  readonly user?: string | null;
  readonly role?: string | null;
  readonly roles?: readonly string[];
  readonly policies?: readonly string[];
  /** The client, for the activity log. */
  readonly client?: { readonly ip?: string; readonly userAgent?: string; readonly origin?: string };
}

export interface RestRequest {
  readonly method: 'GET' | 'SEARCH' | 'POST' | 'PATCH' | 'DELETE';
  /** The path of a collection or an item: `/items/articles`, or `/items/articles/1`. */
  readonly path: string;
  /** As in a URL: `fields=id,title&limit=5`. */
  readonly query?: string;
  readonly body?: unknown;
}

export interface CompiledStatement {
  readonly sql: string;
  readonly parameters: readonly (string | null)[];
}

export interface CompiledRequest extends CompiledStatement {
  /** The statements that follow it in one transaction, such as the read of items that a nested write has made. */
  readonly following: readonly CompiledStatement[];
}

export interface Compiler {
  /** Throws a `LateralError` where the service answers with a status of 400 or above, and `NoStatement` if rows decide what is sent. */
  rest(request: RestRequest, permissions: CallerPermissions): Promise<CompiledRequest>;
  graphql(
    document: string,
    variables: Readonly<Record<string, unknown>>,
    permissions: CallerPermissions,
  ): Promise<CompiledRequest>;
}

/** `catalog` is the output of `lateral catalog`, parsed. */
export async function createCompiler(catalog: Catalog, options: CompilerOptions = {}): Promise<Compiler> {
  checkCatalog(catalog);
  await loadGrammar();
  const { document, ...names } = structuredClone(catalog);
  const compiler = new ModelCompiler(buildModel(document, 1, names), options);
  return {
    rest: (request, permissions) => compiler.rest(request, permissions),
    graphql: (text, variables, permissions) => compiler.graphql(text, variables, permissions),
  };
}

function checkCatalog(catalog: unknown): asserts catalog is Catalog {
  const isCatalog =
    isObject(catalog) &&
    typeof catalog['schema'] === 'string' &&
    typeof catalog['system'] === 'string' &&
    Array.isArray(catalog['schemas']) &&
    isObject(catalog['document']);
  if (!isCatalog) throw new TypeError('The catalog must be the output of "lateral catalog", parsed as JSON');
}

const MEMBERS: readonly string[] = ['rules', 'user', 'role', 'roles', 'policies', 'client'];
const RULE_MEMBERS: readonly string[] = ['collection', 'action', 'permissions', 'validation', 'presets', 'fields'];

/** A misspelled member would leave out a rule. */
function checkMembers(given: object, known: readonly string[], of: string): void {
  const stray = Object.keys(given).find((name) => !known.includes(name));
  if (stray !== undefined) throw new TypeError(`${of} have no "${stray}": they have ${known.join(', ')}`);
}

function checkPermissions(permissions: unknown): void {
  if (!isObject(permissions) || (permissions['rules'] !== 'all' && !Array.isArray(permissions['rules'])))
    throw new TypeError('The permissions must be { rules: "all" } or { rules: [...] }, with the user and the role');
  checkMembers(permissions, MEMBERS, 'Permissions');
}

function checkRule(rule: unknown): void {
  const fields = isObject(rule) ? rule['fields'] : null;
  if (!isObject(rule) || (typeof fields !== 'string' && !Array.isArray(fields)))
    throw new TypeError('A rule must have a collection, an action and fields: a list of names, or "*"');
  checkMembers(rule, RULE_MEMBERS, 'Rules');
}

const METHODS: readonly string[] = ['GET', 'SEARCH', ...WRITE_METHODS];
const PATH = /^\/items\/([^/?]+)(?:\/([^/?]+))?(?:\?(.*))?$/s;

/** One for each set of rules. */
const CACHED_SCHEMAS = 100;
/** In bytes. */
const DOCUMENT_MEMORY = 16_777_216;

class ModelCompiler {
  readonly #limits: StageLimits;
  readonly #operations: Operations;
  readonly #writes: WriteStatements;
  /** By the text of the rules: a program may change them. */
  readonly #known = new LRUCache<string, Permissions>({ max: CACHED_SCHEMAS });

  constructor(
    private readonly model: Model,
    { limits = {}, newUuid = missingUuid }: CompilerOptions,
  ) {
    this.#limits = stageLimits(limits);
    const { document, parse } = this.#limits;
    this.#operations = new Operations(new Schemas(CACHED_SCHEMAS, []), document, parse, DOCUMENT_MEMORY);
    this.#writes = new WriteStatements(model, this.#limits, newUuid);
  }

  async rest(request: RestRequest, permissions: CallerPermissions): Promise<CompiledRequest> {
    const item = this.#itemOf(request);
    const caller = this.#caller(permissions);
    const { method, collection, key, queryString, body } = item;
    const { parse } = this.#limits;
    if (method === 'GET') return this.#read(tagged(parseRead(collection, key, queryString, parse)), caller);
    if (method === 'SEARCH') return this.#read(parseSearch(collection, body, queryString, parse), caller);
    const served = this.model.collections.get(collection);
    const parsed = parseItemWrite(
      { ...item, method, ifMatch: null, isNew: false },
      {
        isSingleton: served?.singleton === true && isKnownTo(served, caller.access, this.model),
        limits: parse,
        idempotencyKey: null,
        readBackOf: (one) => {
          const read = parseReadBack(collection, one, queryString, parse);
          return one ? tagged(read) : read;
        },
      },
    );
    return requestOf(await this.#writes.statementsOf(parsed, caller, false));
  }

  #itemOf({ method, path, query, body }: RestRequest) {
    const [, name, given, inPath = ''] = PATH.exec(path) ?? [];
    const isMisplaced = given !== undefined && (method === 'POST' || method === 'SEARCH');
    if (name === undefined || isMisplaced || !METHODS.includes(method)) throw routeNotFound(path);
    const collection = decoded(name, path);
    const { synonyms, collections } = this.model;
    if (collections.get(ownName(synonyms, collection))?.system) throw forbiddenCollection(collection);
    const key = given === undefined ? null : decoded(given, path);
    return { method, collection, key, queryString: query ?? inPath, body };
  }

  #caller(permissions: CallerPermissions): CompilerCaller {
    checkPermissions(permissions);
    const { rules, user = null, role = null, roles, policies = [], client = {} } = permissions;
    return {
      caller: { user, role, roles: roles ?? (role === null ? [] : [role]), policies },
      author: { user, ip: client.ip ?? null, user_agent: client.userAgent ?? null, origin: client.origin ?? null },
      access: rules === 'all' ? null : this.#accessOf(rules),
    };
  }

  /** The model that the rules leave is kept with them. */
  #accessOf(rules: readonly Permission[]): Permissions {
    for (const rule of rules) checkRule(rule);
    const rows = rules.map(({ collection, action, permissions = null, validation = null, presets = null, fields }) => {
      const names = typeof fields === 'string' ? fields : fields.join();
      return { collection, action, permissions, validation, presets, fields: names };
    });
    const text = JSON.stringify(rows);
    const known = this.#known.get(text);
    if (known) return known;
    const access = new Permissions(`rules ${sha256(text)}`, readRules(rows));
    this.#known.set(text, access);
    return access;
  }

  async graphql(
    text: string,
    variables: Readonly<Record<string, unknown>>,
    permissions: CallerPermissions,
  ): Promise<CompiledRequest> {
    try {
      const caller = this.#caller(permissions);
      const request = { text, operationName: null, variables: { ...variables }, safe: false };
      const access = schemaAccessOf(caller.access, this.model);
      return await this.#document(await this.#operations.parse(request, access, 'items'), caller);
    } catch (error) {
      throw asServiceError(error);
    }
  }

  async #document(document: ParsedDocument, caller: CompilerCaller): Promise<CompiledRequest> {
    switch (document.kind) {
      case 'query':
        if (document.parsed.request.parts.every(({ kind }) => kind === 'json'))
          throw new NoStatement('the answer is known without one');
        return this.#read(document.parsed, caller);
      case 'mutation': {
        const statements: CompiledStatement[] = [];
        for (const step of document.steps) statements.push(...(await this.#step(step, caller)));
        return requestOf(statements);
      }
      default:
        throw new NoStatement('it is a subscription, which reads again after each change');
    }
  }

  async #step(step: MutationStep, caller: CompilerCaller): Promise<readonly CompiledStatement[]> {
    if (step.kind === 'json') return [];
    if (step.kind !== 'write') throw new NoStatement(`"${step.name}" is carried out by the service`);
    try {
      return await this.#writes.statementsOf(step.request, caller, true);
    } catch (error) {
      throw error instanceof ServiceError ? new FieldFailure(error, step.position) : error;
    }
  }

  #read(query: ReadQuery, { access, caller }: CompilerCaller): CompiledRequest {
    const context = { access, selectedFor: null, model: this.model, limits: this.#limits.plan, staged: () => {} };
    const { statement, calls } = runSteps(readStatement(query, context));
    if (isVolatile({ calls })) throw new NoStatement('it calls a function that may write');
    checkArguments(calls, query.values);
    return requestOf([{ sql: statement.text, parameters: bind(statement.parameters, query.values, caller) }]);
  }
}

function requestOf([first, ...following]: readonly CompiledStatement[]): CompiledRequest {
  if (!first) throw new NoStatement('it writes nothing');
  return { ...first, following };
}

function decoded(segment: string, path: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw routeNotFound(path);
  }
}

function missingUuid(): never {
  throw new TypeError('A new item needs a UUID: pass the option "newUuid" to createCompiler, such as randomUUID');
}

/** Errors of a document with their places. A root field that fails is an error of the request. */
function asServiceError(error: unknown): unknown {
  if (error instanceof DocumentFailure)
    return new ServiceError('INVALID_QUERY', error.message, { errors: error.errors });
  if (error instanceof FieldFailure) return error.cause;
  if (error instanceof FailedParts) return error.parts[0]?.cause;
  return error;
}
