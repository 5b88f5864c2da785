/** A CSV file that was exported can be imported: lists, objects and documents are read as the JSON that stands in their cells. */
import t from 'tap';
import { connectSql, createDatabase, get, request, startDatabase, startTestService } from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'csv_round_trip');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create extension hstore;
  create type pair as (one int4, two text);
  create type nest as (inside pair, list pair[], document jsonb);
  create table makers (id int primary key, name text);
  create table things (
    id int primary key, words text, document jsonb, plain json, numbers int4[], exact numeric[], lines text[], grid int4[], blobs bytea[],
    documents jsonb[], part pair, parts pair[], nest nest, labels hstore, tags text, cast_text text, maker int references makers
  );`);
// Makes the tables of the metadata.
await startTestService({ databaseUrl });
await sql.unsafe(`
  insert into service_fields (collection, field, special) values
    ('things', 'tags', 'cast-csv'), ('things', 'cast_text', 'cast-json'), ('makers', 'things', 'o2m');
  insert into service_relations (many_collection, many_field, one_collection, one_field) values ('things', 'maker', 'makers', 'things');
  insert into makers values (1, 'first'), (2, 'second');
  insert into things values
    (1, '[1]', '{"a": [1, "two, \\"three\\""], "n": 12345678901234567890.50}', '[1,2]', '{1,NULL,3}', '{12345678901234567890.50}',
     '{a,"b,c","d\\"e",NULL,""}', '{{1,2},{3,4}}', '{"\\\\x00ff"}', '{"{\\"x\\": 1}",NULL}', '(1,"a,""b")', '{"(1,a)",NULL}',
     '("(1,a)","{""(2,b)""}","{""k"": ""v""}")', 'a=>1, b=>NULL', 'x,y', '{"k":1}', 1),
    (2, '{"not": "json"}', '"just a text"', '"a, b"', '{}', '{}', '{}', '{}', '{}', '{}', '(,)', '{}', '(,,)', '', 'x', '[]', 1),
    (3, 'text', '12.50', 'true', null, null, null, null, null, null, null, null, null, null, null, null, 2)`);

const service = await startTestService({ databaseUrl });

const importCsv = (collection: string, body: string) =>
  request(service, 'POST', `/utils/import/${collection}`, { headers: { 'content-type': 'text/csv' }, body });
const rows = async (): Promise<string[]> =>
  (await sql`select things::text as text from things order by id`).map(({ text }) => String(text));

t.test('exported items come back the same', async (t) => {
  const columns =
    await sql`select attname as name from pg_attribute where attrelid = 'things'::regclass and attnum > 0`;
  const fields = columns.map(({ name }) => name).join(',');
  const file = (await get(service, `/items/things?export=csv&limit=-1&fields=${fields}`)).text;
  const before = await rows();
  t.match(
    await importCsv('things', file),
    { status: 200, json: { data: { imported: 3 } } },
    'over the items themselves',
  );
  t.strictSame(await rows(), before);
  await sql`delete from things`;
  t.match(await importCsv('things', file), { status: 200 }, 'into an empty table');
  t.strictSame(await rows(), before);
});

t.test('lists of related items link them, and unlink none: an export may hold only some of them', async (t) => {
  const file = (await get(service, '/items/makers?export=csv&fields=id,name,things')).text;
  t.match(file, /"\[1,2\]"/);
  const makers = async (): Promise<unknown[]> =>
    (await sql`select maker from things order by id`).map(({ maker }) => maker);
  t.match(await importCsv('makers', file), { status: 200 });
  t.strictSame(await makers(), [1, 1, 2]);
  t.match(await importCsv('makers', file.replace('"[1,2]"', '[1]')), { status: 200 });
  t.strictSame(await makers(), [1, 1, 2], 'the second stays');
  t.match(
    await importCsv('makers', 'id,things\n1,"[3,{""id"":2,""words"":""changed""},{""words"":""new"",""id"":50}]"\n'),
    { status: 400 },
  );
  t.match(await importCsv('makers', 'id,things\n1,"[3,{""id"":2,""words"":""changed""}]"\n'), { status: 200 });
  t.strictSame(await makers(), [1, 1, 1]);
  t.match(await importCsv('makers', 'id,things\n1,"{""delete"":[3]}"\n'), { status: 200 }, 'what is said is done');
  t.strictSame(await makers(), [1, 1, null]);
  await sql`update things set maker = 2, words = 'text' where id = 3`;
  await sql`update things set words = '{"not": "json"}' where id = 2`;
});

t.test('an export that holds only the first of many related items loses none of them', async (t) => {
  await sql`insert into makers values (7, 'many')`;
  await sql`insert into things (id, maker) select n, 7 from generate_series(1000, 1149) n`;
  const file = (await get(service, '/items/makers?export=csv&filter[id][_eq]=7')).text;
  t.match(await importCsv('makers', file), { status: 200 });
  t.equal((await sql`select from things where maker = 7`).length, 150);
});

t.test('invalid JSON is a text where that is a value, and refused elsewhere', async (t) => {
  t.match(await importCsv('things', 'id,document,tags,part\n10,{no json,"[x,y","(5,e)"\n'), { status: 200 });
  t.strictSame(
    [...(await sql`select document, tags, part::text from things where id = 10`)],
    [{ document: '{no json', tags: '[x,y', part: '(5,e)' }],
  );
  for (const [name, cell] of Object.entries({
    numbers: '[1',
    lines: 'a',
    part: '{one: 1}',
    parts: '[{""three"": 1}]',
  })) {
    const answer = await importCsv('things', `id,${name}\n11,"${cell}"\n`);
    t.match(answer, { status: 400 }, `${name}: ${cell}`);
  }
  t.match(await importCsv('things', 'id,wo"rds\n11,a\n'), { status: 400, text: /CSV/ }, 'a quote inside of a name');
  t.equal((await sql`select from things where id = 11`).length, 0);
});

t.test('columns of a related item link it by its key', async (t) => {
  const makers = async (): Promise<unknown[]> =>
    (await sql`select id, maker from things where id < 4 order by id`).map(({ id, maker }) => [id, maker]);
  const file = (
    await get(service, '/items/things?export=csv&fields=id,words,maker.id,maker.name&filter[id][_lt]=4&sort=id')
  ).text;
  t.match(file, /^id,words,maker\.id,maker\.name\n/);
  const before = await makers();
  await sql`update things set maker = null where id < 4`;
  await sql`update makers set name = 'renamed' where id = 1`;
  t.match(await importCsv('things', file), { status: 200, json: { data: { imported: before.length } } });
  t.strictSame(await makers(), before);
  t.strictSame([...(await sql`select name from makers where id = 1`)], [{ name: 'renamed' }], 'the item itself stays');
  t.match(await importCsv('things', 'id,maker.name\n1,first\n'), {
    status: 400,
    text: /Row 1: \\"maker\.name\\" cannot be imported without the key of the related item, such as \\"maker\.id\\"/,
  });
  t.match(await importCsv('things', 'id,maker.id,maker.nonsense\n1,1,x\n'), { status: 400, text: /maker\.nonsense/ });
  t.match(await importCsv('things', 'id,words.id\n1,1\n'), { status: 400, text: /words\.id/ });
  t.match(await importCsv('things', 'id,maker,maker.id\n1,1,2\n'), { status: 400, text: /contradicts/ });
  t.match(await importCsv('things', 'id,words,maker.id,maker.name\n1,kept,,\n'), { status: 200 }, 'empty cells');
  t.strictSame(await makers(), before);
});
