/** Random writes, each written twice: as a REST request and as a mutation. */
import type { Draw } from '../items/property/draw.js';
import { literal } from './reads.js';

export interface TwinWrite {
  readonly method: string;
  readonly path: string;
  readonly body: unknown;
  readonly document: string;
  readonly variables: Record<string, unknown>;
}

interface Payload {
  readonly rest: Record<string, unknown>;
  readonly graphql: Record<string, unknown>;
}

export function drawWrite(draw: Draw): TwinWrite {
  if (draw.chance(50)) return drawKeyed(draw);
  const form = draw.integer(1, 100);
  if (form <= 35)
    return mutation(
      'POST',
      '/items/articles',
      'create_articles_item',
      'create_articles_input!',
      drawArticle(draw, true),
      draw,
    );
  if (form <= 65) {
    const key = draw.integer(1, 10);
    return mutation(
      'PATCH',
      `/items/articles/${key}`,
      'update_articles_item',
      'update_articles_input!',
      drawArticle(draw, false),
      draw,
      `id: ${key}, `,
    );
  }
  if (form <= 75) {
    const keys = draw.some([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 1, 3);
    const data = { views: draw.integer(0, 100), status: draw.pick(['draft', 'published', null]) };
    return {
      method: 'PATCH',
      path: '/items/articles',
      body: { keys, data },
      document: `mutation { update_articles_items(ids: ${literal(keys)}, data: ${literal(data)}) { id } }`,
      variables: {},
    };
  }
  if (form <= 85) {
    const items = draw.some([1, 2, 3, 4, 5], 1, 3).map((id) => ({ id, name: `renamed ${draw.integer(1, 9)}` }));
    return {
      method: 'PATCH',
      path: '/items/authors',
      body: items,
      document: `mutation { update_authors_batch(data: ${literal(items)}) { id } }`,
      variables: {},
    };
  }
  if (form <= 92) {
    const items = draw.repeat(1, 3, (position) => ({ name: `tag ${position}` }));
    return {
      method: 'POST',
      path: '/items/tags',
      body: items,
      document: `mutation { create_tags_items(data: ${literal(items)}) { id } }`,
      variables: {},
    };
  }
  // Others are linked: a bare key of a missing item is refused, an object with its key makes it.
  const keys = draw.some([7, 8, 9], 1, 2);
  return {
    method: 'DELETE',
    path: '/items/comments',
    body: keys,
    document: `mutation { delete_comments_items(ids: ${literal(keys)}) { ids } }`,
    variables: {},
  };
}

const ROOMS = ['A~1', 'A~2', 'B\\~1~1', '\\\\~3', 'C~1', 'Z~9'] as const;
const LAMPS = ['A~1~1', 'A~1~2', 'A~2~1', 'B\\~1~1~7'] as const;
const PAYMENTS = ['2024-02-29~1', '2024-08-01~1', '2024-08-01~2', '2024-12-31~3'] as const;

/** Of items whose keys have several columns. */
function drawKeyed(draw: Draw): TwinWrite {
  const form = draw.integer(1, 100);
  const data = (name: string, items: unknown, more = ''): string =>
    `mutation { ${name}(${more}data: ${literal(items)}) { building } }`;
  if (form <= 15) {
    const { rest, graphql } = drawRoom(draw, { building: draw.pick(['D', '~', 'A']), number: draw.integer(1, 9) });
    return twin('POST', '/items/sales_rooms', rest, data('create_sales_rooms_item', graphql));
  }
  if (form <= 45) {
    const key = draw.pick(ROOMS);
    const { rest, graphql } = drawRoom(draw, {});
    const path = `/items/sales_rooms/${encodeURIComponent(key)}`;
    return twin('PATCH', path, rest, data('update_sales_rooms_item', graphql, `id: ${literal(key)}, `));
  }
  if (form <= 55) {
    const keys = draw.some(LAMPS, 1, 2);
    const body = { keys, data: { watt: draw.integer(1, 100) } };
    const more = `ids: ${literal(keys)}, `;
    return twin('PATCH', '/items/sales_lamps', body, data('update_sales_lamps_items', body.data, more));
  }
  if (form <= 65) {
    const items = draw.some([1, 2, 3], 1, 2).map((lamp) => ({ building: 'A', number: 1, lamp, watt: lamp }));
    return twin('PATCH', '/items/sales_lamps', items, data('update_sales_lamps_batch', items));
  }
  if (form <= 85) {
    const items = draw.some(PAYMENTS, 1, 3).map((key) => {
      const [paid, author] = key.split('~');
      return { paid, author, amount: draw.integer(0, 900) / 100 };
    });
    const resolution = draw.pick(['merge', 'ignore']);
    const rows = items.map(({ author, ...rest }) => ({ ...rest, author: { id: author } }));
    const document = `mutation { create_sales_payments_items(on_conflict: ["author", "paid"], resolution: ${resolution}, data: ${literal(rows)}) { paid } }`;
    return twin('POST', `/items/sales_payments?on_conflict=author,paid&resolution=${resolution}`, items, document);
  }
  const keys = draw.some(draw.pick([LAMPS, ROOMS.slice(5)]), 1, 2);
  return twin(
    'DELETE',
    '/items/sales_lamps',
    keys,
    `mutation { delete_sales_lamps_items(ids: ${literal(keys)}) { ids } }`,
  );
}

function twin(method: string, path: string, body: unknown, document: string): TwinWrite {
  return { method, path, body, document, variables: {} };
}

/** With what refers to it: lists of keys, objects and details. */
function drawRoom(draw: Draw, key: Record<string, unknown>): Payload {
  const rest: Record<string, unknown> = { ...key };
  const graphql: Record<string, unknown> = { ...key };
  if (draw.chance(50)) rest['name'] = graphql['name'] = `Room ${draw.integer(1, 99)}`;
  if (draw.chance(40)) {
    const ids = draw.some([1, 2, 3, 4], 0, 2);
    const made = draw.repeat(0, 1, () => ({ label: `Desk ${draw.integer(1, 99)}` }));
    rest['desks'] = [...ids, ...made];
    graphql['desks'] = [...ids.map((id) => ({ id })), ...made];
  }
  if (draw.chance(40)) {
    const lamps = draw.some([1, 2, 3, 4], 0, 2).map((lamp) => ({ lamp, watt: draw.integer(1, 100) }));
    rest['lamps'] = graphql['lamps'] = draw.chance(70) ? lamps : { create: lamps, update: [], delete: [] };
  }
  if (draw.chance(40)) {
    const ids = draw.some([1, 2, 3], 0, 2);
    rest['authors'] = ids.map((author) => ({ author }));
    graphql['authors'] = ids.map((id) => ({ author: { id } }));
  }
  return { rest, graphql };
}

function mutation(
  method: string,
  path: string,
  name: string,
  type: string,
  payload: Payload,
  draw: Draw,
  more = '',
): TwinWrite {
  const body = payload.rest;
  if (draw.chance(50)) {
    const document = `mutation ($data: ${type}) { ${name}(${more}data: $data) { id } }`;
    return { method, path, body, document, variables: { data: payload.graphql } };
  }
  const document = `mutation { ${name}(${more}data: ${literal(payload.graphql)}) { id } }`;
  return { method, path, body, document, variables: {} };
}

function drawArticle(draw: Draw, isNew: boolean): Payload {
  const rest: Record<string, unknown> = {};
  const graphql: Record<string, unknown> = {};
  const add = (name: string, value: unknown, other: unknown = value): void => {
    rest[name] = value;
    graphql[name] = other;
  };
  if (isNew || draw.chance(50)) add('title', `Title ${draw.integer(1, 99)}`);
  if (draw.chance(30)) add('rating', draw.integer(0, 500) / 100);
  if (draw.chance(30)) add('meta', draw.pick([{ k: 1, list: [1, 'two', null] }, [], null, 'text']));
  if (draw.chance(30)) add('published_at', draw.pick(['2024-02-03T04:05:06Z', null]));
  if (draw.chance(50)) addAuthor(add, draw);
  if (draw.chance(40)) addComments(add, draw, isNew);
  if (draw.chance(30)) addTags(add, draw);
  if (draw.chance(30)) addBlocks(add, draw);
  return { rest, graphql };
}

type Add = (name: string, value: unknown, other?: unknown) => void;

function addAuthor(add: Add, draw: Draw): void {
  const key = draw.integer(1, 5);
  const choice = draw.integer(1, 4);
  // A bare key is an object with nothing but the key.
  if (choice === 1) add('author', key, { id: key });
  else if (choice === 2) add('author', { name: `New author ${draw.integer(1, 99)}` });
  else if (choice === 3) add('author', { id: key, bio: `Bio ${draw.integer(1, 99)}` });
  else add('author', null);
}

function addComments(add: Add, draw: Draw, isNew: boolean): void {
  const keys = draw.some([1, 2, 3, 4, 5, 6], 0, 2);
  const made = draw.repeat(0, 2, (position) => ({ body: `Comment ${position}` }));
  if (draw.chance(50)) {
    add('comments', [...keys, ...made], [...keys.map((id) => ({ id })), ...made]);
    return;
  }
  const [removed, changed] = [keys.slice(0, 1), keys.slice(1).map((id) => ({ id, body: 'Changed' }))];
  add('comments', { create: made, update: changed, delete: isNew ? [] : removed });
}

function addTags(add: Add, draw: Draw): void {
  const entries = draw.repeat(0, 2, (position) => {
    const key = draw.integer(1, 3);
    return draw.chance(50)
      ? { rest: { tags_id: key }, graphql: { tags_id: { id: key } } }
      : { rest: { tags_id: { name: `New tag ${position}` } }, graphql: { tags_id: { name: `New tag ${position}` } } };
  });
  add(
    'tags',
    entries.map(({ rest }) => rest),
    entries.map(({ graphql }) => graphql),
  );
}

function addBlocks(add: Add, draw: Draw): void {
  add(
    'blocks',
    draw.repeat(1, 2, (position) =>
      draw.chance(50)
        ? { collection: 'block_text', item: { text: `Text ${position}` } }
        : { collection: 'block_image', item: '1', sort: position },
    ),
  );
}
