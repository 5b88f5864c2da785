/** Requests from other origins: the headers of CORS, the answer to a preflight, and the check against forged requests. */

import { forbidden } from '../../base/errors.js';
import { isBearer } from '../access/identities.js';
import type { Config } from '../config/config.js';
import type { Exchange } from './exchange.js';

export type HeaderList = readonly (readonly [string, string])[];

export interface Cors {
  headers(exchange: Exchange): HeaderList;
  /** Whether the request is a preflight, to be answered with 204 and the headers alone. */
  isPreflight(exchange: Exchange): boolean;
}

/** Returns null if CORS_ENABLED is off. */
export function createCors(config: Config): Cors | null {
  if (!config.CORS_ENABLED) return null;
  const allowed = originTest(config.CORS_ORIGIN);
  const isPreflight = (exchange: Exchange): boolean =>
    exchange.method === 'OPTIONS' && exchange.headers.requestMethod !== '';
  return {
    isPreflight,
    headers: (exchange) => {
      const { origin } = exchange.headers;
      const headers: [string, string][] = [['Vary', 'Origin']];
      if (origin === '' || !allowed(origin)) return headers;
      headers.push(['Access-Control-Allow-Origin', origin]);
      if (config.CORS_CREDENTIALS) headers.push(['Access-Control-Allow-Credentials', 'true']);
      if (config.CORS_EXPOSED_HEADERS !== '')
        headers.push(['Access-Control-Expose-Headers', config.CORS_EXPOSED_HEADERS]);
      if (isPreflight(exchange)) {
        headers.push(['Access-Control-Allow-Methods', config.CORS_METHODS]);
        headers.push(['Access-Control-Allow-Headers', config.CORS_ALLOWED_HEADERS]);
        headers.push(['Access-Control-Max-Age', String(config.CORS_MAX_AGE)]);
      }
      return headers;
    },
  };
}

export function originTest(setting: string): (origin: string) => boolean {
  if (/^true$/i.test(setting)) return () => true;
  if (/^false$/i.test(setting)) return () => false;
  const origins = new Set(setting.split(',').map((each) => each.trim()));
  return (origin) => origins.has(origin);
}

const HARMLESS = new Set(['GET', 'HEAD', 'SEARCH', 'OPTIONS']);

/**
 * Returns a check that refuses requests with cookies that another site may have forged. Browsers send cookies also with requests that other
 * sites make. In addition to SameSite, a write that relies on a cookie must come from the origin of the service, or from one that CORS
 * allows.
 */
export function createOriginCheck(config: Config): (exchange: Exchange) => void {
  const allowed = config.CORS_ENABLED ? originTest(config.CORS_ORIGIN) : () => false;
  const own = config.PUBLIC_URL === null ? null : new URL(config.PUBLIC_URL).origin;
  const names = [config.SESSION_COOKIE_NAME, config.REFRESH_TOKEN_COOKIE_NAME];
  return (exchange) => {
    const { authorization, origin, host, fetchSite } = exchange.headers;
    if (HARMLESS.has(exchange.method)) return;
    // Other credentials, such as the password of a proxy, may be added by the browser itself.
    if (isBearer(authorization) || exchange.accessToken !== '') return;
    if (names.every((name) => exchange.cookie(name) === '')) return;
    if (fetchSite === 'same-origin' || fetchSite === 'none') return;
    // Programs that are no browser send neither header.
    if (fetchSite === '' && (origin === '' || hostOf(origin) === host.toLowerCase())) return;
    if (origin !== '' && (origin === own || allowed(origin))) return;
    throw forbidden('Cookies are not accepted from another origin.');
  };
}

function hostOf(origin: string): string {
  return URL.canParse(origin) ? new URL(origin).host : '';
}
