/** Random writes, each written twice: as a REST request and as a mutation. */
import type { Draw } from '../engine/property/draw.js';
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
