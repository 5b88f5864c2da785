/** Random requests to the library, good ones and bad ones. None of them changes anything. */
import { ADMIN_TOKEN } from './service.js';

export interface Sent {
  readonly method: string;
  readonly path: string;
  readonly body?: string;
  readonly token: string | null;
  readonly headers?: Record<string, string>;
}

/** Deterministic, so that a failure can be repeated. */
export function createRandom(seed: number): (count: number) => number {
  let state = seed;
  return (count) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * count);
  };
}

export function randomRequest(random: (count: number) => number, readerToken: string): Sent {
  const pick = <Value>(values: readonly Value[]): Value => values[random(values.length)] as Value;
  const collection = pick(['articles', 'authors', 'comments', 'tags', 'nothing', 'articles_tags', 'service_users']);
  const fields = pick(['*', 'id,title', 'id', 'id,author.name', 'comments.*', '*.*', 'secret', 'id,tags.tags_id.name']);
  const filter = pick([
    '',
    '&filter[id][_gt]=3',
    '&filter={"id":{"_in":[1,2,3]}}',
    '&filter[nope][_eq]=1',
    '&search=a',
  ]);
  const token = pick([ADMIN_TOKEN, ADMIN_TOKEN, readerToken, null, 'wrong-token-of-nobody']);
  const headers = pick<Record<string, string>>([{}, {}, { accept: 'application/json' }, { prefer: 'return=minimal' }]);
  const list = {
    method: 'GET',
    path: `/items/${collection}?fields=${fields}${filter}&limit=${random(9)}`,
    token,
    headers,
  };
  switch (random(9)) {
    case 0:
      return { method: 'GET', path: `/items/${collection}/${random(14)}?fields=${fields}`, token, headers };
    case 1: {
      const body = JSON.stringify({ query: { fields: fields.split(','), sort: ['-id'], limit: random(5) } });
      return { method: 'SEARCH', path: `/items/${collection}`, body, token };
    }
    case 2: {
      const query = pick([
        '{ articles(limit: 2) { id title author { name } } }',
        '{ nope }',
        '{ articles { id',
        'query { tags { name } }',
      ]);
      return { method: 'POST', path: '/graphql', body: JSON.stringify({ query }), token };
    }
    case 3: {
      const body = pick(['{"body":', '{"nope":1}', '{"id":"x"}', '[]', '"text"', '{"article":99999}']);
      return { method: pick(['POST', 'PATCH']), path: `/items/comments${pick(['', '/1', '/9999'])}`, body, token };
    }
    case 4:
      return { method: 'DELETE', path: `/items/${collection}/${1_000_000 + random(100)}`, token };
    case 5:
      return {
        method: pick(['HEAD', 'PUT', 'OPTIONS', 'GET']),
        path: pick(['/items/articles', '/server/ping', '/x/y', '/server/info']),
        token,
      };
    case 6:
      return { ...list, headers: { 'if-none-match': '"x"', 'accept-encoding': 'gzip' } };
    default:
      return list;
  }
}

/** Headers that are about the connection, or differ by request. */
export const APART = new Set(['connection', 'keep-alive', 'date', 'x-request-id', 'uwebsockets', 'transfer-encoding']);
