/**
 * The rows that writes work on: articles to change, separate from those that are read, and the removal of all added rows. Reads must find
 * the same data each time.
 */
import postgres from 'postgres';
import { FILLINGS, secondsSince, VACUUM } from './generate.js';
import { NOTES, RECORDED, WRITTEN_TABLES } from './own-tables.js';

export const SUBJECTS = 256;

/** So far above all keys that the sequences do not reach it. */
const FIRST_SUBJECT = 1_000_000_000;

export interface SubjectKeys {
  readonly article: number;
  readonly comments: readonly [number, number];
  readonly tag: number;
}

export function subjectKeys(index: number): SubjectKeys {
  const article = FIRST_SUBJECT + index;
  return { article, comments: [article, article + SUBJECTS], tag: article };
}

export async function addSubjects(url: string): Promise<void> {
  const sql = postgres(url, { max: 1, fetch_types: false });
  try {
    await sql.unsafe(ADD_SUBJECTS, [String(FIRST_SUBJECT), String(SUBJECTS)], { prepare: true });
    await sql`checkpoint`;
  } finally {
    await sql.end();
  }
}

/** Deletes the rows that were added since the tables were filled. */
export async function removeAdded(url: string, report: (message: string) => void): Promise<void> {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  try {
    const begun = performance.now();
    await sql.begin(async (transaction) => {
      // Only deleted rows refer to deleted rows, so the checks per row are not needed.
      await transaction`set local session_replication_role = replica`;
      for (const { table, rows, remove } of FILLINGS.toReversed()) {
        await transaction.unsafe(remove, [String(rows)], { prepare: true });
        await transaction`select setval(pg_get_serial_sequence(${table}, 'id'), ${String(rows)}::int8)`;
      }
    });
    for (const suffix of ['', RECORDED]) {
      await sql.unsafe(`delete from bench_notes${suffix} where id > ${NOTES}`);
      await sql.unsafe(`truncate bench_drafts${suffix}`);
    }
    await sql`truncate service_activity, service_revisions`;
    await sql.unsafe(VACUUM);
    await sql.unsafe(`vacuum (analyze) ${WRITTEN_TABLES.join(', ')}`);
    report(`rows that were written are removed: ${secondsSince(begun)} s`);
  } finally {
    await sql.end();
  }
}

const ADD_SUBJECTS = `
  with articles_added as (
    insert into articles (id, title, author) select n, 'To be changed', 1 + n % 1000
    from generate_series($1::integer, $1::integer + $2::integer - 1) as n
  ), comments_added as (
    insert into comments (id, body, article) select n, 'To be changed', $1::integer + (n - $1::integer) % $2::integer
    from generate_series($1::integer, $1::integer + $2::integer * 2 - 1) as n
  )
  insert into articles_tags (id, articles_id, tags_id, sort) select n, n, 1, 1
  from generate_series($1::integer, $1::integer + $2::integer - 1) as n`;
