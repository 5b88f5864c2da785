/** Headers that an administrator adds to requests of the service to other servers. */

/** The service sets them by itself, or they belong to the connection. */
const OWN_HEADERS =
  /^(webhook-.*|content-(length|type|encoding)|host|connection|transfer-encoding|expect|upgrade|te|trailer|keep-alive)$/i;

/** Why the header cannot be sent, or null. */
export function headerProblem(name: string, value: unknown): string | null {
  if (!/^[\w!#$%&'*+.^`|~-]{1,100}$/.test(name) || OWN_HEADERS.test(name)) return `"headers" cannot contain "${name}"`;
  if (typeof value !== 'string' || !/^[\t\x20-\x7e]{0,4000}$/.test(value))
    return `The header "${name}" must be a text of printable characters`;
  return null;
}
