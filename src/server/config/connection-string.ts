/** Connection strings in both forms of libpq: a URL, or pairs such as `host=db port=5432`. */

const URL_PARTS = /^postgres(?:ql)?:\/\/(?:([^/?]*)@)?([^/?]*)(?:\/([^?]*))?(?:\?(.*))?$/is;
const PAIR = /\s*([a-z_]\w*)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)*)(?=\s|$)/iy;
const HOST = /^(\[[^\]]*\]|[^:[\]]*)(?::(\d*))?$/;

const FORM =
  'must look like postgres://user:password@host:port/database, or have several hosts (host:port,host:port), or be pairs such as host=localhost dbname=shop';

/** The parameters, by the names that libpq gives them. Several hosts and their ports are comma separated. */
export function parseConnectionString(text: string): ReadonlyMap<string, string> {
  const parts = URL_PARTS.exec(text);
  if (parts) return parseUrl(parts);
  if (/^\s*[a-z_]\w*\s*=/i.test(text)) return parsePairs(text);
  throw new Error(FORM);
}

function parseUrl([, login, hosts = '', database, query]: RegExpExecArray): Map<string, string> {
  const found = new Map<string, string>();
  if (login !== undefined) {
    const colon = login.indexOf(':');
    found.set('user', decoded(colon < 0 ? login : login.slice(0, colon)));
    if (colon >= 0) found.set('password', decoded(login.slice(colon + 1)));
  }
  const places = hosts.split(',').map((host) => HOST.exec(host));
  if (places.includes(null) || (places.length > 1 && places.some((place) => place?.[1] === ''))) throw new Error(FORM);
  if (hosts !== '') {
    found.set('host', places.map((place) => decoded(place?.[1] ?? '').replace(/^\[|\]$/g, '')).join());
    found.set('port', places.map((place) => place?.[2] ?? '').join());
  }
  if (database) found.set('dbname', decoded(database));
  for (const parameter of query ? query.split('&') : []) {
    const equals = parameter.indexOf('=');
    // It may be a part of a password that was not encoded.
    const shown = /^\w+$/.test(parameter) ? ` "${parameter}"` : '';
    if (equals < 1) throw new Error(`has a parameter${shown} without a value: write name=value`);
    const [name, value] = [decoded(parameter.slice(0, equals)), decoded(parameter.slice(equals + 1))];
    if (name === 'ssl' && value === 'true') found.set('sslmode', 'require');
    else found.set(name, value);
  }
  return found;
}

function decoded(text: string): string {
  if (/%(?![0-9a-f]{2})/i.test(text)) throw new Error('has a "%" without two hexadecimal digits: write %25 for it');
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Error('has percent-encoded bytes that are not UTF-8');
  }
}

function parsePairs(text: string): Map<string, string> {
  const found = new Map<string, string>();
  const pair = new RegExp(PAIR);
  while (text.slice(pair.lastIndex).trim() !== '') {
    const [, name, value] = pair.exec(text) ?? [];
    if (name === undefined || value === undefined) throw new Error(FORM);
    found.set(name, value.replace(/^'(.*)'$/s, '$1').replace(/\\(.)/gs, '$1'));
  }
  return found;
}
