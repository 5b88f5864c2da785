/**
 * Decides which requests are recorded with their values. Only routes of data are. For all others, such as logins, the recording has the
 * template of the route. A request that names a secret, such as a password or a concealed field, is recorded without its values. The same
 * applies to a request that cannot be checked.
 */
import { isRecord, propertiesOf } from '../../base/narrow.js';
import { type Field, isSecretField, type Model } from '../../compiler/model/model.js';
import { resourceAt } from '../../compiler/model/system-resources.js';

/** Why a request has no values in the recording and cannot be replayed. */
export type Omission =
  /** The route is not one of data. */
  | 'route'
  /** It names a secret. */
  | 'secret'
  /** The body is too long. */
  | 'large'
  /** The body is not JSON. */
  | 'body'
  /** The caller came through a share, which cannot be viewed as. */
  | 'share'
  /** The service did not identify the caller. */
  | 'caller';

/** The parts of a request that may have secrets. */
interface RequestValues {
  readonly method: string;
  /** The template of the route; '' if none matched. */
  readonly route: string;
  /** As sent. */
  readonly path: string;
  readonly queryString: string;
  readonly body: string;
}

const READS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'SEARCH']);
const DATA_ROUTES: ReadonlySet<string> = new Set([
  '/items/:collection',
  '/items/:collection/:key',
  '/rpc/:function',
  '/graphql',
  '/transactions',
]);
const READ_ROUTES: ReadonlySet<string> = new Set(['/users/me', '/roles/me', '/assets/:id', '/assets/:id/:filename']);

/** Bodies of these are not recorded: users and permissions are accounts rather than data. The key of a share opens it. */
function isReadRoute(route: string): boolean {
  return READ_ROUTES.has(route) || (resourceAt(route)?.name ?? 'shares') !== 'shares';
}

/** In a name whose words are separated by underscores. */
const SECRET_NAME =
  /passw|passphrase|secret(?!ar)|token|credential|authorization|(?:api|private)[ _-]?key|cookie|(?:^|[^a-z])(?:otp|pass|pwd|jwt|tfa|cvv)(?:[^a-z]|$)/i;
/** Finds texts that may have such a name, in any notation. */
const SECRET_HINT = 'pass|secret|token|credential|authorization|(?:api|private)[ _-]?key|cookie|otp|pwd|jwt|tfa|cvv';

const MAX_KNOWN_QUERIES = 500;
const MAX_KNOWN_LENGTH = 300;

/** A token of a GraphQL document: a text, a comment, a name or one character. No text that a client may send takes long. */
const DOCUMENT_TOKEN =
  /"""(?:[^"\\]|\\"""|\\(?!""")|"(?!""))*"""|"(?:[^"\\\n\r]|\\.)*"|#[^\n\r]*|([A-Za-z_]\w*)|[^\s,\ufeff]/g;

/** Brackets, quotes and colons that are still encoded after a query string was decoded. */
const TWICE_ENCODED = /%(?:25)*(?:22|2e|3[ad]|5[bd]|7b)/i;

/** Parameters whose values are names of fields, numbers or words. Their names may end with an index in brackets. */
const STRUCTURE =
  /^(?:fields|alias|sort|aggregate|groupBy|group|limit|offset|page|meta|export|geometry|envelope|on_conflict|resolution)(?:\[|$)/;
/** Parameters with a field in their name and a value that has no notation of its own. */
const CONDITION = /^(?:(?:filter|deep)\[|search$)/;

/** In a text, the parts that may be names, and each other character. */
const TEXT_TOKEN = /[\p{L}\p{N}_$ -]+|[^\p{L}\p{N}_$ -]/gu;
/** After a name, these say that a value follows. */
const ASSIGNMENT = /[=:\]"'`<>~]/;

/** The names of a model that are secret. */
export class SecretNames {
  /** In lower case, as `#isSecret` separates them in a path. */
  readonly #names: ReadonlySet<string>;
  /** Names with characters that separate names, without quotes. */
  readonly #oddNames: readonly string[];
  /** Names of several words. */
  readonly #longNames: readonly string[];
  readonly #hint: RegExp;
  readonly #collections: ReadonlySet<string>;
  /** Collections whose key is concealed, in lower case: a path, a list of keys or a cursor would show it. */
  readonly #hiddenKeys: readonly string[];
  /** Whether a query string has a secret, for routes other than that of GraphQL. */
  readonly #queries = new Map<string, boolean>();

  constructor({ collections }: Pick<Model, 'collections'>) {
    const isOdd = (name: string): boolean => name.split(SEPARATORS).length > 1;
    this.#collections = new Set(collections.keys());
    this.#hiddenKeys = [...collections.keys()].filter(keyHider(collections)).map((name) => name.toLowerCase());
    const fields = [...secretFields(collections)].map((name) => name.toLowerCase().trim());
    // Activities, revisions and comments have the key of any item.
    const names = this.#hiddenKeys.length > 0 ? [...fields, 'item'] : fields;
    // A cursor has values of the fields in "sort": with a secret name in the same text, they may be secret.
    this.#names = new Set([...names, 'cursor']);
    this.#oddNames = names.filter(isOdd).map(withoutQuotes);
    this.#longNames = names.filter((name) => /[ -]/.test(name));
    const hints = [SECRET_HINT, ...names.map(escaped), ...this.#hiddenKeys.map(escaped)];
    this.#hint = this.#oddNames.length > 0 ? /(?:)/ : new RegExp(hints.join('|'), 'i');
  }

  /** Returns null for a request that may be recorded with its values. */
  omissionOf(values: RequestValues): Omission | null {
    const { route, method, path, queryString, body } = values;
    if (!DATA_ROUTES.has(route) && !(isReadRoute(route) && READS.has(method))) return 'route';
    if (this.#isInPath(path, route) || this.#showsKey(values)) return 'secret';
    if (queryString !== '' && this.#isInQuery(queryString, route)) return 'secret';
    if (body === '') return null;
    const value = parsed(body);
    if (value === undefined) return 'body';
    return this.#isInBody(body, value, route) ? 'secret' : null;
  }

  /** A client may forget the question mark of its query string, or encode it, or write a condition instead of a key. */
  #isInPath(path: string, route: string): boolean {
    if (!this.#mayHaveSecret(path)) return false;
    if (/[=?]/.test(unescaped(path))) return true;
    const places = route.split('/');
    return path.split('/').some((segment, position) => {
      const place = places[position];
      if (place === ':collection') return !this.#collections.has(unescaped(segment)) && this.#isMentioned(segment);
      return place === undefined || place === ':key' ? this.#isMentioned(segment) : this.#isAssigned(segment);
    });
  }

  #showsKey({ route, path, queryString, body }: RequestValues): boolean {
    if (this.#hiddenKeys.length === 0) return false;
    // The items of a function may be those of any collection.
    if (route === '/rpc/:function') return /cursor|keys/.test(decoded(queryString) ?? 'cursor');
    if (!route.startsWith('/items/') || !this.#hidesKey(path)) return false;
    return route.endsWith('/:key') || body !== '' || mayHaveKey(queryString);
  }

  /** Whether the collection of a path has a concealed key. One that does not exist may be misspelt. */
  #hidesKey(path: string): boolean {
    const [, , segment = ''] = path.split('/');
    const name = decoded(segment) ?? '';
    return this.#hiddenKeys.includes(name.toLowerCase()) || !this.#collections.has(name);
  }

  /** Most query strings come again and again. */
  #isInQuery(queryString: string, route: string): boolean {
    if (route === '/graphql') return this.#isInGraphqlQuery(queryString);
    const known = this.#queries.get(queryString);
    if (known !== undefined) return known;
    const found = this.#findInQuery(queryString);
    if (queryString.length > MAX_KNOWN_LENGTH) return found;
    if (this.#queries.size >= MAX_KNOWN_QUERIES) this.#queries.clear();
    this.#queries.set(queryString, found);
    return found;
  }

  #findInQuery(queryString: string): boolean {
    const text = decoded(queryString);
    // A text that cannot be decoded cannot be checked.
    if (text === null) return true;
    if (!this.#mayHaveSecret(text)) return false;
    if (TWICE_ENCODED.test(text)) return true;
    return parametersIn(queryString).some(([name, value]) => {
      if (value === null) return this.#mayHaveSecret(name);
      if (this.#isSecret(name) || this.#isInText(value)) return true;
      // Parameters that the service does not know, and filters in a notation that it does not know, may have any form.
      return !STRUCTURE.test(name) && !CONDITION.test(name) && !isJson(value) && this.#isMentioned(value);
    });
  }

  /** A request with the digest of a document has variables whose meaning is not known. */
  #isInGraphqlQuery(queryString: string): boolean {
    if (decoded(queryString) === null) return true;
    const parameters = parametersIn(queryString);
    const isPersisted = !parameters.some(([name, value]) => name === 'query' && value);
    return parameters.some(([name, value]) => {
      if (name === 'query') return value !== null && this.#isInDocument(value);
      if (isPersisted && name === 'variables') return value !== '';
      if (value === null) return this.#mayHaveSecret(name);
      return this.#isSecret(name) || this.#isInText(value) || this.#isInDocument(value);
    });
  }

  #isInBody(body: string, value: unknown, route: string): boolean {
    const { query, variables, ...others } = propertiesOf(value);
    if (route === '/graphql' && !query && (variables || Array.isArray(value))) return true;
    // The paths of operations may be encoded.
    const hasPaths = route === '/transactions' && (this.#hiddenKeys.length > 0 || body.includes('%'));
    if (!hasPaths && !this.#mayHaveSecret(body)) return false;
    if (!isUnambiguous(body, value)) return true;
    if (route === '/transactions') return this.#isInTransaction(value);
    if (route !== '/graphql') return this.#isInValue(value);
    return this.#isInDocument(String(query)) || this.#isInValue([variables, others], true);
  }

  #isInTransaction(value: unknown): boolean {
    if (!isRecord(value)) return true;
    const { operations, ...others } = value;
    if (!Array.isArray(operations) || this.#isInValue(others)) return true;
    return operations.some((operation) => this.#isInOperation(operation));
  }

  /** An operation is like a request. */
  #isInOperation(operation: unknown): boolean {
    if (!isRecord(operation) || typeof operation['path'] !== 'string') return true;
    const { path, ...others } = operation;
    const [route = '', queryString = ''] = path.split(/\?(.*)/s, 2);
    if (!/^\/items\//i.test(route) || (this.#hiddenKeys.length > 0 && this.#hidesKey(route))) return true;
    if (this.#isInPath(route, '/items/:collection/:key')) return true;
    return (queryString !== '' && this.#isInQuery(queryString, '/items/:collection')) || this.#isInValue(others);
  }

  /**
   * In a document, values follow the names of arguments, of fields of inputs and of variables. A selected field has no value, unless it has
   * arguments: these may be keys. A document that is not valid may have an equals sign instead of a colon.
   */
  #isInDocument(text: string): boolean {
    if (!this.#mayHaveSecret(text)) return false;
    let last = '';
    for (const [token, name = ''] of text.matchAll(DOCUMENT_TOKEN)) {
      if (token.startsWith('#')) {
        if (this.#isAssigned(token)) return true;
        continue;
      }
      if ((token === ':' || token === '=') && this.#isSecret(last)) return true;
      if (token === '(' && this.#namesCollection(last.toLowerCase())) return true;
      if (token.startsWith('"') && this.#isInLiteral(token)) return true;
      last = name;
    }
    return false;
  }

  /** A text in quotes may be JSON. One that does not end cannot be checked. */
  #isInLiteral(literal: string): boolean {
    const text = literal.startsWith('"""') ? literal.slice(3, -3) : parsed(literal);
    return typeof text !== 'string' || this.#isInText(text);
  }

  /** Whether it is made of the name of a collection with a concealed key, as `update_vaults_item` is. */
  #namesCollection(root: string): boolean {
    return this.#hiddenKeys.some((name) => `_${root}_`.includes(`_${name}_`));
  }

  /** A text may be JSON itself, as the parameter `filter` is, or a condition in another notation. */
  #isInText(text: string): boolean {
    if (!this.#mayHaveSecret(text)) return false;
    if (!isJson(text)) return this.#isAssigned(text);
    const value = parsed(text);
    return value === undefined || !isUnambiguous(text, value) || this.#isInValue(value);
  }

  /** Whether a secret name stands in the text. */
  #isMentioned(text: string): boolean {
    if (!this.#mayHaveSecret(text)) return false;
    const plain = unescaped(text).toLowerCase();
    const words = plain.split(/[^\p{L}\p{N}_$]+/u);
    return (
      this.#isSecret(unescaped(text)) ||
      words.some((word) => this.#isSecret(word)) ||
      this.#longNames.some((name) => plain.includes(name))
    );
  }

  /** Whether a secret name stands in the text, and a value may follow it. */
  #isAssigned(text: string): boolean {
    if (!this.#mayHaveSecret(text)) return false;
    let last = '';
    for (const [token] of unescaped(text).matchAll(TEXT_TOKEN)) {
      if (ASSIGNMENT.test(token)) {
        if (this.#isMentioned(last)) return true;
        // Each name is checked once.
        last = '';
      } else if (token.trim() !== '') last = token;
    }
    return false;
  }

  #isInValue(value: unknown, hasDocuments = false): boolean {
    if (typeof value === 'string') return this.#isInText(value) || (hasDocuments && this.#isInDocument(value));
    if (!isRecord(value)) return false;
    if (Array.isArray(value)) return value.some((each) => this.#isInValue(each, hasDocuments));
    return Object.entries(value).some(([name, each]) => this.#isSecret(name) || this.#isInValue(each, hasDocuments));
  }

  /** JSON may write every character of a name as `\u` and its number. */
  #mayHaveSecret(text: string): boolean {
    return this.#hint.test(text) || text.includes('\\u') || (text.includes('%') && this.#hint.test(unescaped(text)));
  }

  /** A name may be a path, such as `author.password` or `filter[author][password]`. GraphQL calls functions of a field `password_func`. */
  #isSecret(path: string): boolean {
    const plain = unescaped(path);
    if (SECRET_NAME.test(plain.replace(/([a-z0-9])([A-Z])/g, '$1_$2'))) return true;
    const text = plain.toLowerCase();
    if (this.#oddNames.length > 0 && this.#oddNames.some((name) => withoutQuotes(text).includes(name))) return true;
    return text.split(SEPARATORS).some((name) => this.#names.has(name.trim().replace(/_func$/, '')));
  }
}

const SEPARATORS = /[^\p{L}\p{N}_$ -]+/u;

type Collections = Model['collections'];

/** The names of fields that are secret, or that hold values of secret fields or keys of items with a secret key. */
function* secretFields(collections: Collections): Iterable<string> {
  const hidesKey = keyHider(collections);
  const isSecret = (collection: string | null, name: string): boolean => {
    const field = collections.get(collection ?? '')?.fields.get(name);
    return field !== undefined && isSecretField(field);
  };
  const refersToSecret = ({ column, relation }: Field): boolean => {
    if (column?.foreign_keys.some((key) => isSecret(key.collection, key.column))) return true;
    if (relation === null) return false;
    if (relation.kind === 'many-to-any') return relation.allowedCollections.some(hidesKey);
    if (relation.kind !== 'many-to-one') return hidesKey(relation.manyCollection);
    const { oneCollection, columns } = relation;
    return hidesKey(oneCollection) || columns.some(({ referenced }) => isSecret(oneCollection, referenced));
  };
  for (const { fields, references } of collections.values()) {
    for (const field of fields.values()) if (isSecretField(field) || refersToSecret(field)) yield field.name;
    for (const { collection, columns } of references)
      for (const { column, referenced } of columns) if (isSecret(collection, referenced)) yield column;
  }
}

/** Returns whether a collection has a concealed key. */
function keyHider(collections: Collections): (name: string) => boolean {
  return (name) => collections.get(name)?.key.some(isSecretField) ?? false;
}

function escaped(name: string): string {
  return name.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
}

/** Paths and JSON write quotes in names in several ways. */
function withoutQuotes(text: string): string {
  return text.replace(/["\\]/g, '');
}

/** Names and values of a query string that can be decoded. The value is null for a parameter without one. */
function parametersIn(queryString: string): (readonly [name: string, value: string | null])[] {
  return queryString.split('&').map((parameter) => {
    const [name = '', value = null] = parameter.split(/=(.*)/s, 2).map((each) => decoded(each) ?? '');
    return [name, value];
  });
}

/** Whether a query string has a parameter or a value that may be a key. */
function mayHaveKey(queryString: string): boolean {
  if (queryString === '') return false;
  return parametersIn(queryString).some(([name, value]) => {
    if (value === null) return name !== '';
    if (/^(?:filter|deep)$/.test(name)) return !isJson(value);
    return !STRUCTURE.test(name) && !/^(?:filter|deep)\[/.test(name);
  });
}

function isJson(text: string): boolean {
  return /^\s*[{["]/.test(text);
}

/** Rounds of decoding, for texts whose encodings are encoded themselves. */
const MAX_ROUNDS = 8;

/** The text with the characters for which percent-encodings stand, however often it was encoded, and those of `\u` and a number. */
function unescaped(text: string): string {
  let plain = text;
  for (let round = 0; round < MAX_ROUNDS && /%[0-9a-f]{2}|\\u/i.test(plain); round++) {
    const before = plain;
    plain = plain
      .replace(/%(?:25)+/g, '%')
      .replace(/(?:%[0-9a-f]{2})+/gi, (run) => decoded(run) ?? run)
      .replace(/\\u([0-9a-f]{4})/gi, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 16)));
    if (plain === before) break;
  }
  return plain;
}

/** Returns null if it is not valid. */
function decoded(text: string): string | null {
  if (!/[%+]/.test(text)) return text;
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return null;
  }
}

/** Returns undefined if it is not valid JSON. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The service refuses documents that are nested deeper. */
const MAX_DEPTH = 500;

/** Whether each name comes once in its object. JSON.parse drops all but the last value of a name, so the others could not be checked. */
function isUnambiguous(text: string, value: unknown): boolean {
  let names = 0;
  for (const [, colon] of text.matchAll(/"(?:[^"\\]|\\.)*"\s*(:)?/g)) if (colon !== undefined) names++;
  return names === countProperties(value, 0);
}

/** NaN if it is nested too deeply. */
function countProperties(value: unknown, depth: number): number {
  if (!isRecord(value)) return 0;
  if (depth > MAX_DEPTH) return Number.NaN;
  const values = Object.values(value);
  const own = Array.isArray(value) ? 0 : values.length;
  return values.reduce<number>((sum, each) => sum + countProperties(each, depth + 1), own);
}
