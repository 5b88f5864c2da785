/**
 * Decides which requests are recorded with their values. Only routes of data are. For all others, such as logins, the recording has the
 * template of the route. A request that names a secret, such as a password or a concealed field, is recorded without its values.
 */
import { type Collection, isSecretField, type Model } from '../mirror/model.js';
import { SYSTEM_RESOURCES } from '../mirror/system-resources.js';

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
export interface RequestValues {
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
/** Their bodies are not recorded: users, permissions and shares are accounts rather than data. */
const READ_ROUTES: ReadonlySet<string> = new Set([
  ...SYSTEM_RESOURCES.flatMap(({ name }) => [`/${name}`, `/${name}/:key`]),
  '/users/me',
  '/roles/me',
  '/assets/:id',
  '/assets/:id/:filename',
]);

/** In a name whose words are separated by underscores. */
const SECRET_NAME =
  /passw|passphrase|secret(?!ar)|token|credential|authorization|api_?key|private_?key|cookie|(?:^|[^a-z])(?:otp|pwd|tfa|cvv)(?:[^a-z]|$)/i;
/** Finds texts that may have such a name, in any notation. */
const SECRET_HINT =
  'passw|passphrase|secret|token|credential|authorization|api_?key|private_?key|cookie|otp|pwd|tfa|cvv';

const MAX_KNOWN_QUERIES = 500;
const MAX_KNOWN_LENGTH = 300;

/** Spaces, commas and comments may stand between a name of a GraphQL document and its colon. */
const NAME_WITH_VALUE = /([A-Za-z_]\w*)(?:[\s,\ufeff]|#[^\n\r]*)*:/g;

/** The names of a model that are secret. */
export class SecretNames {
  /** In lower case. */
  readonly #concealed: ReadonlySet<string>;
  readonly #hint: RegExp;
  /** Collections whose key is concealed: a path would show it. */
  readonly #hiddenKeys: ReadonlySet<string>;
  /** Whether a query string has a secret, for routes other than that of GraphQL. */
  readonly #queries = new Map<string, boolean>();

  constructor({ collections }: Pick<Model, 'collections'>) {
    const all = [...collections.values()];
    const names = all.flatMap((each) => [...each.fields.values()].filter(isSecretField).map(({ name }) => name));
    this.#concealed = new Set(names.map((name) => name.toLowerCase()));
    this.#hint = new RegExp([SECRET_HINT, ...[...this.#concealed].map(escaped)].join('|'), 'i');
    this.#hiddenKeys = new Set(all.filter(hasHiddenKey).map(({ name }) => name));
  }

  /** Returns null for a request that may be recorded with its values. */
  omissionOf(values: RequestValues): Omission | null {
    const { route, method, queryString, body } = values;
    if (!DATA_ROUTES.has(route) && !(READ_ROUTES.has(route) && READS.has(method))) return 'route';
    if (
      this.#hiddenKeys.size > 0 &&
      route === '/items/:collection/:key' &&
      this.#hiddenKeys.has(collectionOf(values.path))
    )
      return 'secret';
    if (queryString !== '' && this.#isInQuery(queryString, route)) return 'secret';
    return body !== '' && this.#isInBody(body, route) ? 'secret' : null;
  }

  /** Most query strings come again and again. */
  #isInQuery(queryString: string, route: string): boolean {
    const known = this.#queries.get(queryString);
    if (known !== undefined && route !== '/graphql') return known;
    const found = this.#findInQuery(queryString, route);
    if (queryString.length > MAX_KNOWN_LENGTH || route === '/graphql') return found;
    if (this.#queries.size >= MAX_KNOWN_QUERIES) this.#queries.clear();
    this.#queries.set(queryString, found);
    return found;
  }

  #findInQuery(queryString: string, route: string): boolean {
    const text = queryString.includes('%') ? decoded(queryString) : queryString;
    // A text that cannot be decoded cannot be checked.
    if (text === null) return true;
    if (!this.#hint.test(text) && !text.includes('\\u')) return false;
    return queryString.split('&').some((parameter) => {
      const at = parameter.indexOf('=');
      const name = decoded(at < 0 ? parameter : parameter.slice(0, at)) ?? '';
      const value = decoded(at < 0 ? '' : parameter.slice(at + 1)) ?? '';
      if (value === '') return false;
      if (this.#isSecret(name)) return true;
      return route === '/graphql' && name === 'query' ? this.#isInDocument(value) : this.#isInText(value);
    });
  }

  #isInBody(body: string, route: string): boolean {
    if (!this.#hint.test(body) && !body.includes('\\u')) return false;
    // Its operations have URLs of their own.
    if (route === '/transactions') return true;
    const value = parsed(body);
    if (value === undefined) return true;
    if (route !== '/graphql' || typeof value !== 'object' || value === null) return this.#isInValue(value);
    const { query, ...others } = Object(value);
    return (typeof query === 'string' && this.#isInDocument(query)) || this.#isInValue(others);
  }

  /** In a document, values follow the names of arguments, of fields of inputs and of variables. A selected field has no value. */
  #isInDocument(text: string): boolean {
    if (!this.#hint.test(text)) return false;
    return [...text.matchAll(NAME_WITH_VALUE)].some(([, name = '']) => this.#isSecret(name));
  }

  /** A text may be JSON itself, as the parameter `filter` is. */
  #isInText(text: string): boolean {
    if (!/^\s*[{["]/.test(text) || !(this.#hint.test(text) || text.includes('\\u'))) return false;
    const value = parsed(text);
    return value === undefined || this.#isInValue(value);
  }

  #isInValue(value: unknown): boolean {
    if (typeof value === 'string') return this.#isInText(value);
    if (typeof value !== 'object' || value === null) return false;
    if (Array.isArray(value)) return value.some((each) => this.#isInValue(each));
    return Object.entries(value).some(([name, each]) => this.#isSecret(name) || this.#isInValue(each));
  }

  /** A name may be a path, such as `author.password` or `filter[author][password]`. */
  #isSecret(path: string): boolean {
    if (SECRET_NAME.test(path.replace(/([a-z0-9])([A-Z])/g, '$1_$2'))) return true;
    return path
      .toLowerCase()
      .split(/[^\p{L}\p{N}_$ -]+/u)
      .some((name) => this.#concealed.has(name));
  }
}

function hasHiddenKey({ key }: Collection): boolean {
  return key.some(isSecretField);
}

/** The collection of a path of items. */
function collectionOf(path: string): string {
  const begin = path.indexOf('/', 1) + 1;
  const end = path.indexOf('/', begin);
  const name = path.slice(begin, end < 0 ? path.length : end);
  return /[%+]/.test(name) ? (decoded(name) ?? '') : name;
}

function escaped(name: string): string {
  return name.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
}

/** Returns null if it is not valid. */
function decoded(text: string): string | null {
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
