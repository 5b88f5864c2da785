/** The options of the names of Directus. */
import { boolean, type Environment, headerName, optional } from '../../server/config/option-kinds.js';

const COOKIE_NAMES = {
  REFRESH_TOKEN_COOKIE_NAME: 'directus_refresh_token',
  SESSION_COOKIE_NAME: 'directus_session_token',
};

/** Headers that the service sends itself. */
const TAKEN = /^(content-|cache-|set-cookie|transfer-|connection|date|etag|vary|location|lateral-|access-control-)/i;

function ownHeader(value: string): string {
  if (TAKEN.test(value))
    throw new Error(`must be a header that the service does not send, such as x-cache-status, not "${value}"`);
  return headerName(value);
}

export const OPTIONS = {
  DIRECTUS_COMPATIBILITY: {
    ...boolean(
      'false',
      'Accept and return the names directus_* for system tables, meta.special as a list, and the snapshots, error codes and cookie names of Directus, for tools made for it',
    ),
    formerly: 'FAMILY_COMPATIBILITY',
    implied: (isOn: boolean): Environment => (isOn ? COOKIE_NAMES : {}),
  },
  CACHE_ENABLED: {
    ...boolean('false', 'Keep answers of reads in memory: READ_CACHE_SIZE is 64mb if it is not set; needs LIVE'),
    implied: (isOn: boolean): Environment => (isOn ? { READ_CACHE_SIZE: '64mb' } : {}),
  },
  CACHE_STATUS_HEADER: optional(
    ownHeader,
    'With DIRECTUS_COMPATIBILITY and READ_CACHE_SIZE, the header in which administrators see HIT or MISS, such as x-cache-status',
  ),
};
