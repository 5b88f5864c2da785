/**
 * Fills the demo tables with so many rows that plans, not caches, decide a bench. The rows are computed from the row number, so every run
 * on every machine measures the same data. It is one transaction: a failed run keeps the old rows.
 */
import postgres from 'postgres';

interface Filling {
  readonly table: string;
  readonly rows: number;
  /** Takes the number of rows as $1, and lists of phrases, joined by '|', as the following parameters. */
  readonly insert: string;
  readonly phrases: readonly (readonly string[])[];
  /** Takes the number of rows as $1: rows with a higher key were added later. */
  readonly remove: string;
}

export async function generate(url: string, report: (message: string) => void): Promise<void> {
  const sql = postgres(url, { max: 1, onnotice: () => undefined, connection: { jit: 'off', timezone: 'UTC' } });
  try {
    if (await isFilled(sql)) {
      report('bench data: already there');
      return;
    }
    const started = performance.now();
    await sql.begin(async (transaction) => {
      await transaction.unsafe(PREPARE).simple();
      await transaction.unsafe(SAVE_DEFINITIONS, [FILLINGS.map((filling) => filling.table).join(',')], {
        prepare: true,
      });
      await transaction.unsafe(CLEAR).simple();
      for (const filling of FILLINGS) {
        const begun = performance.now();
        await transaction.unsafe(
          filling.insert,
          [String(filling.rows), ...filling.phrases.map((list) => list.join('|'))],
          { prepare: true },
        );
        report(`${filling.table}: ${filling.rows.toLocaleString('en')} rows in ${secondsSince(begun)} s`);
      }
      const begun = performance.now();
      await transaction.unsafe(RESTORE).simple();
      report(`indexes and foreign keys: ${secondsSince(begun)} s`);
    });
    const begun = performance.now();
    await sql.unsafe(VACUUM);
    report(`vacuum and analyze: ${secondsSince(begun)} s`);
    report(`bench data: ${secondsSince(started)} s in all`);
  } finally {
    await sql.end();
  }
}

async function isFilled(sql: postgres.Sql): Promise<boolean> {
  const counted = await sql.unsafe<{ name: string; rows: string }[]>(COUNT);
  const rowsOf = new Map(counted.map((row) => [row.name, Number(row.rows)]));
  return FILLINGS.every((filling) => rowsOf.get(filling.table) === filling.rows);
}

export function secondsSince(begun: number): string {
  return ((performance.now() - begun) / 1000).toFixed(1);
}

const FIRST_NAMES = [
  'Mara',
  'Tomás',
  'Ines',
  'Henrik',
  'Yuki',
  'Clara',
  'Samir',
  'Lena',
  'Oskar',
  'Amara',
  'Noor',
  'Piet',
];

const LAST_NAMES = [
  'Lindqvist',
  'Ferreira',
  'Okafor',
  'Vasa',
  'Tanabe',
  "O'Brien",
  'Haddad',
  'Brandt',
  'Castellanos',
  'Nguyen',
  'Abramović',
  'Whitfield',
  'Moreau',
];

const OPENINGS = [
  'The quiet',
  'A short history of',
  'Notes on',
  'Why we need',
  'Against',
  'In praise of',
  'The last',
  'After',
];

const SUBJECTS = [
  'libraries',
  'footnotes',
  'query planners',
  'lighthouses',
  'typewriters',
  'dictionaries',
  'indexes',
  'darkrooms',
  'page numbers',
  'small presses',
  'translators',
];

const ENDINGS = [
  'and the price of winter',
  'in a noisy decade',
  'for people in a hurry',
  'without a manual',
  'north of the sixtieth parallel',
  'as told by a bookbinder',
  'under a red light',
  'one row at a time',
  'and what they leave out',
];

const SENTENCES = [
  'In a side street behind the harbour there is a reading room with nine chairs.',
  'Every translation is a list of decisions that the reader will never miss.',
  'The drawer still smells of oil, and the letter e runs out first.',
  'It tells the time by sound alone, and only on request.',
  'The keeper wrote one letter a day for thirty years.',
  'A foreign key is a promise to the data, not to the planner.',
  'For two centuries every traveller corrected the map and every printer ignored them.',
  'Three publishers tell us how they survive on print runs of two hundred.',
  'Remove a word, read it aloud, and listen for what breaks.',
  'Everything you need to know is in the wear of the keys.',
  'A page number is the oldest cursor we have.',
  'Nobody was ever calmed by a red circle in the corner of a screen.',
  'It has a beginning and an end, and the middle is left to the reader.',
  'We wanted to know how many, not who.',
  'Hands pointing, dates, a pressed fern, and the single word "no".',
  'She asks us to wash our hands first; then she talks for three hours.',
  'The footnotes are longer than the text, as they should be.',
];

const REMARKS = [
  'I read this twice on the train this morning',
  'The second half is the better half',
  'My grandfather would have disagreed with all of it',
  'We tried the same thing last year',
  'This deserves a longer piece',
  'Not convinced by the argument about indexes',
  'The picture at the top is wonderful',
];

const REASONS = [
  'and missed my stop because of it.',
  'but the numbers do not add up for me.',
  'and it took us three weekends.',
  'although the footnotes are worth it.',
  'so please keep them coming.',
];

/**
 * mix: multiplies and folds in 32 bits, spreads neighbours and stays in the range of bigint. Both functions are one expression without a
 * subquery, because PostgreSQL inlines only such functions. A call per value would cost more than the insert.
 */
const PREPARE = `
  set local synchronous_commit = off;
  set local maintenance_work_mem = '256MB';
  create or replace function pg_temp.mix(number bigint, salt integer) returns bigint
    language sql immutable parallel safe as $body$
      select ((((number + salt * 7919) * 2654435761 % 4294967296) >> 15) * 1540483477
        + (number + salt * 7919) * 2654435761) % 4294967296 >> 7
    $body$;
  create or replace function pg_temp.pick(phrases text[], hash bigint) returns text
    language sql immutable parallel safe as $body$
      select phrases[1 + hash % cardinality(phrases)]
    $body$`;

/** Inserts are faster without secondary indexes and key checks. They are recreated afterwards from the catalog's definitions. */
const SAVE_DEFINITIONS = `
  create temporary table bench_definitions on commit drop as
  with targets as (select unnest(string_to_array($1::text, ',')::regclass[]) as target)
  select 1 as step, pg_get_indexdef(indexrelid) as definition, format('drop index %s', indexrelid::regclass) as removal
  from pg_index join targets on indrelid = target
  where not exists (select 1 from pg_constraint where conindid = indexrelid and contype in ('p', 'u', 'x'))
  union all
  select 2, format('alter table %s add constraint %I %s', conrelid::regclass, conname, pg_get_constraintdef(oid)),
    format('alter table %s drop constraint %I', conrelid::regclass, conname)
  from pg_constraint join targets on conrelid = target
  where contype = 'f'`;

const CLEAR = `
  do $body$
  declare saved record;
  begin
    for saved in select removal from bench_definitions order by step desc loop execute saved.removal; end loop;
  end
  $body$;
  truncate authors, articles, comments, tags, articles_tags, block_text, block_image, block_quote, articles_blocks
    restart identity`;

const RESTORE = `
  do $body$
  declare saved record;
  begin
    for saved in select definition from bench_definitions order by step, definition loop execute saved.definition; end loop;
  end
  $body$`;

export const VACUUM = `
  vacuum (analyze) authors, articles, comments, tags, articles_tags, block_text, block_image, block_quote, articles_blocks`;

const COUNT = `
  select 'authors' as name, count(*) as rows from authors
  union all select 'articles', count(*) from articles
  union all select 'comments', count(*) from comments
  union all select 'tags', count(*) from tags
  union all select 'articles_tags', count(*) from articles_tags
  union all select 'block_text', count(*) from block_text
  union all select 'block_image', count(*) from block_image
  union all select 'block_quote', count(*) from block_quote
  union all select 'articles_blocks', count(*) from articles_blocks`;

export const FILLINGS: readonly Filling[] = [
  {
    table: 'authors',
    rows: 10_000,
    remove: 'delete from authors where id > $1',
    phrases: [FIRST_NAMES, LAST_NAMES, SENTENCES],
    insert: `
      insert into authors (name, email, bio, born, score)
      select pg_temp.pick(string_to_array($2::text, '|'), pg_temp.mix(n, 1)) || ' '
          || pg_temp.pick(string_to_array($3::text, '|'), pg_temp.mix(n, 2)),
        'author' || n || '@magazine.example',
        case when pg_temp.mix(n, 3) % 10 > 0 then pg_temp.pick(string_to_array($4::text, '|'), pg_temp.mix(n, 4)) end,
        date '1940-01-01' + (pg_temp.mix(n, 5) % 22000)::integer,
        pg_temp.mix(n, 6) % 1000 / 100.0
      from generate_series(1::bigint, $1::bigint) as n`,
  },
  {
    table: 'articles',
    rows: 100_000,
    remove: 'delete from articles where id > $1',
    phrases: [OPENINGS, SUBJECTS, ENDINGS, SENTENCES],
    insert: `
      insert into articles (title, slug, body, status, views, rating, published_at, meta, author)
      select title, lower(replace(title, ' ', '-')) || '-' || n, body, status,
        (pg_temp.mix(n, 4) % 1000) * (pg_temp.mix(n, 5) % 1000) / 100,
        case when status <> 'draft' then (pg_temp.mix(n, 6) % 500) / 100.0 end,
        case when status <> 'draft'
          then timestamptz '2024-10-01T00:00:00Z' + (pg_temp.mix(n, 7) % 63072000) * interval '1 second' end,
        json_build_object('language', case when pg_temp.mix(n, 8) % 5 = 0 then 'de' else 'en' end,
          'minutes', 2 + pg_temp.mix(n, 9) % 14),
        case when pg_temp.mix(n, 10) % 50 > 0 then 1 + pg_temp.mix(n, 11) % 10000 end
      from (
        select n,
          pg_temp.pick(string_to_array($2::text, '|'), pg_temp.mix(n, 1)) || ' '
            || pg_temp.pick(string_to_array($3::text, '|'), pg_temp.mix(n, 2)) || ' '
            || pg_temp.pick(string_to_array($4::text, '|'), pg_temp.mix(n, 3)) as title,
          concat_ws(' ',
            pg_temp.pick(string_to_array($5::text, '|'), pg_temp.mix(n, 21)),
            pg_temp.pick(string_to_array($5::text, '|'), pg_temp.mix(n, 22)),
            pg_temp.pick(string_to_array($5::text, '|'), pg_temp.mix(n, 23)),
            pg_temp.pick(string_to_array($5::text, '|'), pg_temp.mix(n, 24)),
            pg_temp.pick(string_to_array($5::text, '|'), pg_temp.mix(n, 25)),
            pg_temp.pick(string_to_array($5::text, '|'), pg_temp.mix(n, 26)),
            pg_temp.pick(string_to_array($5::text, '|'), pg_temp.mix(n, 27))) as body,
          (array['published', 'published', 'published', 'published', 'published', 'published', 'published',
            'draft', 'draft', 'archived'])[1 + pg_temp.mix(n, 12) % 10] as status
        from generate_series(1::bigint, $1::bigint) as n
        offset 0
      ) as drafted`,
  },
  {
    table: 'comments',
    rows: 500_000,
    remove: 'delete from comments where id > $1',
    phrases: [REMARKS, REASONS],
    insert: `
      insert into comments (body, created, article, author)
      select pg_temp.pick(string_to_array($2::text, '|'), pg_temp.mix(n, 1)) || ', '
          || pg_temp.pick(string_to_array($3::text, '|'), pg_temp.mix(n, 2)),
        timestamptz '2024-10-01T00:00:00Z' + n * 63072000 / $1::bigint * interval '1 second',
        1 + pg_temp.mix(n, 3) % 100000,
        case when pg_temp.mix(n, 4) % 5 > 0 then 1 + pg_temp.mix(n, 5) % 10000 end
      from generate_series(1::bigint, $1::bigint) as n`,
  },
  {
    table: 'tags',
    rows: 1_000,
    remove: 'delete from tags where id > $1',
    phrases: [SUBJECTS],
    insert: `
      insert into tags (name)
      select pg_temp.pick(string_to_array($2::text, '|'), pg_temp.mix(n, 1)) || ' ' || n
      from generate_series(1::bigint, $1::bigint) as n`,
  },
  {
    table: 'articles_tags',
    rows: 300_000,
    remove: 'delete from articles_tags where id > $1',
    phrases: [],
    insert: `
      insert into articles_tags (articles_id, tags_id, sort)
      select 1 + n / 3, 1 + (pg_temp.mix(n / 3, 1) + n % 3 * 333) % 1000, 1 + n % 3
      from generate_series(0::bigint, $1::bigint - 1) as n`,
  },
  {
    table: 'block_text',
    rows: 100_000,
    remove: 'delete from block_text where id > $1',
    phrases: [SENTENCES],
    insert: `
      insert into block_text (text)
      select concat_ws(' ',
        pg_temp.pick(string_to_array($2::text, '|'), pg_temp.mix(n, 1)),
        pg_temp.pick(string_to_array($2::text, '|'), pg_temp.mix(n, 2)),
        pg_temp.pick(string_to_array($2::text, '|'), pg_temp.mix(n, 3)))
      from generate_series(1::bigint, $1::bigint) as n`,
  },
  {
    table: 'block_image',
    rows: 60_000,
    remove: 'delete from block_image where id > $1',
    phrases: [SUBJECTS],
    insert: `
      insert into block_image (url, caption)
      select 'https://images.magazine.example/' || n || '.jpg',
        case when pg_temp.mix(n, 1) % 4 > 0 then 'Some ' || pg_temp.pick(string_to_array($2::text, '|'), pg_temp.mix(n, 2)) end
      from generate_series(1::bigint, $1::bigint) as n`,
  },
  {
    table: 'block_quote',
    rows: 40_000,
    remove: 'delete from block_quote where id > $1',
    phrases: [SENTENCES, FIRST_NAMES],
    insert: `
      insert into block_quote (quote, who)
      select pg_temp.pick(string_to_array($2::text, '|'), pg_temp.mix(n, 1)),
        pg_temp.pick(string_to_array($3::text, '|'), pg_temp.mix(n, 2))
      from generate_series(1::bigint, $1::bigint) as n`,
  },
  {
    // Five of ten blocks are texts, three images and two quotes, so each block is used exactly once.
    table: 'articles_blocks',
    rows: 200_000,
    remove: 'delete from articles_blocks where id > $1',
    phrases: [],
    insert: `
      insert into articles_blocks (articles_id, collection, item, sort)
      select 1 + pg_temp.mix(n, 1) % 100000,
        case when n % 10 < 5 then 'block_text' when n % 10 < 8 then 'block_image' else 'block_quote' end,
        case when n % 10 < 5 then n / 10 * 5 + n % 10 + 1
          when n % 10 < 8 then n / 10 * 3 + n % 10 - 5 + 1
          else n / 10 * 2 + n % 10 - 8 + 1 end,
        1 + n / 100000
      from generate_series(0::bigint, $1::bigint - 1) as n`,
  },
];
