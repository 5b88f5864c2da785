/** The options of the names of Directus. */
import type { ConfigWith } from '../../server/config/config.js';
import { boolean, type Environment } from '../../server/config/option-kinds.js';

const COOKIE_NAMES = {
  REFRESH_TOKEN_COOKIE_NAME: 'directus_refresh_token',
  SESSION_COOKIE_NAME: 'directus_session_token',
};

export const OPTIONS = {
  DIRECTUS_COMPATIBILITY: {
    ...boolean(
      'false',
      'Accept and return the names directus_* for system tables, meta.special as a list, and the snapshots, error codes and cookie names of Directus, for tools made for it',
    ),
    formerly: 'FAMILY_COMPATIBILITY',
    implied: (isOn: boolean): Environment => (isOn ? COOKIE_NAMES : {}),
  },
};

export type DirectusConfig = ConfigWith<typeof OPTIONS>;
