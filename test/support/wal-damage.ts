/** Valid requests and the damage done to them: bytes, brackets, types, numbers, names and nesting, by a seeded chance. */

export interface Random {
  /** A whole number from 0 up to, not including, `limit`. */
  below(limit: number): number;
  pick<Value>(values: readonly Value[]): Value;
}

export function randomFrom(seed: number): Random {
  let state = seed >>> 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
  const below = (limit: number): number => next() % limit;
  return { below, pick: <Value>(values: readonly Value[]): Value => values[below(values.length)] as Value };
}

const URLS = [
  '/items/articles',
  '/items/articles/1',
  '/items/articles/1?fields=title,author.name,comments.author.*',
  '/items/articles?fields=*.*.*&limit=5',
  '/items/articles?fields=id,tags.tags_id.name,blocks.item:block_text.text,blocks.item:block_image.*,blocks.collection',
  '/items/articles?fields=blocks.item.id,year(published_at),count(comments),json(meta, nested.a[0])',
  '/items/articles?filter[status][_eq]=published&sort=-views,title&limit=3&page=2',
  '/items/articles?filter={"_or":[{"author":{"name":{"_icontains":"a"}}},{"views":{"_between":[1,100]}}]}',
  '/items/articles?filter[comments][_some][author][id][_in]=1,2,3&filter[tags][_none][tags_id][name][_eq]=fun',
  '/items/articles?filter[blocks][item:block_text][text][_contains]=text',
  '/items/articles?filter[meta][_json][nested.a[0]][_gte]=1',
  '/items/articles?filter[year(published_at)][_in]=2023,2024&filter[count(comments)][_gt]=1',
  '/items/articles?filter[published_at][_lt]=$NOW(-1 day)&filter[rating][_nnull]=true',
  '/items/articles?filter[$FOLLOW(comments,article)][body][_nempty]=true',
  '/items/articles?search=body&meta=*',
  '/items/articles?sort=author.name,-comments.created,count(tags),json(meta, k)',
  '/items/articles?alias[mine]=comments&alias[when]=published_at&fields=mine.body,when&deep[mine][_limit]=1&deep[mine][_sort]=-id',
  '/items/articles?deep={"comments":{"_filter":{"author":{"_nnull":true}},"author":{"_search":"ada"}}}&fields=comments.author.name',
  '/items/articles?deep[comments][_aggregate][count]=*&deep[comments][_groupBy]=author&fields=comments',
  '/items/articles?aggregate[count]=*&aggregate[sum]=views,rating&groupBy=status,year(published_at),author.name&sort=-count',
  '/items/articles?aggregate[avg]=rating&groupBy=status&having[count][_gt]=1&having[avg][rating][_lt]=5',
  '/items/articles?aggregate={"min":["published_at"],"max":["title"],"countDistinct":["author"]}',
  '/items/articles?cursor=&limit=3&sort=-rating,views',
  '/items/articles?cursor=WyI0LjUwIiwiMSJd&limit=3&sort=rating',
  '/items/articles?limit=-1&fields=id,comments.id',
  '/items/articles?export=csv&fields=id,author.name,tags',
  '/items/articles?export=xml&fields=*.*',
  '/items/articles?export=yaml&aggregate[count]=*&groupBy=status',
  '/items/articles?backlink=false&fields=author.articles.*.*',
  '/items/authors?fields=*,articles.comments.author.articles.title&limit=2',
  '/items/comments?filter[article][author][articles][title][_starts_with]=H',
  '/items/constructor?fields=__proto__,toString,hasOwnProperty&filter[toString][_eq]=b',
  '/items/constructor?alias[__proto__]=toString&fields=__proto__',
  '/items/qu%22o%27te?fields=*&sort=-co"lumn\'',
  '/items/kinds?filter[big][_gt]=1&filter[small][_neq]=3&filter[yes][_eq]=true&filter[raw][_empty]=true',
  '/items/kinds?filter[day][_between]=2020-01-01,2021-01-01&filter[hour][_lt]=10:00&filter[net][_eq]=127.0.0.1',
  '/items/kinds?filter[id][_in]=6f0a3a54-6c0b-4f3f-9d0e-2b1b7a3c9d10&filter[pair][_null]=true&filter[span][_gt]=1 day',
  '/items/kinds?sort=price,moment,-list,doc,pair,span,word&fields=*,week(day),hour(hour),json(doc, a)',
  '/items/kinds?search=6f0a3a54-6c0b-4f3f-9d0e-2b1b7a3c9d10&aggregate[sum]=price,ratio,big&groupBy=owner.name,yes',
  '/items/kinds?filter[owner][_eq]=$CURRENT_USER.id&filter[id][_eq]=$CURRENT_USER',
];

const BODIES: readonly unknown[] = [
  { query: { fields: ['*', 'author.name'], filter: { status: { _eq: 'draft' } }, limit: 2 } },
  { keys: [1, 2, '3'], query: { sort: ['-id'] } },
  {
    query: { filter: { _and: [{ views: { _gte: 10 } }, { _or: [{ title: 'Zebra' }, { author: { _null: true } }] }] } },
  },
  { query: { filter: { comments: { _some: { author: { name: { _in: ['Ada Lovelace', 'x'] } } } } }, meta: ['*'] } },
  {
    query: {
      deep: { comments: { _limit: 1, author: { _filter: { score: { _gt: 1.5 } } } } },
      fields: ['comments.author.*'],
    },
  },
  {
    query: {
      aggregate: { count: ['*', 'id'], avg: 'rating' },
      groupBy: ['status', 'author.name'],
      having: { count: { _gt: 0 } },
    },
  },
  { query: { alias: { a: 'comments', b: 'comments', c: 'json(meta, k)' }, fields: ['a.id', 'b.body', 'c'] } },
  {
    query: { filter: { meta: { _json: { k: { _gt: 1 }, _or: [{ lang: 'en' }, { 'nested.a[1]': 2 }] } } }, search: '5' },
  },
  { query: { cursor: '', sort: 'author.name,-rating', limit: 2, fields: 'id' } },
  { query: { export: 'ndjson', limit: -1 } },
];

const NAMES = [
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  'prototype',
  'length',
  'id',
  'title',
  'author',
  'comments',
  'blocks',
  'item:block_text',
  'item:nothing',
  'item:',
  ':',
  '*',
  '*.*.*.*',
  '',
  ' ',
  '.',
  '..',
  'a.b',
  '$CURRENT_USER',
  '$NOW',
  '$FOLLOW(comments,article)',
  '$FOLLOW(articles_blocks,item,collection)',
  '_and',
  '_or',
  '_some',
  '_none',
  '_json',
  '_eq',
  '_filter',
  '_limit',
  '_in',
  'count(comments)',
  'count(id)',
  'json(meta, a[0].b)',
  'json(meta)',
  'year(title)',
  'year(year(id))',
  'service_users',
  'pg_class',
  '"',
  "'",
  '""',
  '\\',
  '%',
  '%s0',
  's0',
  '--',
  '/*',
  ';select 1',
  'p1',
  't1',
  'r1',
  'j',
  'ünï',
  '\u{1F4A9}',
  '\u0000',
  '\uD800',
  '\uFEFF',
  '\u202E',
  'x'.repeat(63),
  'x'.repeat(64),
  'ü'.repeat(40),
  'meta',
  'published_at',
  'price',
  'doc',
  'list',
] as const;

const VALUES: readonly unknown[] = [
  0,
  -0,
  -1,
  1,
  1.5,
  1e308,
  -1e308,
  1e21,
  9007199254740992,
  2147483647,
  2147483648,
  -2147483649,
  '9223372036854775807',
  '9223372036854775808',
  '1e400',
  '1e-400',
  'NaN',
  'Infinity',
  '-Infinity',
  '0x10',
  '1_000',
  '٣',
  '',
  ' ',
  'null',
  'NULL',
  'true',
  'false',
  null,
  true,
  false,
  [],
  {},
  [[]],
  [{}],
  { a: 1 },
  [null],
  [1, 'a', null, true],
  ['$CURRENT_USER.id', 1],
  '$NOW',
  '$NOW(',
  '$NOW(+1 fortnight)',
  '$NOW(-999999999 years)',
  '$NOW(+99999 years)',
  '$CURRENT_USER',
  '$CURRENT_USER.password',
  '$CURRENT_USER.role.name',
  '$CURRENT_USER.',
  '$CURRENT_USER..',
  '$CURRENT_ROLES',
  '$CURRENT_POLICIES.id',
  '$CURRENT_USER.policies.policy.name',
  '\u0000',
  'a\u0000b',
  '\uD800',
  '\\x00',
  "'; drop table tags; --",
  '2024-02-30',
  '2024-13-01',
  '99999-01-01',
  '0000-00-00',
  '24:00:01',
  '2024-01-01T00:00:00+99',
  'infinity',
  'epoch',
  'now',
  'BC',
  '00000000-0000-0000-0000-000000000000',
  'x'.repeat(5_000),
  '%',
  '_',
  '\\',
  '{',
  '}',
  '{"a":',
  '[1,2',
  '{}',
  '[]',
  '1,2',
  ',',
  ',,,',
  '-',
  '--id',
  '-,-',
  '?',
  '1 day',
  '127.0.0.1/33',
  '[1,2)',
  '{1,2}',
  '{1,{2}}',
];

const PIECES = [
  '[',
  ']',
  '[]',
  '[][]',
  '[0]',
  '[-1]',
  '[99999999]',
  '[_and]',
  '[_or][0]',
  '[_some]',
  '[_none]',
  '[__proto__]',
  '&',
  '=',
  '?',
  '%',
  '%00',
  '%ff',
  '%ED%A0%80',
  '%E2%82',
  '+',
  '.',
  '..',
  ',',
  ',,',
  '(',
  ')',
  '((',
  '))',
  '*',
  '"',
  "'",
  '\\',
  '{',
  '}',
  '$',
  ':',
  ';',
  '#',
  '/',
  '//',
  '%2F',
  '%2e%2e',
  '-',
  '&limit=0',
  '&limit=-2',
  '&limit=99999999999',
  '&offset=2147483647',
  '&page=2147483647&limit=2147483647',
  '&fields=*.*',
  '&sort=meta',
  '&sort=-doc',
  '&groupBy=meta',
  '&meta=x',
  '&export=csv',
  '&cursor=',
  '&cursor=bnVsbA',
  '&cursor=W10',
  '&cursor=W251bGwsbnVsbF0',
  '&search=%00',
  '&search=%25',
  '&version=x',
  '&access_token=x',
  '&deep=1',
  '&alias=1',
  '&filter=[]',
  '&filter=null',
] as const;

export function damageUrl(random: Random): string {
  let url = random.pick(URLS);
  for (let count = 1 + random.below(3); count > 0; count--) url = damageText(url, random);
  return wire(url);
}

/** Half of the time the damage is done to the value, else to its text. */
export function damageBody(random: Random): { path: string; body: string } {
  const path = wire(random.below(8) > 0 ? '/items/articles' : damageText('/items/articles', random));
  const value = structuredClone(random.pick(BODIES));
  if (random.below(2) === 0) return { path, body: damageText(JSON.stringify(value), random) };
  let damaged: unknown = value;
  for (let count = 1 + random.below(3); count > 0; count--) damaged = damageValue(damaged, random);
  return { path, body: JSON.stringify(damaged) ?? '' };
}

function damageText(text: string, random: Random): string {
  // Behind the resource, most of the time: a broken beginning is only a missing route.
  const least = random.below(10) > 0 ? Math.min('/items/'.length, text.length - 1) : 0;
  const at = least + random.below(text.length - least);
  const insert = (piece: string): string => text.slice(0, at) + piece + text.slice(at);
  switch (random.below(12)) {
    case 0:
      return text.slice(0, at) + text.slice(at + 1 + random.below(5));
    case 1:
      return insert(String.fromCharCode(random.below(256)));
    case 2:
      return insert(random.pick(PIECES));
    case 3:
      return insert(random.pick(PIECES).repeat(1 + random.below(30)));
    case 4:
      return text + random.pick(PIECES);
    case 5:
      return replaceWord(text, random, random.pick(NAMES));
    case 6:
      return replaceWord(text, random, textOf(random.pick(VALUES)));
    case 7:
      return `${text}${text.includes('?') ? '&' : '?'}${randomParameter(random)}`;
    case 8:
      return text.slice(0, at) + text.slice(random.below(text.length));
    case 9:
      return replaceWord(text, random, random.pick(OPERATORS));
    case 10:
      return `${text}${text.includes('?') ? '&' : '?'}filter${nest(random)}=${textOf(random.pick(VALUES))}`;
    default:
      return insert(random.pick(NAMES));
  }
}

const OPERATORS = [
  '_eq',
  '_neq',
  '_lt',
  '_lte',
  '_gt',
  '_gte',
  '_in',
  '_nin',
  '_between',
  '_nbetween',
  '_null',
  '_nnull',
  '_empty',
  '_nempty',
  '_contains',
  '_ncontains',
  '_icontains',
  '_starts_with',
  '_niends_with',
  '_intersects',
  '_nintersects_bbox',
  '_json',
  '_some',
  '_none',
  '_regex',
  '_and',
  '_or',
] as const;

const PARAMETERS = [
  'fields',
  'filter',
  'sort',
  'limit',
  'offset',
  'page',
  'search',
  'deep',
  'alias',
  'aggregate',
  'groupBy',
  'having',
  'meta',
  'cursor',
  'export',
  'backlink',
] as const;

function randomParameter(random: Random): string {
  const name = random.pick(PARAMETERS);
  switch (random.below(5)) {
    case 0:
      return `${name}=${textOf(random.pick(VALUES))}`;
    case 1:
      return `${name}=${random.pick(NAMES)}`;
    case 2:
      return `${name}[${random.pick(NAMES)}]=${random.pick(NAMES)}`;
    case 3:
      return `${name}[${random.pick(NAMES)}][${random.pick(OPERATORS)}]=${textOf(random.pick(VALUES))}`;
    default:
      return `${name}=${Array.from({ length: random.below(2_000) }, () => random.pick(['id', 'title', 'author.name', 'comments.id', '1'])).join(',')}`;
  }
}

function nest(random: Random): string {
  return Array.from({ length: 1 + random.below(14) }, () => `[${random.pick([...OPERATORS, ...NAMES])}]`).join('');
}

function replaceWord(text: string, random: Random, word: string): string {
  const words = [...text.matchAll(/[\w$]+/g)].filter((match) => match.index > 0);
  const chosen = words[random.below(Math.max(words.length, 1))];
  return chosen ? text.slice(0, chosen.index) + word + text.slice(chosen.index + chosen[0].length) : text + word;
}

function damageValue(value: unknown, random: Random): unknown {
  if (value === null || typeof value !== 'object' || random.below(8) === 0) return replacement(value, random);
  const entries = Object.entries(value);
  if (entries.length === 0) return replacement(value, random);
  const chosen = random.below(entries.length);
  const [key, inner] = entries[chosen] as [string, unknown];
  if (Array.isArray(value)) {
    if (random.below(6) === 0 && typeof inner !== 'object')
      return Array.from({ length: random.below(3_000) }, () => inner);
    return value.map((each, position) => (position === chosen ? damageValue(each, random) : each));
  }
  const renamed = random.below(6) === 0 ? random.pick([...NAMES, ...OPERATORS]) : key;
  const changed = renamed === key || random.below(2) === 0 ? damageValue(inner, random) : inner;
  const copy = entries.map((entry, position): [string, unknown] => (position === chosen ? [renamed, changed] : entry));
  if (random.below(6) === 0) copy.push([random.pick([...NAMES, ...OPERATORS]), random.pick(VALUES)]);
  return Object.fromEntries(copy);
}

function replacement(value: unknown, random: Random): unknown {
  switch (random.below(5)) {
    case 0:
      return random.pick(NAMES);
    case 1: {
      let nested: unknown = value;
      for (let depth = random.below(2) === 0 ? random.below(15) : 1_000; depth > 0; depth--) {
        nested = depth % 2 === 0 ? [nested] : { [random.pick(['_and', '_or', 'author', 'comments', '_some'])]: nested };
      }
      return nested;
    }
    case 2:
      return { [random.pick(OPERATORS)]: random.pick(VALUES) };
    default:
      return random.pick(VALUES);
  }
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
}

/** What may travel in a request line as it stands stays; the rest is percent-encoded, a lone surrogate as three bytes. */
function wire(text: string): string {
  const encoded = text.replace(/[^\x21-\xff]|#/gu, (character) => {
    const code = character.codePointAt(0) as number;
    const bytes =
      code >= 0xd800 && code <= 0xdfff
        ? [0xe0 | (code >> 12), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f)]
        : [...Buffer.from(character)];
    return bytes.map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('');
  });
  return encoded.startsWith('/') ? encoded : `/${encoded}`;
}
