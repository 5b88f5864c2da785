/** Where a request ends and which host it is for: what its headers say about it must have one meaning. */

export interface Framing {
  /** null without the header, as `transferEncoding`. */
  contentLength: string | null;
  transferEncoding: string | null;
  hasHost: boolean;
  /** Why it has several meanings; '' if it has one. */
  ambiguity: string;
}

/**
 * Notes a length, a coding or a second host. uWebSockets reads the first of several lengths. It takes every transfer coding for
 * `chunked`, except an empty one, which it ignores. A proxy that reads them in another way takes other bytes for the next request.
 */
export function noteFraming(
  framing: Framing,
  name: 'host' | 'content-length' | 'transfer-encoding',
  value: string,
): void {
  if (framing.ambiguity !== '') return;
  if (name === 'host') framing.ambiguity = 'has several Host headers';
  else
    framing.ambiguity = name === 'content-length' ? lengthAmbiguity(framing, value) : codingAmbiguity(framing, value);
  if (framing.ambiguity === '' && framing.contentLength !== null && framing.transferEncoding !== null)
    framing.ambiguity = 'has a Content-Length header and a Transfer-Encoding header';
}

function lengthAmbiguity(framing: Framing, value: string): string {
  if (value === '') return 'has an empty Content-Length header';
  if (framing.contentLength !== null && framing.contentLength !== value)
    return 'has several Content-Length headers that differ';
  framing.contentLength = value;
  return '';
}

function codingAmbiguity(framing: Framing, value: string): string {
  if (framing.transferEncoding !== null) return 'has several Transfer-Encoding headers';
  if (value.toLowerCase() !== 'chunked') return 'has a Transfer-Encoding header other than "chunked"';
  framing.transferEncoding = value;
  return '';
}
