/**
 * Cookies of the service: out of reach for scripts, not sent along by other sites, and over TLS only if there is TLS.
 */
import { SIGN_IN_LIFETIME_MS } from '../access/pending-sign-in.js';
import type { Config } from '../config/config.js';
import type { Exchange, PositionCookies } from './exchange.js';

type CookieKind = 'session' | 'refresh' | 'position' | 'signIn';

export interface Cookies {
  readonly sessionName: string;
  readonly refreshName: string;
  readonly positionName: string;
  readonly signInName: string;
  /** The value of a Set-Cookie header. */
  set(exchange: Exchange, kind: CookieKind, value: string): string;
  clear(exchange: Exchange, kind: CookieKind): string;
}

/** Milliseconds beyond the time that a replica may be behind. */
const POSITION_MARGIN_MS = 60_000;

export function createCookies(config: Config): Cookies {
  const https = config.PUBLIC_URL?.startsWith('https:') ?? false;
  const session = {
    name: config.SESSION_COOKIE_NAME,
    lifetime: config.SESSION_COOKIE_TTL,
    secure: config.SESSION_COOKIE_SECURE,
    sameSite: config.SESSION_COOKIE_SAME_SITE,
    domain: config.SESSION_COOKIE_DOMAIN,
  };
  const kinds = {
    session,
    position: {
      ...session,
      name: `${config.SESSION_COOKIE_NAME}_position`,
      lifetime: config.REPLICA_MAX_LAG + POSITION_MARGIN_MS,
    },
    // The browser returns from the page of another site: with `Strict` it would not send the cookie.
    signIn: {
      ...session,
      name: `${config.SESSION_COOKIE_NAME}_sign_in`,
      lifetime: SIGN_IN_LIFETIME_MS,
      sameSite: 'lax' as const,
    },
    refresh: {
      name: config.REFRESH_TOKEN_COOKIE_NAME,
      lifetime: config.REFRESH_TOKEN_TTL,
      secure: config.REFRESH_TOKEN_COOKIE_SECURE,
      sameSite: config.REFRESH_TOKEN_COOKIE_SAME_SITE,
      domain: config.REFRESH_TOKEN_COOKIE_DOMAIN,
    },
  };
  const write = (exchange: Exchange, kind: CookieKind, value: string, seconds: number): string => {
    const { name, secure, sameSite, domain } = kinds[kind];
    const site = `${sameSite.charAt(0).toUpperCase()}${sameSite.slice(1)}`;
    const parts = [`${name}=${value}`, `Max-Age=${seconds}`, 'Path=/'];
    if (domain !== null) parts.push(`Domain=${domain}`);
    parts.push('HttpOnly');
    // Browsers ignore SameSite=None without Secure.
    if (secure === 'true' || (secure === 'auto' && (https || exchange.secure || sameSite === 'none'))) {
      parts.push('Secure');
    }
    parts.push(`SameSite=${site}`);
    return parts.join('; ');
  };
  return {
    sessionName: session.name,
    refreshName: kinds.refresh.name,
    positionName: kinds.position.name,
    signInName: kinds.signIn.name,
    set: (exchange, kind, value) => write(exchange, kind, value, Math.floor(kinds[kind].lifetime / 1_000)),
    clear: (exchange, kind) => write(exchange, kind, '', 0),
  };
}

/** An invalid position cookie is ignored: the user did not write it. */
export function positionCookies(cookies: Cookies): PositionCookies {
  return {
    read: (exchange) => {
      const position = exchange.cookie(cookies.positionName);
      return /^[0-9a-z]{1,10}(-[0-9a-z]{1,6})?$/.test(position) ? position : '';
    },
    write: (exchange, position) =>
      exchange.cookie(cookies.sessionName) === '' ? '' : cookies.set(exchange, 'position', position),
  };
}
