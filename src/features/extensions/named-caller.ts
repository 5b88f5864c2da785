/** `as`: the caller that a program names for each of its requests. */

import { invalidQuery } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import { UUID_PATTERN } from '../../compiler/sql/codec.js';
import type { NamedCaller } from '../../server/access/identities.js';

/** It is required: a program that forgets it must not act as an administrator. */
export function namedCaller(as: unknown): NamedCaller {
  if (as === 'administrator' || as === 'public') return { kind: as };
  const [entry, ...others] = isObject(as) ? Object.entries(as) : [];
  const [name, value] = entry ?? [];
  if (others.length > 0 || typeof value !== 'string') throw invalidAs();
  if (name === 'token' && /^[\x21-\x7e]+$/.test(value)) return { kind: 'token', token: value };
  if (!UUID_PATTERN.test(value)) throw invalidAs();
  if (name === 'user') return { kind: 'user', user: value, session: null };
  if (name === 'role') return { kind: 'role', role: value };
  throw invalidAs();
}

function invalidAs(): Error {
  return invalidQuery('"as" must be "administrator", "public", { user: <id> }, { role: <id> } or { token: <token> }');
}
