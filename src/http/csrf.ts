/**
 * Cookies travel by themselves, also with requests that another site made the browser send. Besides SameSite, a request that
 * changes something and leans on a cookie of ours has to come from our own origin, or from one that CORS lets in.
 */
import { isBearer } from '../access/identities.js';
import { forbidden } from '../base/errors.js';
import type { Config } from '../config/config.js';
import { originTest } from './cors.js';
import type { Exchange } from './exchange.js';

const HARMLESS = new Set(['GET', 'HEAD', 'SEARCH', 'OPTIONS']);

/** Throws for a request that another site may have forged. */
export type OriginCheck = (exchange: Exchange) => void;

export function createOriginCheck(config: Config): OriginCheck {
  const allowed = config.CORS_ENABLED ? originTest(config.CORS_ORIGIN) : () => false;
  const own = config.PUBLIC_URL === null ? null : new URL(config.PUBLIC_URL).origin;
  const names = [config.SESSION_COOKIE_NAME, config.REFRESH_TOKEN_COOKIE_NAME];
  return (exchange) => {
    const { cookie, authorization, origin, host, fetchSite } = exchange.headers;
    if (cookie === '' || HARMLESS.has(exchange.method)) return;
    // What a browser adds by itself, such as the password of a proxy, proves nothing.
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
