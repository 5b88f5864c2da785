/**
 * JSON as reads write it is the JSON that PostgreSQL would write: `row_to_json` is the oracle, for values of every kind,
 * in items, lists, streams, keys, aggregates and GraphQL.
 */
import t from 'tap';
import {
  createDatabase,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';

interface Kind {
  readonly type: string;
  /** As SQL; null is tried with each. */
  readonly values: readonly string[];
  /** What the service makes of it, where that is not the value itself. */
  readonly shown?: (column: string) => string;
}

const TEXTS = [
  `''`,
  `'null'`,
  `'"quoted" \\ and / slashed'`,
  `E'\\t\\n\\r\\b\\f\\x01\\x1f\\x7f'`,
  `'žluťoučký 漢字 👩‍🚀 \u2028'`,
  `repeat('long "text" ', 50000)`,
];
const asText = (column: string): string => `${column}::text`;
/** Fractions of seconds as far as they are set, by threes; what is before the year one says so at its end. */
const moment = (column: string, zone: string, whole: string): string => `
  case when not isfinite(${column}) then ${column}::text
  else to_char(${column}${zone && " at time zone 'UTC'"}, 'YYYY-MM-DD"T"HH24:MI:SS')
    || case when right(to_char(${column}, 'US'), 3) <> '000' then to_char(${column}, '.US')
            when to_char(${column}, 'MS') <> '000' then to_char(${column}, '.MS') else '${whole}' end
    || '${zone}' || case when extract(year from ${column}${zone && " at time zone 'UTC'"}) < 0 then ' BC' else '' end end`;
const utc = (column: string): string => moment(column, 'Z', '.000');
const wallClock = (column: string): string => moment(column, '', '');

const KINDS: Readonly<Record<string, Kind>> = {
  small: { type: 'int2', values: ['-32768', '0'] },
  whole: { type: 'int4', values: ['-2147483648', '2147483647'] },
  big: { type: 'int8', values: ['9223372036854775807', '-1'], shown: asText },
  exact: { type: 'numeric', values: [`'NaN'`, `'-Infinity'`, '1.500', '1e40'], shown: asText },
  single: { type: 'float4', values: [`'NaN'`, `'Infinity'`, '-0.0', '1e-30'] },
  double: { type: 'float8', values: [`'NaN'`, `'-Infinity'`, '1e308', '0.1'] },
  truth: { type: 'bool', values: ['true', 'false'] },
  words: { type: 'text', values: TEXTS },
  varied: { type: 'varchar', values: TEXTS },
  padded: { type: 'char(4)', values: [`'a"'`, `''`] },
  internal: { type: 'name', values: [`'a"b'`] },
  unique_key: { type: 'uuid', values: [`'6F9619FF-8B86-D011-B42D-00CF4FC964FF'`] },
  day: { type: 'date', values: [`'2024-02-29'`, `'infinity'`, `'0044-03-15 BC'`, `'12024-01-01'`] },
  clock: { type: 'time', values: [`'23:59:59.999999'`] },
  zoned_clock: { type: 'timetz', values: [`'23:59:59+02'`] },
  moment: {
    type: 'timestamptz',
    values: [
      `'2024-02-29 12:00:00.123999+02'`,
      `'infinity'`,
      `'-infinity'`,
      `'12024-01-01 00:00:00+00'`,
      `'0044-03-15 12:00:00.5+00 BC'`,
    ],
    shown: utc,
  },
  wall: {
    type: 'timestamp',
    values: [
      `'1969-12-31 23:59:59.5'`,
      `'-infinity'`,
      `'2024-02-29 12:00:00'`,
      `'2024-02-29 12:00:00.000001'`,
      `'0044-03-15 12:00:00.25 BC'`,
    ],
    shown: wallClock,
  },
  span: { type: 'interval', values: [`'1 year 2 days -00:00:01'`] },
  document: { type: 'json', values: [`' { "b" : [1.50, "x\\ny"], "b": null } '`, `'null'`, `'"text"'`, `'7'`] },
  parsed: { type: 'jsonb', values: [`'{"b":[1.50,"x\\ny"],"a":null}'`, `'null'`] },
  bytes: {
    type: 'bytea',
    values: [`'\\x00ff22'`, `decode(repeat('ab', 100), 'hex')`],
    shown: (column) => `translate(encode(${column}, 'base64'), E'\\n', '')`,
  },
  numbers: { type: 'int4[]', values: [`'{1,NULL,3}'`, `'{}'`, `'{{1},{2}}'`] },
  lines: { type: 'text[]', values: [`array['a"b', null, E'\\n']`] },
  mood: { type: `"a ""mood"""`, values: [`'ha"ppy'`, `'sad'`] },
  positive: { type: 'positive', values: ['1'] },
  mail: { type: 'mail', values: [`'a"@b'`] },
  pair: { type: 'pair', values: [`row(1, 'a"b')`, `row(null, null)`] },
  span_of_days: { type: 'daterange', values: [`'[2024-01-01,2024-02-01)'`] },
  address: { type: 'inet', values: [`'10.0.0.1/8'`] },
  place: { type: 'point', values: [`'(1,2)'`] },
  bits: { type: 'bit varying', values: [`'101'`] },
  money: { type: 'money', values: ['12.5'] },
  number_of_object: { type: 'oid', values: ['4294967295'] },
  lexemes: { type: 'tsvector', values: [`'a"b ''c'''`] },
  markup: { type: 'xml', values: [`'<a b="c">d</a>'`] },
  'it\'s "odd" \\ %s ü': { type: 'int4', values: ['1'] },
};

const quote = (name: string): string => `"${name.replaceAll('"', '""')}"`;
const WIDTH = 300;

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'json');
const rows = Math.max(...Object.values(KINDS).map(({ values }) => values.length)) + 1;
const expected = await withSql(databaseUrl, async (sql) => {
  await sql.unsafe(`
    create type "a ""mood""" as enum ('ha"ppy', 'sad');
    create domain positive as int4 check (value > 0);
    create domain mail as text;
    create type pair as (one int4, two text);
    create table kinds (id int primary key, ${Object.entries(KINDS).map(([name, { type }]) => `${quote(name)} ${type}`)});
    create table wide (id int primary key, ${Array.from({ length: WIDTH }, (_, index) => `c${index} int4 default ${index}, t${index} text`)});
    insert into wide (id, t0, t${WIDTH - 1}) values (1, 'first', 'last'), (2, null, 'x');
    create table empty (id int primary key);
    do $$ begin execute format('alter database %I set quote_all_identifiers = on', current_database()); end $$;
    create table owners (id text primary key);
    create table things (id int primary key, owner text references owners);
    insert into owners values ('a"b\\c'), ('none');
    insert into things values (1, 'a"b\\c'), (2, 'a"b\\c');
    create function to_json(text) returns json language sql as $$ select '"another function"'::json $$;
    create table parents (id uuid primary key default gen_random_uuid(), kind int references kinds);`);
  for (let row = 0; row < rows; row++) {
    // The last row holds nothing but nulls.
    const values = Object.values(KINDS).map(({ values }) => (row === rows - 1 ? 'null' : (values[row] ?? values[0])));
    await sql.unsafe(
      `insert into kinds values (${[row + 1, ...values]}); insert into parents (kind) values (${row + 1})`,
    );
  }
  const columns = Object.entries(KINDS).map(
    ([name, { shown }]) => `${shown?.(quote(name)) ?? quote(name)} as ${quote(name)}`,
  );
  const found = await sql.unsafe(`
    select (select json_agg(r order by id) from (select id, ${columns} from kinds) r)::text as kinds,
           (select json_agg(r order by id) from (select * from wide) r)::text as wide,
           (select json_agg(r order by id) from (select * from parents) r)::text as parents`);
  const [texts] = found as unknown as [Record<'kinds' | 'wide' | 'parents', string>];
  return {
    kinds: JSON.parse(texts.kinds) as Record<string, unknown>[],
    wide: JSON.parse(texts.wide) as Record<string, unknown>[],
    parents: JSON.parse(texts.parents) as { id: string; kind: number }[],
  };
});
const service = await startTestService({ databaseUrl });
await withSql(databaseUrl, async (sql) => {
  await sql`insert into service_relations (many_collection, many_field, one_collection, one_field) values ('things', 'owner', 'owners', 'things')`;
});
await waitFor(async () => (await get(service, '/items/owners?fields=things')).status === 200, 5_000);
const fields = Object.keys(KINDS);

async function read(path: string): Promise<unknown> {
  const { status, json, text } = await get(service, path);
  if (status !== 200 || json === undefined) throw new Error(`${path} was answered ${status}: ${text.slice(0, 500)}`);
  return (json as { data: unknown }).data;
}

/** The only value of the query, as JSON. */
async function ask(query: string): Promise<unknown> {
  const rows = await withSql(databaseUrl, async (sql) => await sql.unsafe(query).values());
  return JSON.parse((rows as unknown as string[][])[0]?.[0] ?? 'null');
}

t.test('a list, a stream and an item show each kind of value as PostgreSQL would', async (t) => {
  const [list, stream] = [await read('/items/kinds?sort=id'), await read('/items/kinds?sort=id&limit=-1')];
  for (const [index, row] of expected.kinds.entries()) {
    const item = await read(`/items/kinds/${index + 1}`);
    for (const [way, shown] of Object.entries({
      list: (list as unknown[])[index],
      stream: (stream as unknown[])[index],
      item,
    })) {
      t.strictSame(Object.keys(shown as object), Object.keys(row), `${way}: the names in their order`);
      for (const name of fields)
        t.strictSame((shown as typeof row)[name], row[name], `${way}, row ${index + 1}: ${name}`);
    }
  }
});

t.test('below relations, and with a cursor', async (t) => {
  const nested = (await read('/items/parents?fields=id,kind.*&sort=kind.id')) as { id: string; kind: unknown }[];
  t.strictSame(
    nested.map(({ kind }) => kind),
    expected.kinds,
  );
  t.strictSame(nested.map(({ id }) => id).toSorted(), expected.parents.map(({ id }) => id).toSorted());
  t.strictSame(await read('/items/kinds?sort=id&limit=3&cursor='), expected.kinds.slice(0, 3));
});

t.test('aggregates and groups', async (t) => {
  const ranked = ['small', 'whole', 'big', 'day', 'clock', 'exact', 'double', 'moment', 'words'];
  const added = ['whole', 'big', 'exact', 'double'];
  const shown = (name: string, value: string): string => `${KINDS[name]?.shown?.(value) ?? value} as ${name}`;
  const each = (aggregate: string, names: readonly string[]): string =>
    `(select row_to_json(a) from (select ${names.map((name) => shown(name, `${aggregate}(${name})`))}) a) as ${aggregate}`;
  const functions = { max: ranked, min: ranked, sum: added, avg: added };
  const columns = Object.entries(functions).map(([name, names]) => each(name, names));
  const asked = Object.entries(functions).map(([name, names]) => `aggregate[${name}]=${names}`);
  for (const where of ['id > 0', 'id > 1000', 'whole = 2147483647 and double = 0.1']) {
    const filter =
      { 'id > 0': 'filter[id][_gt]=0', 'id > 1000': 'filter[id][_gt]=1000' }[where] ??
      'filter[double][_eq]=0.1&filter[whole][_eq]=2147483647';
    const oracle = await ask(
      `select row_to_json(r)::text from (select count(*) as count, ${columns} from kinds where ${where}) r`,
    );
    t.strictSame(await read(`/items/kinds?aggregate[count]=*&${asked.join('&')}&${filter}`), [oracle], where);
  }
  t.strictSame(
    await read(
      '/items/kinds?aggregate[count]=*&groupBy[]=truth&groupBy[]=words&groupBy[]=year(moment)&sort=truth,words',
    ),
    await ask(`
      select json_agg(r)::text from (
        select truth, words, case when isfinite(moment) then extract(year from moment at time zone 'UTC')::int end as moment_year, count(*) as count
        from kinds group by 1, 2, 3 order by 1, 2, 3) r`),
  );
});

t.test('keys that are texts, lists of them, and lists of items', async (t) => {
  const key = 'a"b\\c';
  t.strictSame(await read('/items/owners?fields=*'), [
    { id: key, things: [1, 2] },
    { id: 'none', things: [] },
  ]);
  const things = [
    { id: 1, owner: key },
    { id: 2, owner: key },
  ];
  t.strictSame(await read(`/items/owners/${encodeURIComponent(key)}?fields=things.*`), { things });
  const query = '{ owners { id things { id owner { id } } } }';
  const headers = { 'content-type': 'application/json' };
  const { json } = await request(service, 'POST', '/graphql', { headers, body: JSON.stringify({ query }) });
  const owner = { id: key };
  t.strictSame(json, {
    data: {
      owners: [
        {
          id: key,
          things: [
            { id: '1', owner },
            { id: '2', owner },
          ],
        },
        { id: 'none', things: [] },
      ],
    },
  });
});

t.test('GraphQL: keys are texts', async (t) => {
  const query =
    '{ kinds(sort: ["id"]) { id whole words moment document __typename } kinds_by_id(id: 1) { id whole } empty { id } }';
  const headers = { 'content-type': 'application/json' };
  const { json } = await request(service, 'POST', '/graphql', { headers, body: JSON.stringify({ query }) });
  const { data, errors } = json as { data: Record<string, unknown>; errors?: unknown };
  t.equal(errors, undefined);
  t.strictSame(data, {
    kinds: expected.kinds.map(({ id, whole, words, moment, document }) => ({
      id: String(id),
      whole,
      words,
      moment,
      document,
      __typename: 'kinds',
    })),
    kinds_by_id: { id: '1', whole: expected.kinds[0]?.['whole'] },
    empty: [],
  });
});

t.test('hundreds of columns', async (t) => {
  t.strictSame(await read('/items/wide?sort=id'), expected.wide);
});

t.test('no rows', async (t) => {
  t.strictSame(await read('/items/empty'), []);
});

t.test('a database that quotes all names in what it prints', async (t) => {
  const headers = { 'content-type': 'application/json' };
  const { status, text } = await request(service, 'POST', '/items/things', { headers, body: '{"id":3}' });
  t.equal(status, 200, text);
});

/** Reads that were compiled before a change wait until it is made: their statements meet columns of another type. */
t.test('a column that becomes a text while it is read', async (t) => {
  const types = [
    'int2',
    'int4',
    'int8',
    'numeric',
    'bool',
    'uuid',
    'json',
    'jsonb',
    'timestamptz',
    'timestamp',
    'bytea',
  ];
  const text = `x","y":{"z`;
  await withSql(databaseUrl, async (sql) => {
    await sql.unsafe(`
      create table changing (id int primary key, ${types.map((type) => `"${type}" ${type}`)});
      insert into changing (id) values (1)`);
  });
  await waitFor(async () => (await get(service, '/items/changing')).status === 200, 5_000);
  const countWaiting = (): Promise<number> =>
    withSql(databaseUrl, async (sql) => {
      const waiting = await sql`
        select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
      return waiting.length;
    });
  for (const type of types) {
    const paths = {
      list: `/items/changing?fields=${type}`,
      item: `/items/changing/1?fields=${type}`,
      stream: `/items/changing?fields=${type}&limit=-1`,
      aggregate: `/items/changing?groupBy[]=${type}`,
    };
    const reads = Object.entries(paths).filter(([way]) => way !== 'aggregate' || type !== 'json');
    // Statements that are prepared by now are not read anew.
    for (let time = 0; time < 3; time++) for (const [, path] of reads) await get(service, path);
    const answers = await withSql(databaseUrl, (sql) =>
      sql.begin(async (transaction) => {
        await transaction.unsafe(`alter table changing alter "${type}" type text using '${text}'`);
        const sent = reads.map(async ([way, path]) => ({ way, answer: await get(service, path) }));
        await waitFor(async () => (await countWaiting()) === reads.length, 10_000);
        return { sent };
      }),
    );
    for (const { way, answer } of await Promise.all(answers.sent)) {
      t.equal(answer.status, 200, `${type}, ${way}: ${answer.text.slice(0, 200)}`);
      const { data } = answer.json as { data: unknown };
      t.strictSame(Array.isArray(data) ? data : [data], [{ [type]: text }], `${type}, ${way}`);
    }
  }
});
