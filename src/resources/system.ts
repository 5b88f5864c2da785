/** Users, roles, policies and the like: tables of the service itself, read and written like any other collection. */
import type { Exchange } from '../http/exchange.js';
import type { Route } from '../http/router.js';
import { ParseCache } from '../request/parse-cache.js';
import type { ItemPath, ItemsServices } from './item-path.js';
import { type ParsedUrl, readItems } from './item-reads.js';
import { updateItems } from './item-writes.js';
import { readRoutes, resourceRoutes } from './items.js';

const WRITABLE = ['users', 'roles', 'policies', 'access', 'permissions'];
const READABLE = ['activity', 'revisions'];

export function systemRoutes(services: ItemsServices): Route[] {
  return [
    ...WRITABLE.flatMap((name) => resourceRoutes(`/${name}`, services, placeIn(name))),
    ...READABLE.flatMap((name) => readRoutes(`/${name}`, services, placeIn(name))),
    ...settingsRoutes(services),
  ];
}

function placeIn(name: string): (exchange: Exchange) => ItemPath {
  const collection = `service_${name}`;
  return ({ parameters: [key = null] }) => ({ collection, key });
}

/** One item, without a key. */
function settingsRoutes(services: ItemsServices): Route[] {
  const urls = new ParseCache<ParsedUrl>();
  const place: ItemPath = { collection: 'service_settings', key: null };
  return [
    { method: 'GET', path: '/settings', handle: (exchange) => readItems(exchange, services, urls, place) },
    { method: 'PATCH', path: '/settings', handle: (exchange) => updateItems(exchange, services, place) },
  ];
}
