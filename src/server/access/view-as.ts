/** `Lateral-View-As`: an administrator reads with the permissions of the public, a role or a user, and can write nothing. */
import { forbidden, invalidQuery, type ServiceError } from '../../base/errors.js';
import { UUID_PATTERN } from '../../compiler/sql/codec.js';

export const VIEW_AS_HEADER = 'Lateral-View-As';

/** The public, role or user whose permissions are looked up. */
export type ViewKey =
  | { readonly kind: 'public' }
  | { readonly kind: 'role'; readonly role: string }
  | { readonly kind: 'user'; readonly user: string; readonly session: null };

/** The value of the header: `public`, `role:<id>` or `user:<id>`. */
export function parseViewAs(text: string): ViewKey {
  if (text === 'public') return { kind: 'public' };
  const [kind, id = ''] = text.split(':', 2);
  if ((kind !== 'role' && kind !== 'user') || !UUID_PATTERN.test(id) || text.length !== kind.length + 1 + id.length)
    throw invalidQuery(`"${VIEW_AS_HEADER}" must be "public", "role:<id>" or "user:<id>"`);
  return kind === 'role' ? { kind, role: id } : { kind, user: id, session: null };
}

export function unknownView(text: string): ServiceError {
  return invalidQuery(`"${VIEW_AS_HEADER}" must name a role or an active user, not "${text}"`);
}

/** Whether the statement and its plan may be shown. A caller who views as another user is an administrator. */
export function mayExplain(caller: { readonly administrator: boolean; readonly isView: boolean }): boolean {
  return caller.administrator || caller.isView;
}

export function viewWrites(): ServiceError {
  return forbidden(`"${VIEW_AS_HEADER}" applies to reads only, and this request writes`);
}
