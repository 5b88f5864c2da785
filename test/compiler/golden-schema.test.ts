/**
 * The SQL of representative changes of the schema with its parameters: definitions, metadata and the notification, from begin
 * to commit.
 */
import t from 'tap';
import { differenceOf, type Entry, post, snapshotOf } from '../features/snapshots/snapshot/support.js';
import { compareGolden, type GoldenRequest, goldenNames, recordRequest } from '../support/golden.js';
import { createLibrary, get, KNOWS_CALLERS, startDatabase, startTestService } from '../support/service.js';
import { StatementRecorder } from '../support/statement-recorder.js';

/** In this order: each meets what those before it have left. */
const CHANGES: Readonly<Record<string, GoldenRequest>> = {
  'create-collection': {
    method: 'POST',
    path: '/collections',
    body: {
      collection: 'books',
      schema: { comment: 'On paper' },
      meta: { note: 'On paper' },
      fields: [
        { field: 'id', type: 'uuid', schema: { is_primary_key: true }, meta: { special: ['uuid'] } },
        { field: 'title', type: 'string', schema: { is_nullable: false, max_length: 100 } },
        { field: 'sold', type: 'boolean', schema: { default_value: false } },
      ],
    },
  },
  'update-collection': { method: 'PATCH', path: '/collections/books', body: { meta: { archive_field: 'sold' } } },
  'create-field': {
    method: 'POST',
    path: '/fields/books',
    body: {
      field: 'pages',
      type: 'integer',
      schema: { is_nullable: false, default_value: 0, is_unique: true },
      meta: { interface: 'input', note: 'How many' },
    },
  },
  'create-field-by-expression': {
    method: 'POST',
    path: '/fields/books',
    body: { field: 'added', type: 'timestamp', schema: { default_value: 'now()', is_indexed: true } },
  },
  'alter-field': {
    method: 'PATCH',
    path: '/fields/books/pages',
    body: { type: 'bigInteger', schema: { is_nullable: true, is_unique: false }, meta: { hidden: true } },
  },
  'create-foreign-key': { method: 'POST', path: '/fields/books', body: { field: 'author', type: 'integer' } },
  'create-relation': {
    method: 'POST',
    path: '/relations',
    body: {
      collection: 'books',
      field: 'author',
      related_collection: 'authors',
      meta: { one_field: 'books', one_deselect_action: 'nullify' },
      schema: { on_delete: 'SET NULL' },
    },
  },
  'update-relation': {
    method: 'PATCH',
    path: '/relations/books/author',
    body: { meta: { one_deselect_action: 'delete' }, schema: { on_delete: 'CASCADE' } },
  },
  'delete-relation': { method: 'DELETE', path: '/relations/books/author' },
  'delete-field': { method: 'DELETE', path: '/fields/books/pages' },
  'delete-collection': { method: 'DELETE', path: '/collections/books' },
};

const server = await startDatabase();
const recorder = await StatementRecorder.open(await createLibrary(server, 'golden_schema'));
/** A change that waited for a table would be tried again, and be recorded twice. */
const service = await startTestService({
  databaseUrl: recorder.url,
  WORKERS: '1',
  ...KNOWS_CALLERS,
  SCHEMA_LOCK_TIMEOUT: '20000',
});
// The first request of a caller asks PostgreSQL who that is.
await get(service, '/items/articles');

for (const [name, change] of Object.entries(CHANGES)) {
  t.test(name, async (t) => {
    await compareGolden(t, 'schema', name, await recordRequest(t, { service, recorder }, change));
  });
}

t.test('apply-snapshot', async (t) => {
  const wanted = await snapshotOf(service);
  for (const list of [wanted.collections, wanted.fields])
    list.push(...list.filter(({ collection }) => collection === 'tags').map((entry) => renamed(entry, 'genres')));
  const slug = wanted.fields.find(({ collection, field }) => collection === 'articles' && field === 'slug');
  const author = wanted.relations.find(({ collection, field }) => collection === 'articles' && field === 'author');
  Object.assign(slug?.['schema'] as object, { is_unique: true, data_type: 'character varying(100)' });
  Object.assign(author?.['schema'] as object, { on_delete: 'CASCADE' });
  const compared = await post(service, '/schema/diff', wanted);
  t.equal(compared.status, 200, compared.text.slice(0, 1_000));
  const body = differenceOf(compared);
  const shown = '(tags as genres too, articles.slug unique and varchar(100), articles.author on delete cascade)';
  const change: GoldenRequest = { method: 'POST', path: '/schema/apply', body, shown };
  await compareGolden(t, 'schema', 'apply-snapshot', await recordRequest(t, { service, recorder }, change));
});

/** The entry of a collection as that of another one. */
function renamed(entry: Entry, name: string): Entry {
  return JSON.parse(JSON.stringify(entry).replaceAll('tags', name)) as Entry;
}

t.test('no file is left over', async (t) => {
  t.strictSame(await goldenNames('schema'), [...Object.keys(CHANGES), 'apply-snapshot'].sort());
});
