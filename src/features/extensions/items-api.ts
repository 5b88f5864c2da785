/** `items(…)` of programs and hooks: each call becomes a request to /items, as its method, key, query string and body. */
import { invalidPayload, invalidQuery } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import type { Item, ItemKey, Items, ItemsQuery, ItemsSelection } from '../../server/execute/hooks/api.js';

/** A request to `/items/<collection>` or `/items/<collection>/<key>`. */
export interface ItemsCall {
  readonly method: 'GET' | 'SEARCH' | 'POST' | 'PATCH' | 'DELETE';
  readonly collection: string;
  readonly key: string | null;
  readonly queryString: string;
  /** Undefined for none. */
  readonly body: unknown;
}

/** Sends the request; answers the data of the response, or null if it has none. The program vouches for its type. */
type SendItemsCall = <Data>(call: ItemsCall) => Promise<Data>;

/** The parts of a call that it may leave out. */
interface CallParts {
  readonly key?: string;
  readonly query?: ItemsQuery | undefined;
  readonly body?: unknown;
}

/** With `isHandled`, a call that nobody awaits may fail: a rejected promise without a handler would end the process. */
export function itemsApi<Row extends object = Item>(
  collection: string,
  send: SendItemsCall,
  isHandled = false,
): Items<Row> {
  if (typeof collection !== 'string' || collection === '') throw invalidQuery('"collection" must be a name');
  // A wrong argument rejects, as a refused request does.
  const answerTo = async <Data>(method: ItemsCall['method'], parts: () => CallParts): Promise<Data> => {
    const { key = null, query, body } = parts();
    const queryString = query === undefined ? '' : queryStringOf(query);
    return send<Data>({ method, collection, key, queryString, body });
  };
  const call = <Data>(method: ItemsCall['method'], parts: () => CallParts): Promise<Data> => {
    const answer = answerTo<Data>(method, parts);
    if (isHandled) answer.catch(() => {});
    return answer;
  };
  return {
    read: (query = {}) => call('SEARCH', () => ({ body: { query: checkedQuery(query) } })),
    readOne: (key, query) => call('GET', () => ({ key: keyText(key), query })),
    create: (data, query) => call('POST', () => ({ query, body: checkedItem(data) })),
    createMany: (data, query) => call('POST', () => ({ query, body: checkedList(data) })),
    update: (key, data, query) => call('PATCH', () => ({ key: keyText(key), query, body: checkedItem(data) })),
    updateMany: (selection, data, query) =>
      call('PATCH', () => ({ query, body: { ...checkedSelection(selection), data: checkedItem(data) } })),
    delete: (selected) =>
      call('DELETE', () =>
        typeof selected === 'object' ? { body: checkedSelection(selected) } : { key: keyText(selected) },
      ),
  };
}

function checkedQuery(query: unknown): ItemsQuery {
  if (!isObject(query)) throw invalidQuery('"query" must be an object');
  if (query['export'] !== undefined) throw invalidQuery('"export" answers a file: use "fetch" for it');
  return query;
}

function keyText(key: ItemKey): string {
  if ((typeof key !== 'string' && typeof key !== 'number') || key === '')
    throw invalidQuery('The key of an item must be a string or a number');
  return String(key);
}

function checkedItem(data: unknown): Item {
  if (!isObject(data)) throw invalidPayload('An item must be an object');
  return data;
}

function checkedList(data: readonly unknown[]): Item[] {
  if (!Array.isArray(data)) throw invalidPayload('Several items must be a list');
  return data.map(checkedItem);
}

/** A misspelt property must not select everything. */
function checkedSelection(selection: ItemsSelection): ItemsSelection {
  const names = isObject(selection) ? Object.keys(selection) : [];
  if (names.length !== 1 || (names[0] !== 'keys' && names[0] !== 'query'))
    throw invalidPayload('Items are selected by a key, { keys } or { query }');
  return selection;
}

function queryStringOf(query: ItemsQuery): string {
  const entries = Object.entries(checkedQuery(query)).flatMap(([name, value]) => {
    if (value === undefined) return [];
    const isList = Array.isArray(value) && value.every((each) => typeof each !== 'object');
    const text = isList ? value.join() : typeof value === 'object' ? JSON.stringify(value) : String(value);
    return [`${encodeURIComponent(name)}=${encodeURIComponent(text)}`];
  });
  return entries.join('&');
}
