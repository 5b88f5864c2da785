/** The collections of library.sql, as far as random requests need to know them. */
export type Kind = 'id' | 'integer' | 'decimal' | 'float' | 'text' | 'date' | 'json';

export interface Table {
  readonly name: string;
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
    { articles: 'articles' },
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
  return { name, values: { id: 'id', ...values }, one, many, any };
}
