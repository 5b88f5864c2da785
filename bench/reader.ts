/** A reader with two policies: rows by a rule through a relation, lists of fields, and one field in only some rows. */
import postgres from 'postgres';
import { digestToken } from '../src/server/access/tokens.js';

export const READER = 'bench-reader';

const ID = '00000000-0000-4000-8000-00000000bebe';

const RULES = [
  [1, 'articles', { author: { name: { _nstarts_with: 'Q' } } }, 'id,title,status,published_at,author,comments,tags'],
  [2, 'articles', { status: { _neq: 'archived' } }, 'id,title,status,views,published_at,author,comments,tags'],
  [1, 'authors', null, 'id,name,articles'],
  [1, 'comments', { article: { status: { _nnull: true } } }, 'id,body,created,author'],
  [1, 'articles_tags', null, '*'],
  [2, 'tags', null, 'id,name'],
] as const;

export async function makeReader(url: string): Promise<void> {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  try {
    await sql.begin(async (transaction) => {
      await transaction`delete from service_users where id = ${ID}`;
      await transaction`delete from service_policies where name like 'Bench reader %'`;
      await transaction`insert into service_users (id, email, token) values (${ID}, 'reader@example.com', ${digestToken(READER)})`;
      for (const number of [1, 2]) {
        const [policy] = await transaction`
          insert into service_policies (name) values (${`Bench reader ${number}`}) returning id`;
        await transaction`insert into service_access (policy, "user") values (${policy?.['id']}, ${ID})`;
        for (const [, collection, rule, fields] of RULES.filter(([owner]) => owner === number)) {
          await transaction`
            insert into service_permissions (policy, collection, action, permissions, fields)
            values (${policy?.['id']}, ${collection}, 'read', ${rule && JSON.stringify(rule)}::text::json, ${fields})`;
        }
      }
    });
  } finally {
    await sql.end({ timeout: 5 });
  }
}
