/** Writing items: one or many, with everything nested in them. */
import { routeNotFound } from '../errors.js';
import type { Shown } from '../execute/writes.js';
import type { Exchange } from '../http/exchange.js';
import { JSON_TYPE, noContent, type Reply } from '../http/reply.js';
import { parseCreate, parseDelete, parseUpdate, readItem } from '../request/write.js';
import { type ItemsServices, identifyAdministrator } from './items.js';

export async function createItems(exchange: Exchange, services: ItemsServices): Promise<Reply> {
  const [collection = ''] = exchange.parameters;
  const shown = await prepare(exchange, services);
  if (services.writes.isSingleton(collection)) throw routeNotFound(exchange.path);
  const body = parseCreate(await exchange.json());
  return answer(await services.writes.create(collection, body, shown));
}

export async function updateItem(exchange: Exchange, services: ItemsServices): Promise<Reply> {
  const [collection = '', key = ''] = exchange.parameters;
  const shown = await prepare(exchange, services);
  if (services.writes.isSingleton(collection)) throw routeNotFound(exchange.path);
  const data = readItem(await exchange.json(), 'The body');
  return answer(await services.writes.updateOne(collection, key, data, shown));
}

export async function updateItems(exchange: Exchange, services: ItemsServices): Promise<Reply> {
  const [collection = ''] = exchange.parameters;
  const shown = await prepare(exchange, services);
  const body = await exchange.json();
  if (services.writes.isSingleton(collection)) {
    return answer(await services.writes.updateSingleton(collection, readItem(body, 'The body'), shown));
  }
  return answer(await services.writes.updateMany(collection, parseUpdate(body), shown));
}

export async function deleteItem(exchange: Exchange, services: ItemsServices): Promise<Reply> {
  const [collection = '', key = ''] = exchange.parameters;
  const { caller } = await prepare(exchange, services);
  await services.writes.delete(collection, { kind: 'keys', keys: [key] }, caller);
  return noContent;
}

export async function deleteItems(exchange: Exchange, services: ItemsServices): Promise<Reply> {
  const [collection = ''] = exchange.parameters;
  const { caller } = await prepare(exchange, services);
  await services.writes.delete(collection, parseDelete(await exchange.json()), caller);
  return noContent;
}

async function prepare(exchange: Exchange, services: ItemsServices): Promise<Shown> {
  const caller = await identifyAdministrator(exchange, services);
  return { queryString: exchange.queryString, caller };
}

/** What was written but cannot be shown has no body. */
function answer(body: Buffer | null): Reply {
  return body ? { status: 200, type: JSON_TYPE, body } : noContent;
}
