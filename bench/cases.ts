/**
 * The cases of the bench. Each case has many requests that differ only in their values, spread over the whole table, so that no row cache
 * makes a figure better than it is. Pages begin at a key, not at an offset: PostgreSQL would spend time on skipped rows, and the service
 * would look cheap.
 */
import type { BenchRequest, Case } from './case.js';
import { flatWriteCases } from './flat-writes.js';
import { LINES_PER_ORDER, SHARING_ORDERS } from './own-tables.js';
import { SUBJECTS, subjectKeys } from './subjects.js';

const ARTICLES = 100_000;
export const VARIANTS = 1_000;

const WITH_AUTHOR = 'id,title,author.id,author.name';
export const FLAT = 'id,title,status,views,published_at,author';
const NESTED = [
  'id,title,status,views,published_at,author.id,author.name',
  'comments.id,comments.body,comments.created,comments.author.id,comments.author.name',
  'tags.tags_id.id,tags.tags_id.name',
].join(',');
const BLOCKS = [
  'id,title,blocks.id,blocks.collection,blocks.item:block_text.text',
  'blocks.item:block_image.url,blocks.item:block_image.caption,blocks.item:block_quote.quote,blocks.item:block_quote.who',
].join(',');

const DOCUMENT = `query ($key: GraphQLStringOrFloat) {
  articles(filter: { id: { _gte: $key } }, sort: ["id"], limit: 25) {
    id title status views published_at author { id name } comments { id body created author { id name } } tags { tags_id { id name } }
  }
}`;

/** Only the time of one request is of interest. pgbench would also keep a response of 16 MB for each of its clients. */
const SUBTREE = { connections: 1, clients: [] } as const;

export const CASES: readonly Case[] = [
  { id: 'key', title: 'by key', target: 1, requests: vary(byKey) },
  {
    id: 'key-1',
    title: 'by key, 1 connection',
    target: 0.55,
    connections: 1,
    clients: [1],
    requests: vary(byKey),
  },
  {
    id: 'key-8',
    title: 'by key, 8 connections',
    target: 0.75,
    connections: 8,
    clients: [8],
    requests: vary(byKey),
  },
  { id: 'key-128', title: 'by key, 128 connections', target: 1, connections: 128, requests: vary(byKey) },
  { id: 'key-4096', title: 'by key, 4,096 connections', connections: 4_096, requests: vary(byKey) },
  {
    id: 'tls',
    title: 'by key, TLS to PostgreSQL',
    tls: true,
    beside: { id: 'key', as: 'without TLS' },
    requests: vary(byKey),
  },
  {
    id: 'composite',
    title: 'by a key of two columns',
    target: 0.9,
    beside: { id: 'key', as: 'a key of one' },
    requests: vary(byTwoColumns),
  },
  {
    id: 'many-to-one',
    title: '25 rows + many-to-one',
    target: 0.95,
    requests: vary((key) => page(WITH_AUTHOR, key)),
  },
  {
    id: 'many-to-one-unseen',
    title: 'the same, values never seen before',
    cold: true,
    beside: { id: 'many-to-one', as: 'values seen before' },
    // More texts than the caches hold: each is evicted before it is used again.
    requests: Array.from({ length: 20 * VARIANTS }, (_, index) => ({ path: page(WITH_AUTHOR, spread(index)) })),
  },
  { id: 'nested', title: '25 rows, nested three ways', target: 0.9, requests: vary((key) => page(NESTED, key)) },
  {
    id: 'restricted',
    title: 'the same by a restricted reader',
    restricted: true,
    beside: { id: 'nested', as: 'unrestricted' },
    requests: vary((key) => page(NESTED, key)),
  },
  {
    id: 'filter',
    title: 'filter + sort, 100,000 rows',
    target: 0.95,
    requests: vary(
      (key) =>
        `/items/articles?fields=${FLAT}&filter[status][_eq]=published&filter[views][_gte]=${key % 4_000}&sort=-rating,title&limit=25`,
    ),
  },
  {
    id: 'common',
    title: 'filter + sort, values that many rows have',
    requests: vary((key) => publishedSince(key % 30)),
  },
  {
    id: 'skewed',
    title: 'the same, one in ten a value that few rows have',
    // Rare values have a separate statement.
    cold: true,
    target: 0.5,
    beside: { id: 'common', as: 'common values alone' },
    requests: vary((key) => publishedSince(key % 10 === 0 ? 729 : key % 30)),
  },
  {
    id: 'unseen',
    title: 'filter + sort, values never seen before',
    cold: true,
    beside: { id: 'common', as: 'values seen before' },
    requests: newValues,
  },
  {
    id: 'currency',
    title: '20 rows that share one subtree',
    ...SUBTREE,
    target: 0.5,
    beside: { id: 'currency-alone', as: 'the subtree alone' },
    requests: Array.from({ length: VARIANTS }, (_, index) => ({
      path: `/items/bench_orders?fields=title,${below('currency')}&deep[currency][rates][_sort]=rate&filter[id][_gte]=${sharing(index)}&sort=id&limit=20`,
    })),
  },
  {
    id: 'currency-alone',
    title: 'that subtree alone',
    ...SUBTREE,
    requests: [{ path: '/items/bench_currencies/1?fields=code,rates.day,rates.rate&deep[rates][_sort]=rate' }],
  },
  {
    id: 'currency-all',
    title: '20 rows that share one subtree of 20,200 rows',
    ...SUBTREE,
    streamed: true,
    target: 0.5,
    beside: { id: 'currency-all-alone', as: 'the subtree alone' },
    requests: Array.from({ length: VARIANTS }, (_, index) => ({
      path: `/items/bench_orders?fields=title,${below('currency')}&deep[currency][rates][_limit]=-1&filter[id][_gte]=${sharing(index)}&sort=id&limit=20`,
    })),
  },
  {
    id: 'currency-all-alone',
    title: 'that subtree of 20,200 rows alone',
    ...SUBTREE,
    streamed: true,
    requests: [{ path: '/items/bench_currencies/1?fields=code,rates.day,rates.rate&deep[rates][_limit]=-1' }],
  },
  { id: 'many-to-any', title: '25 rows + many-to-any', target: 0.9, requests: vary((key) => page(BLOCKS, key)) },
  {
    id: 'aggregate',
    title: 'aggregate + groupBy',
    target: 0.9,
    requests: vary(
      (key) =>
        `/items/articles?aggregate[count]=*&aggregate[avg]=views&groupBy[]=status&filter[views][_gte]=${key % 4_000}`,
    ),
  },
  {
    id: 'flat',
    title: '5,000 flat rows',
    target: 0.7,
    requests: vary((key) => page(FLAT, Math.floor(key * 0.9), 5_000)),
  },
  {
    id: 'search',
    title: 'SEARCH, nested three ways',
    method: 'SEARCH',
    requests: Array.from({ length: VARIANTS }, (_, index) => ({
      path: '/items/articles',
      body: JSON.stringify({
        query: { fields: NESTED.split(','), filter: { id: { _gte: spread(index) } }, sort: ['id'], limit: 25 },
      }),
    })),
  },
  {
    id: 'graphql',
    title: 'GraphQL, nested three ways',
    method: 'POST',
    reads: true,
    beside: { id: 'nested', as: 'REST' },
    target: 0.95,
    requests: Array.from({ length: VARIANTS }, (_, index) => ask(DOCUMENT, { key: spread(index) })),
  },
  {
    id: 'graphql-literals',
    title: 'the same, values written into the document',
    method: 'POST',
    reads: true,
    beside: { id: 'graphql', as: 'variables' },
    target: 0.9,
    // More than the caches hold: each text is new.
    requests: Array.from({ length: 20 * VARIANTS }, (_, index) => ask(withLiteral(spread(index)), {})),
  },
  { id: 'cold', title: 'a new shape each time', cold: true, requests: newShapes },
  {
    id: 'graphql-cold',
    title: 'a new GraphQL document each time',
    method: 'POST',
    reads: true,
    cold: true,
    requests: newDocuments,
  },
  {
    id: 'stream',
    title: 'stream of 100,000 rows',
    // A response takes a second of a whole processor: 32 at a time would not complete within a measurement.
    connections: 4,
    clients: [4],
    streamed: true,
    requests: [{ path: `/items/articles?fields=${FLAT}&limit=-1` }],
  },
  ...flatWriteCases(),
  { id: 'create', title: 'create', method: 'POST', requests: [create(newArticle(1))] },
  { id: 'nested-create', title: 'nested create', target: 0.9, method: 'POST', requests: [create(newTree())] },
  { id: 'nested-update', title: 'nested update, detailed form', method: 'PATCH', requests: changes() },
  {
    id: 'create-many',
    title: 'create of 1,000 rows',
    method: 'POST',
    requests: [create(Array.from({ length: 1_000 }, (_, index) => newArticle(index)))],
  },
];

export function findCase(id: string): Case | undefined {
  return CASES.find((each) => each.id === id);
}

function ask(query: string, variables: object): BenchRequest {
  return { path: '/graphql', body: JSON.stringify({ query, variables }) };
}

function withLiteral(key: number): string {
  return DOCUMENT.replace(/ \(.*\)/, '').replace('$key', String(key));
}

/** Articles are spread over 730 days: about a hundred are from the last day. */
function publishedSince(day: number, second = 0): string {
  const since = new Date(Date.UTC(2024, 9, 1 + day, 0, 0, second)).toISOString();
  return `/items/articles?fields=id,title,published_at&filter[published_at][_gte]=${since}&sort=-id&limit=25`;
}

function byKey(key: number): string {
  return `/items/articles/${key}?fields=${FLAT}`;
}

/** The rows of bench_lines have the same order as the articles. */
function byTwoColumns(key: number): string {
  const order = 1 + Math.floor((key - 1) / LINES_PER_ORDER);
  const line = 1 + ((key - 1) % LINES_PER_ORDER);
  return `/items/bench_lines/${order}~${line}?fields=order_number,line,title,status,views,published_at`;
}

function below(currency: string): string {
  return ['code', 'rates.day', 'rates.rate'].map((field) => `${currency}.${field}`).join(',');
}

/** An order that is followed by at least 20 with the same currency. */
function sharing(index: number): number {
  return 1 + ((index * 61_803) % (SHARING_ORDERS - 20));
}

export function page(fields: string, key: number, limit = 25): string {
  return `/items/articles?fields=${fields}&filter[id][_gte]=${key}&sort=id&limit=${limit}`;
}

export function vary(path: (key: number) => string): readonly BenchRequest[] {
  return Array.from({ length: VARIANTS }, (_, index) => ({ path: path(spread(index)) }));
}

/** Rows that are close in time are far apart in the table; every key is followed by at least 25 rows. */
export function spread(index: number): number {
  return 1 + ((index * 61_803) % (ARTICLES - 25));
}

/** More than a run can use, and different each time: neither the service nor the driver has seen any of them. */
const SHAPES = 20_000;
let shapes = 0;

function newShapes(): readonly BenchRequest[] {
  return Array.from({ length: SHAPES }, () => {
    const name = `title_${shapes++}`;
    return { path: `${page(`${NESTED},${name}`, spread(shapes))}&alias[${name}]=title` };
  });
}

/** Within the days of the common values. */
function newValues(): readonly BenchRequest[] {
  return Array.from({ length: SHAPES }, () => {
    shapes += 1;
    return { path: publishedSince(shapes % 30, 1 + (Math.floor(shapes / 30) % 86_399)) };
  });
}

function newDocuments(): readonly BenchRequest[] {
  return Array.from({ length: SHAPES }, () => {
    const name = `title_${shapes++}`;
    return ask(DOCUMENT.replace('id title', `id title ${name}: title`), { key: spread(shapes) });
  });
}

/** Contains no unique values, so that one body serves every request and each request does the same work. */
function newArticle(number: number): Record<string, unknown> {
  return {
    title: `The article with the number ${number}`,
    body: 'It has a beginning and an end, and the middle is left to the reader.',
    status: 'published',
    views: number,
    published_at: '2025-06-01T12:00:00Z',
    author: 1 + number,
  };
}

/** With a new author, three comments, two tags and a block. */
function newTree(): Record<string, unknown> {
  return {
    ...newArticle(1),
    author: { name: 'Mara Lindqvist', bio: 'Edits the magazine.' },
    comments: [1, 2, 3].map((number) => ({ body: `Remark ${number}`, author: number })),
    tags: [1, 2].map((number) => ({ tags_id: number, sort: number })),
    blocks: [{ collection: 'block_text', item: { text: 'Every translation is a list of decisions.' }, sort: 1 }],
  };
}

function create(body: unknown): BenchRequest {
  return { path: '/items/articles', body: JSON.stringify(body) };
}

/** Removes and adds two comments in turn, so that each request changes something. */
function changes(): readonly BenchRequest[] {
  return [0, 1].flatMap((turn) =>
    Array.from({ length: SUBJECTS }, (_, index) => {
      const { article, comments, tag } = subjectKeys(index);
      const body = {
        title: `Changed ${turn} times`,
        views: turn,
        comments: {
          create: [{ body: 'One more remark', author: 1 }],
          update: [{ id: comments[turn], body: `Changed ${turn} times` }],
          delete: [comments[1 - turn]],
        },
        tags: { create: [{ tags_id: 3 }], update: [{ id: tag, tags_id: 1 + turn }] },
      };
      return { path: `/items/articles/${article}`, body: JSON.stringify(body) };
    }),
  );
}
