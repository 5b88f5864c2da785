/**
 * Cookies of the service: out of reach for scripts, not sent along by other sites, and over TLS alone where there is TLS.
 */
import type { Config } from '../config.js';
import type { Exchange } from './exchange.js';

export type CookieKind = 'session' | 'refresh';

export interface Cookies {
  readonly sessionName: string;
  readonly refreshName: string;
  /** The value of a Set-Cookie header. */
  set(exchange: Exchange, kind: CookieKind, value: string): string;
  clear(exchange: Exchange, kind: CookieKind): string;
}

export function createCookies(config: Config): Cookies {
  const https = config.PUBLIC_URL?.startsWith('https:') ?? false;
  const kinds = {
    session: {
      name: config.SESSION_COOKIE_NAME,
      lifetime: config.SESSION_COOKIE_TTL,
      secure: config.SESSION_COOKIE_SECURE,
      sameSite: config.SESSION_COOKIE_SAME_SITE,
      domain: config.SESSION_COOKIE_DOMAIN,
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
    sessionName: kinds.session.name,
    refreshName: kinds.refresh.name,
    set: (exchange, kind, value) => write(exchange, kind, value, Math.floor(kinds[kind].lifetime / 1_000)),
    clear: (exchange, kind) => write(exchange, kind, '', 0),
  };
}
