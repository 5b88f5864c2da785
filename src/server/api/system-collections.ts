/** Users, roles, policies and other tables of the service, which are read and written like any other collection. */

import type { SystemResource } from '../../compiler/model/system-resources.js';
import { UrlCache } from '../../compiler/request/parse-cache.js';
import type { Exchange } from '../http/exchange.js';
import type { Handler, Route } from '../http/router.js';
import type { Mirror } from '../postgres/catalog/watch.js';
import { type ItemPath, type ItemsServices, writeItems } from './items/item-writes.js';
import { readItems, readRoutes, resourceRoutes } from './items/items.js';

/** Gets the usual routes of a resource, and returns those to use instead. */
export type ResourceRoutes = (usual: readonly Route[]) => readonly Route[];

interface SystemServices extends ItemsServices {
  readonly mirror: Mirror;
  /** By the name of the resource. */
  readonly resources: ReadonlyMap<string, ResourceRoutes>;
}

export function systemRoutes(tables: readonly SystemResource[], services: SystemServices): Route[] {
  return tables.flatMap(({ name, kind }) => {
    if (kind === 'single') return singletonRoutes(name, services);
    if (kind === 'read') return readRoutes(`/${name}`, services, placeIn(name));
    if (name === 'functions') return functionRowRoutes(services);
    const usual = resourceRoutes(`/${name}`, services, placeIn(name));
    return services.resources.get(name)?.(usual) ?? usual;
  });
}

/** A row exposes a function in the model, so the model is reloaded before the change is answered. */
function functionRowRoutes(services: SystemServices): Route[] {
  return resourceRoutes('/functions', services, placeIn('functions')).map((route) =>
    route.method === 'GET' || route.method === 'SEARCH' ? route : { ...route, handle: thenRefresh(route, services) },
  );
}

function thenRefresh({ handle }: Route, { mirror }: SystemServices): Handler {
  return async (exchange) => {
    const reply = await handle(exchange);
    await mirror.refresh(true);
    return reply;
  };
}

function placeIn(name: string): (exchange: Exchange) => ItemPath {
  const collection = `service_${name}`;
  return ({ parameters: [key = null] }) => ({ collection, key });
}

/** One item, without a key. */
function singletonRoutes(name: string, services: ItemsServices): Route[] {
  const [urls, written] = [new UrlCache(), new UrlCache()];
  const location: ItemPath = { collection: `service_${name}`, key: null };
  return [
    { method: 'GET', path: `/${name}`, handle: (exchange) => readItems(exchange, services, urls, location) },
    {
      method: 'PATCH',
      path: `/${name}`,
      handle: (exchange) => writeItems(exchange, services, written, location),
      isConditional: true,
    },
  ];
}
