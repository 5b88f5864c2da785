/**
 * Snapshots: the schema of one installation becomes that of another, whatever it holds, in one transaction; and a
 * database that is in use becomes what a snapshot says and keeps its data.
 */
import t from 'tap';
import { createDatabase, databaseUrl, get, startDatabase, startTestService, withSql } from '../../support/service.js';
import {
  demoScript,
  describeCatalog,
  differenceOf,
  type Editable,
  type Entry,
  move,
  openService,
  post,
  type Snapshot,
  snapshotOf,
} from './snapshot/support.js';
import { hundredTables } from './snapshot/tables.js';

const server = await startDatabase();
const demo = await openService(server, 'demo', demoScript);

t.test('the demo model moves to an empty database and is the same there', async (t) => {
  const original = await snapshotOf(demo);
  t.equal(original.collections.length, 9);
  t.equal(original.fields.length, 46);
  t.equal(original.relations.length, 7);
  const target = await openService(server, 'demo_target');
  await move(t, original, target);
  t.equal((await get(target, '/schema/snapshot')).text, (await get(demo, '/schema/snapshot')).text, 'to the letter');
  t.strictSame(
    await describeCatalog(server, 'demo_target'),
    await describeCatalog(server, 'demo'),
    'the catalog says so too',
  );
  t.match(await post(target, '/schema/diff', original), { status: 204, text: '' });
  const article = {
    title: 'Moved',
    author: { name: 'Ada' },
    tags: [{ tags_id: { name: 'new' } }],
    blocks: [{ collection: 'block_text', item: { text: 'Once' } }],
  };
  const fields = 'title,status,views,author.name,tags.tags_id.name,blocks.item:block_text.text';
  t.match(await post(target, `/items/articles?fields=${fields}`, article), {
    status: 200,
    json: { data: { title: 'Moved', status: 'draft', author: { name: 'Ada' }, tags: [{ tags_id: { name: 'new' } }] } },
  });
});

t.test('a database of a hundred tables moves and is the same there', async (t) => {
  const source = await openService(server, 'hundred', hundredTables());
  const original = await snapshotOf(source);
  t.equal(original.collections.length, 102, 'with two folders');
  t.ok(original.fields.length > 1_500, `${original.fields.length} fields`);
  t.ok(original.relations.length > 100, `${original.relations.length} relations`);
  const target = await openService(server, 'hundred_target', 'create domain amount as numeric(9, 3);');
  await move(t, original, target);
  t.equal((await get(target, '/schema/snapshot')).text, (await get(source, '/schema/snapshot')).text, 'to the letter');
  const [left, right] = await Promise.all([
    describeCatalog(server, 'hundred'),
    describeCatalog(server, 'hundred_target'),
  ]);
  t.ok(left.length > 1_800, `${left.length} facts of the catalog`);
  t.strictSame(right, left, 'the catalog says so too');
});

t.test('a database that grew without the service moves', async (t) => {
  const url = await createDatabase(server, 'foreign', ['foreign.sql']);
  const source = await startTestService({ databaseUrl: url });
  await withSql(url, async (sql) => {
    await sql`insert into service_collections (collection, primary_key) values ('declared_view', 'item')`;
    await sql`insert into service_relations (many_collection, many_field, one_collection, one_field)
      values ('messages', 'loose_person', 'declared_view', 'messages'), ('messages', 'position', 'people', null)`;
  });
  const original = await snapshotOf(source);
  t.match(await post(source, '/schema/diff', original), { status: 204 });
  t.ok(original.collections.some(({ collection }) => collection === 'Mixed Case'));
  t.notOk(original.collections.some(({ collection }) => /view|__proto__|"/.test(String(collection))));
  const target = await openService(
    server,
    'foreign_target',
    `create domain percentage as integer not null default 50 check (value between 0 and 100);
    create domain short_code as varchar(8) check (value = upper(value));
    create domain country_code as short_code;
    create domain money_amount as numeric(12, 3);
    create domain tag_list as text[];`,
  );
  await move(t, original, target);
  t.strictSame(await snapshotOf(target), original, 'odd names and references to unique columns included');
  t.match(await get(target, '/items/people?fields=*,manager.name'), { status: 200 });
});

t.test('a database with data becomes what a snapshot says', async (t) => {
  const service = await openService(server, 'changing', demoScript);
  const wanted = await snapshotOf(service);
  const field = (collection: string, name: string): Editable =>
    wanted.fields.find((each) => each['collection'] === collection && each['field'] === name) as Editable;
  const relation = (collection: string, name: string): Editable =>
    wanted.relations.find((each) => each['collection'] === collection && each['field'] === name) as Editable;
  const without = (entries: Entry[], isGone: (entry: Entry) => boolean): Entry[] =>
    entries.filter((each) => !isGone(each));

  Object.assign(field('articles', 'views'), { type: 'bigInteger' });
  Object.assign(field('articles', 'views').schema, {
    data_type: 'bigint',
    default_value: 5,
    comment: 'Counted',
    is_indexed: true,
  });
  Object.assign(field('tags', 'id').schema, { has_auto_increment: false });
  Object.assign(field('comments', 'id'), { type: 'bigInteger' });
  Object.assign(field('comments', 'id').schema, { data_type: 'bigint' });
  Object.assign(field('articles', 'title'), { type: 'text' });
  Object.assign(field('articles', 'title').schema, { data_type: 'text', is_nullable: true });
  Object.assign(field('articles', 'slug').schema, { is_unique: false, comment: null });
  Object.assign(field('articles', 'meta').schema, { data_type: 'jsonb', default_value: { a: [1] } });
  Object.assign(field('authors', 'name').schema, { is_unique: true });
  Object.assign(field('authors', 'name').meta, { note: 'In full', width: 'half-space' });
  Object.assign(field('comments', 'created').schema, { default_expression: null });
  Object.assign(field('articles_tags', 'sort').schema, { default_value: null, is_nullable: true });
  Object.assign(relation('articles', 'author').schema, { on_delete: 'CASCADE', on_update: 'RESTRICT' });
  Object.assign(relation('articles_blocks', 'item').meta, { one_allowed_collections: 'block_text,block_image' });
  wanted.relations = without(
    wanted.relations,
    (each) => each['collection'] === 'comments' && each['field'] === 'author',
  );
  wanted.fields = without(
    wanted.fields,
    (each) =>
      each['collection'] === 'block_quote' ||
      (each['collection'] === 'authors' && ['bio', 'comments'].includes(`${each['field']}`)),
  );
  wanted.collections = without(wanted.collections, (each) => each['collection'] === 'block_quote');
  for (const each of [...wanted.collections, ...wanted.fields])
    if (each['collection'] === 'block_image') each['meta'] = null;
  Object.assign(wanted.collections.find((each) => each['collection'] === 'tags') as Entry, {
    meta: { icon: 'label', group: 'shelf' },
    schema: { comment: 'Words' },
  });
  Object.assign(wanted.collections.find((each) => each['collection'] === 'articles_tags') as Entry, {
    schema: { comment: null, indexes: [{ fields: ['articles_id', 'tags_id'], unique: true }] },
  });
  wanted.collections.push({ collection: 'shelf', meta: {} }, { collection: 'magazines', schema: {} });
  wanted.fields.push(
    {
      collection: 'magazines',
      field: 'id',
      type: 'uuid',
      schema: { data_type: 'uuid', is_primary_key: true, default_expression: 'gen_random_uuid()' },
    },
    { collection: 'magazines', field: 'articles', type: 'alias', meta: { special: ['o2m'] } },
    {
      collection: 'articles',
      field: 'title_length',
      type: 'integer',
      schema: { data_type: 'integer', generation_expression: 'length(title)' },
    },
    { collection: 'articles', field: 'magazine', type: 'uuid', schema: { data_type: 'uuid' } },
    { collection: 'service_users', field: 'nickname', type: 'string', schema: { data_type: 'character varying(40)' } },
  );
  wanted.relations.push({
    collection: 'articles',
    field: 'magazine',
    related_collection: 'magazines',
    meta: { one_field: 'articles' },
    schema: { on_delete: 'CASCADE' },
  });
  // Both sides of a reference, neither of which could change alone.
  for (const [collection, name] of [
    ['tags', 'id'],
    ['articles_tags', 'tags_id'],
  ] as const) {
    Object.assign(field(collection, name), { type: 'string' });
    Object.assign(field(collection, name).schema, { data_type: 'varchar(20)' });
  }
  const mood = { data_type: 'mood', enum_values: ['sad', 'happy'], default_value: 'happy' };
  wanted.fields.push({ collection: 'comments', field: 'mood', type: 'string', schema: mood });
  await move(t, wanted, service);
  t.match(await post(service, '/schema/diff', wanted), { status: 204 }, 'nothing is left to do');
  mood.enum_values = ['furious', 'sad', 'so-so', 'happy', 'elated'];
  await move(t, wanted, service);
  t.match(await post(service, '/schema/diff', wanted), { status: 204 }, 'an enum has grown');
  mood.enum_values = ['happy', 'sad'];
  t.match(await post(service, '/schema/diff', wanted), { status: 400, text: /can only be added to/ });
  t.match((await get(service, '/items/articles/1?fields=title,title_length,views,meta,author,comments,blocks')).json, {
    data: {
      title: /^The Library/,
      title_length: 30,
      views: '4210',
      meta: { language: 'en' },
      author: 1,
      comments: ['1', '2', '3'],
      blocks: [1, 2, 3],
    },
  });
  t.match(
    await get(service, '/items/comments/1?fields=author'),
    { status: 200, json: { data: { author: 4 } } },
    'the column stays',
  );
  t.match(await get(service, '/items/block_quote'), { status: 403 });
  const made = await post(service, '/items/magazines?fields=articles.title', { articles: [1, { title: 'In it' }] });
  t.strictSame((made.json as { data: unknown }).data, {
    articles: [{ title: 'The Library That Lends Silence' }, { title: 'In it' }],
  });

  await t.test('and back again', async (t) => {
    const original = await snapshotOf(demo);
    const difference = await post(service, '/schema/diff', original);
    t.match(await post(service, '/schema/apply', differenceOf(difference)), { status: 204 });
    t.match(await post(service, '/schema/diff', original), { status: 204 });
    t.strictSame(await describeCatalog(server, 'changing'), await describeCatalog(server, 'demo'));
  });
});

t.test('a difference fits the state it was taken from', async (t) => {
  const original = await snapshotOf(demo);
  const target = await openService(server, 'fitting');
  const { data } = (await post(target, '/schema/diff', original)).json as { data: { hash: string } };
  const answers = await Promise.all([1, 2, 3].map(() => post(target, '/schema/apply', data)));
  t.strictSame(answers.map(({ status }) => status).sort(), [204, 400, 400], 'of three at once one is applied');
  t.match(answers.find(({ status }) => status === 400)?.text, /changed since/);
  t.match(await post(target, '/schema/apply?force', data), { status: 400, text: /already exists/ });

  const part = await get(demo, '/schema/snapshot?includeCollections=authors,tags');
  const { data: some } = part.json as { data: Snapshot };
  t.strictSame(
    some.collections.map(({ collection }) => collection),
    ['authors', 'tags'],
  );
  t.match(await post(target, '/schema/diff?mode=merge', some), { status: 204 });
  t.equal(some['version'], 2);
  t.match(await post(target, '/schema/diff', some), { status: 204 }, 'a part says nothing of the rest');
  const fewer = some.fields.filter(({ collection, field }) => collection !== 'authors' || field !== 'email');
  t.strictSame(
    differenceOf(await post(target, '/schema/diff', { ...some, fields: fewer })).diff.fields.map(({ field }) => field),
    ['email'],
    'but is all there is of its collections',
  );
  for (const name of ['includeCollections', 'excludeCollections'])
    t.match(await get(demo, `/schema/snapshot?${name}=authors,nothing`), { status: 400, text: /nothing/ });
  const mirrored = await post(target, '/schema/diff', { ...some, version: 1, relations: [] });
  t.equal(
    (mirrored.json as { data: { diff: Snapshot } }).data.diff.collections.length,
    7,
    'without merge the rest would go',
  );
  const others = await get(demo, '/schema/snapshot?excludeCollections=authors');
  t.equal((others.json as { data: Snapshot }).data.collections.length, 8);

  const { data: late } = (await post(target, '/schema/diff', { ...original, relations: [] })).json as {
    data: { hash: string };
  };
  await withSql(databaseUrl(server, 'fitting'), (sql) => sql`alter table tags add column later text`);
  t.match(await post(target, '/schema/apply', late), { status: 400, text: /changed since/ });
  t.match(await post(target, '/schema/apply?force=true', late), { status: 204 });
  t.equal((await snapshotOf(target)).relations.length, 0);
  t.ok((await snapshotOf(target)).fields.some((each) => each['field'] === 'later'));
});

t.test('defaults that are JSON move as they are', async (t) => {
  const source = await openService(
    server,
    'documents',
    `create table documents (id int primary key, word jsonb default '"hello"', plain json default '"it''s"',
      nothing jsonb default 'null', none jsonb default null, list jsonb default '["a"]', number jsonb default '1')`,
  );
  const target = await openService(server, 'documents_target');
  const original = await snapshotOf(source);
  await move(t, original, target);
  t.strictSame(await snapshotOf(target), original);
  t.strictSame(await describeCatalog(server, 'documents_target'), await describeCatalog(server, 'documents'));
});
