/** The collections of library.sql and of keyed.ts, as far as random requests need to know them. */
export type Kind = 'id' | 'integer' | 'decimal' | 'float' | 'text' | 'date' | 'json';

export interface Table {
  readonly name: string;
  /** One field, several, or none. */
  readonly key: readonly string[];
  /** Keys of some items, and of one that does not exist. */
  readonly keys: readonly string[];
  readonly values: Readonly<Record<string, Kind>>;
  readonly one: Readonly<Record<string, string>>;
  readonly many: Readonly<Record<string, string>>;
  /** Targets of many-to-any fields. */
  readonly any: Readonly<Record<string, readonly string[]>>;
}

const BLOCKS = ['block_text', 'block_image', 'block_quote'];

export const TABLES: readonly Table[] = [
  table(
    'authors',
    { name: 'text', email: 'text', bio: 'text', born: 'date', score: 'float' },
    {},
    { articles: 'articles', rooms: 'authors_rooms', payments: 'sales_payments', visits: 'visits' },
  ),
  table(
    'articles',
    {
      title: 'text',
      slug: 'text',
      body: 'text',
      status: 'text',
      views: 'integer',
      rating: 'decimal',
      published_at: 'date',
      meta: 'json',
    },
    { author: 'authors' },
    { comments: 'comments', tags: 'articles_tags', blocks: 'articles_blocks' },
  ),
  table('comments', { body: 'text', created: 'date' }, { article: 'articles', author: 'authors' }),
  table('tags', { name: 'text' }),
  table('articles_tags', { sort: 'integer' }, { articles_id: 'articles', tags_id: 'tags' }),
  table('articles_blocks', { sort: 'integer', collection: 'text' }, { articles_id: 'articles' }, {}, { item: BLOCKS }),
  table('block_text', { text: 'text' }),
  table('block_image', { url: 'text', caption: 'text' }),
  table('block_quote', { quote: 'text', who: 'text' }),
  keyed(
    'sales_rooms',
    ['building', 'number'],
    ['A~1', 'A~2', 'B\\~1~1', '\\\\~3', 'Z~9'],
    { building: 'text', number: 'integer', name: 'text', floor: 'integer' },
    {},
    { desks: 'desks', lamps: 'sales_lamps', authors: 'authors_rooms' },
  ),
  table('desks', { label: 'text', house: 'text', room: 'integer' }, { place: 'sales_rooms' }),
  keyed(
    'sales_lamps',
    ['building', 'number', 'lamp'],
    ['A~1~1', 'B\\~1~1~7', 'A~1~9'],
    { building: 'text', number: 'integer', lamp: 'integer', watt: 'integer' },
    { place: 'sales_rooms' },
  ),
  keyed(
    'authors_rooms',
    ['building', 'number', 'author'],
    ['A~1~1', 'A~1~2', '\\\\~3~3', 'A~2~1'],
    { building: 'text', number: 'integer', note: 'text' },
    { place: 'sales_rooms', author: 'authors' },
  ),
  keyed(
    'sales_payments',
    ['paid', 'author'],
    ['2024-02-29~1', '2024-08-01~2', '2024-08-02~1'],
    { paid: 'date', amount: 'decimal' },
    { author: 'authors' },
  ),
  keyed('visits', [], [], { place: 'integer', reason: 'text' }, { author: 'authors' }),
];

export function tableNamed(name: string): Table {
  const found = TABLES.find((each) => each.name === name);
  if (!found) throw new Error(`there is no table ${name}`);
  return found;
}

function table(
  name: string,
  values: Table['values'],
  one: Table['one'] = {},
  many: Table['many'] = {},
  any: Table['any'] = {},
): Table {
  const keys = Array.from({ length: 12 }, (_, position) => String(position + 1));
  return { name, key: ['id'], keys, values: { id: 'id', ...values }, one, many, any };
}

function keyed(
  name: string,
  key: Table['key'],
  keys: Table['keys'],
  values: Table['values'],
  one: Table['one'] = {},
  many: Table['many'] = {},
): Table {
  return { name, key, keys, values, one, many, any: {} };
}
