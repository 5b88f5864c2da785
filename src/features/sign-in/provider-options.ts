/** AUTH_PROVIDERS: the OpenID Connect providers that users may sign in with, each with its AUTH_<NAME>_* options. */
import { isRecord } from '../../base/narrow.js';
import { isSafeUrl, type UserMapping } from '../../server/config/issuer-options.js';
import { type Environment, named } from '../../server/config/option-kinds.js';

export interface AuthProvider extends UserMapping {
  readonly issuerUrl: string;
  readonly clientId: string;
  /** The secret, or null if the client is public. */
  readonly clientSecret: string | null;
  readonly scope: string;
  /** Additional parameters for the provider's page. */
  readonly parameters: Readonly<Record<string, string>>;
  readonly label: string | null;
  readonly icon: string;
  /** Pages that a sign-in may lead back to, comma separated. */
  readonly redirects: string;
  readonly mode: 'session' | 'cookie';
  readonly groupClaim: string;
  /** The role for each group that the provider may name; the first that fits counts. */
  readonly roleOfGroup: ReadonlyMap<string, string>;
}

const SETTINGS: ReadonlySet<string> = new Set([
  ...['DRIVER', 'ISSUER_URL', 'CLIENT_ID', 'CLIENT_SECRET', 'SCOPE', 'PARAMS', 'LABEL', 'ICON', 'REDIRECT_ALLOW_LIST'],
  ...['MODE', 'IDENTIFIER_KEY', 'ALLOW_PUBLIC_REGISTRATION', 'REQUIRE_VERIFIED_EMAIL', 'DEFAULT_ROLE_ID'],
  ...['GROUP_CLAIM_NAME', 'ROLE_MAPPING'],
]);

export const authProviders = (about: string) =>
  named('AUTH_', about, (names, environment) => names.map((name) => readProvider(name, environment)));

/** Throws with the name of the option that is wrong. */
function readProvider(name: string, environment: Environment): AuthProvider {
  if (!/^[a-z][a-z0-9_]*$/i.test(name) || name === 'default')
    throw new Error(`AUTH_PROVIDERS: "${name}" must be letters, digits and underscores, and not "default"`);
  const prefix = `AUTH_${name.toUpperCase()}_`;
  const unknownName = Object.keys(environment).find(
    (each) => each.startsWith(prefix) && !SETTINGS.has(each.slice(prefix.length)),
  );
  if (unknownName !== undefined) throw new Error(`${unknownName}: there is no such option`);
  const read = (option: string): string | null => environment[prefix + option] || null;
  const required = (option: string): string => {
    const value = read(option);
    if (value === null) throw new Error(`${prefix}${option} must be set, because AUTH_PROVIDERS names "${name}"`);
    return value;
  };
  const oneOf = <Value extends string>(option: string, values: readonly [Value, ...Value[]]): Value => {
    const value = read(option) ?? values[0];
    const known = values.find((each) => each === value);
    if (known === undefined) throw new Error(`${prefix}${option} must be ${values.join(' or ')}, not "${value}"`);
    return known;
  };
  oneOf('DRIVER', ['openid']);
  return {
    name,
    issuerUrl: issuerUrlOf(required('ISSUER_URL'), `${prefix}ISSUER_URL`),
    clientId: required('CLIENT_ID'),
    clientSecret: read('CLIENT_SECRET'),
    scope: read('SCOPE') ?? 'openid profile email',
    parameters: Object.fromEntries(pairsOf(read('PARAMS'), `${prefix}PARAMS`)),
    label: read('LABEL'),
    icon: read('ICON') ?? 'account_circle',
    redirects: read('REDIRECT_ALLOW_LIST') ?? '',
    mode: oneOf('MODE', ['session', 'cookie']),
    user: oneOf('IDENTIFIER_KEY', ['sub', 'email']) === 'email' ? 'email' : 'subject',
    create: oneOf('ALLOW_PUBLIC_REGISTRATION', ['false', 'true']) === 'true',
    trustEmail: oneOf('REQUIRE_VERIFIED_EMAIL', ['true', 'false']) === 'false',
    role: read('DEFAULT_ROLE_ID'),
    groupClaim: read('GROUP_CLAIM_NAME') ?? 'groups',
    roleOfGroup: new Map(pairsOf(read('ROLE_MAPPING'), `${prefix}ROLE_MAPPING`)),
  };
}

/** With or without the path of the provider's document. An attacker who could change it in transit could sign in as any user. */
function issuerUrlOf(text: string, option: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (!url || !isSafeUrl(url)) throw new Error(`${option} must begin with https:// (http:// only on this machine)`);
  return url.href;
}

function pairsOf(text: string | null, option: string): [string, string][] {
  if (text === null) return [];
  const problem = new Error(`${option} must be a JSON object of strings`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw problem;
  }
  if (!isRecord(value)) throw problem;
  return Object.entries(value).map(([key, each]) => {
    if (typeof each !== 'string') throw problem;
    return [key, each];
  });
}
