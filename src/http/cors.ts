/** Cross-origin requests: which headers a response carries, and the answer to a preflight. */
import type { Config } from '../config/config.js';
import type { Exchange } from './exchange.js';

export type HeaderList = readonly (readonly [string, string])[];

export interface Cors {
  headers(exchange: Exchange): HeaderList;
  /** Whether the request is a preflight, to be answered with 204 and the headers alone. */
  isPreflight(exchange: Exchange): boolean;
}

const NONE: HeaderList = [];

export function createCors(config: Config): Cors {
  if (!config.CORS_ENABLED) return { headers: () => NONE, isPreflight: () => false };
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
