/**
 * The kernel that keeps requests out of SQL text: what may become a fragment, how names and literals are quoted (asked of
 * PostgreSQL itself), how parameters are numbered and bound, and what the last gate lets through.
 */
import fc from 'fast-check';
import t from 'tap';
import {
  alias,
  type Fragment,
  identifier,
  integerLiteral,
  join,
  literal,
  nothing,
  parameter,
  quoteIdentifier,
  sql,
  statement,
} from '../../src/compiler/sql/fragment.js';
import { loadGrammar } from '../../src/compiler/sql/grammar.js';
import { adjustNow } from '../../src/compiler/sql/now.js';
import { bind, type Caller, type Parameter, type Value } from '../../src/compiler/sql/parameter.js';
import { verify } from '../../src/compiler/sql/verify.js';
import { startDatabase, withSql } from '../support/service.js';

const server = await startDatabase();
await loadGrammar();

const caller: Caller = { user: 'a-user', role: null, roles: ['one', 'two "quoted"'], policies: [] };
const key = { kind: 'value', slot: 0, codec: 'int4', field: 'id', use: 'key' } as const satisfies Parameter;

t.test('only fragments go into a fragment', async (t) => {
  const parts = [{ kind: 'text', text: 'drop table articles' }];
  const forged: readonly (readonly [string, unknown])[] = [
    ['a text', "'; drop table articles; --"],
    ['an empty text', ''],
    ['a number', 1],
    ['a bigint', 1n],
    ['a truth value', true],
    ['null', null],
    ['undefined', undefined],
    ['a list', [sql`select 1`]],
    ['an object', { toString: () => 'drop table articles' }],
    ['a function', () => sql`select 1`],
    ['an object like a fragment', { parts }],
    ['a fragment that went through JSON', JSON.parse(JSON.stringify(sql`select 1`))],
    ['a copy of a fragment', { ...sql`select 1` }],
    ['a parameter that is not wrapped', key],
  ];
  for (const [name, value] of forged) {
    t.throws(() => sql`select ${value as Fragment}`, { message: /^only fragments may be put into SQL/ }, name);
    t.throws(() => sql`select ${sql`1`}, ${value as Fragment}`, Error, `${name}, in second place`);
  }
});

t.test('text cannot be passed to the tag as to a function', async (t) => {
  const call = sql as unknown as (...words: unknown[]) => Fragment;
  for (const words of [['drop table articles'], [['drop table articles']], [{ raw: ['drop'] }], [{}], []]) {
    t.throws(() => call(...words), Error, JSON.stringify(words));
  }
});

t.test('fragments are put together in order, the white space of our templates is folded', async (t) => {
  const condition = sql`${identifier('a')} = ${parameter(key)}`;
  const made = sql`
    select ${join([identifier('x'), identifier('y')], sql`, `)}
    from ${identifier('public', 'two  spaces')}
    where ${condition}${nothing} limit ${integerLiteral(10)}`;
  t.equal(
    statement(made).text,
    'select "x", "y" from "public"."two  spaces" where "a" operator(pg_catalog.=) $1 limit 10',
  );
  t.equal(nothing.parts.length, 0);
  t.equal(join([], sql`, `).parts.length, 0);
  t.not(condition.parts.length, 0);
  t.equal(statement(alias('r')).text, '"%r"');
});

t.test('numbers of ours are whole, and a sign cannot become a comment', async (t) => {
  for (const value of [1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, '1' as unknown as number]) {
    t.throws(() => integerLiteral(value), { message: 'not an integer' }, String(value));
  }
  const { text } = statement(sql`select 7-${integerLiteral(-5)} as value`);
  t.strictSame(await run(text), [{ value: 12 }]);
});

t.test('names are quoted as PostgreSQL reads them', async (t) => {
  const names = [
    'plain',
    'Mixed Case',
    'select',
    'quo"te',
    '"',
    '""',
    "it's",
    'back\\slash',
    'new\nline',
    'ünïcode 漢字 😀',
    '%p',
    '$1',
    '--',
    '/*',
    ';',
    'x'.repeat(63),
    `${'é'.repeat(31)}x`,
  ];
  for (const name of names) {
    const [row] = await run(statement(sql`select 1 as ${identifier(name)}`).text);
    t.strictSame(Object.keys(row ?? {}), [name], JSON.stringify(name));
  }
  t.equal(quoteIdentifier('a"b'), '"a""b"');
  t.throws(() => identifier('x'.repeat(64)), { message: /longer than 63 bytes/ });
  t.throws(() => identifier('é'.repeat(32)), { message: /longer than 63 bytes/ }, 'bytes count, not characters');
  t.throws(() => identifier('a\0b'), { message: /NUL/ });
  t.throws(() => identifier(''), { message: /empty/ });
  t.throws(() => identifier('public', ''), { message: /empty/ });
});

t.test('literals come back as they were, whatever they hold and however the server reads backslashes', async (t) => {
  const texts = [
    '',
    "'",
    "''",
    '\\',
    "\\'",
    "\\\\'; drop table articles; --",
    'new\nline\r\ttab',
    '$1 $$ $x$',
    '%s %',
    'ü漢😀',
    "E'",
    '\u2028',
  ];
  const random = fc.sample(
    fc.string({ unit: fc.constantFrom("'", '\\', 'n', '"', '$', ' ', 'é', '\n', 'u', '0') }),
    300,
  );
  const wanted = [...texts, ...random];
  const { text, parameters } = statement(sql`select array[${join(wanted.map(literal), sql`, `)}]::text[] as found`);
  t.equal(parameters.length, 0);
  await withSql(server.url, async (connection) => {
    for (const setting of ['on', 'off']) {
      await connection`select set_config('standard_conforming_strings', ${setting}, false)`;
      const [row] = await connection.unsafe(text);
      t.strictSame(row?.['found'], wanted, `standard_conforming_strings ${setting}`);
    }
  });
  t.throws(() => literal('a\0b'), { message: /NUL/ });
});

t.test('parameters are numbered in the order of the text, and equal ones are one', async (t) => {
  const other: Parameter = { ...key, slot: 1, codec: 'text', field: 'name', use: 'filter' };
  const sameSlotOtherType: Parameter = { ...key, codec: 'text' };
  const made = statement(
    sql`select ${parameter(other)}::text, ${parameter(key)}::int, ${parameter({ ...other })}::text, ${parameter(sameSlotOtherType)}::text`,
  );
  t.equal(made.text, 'select $1::text, $2::int, $1::text, $3::text');
  t.strictSame(made.parameters, [other, key, sameSlotOtherType]);
  t.equal(Object.isFrozen(made) && Object.isFrozen(made.parameters), true);
  t.strictSame(bind(made.parameters, ['7', 'x'], caller), ['x', '7', '7']);
  t.strictSame(await run(made.text, bind(made.parameters, ['7', 'x'], caller)), [{ text: '7', int4: 7 }]);
});

t.test('the last gate lets one read of known tables pass, and nothing else', async (t) => {
  const known = (schema: string, name: string): boolean => schema === 'public' && name === 'articles';
  const passes = [
    'select 1',
    'select * from "public"."articles"',
    'select (select count(*) from public.articles) union all select 1',
    'with page as (select * from public.articles) select * from page',
    'select * from public.articles a left join lateral (select * from public.articles b where b.id = a.id limit 1) c on true',
    'select a from generate_series(1, $1) a',
    "select service_estimate('select from public.articles where id = ($1)[1]::int4', array[$1])",
  ];
  for (const text of passes) t.doesNotThrow(() => verify(text, 'read', known), text);
  const refused: readonly (readonly [string, RegExp])[] = [
    ['', /a compiled/],
    ['-- nothing', /a compiled/],
    ['select 1; select 2', /not exactly one statement/],
    ['select 1; drop table public.articles', /not exactly one statement/],
    ['select from where', /does not parse/],
    ["select 'open", /does not parse/],
    ['delete from public.articles', /no SelectStmt/],
    ['update public.articles set id = 1', /no SelectStmt/],
    ['insert into public.articles default values', /no SelectStmt/],
    ['drop table public.articles', /no SelectStmt/],
    ['copy public.articles to stdout', /no SelectStmt/],
    ['explain select 1', /no SelectStmt/],
    ['do $$ begin end $$', /no SelectStmt/],
    ['with gone as (delete from public.articles returning *) select * from gone', /DeleteStmt/],
    ['with made as (insert into public.articles default values returning *) select * from made', /InsertStmt/],
    ['with made as (update public.articles set id = 1 returning *) select (select count(*) from made)', /UpdateStmt/],
    ['select * into public.copies from public.articles', /intoClause/],
    ['select * from public.secrets', /touches "public"."secrets"/],
    ['select * from pg_catalog.pg_authid', /touches "pg_catalog"."pg_authid"/],
    ['select * from other.articles', /touches "other"."articles"/],
    ['select * from articles', /touches ""."articles"/],
    ['select 1 where exists (select from public.secrets)', /touches "public"."secrets"/],
    ['with page as (select * from public.secrets) select * from page', /touches "public"."secrets"/],
    ['select * from public.articles a left join lateral (select * from public.secrets) b on true', /"secrets"/],
    ["select public.service_estimate('select from public.secrets', $1)", /touches "public"."secrets"/],
    ["select service_estimate('delete from public.articles', $1)", /no SelectStmt/],
    ["select service_estimate('select 1' || $1, $2)", /is no constant/],
  ];
  for (const [text, message] of refused) {
    t.throws(() => verify(text, 'read', known), { name: 'Error', message }, text);
  }
});

t.test('values are written for their column or refused before PostgreSQL sees them', async (t) => {
  const uuid = '0a1b2c3d-0000-4000-8000-00000000000F';
  const fits: readonly (readonly [codec: string, given: Value, written: string | null])[] = [
    ['int2', '-32768', '-32768'],
    ['int2', 32767, '32767'],
    ['int4', '2147483647', '2147483647'],
    ['int4', '-2147483648', '-2147483648'],
    ['int4', '+7', '+7'],
    ['int4', '007', '007'],
    ['int8', '9223372036854775807', '9223372036854775807'],
    ['int8', '-9223372036854775808', '-9223372036854775808'],
    ['float8', '1e-300', '1e-300'],
    ['float8', '.5', '.5'],
    ['float4', -0.25, '-0.25'],
    ['numeric', '123456789012345678901234567890.5', '123456789012345678901234567890.5'],
    ['bool', true, 'true'],
    ['bool', 'false', 'false'],
    ['bool', '1', 'true'],
    ['bool', 0, 'false'],
    ['uuid', uuid, uuid],
    ['text', '', ''],
    ['text', "'; --", "'; --"],
    ['text', 5, '5'],
    ['text', true, 'true'],
    ['varchar', '漢', '漢'],
    ['some_enum', 'ok', 'ok'],
    ['constructor', 'a type of this name', 'a type of this name'],
    ...['int4', 'float8', 'bool', 'uuid', 'text'].map((codec) => [codec, null, null] as const),
  ];
  for (const [codec, given, written] of fits) {
    t.strictSame(bind([{ ...key, codec }], [given], caller), [written], `${codec} ${given}`);
    if (codec === 'some_enum' || codec === 'constructor') continue;
    const cast = sql`select ${parameter(key)}::${identifier('pg_catalog', codec)} as value`;
    await t.resolves(run(statement(cast).text, [written]), `PostgreSQL takes ${written} as ${codec}`);
  }
  const misfits: readonly (readonly [codec: string, given: Value, reason: RegExp])[] = [
    ['int2', '32768', /whole number in the range of int2/],
    ['int2', -32769, /whole number in the range of int2/],
    ['int4', '2147483648', /whole number in the range of int4/],
    ['int4', '-2147483649', /whole number in the range of int4/],
    ['int8', '9223372036854775808', /whole number in the range of int8/],
    ['int8', '-9223372036854775809', /whole number in the range of int8/],
    ['int4', '', /whole number/],
    ['int4', ' 1', /whole number/],
    ['int4', '1.0', /whole number/],
    ['int4', '1e3', /whole number/],
    ['int4', '0x10', /whole number/],
    ['int4', '1_000', /whole number/],
    ['int4', '١', /whole number/],
    ['int4', '1\0', /whole number/],
    ['int4', 'abc', /whole number/],
    ['int4', true, /a number/],
    ['int4', 1e21, /whole number/],
    ['int4', Number.NaN, /whole number/],
    ['int8', '9'.repeat(1_000), /whole number/],
    ['float8', '', /a number/],
    ['float8', 'one', /a number/],
    ['float8', '1e', /a number/],
    ['float8', '--1', /a number/],
    ['numeric', '.', /a number/],
    ['numeric', false, /a number/],
    ['bool', 'yes', /true or false/],
    ['bool', 2, /true or false/],
    ['bool', '', /true or false/],
    ['uuid', uuid.slice(1), /UUID/],
    ['uuid', `{${uuid}}`, /UUID/],
    ['uuid', `${uuid}\n`, /UUID/],
    ['text', 'a\0b', /NUL/],
    ['some_enum', '\0', /NUL/],
  ];
  for (const [codec, given, reason] of misfits) {
    const name = `${codec} ${JSON.stringify(given).slice(0, 40)}`;
    const asFilter = () => bind([{ ...key, codec, use: 'filter' }], [given], caller);
    t.throws(asFilter, { code: 'INVALID_QUERY', status: 400, message: reason }, `${name} in a filter`);
    t.throws(() => bind([{ ...key, codec }], [given], caller), { code: 'FORBIDDEN', status: 403 }, `${name} as a key`);
  }
});

t.test('pages become offsets', async (t) => {
  const limit: Parameter = { kind: 'limit', slot: 0 };
  const page: Parameter = { kind: 'page', slot: 1, limit: { slot: 0 } };
  t.strictSame(bind([limit, page], [25, 3], caller), ['25', '50']);
  t.strictSame(bind([page], [25, 1], caller), ['0']);
  t.strictSame(bind([page], [25, 0], caller), ['0'], 'there is no page before the first');
  t.strictSame(bind([{ kind: 'page', slot: 0, limit: 100 }], [2], caller), ['100']);
  t.strictSame(bind([{ kind: 'offset', slot: 0 }], [7], caller), ['7']);
  t.throws(() => bind([page], [2_147_483_647, 2 ** 40], caller), { code: 'INVALID_QUERY' });
});

t.test('lists, patterns and search terms mean what was sent, whatever it holds', async (t) => {
  const filter = { slot: 0, codec: 'text', field: 'name', use: 'filter' } as const;
  const texts = ['', 'NULL', 'a,b', '{}', '"', '\\', '\\"', ' spaced ', "it's", 'ü漢', '%', '_', '100%_\\'];
  const [list] = bind([{ kind: 'list', ...filter }], [[...texts, null]], caller);
  t.strictSame(await run('select to_json($1::text[]) as found', [list ?? null]), [{ found: [...texts, null] }]);
  t.strictSame(bind([{ kind: 'list', ...filter, codec: 'int4' }], [['1', 2]], caller), ['{"1","2"}']);
  t.strictSame(bind([{ kind: 'list', ...filter }], ['alone'], caller), ['{"alone"}']);
  t.strictSame(bind([{ kind: 'entry', position: 1, ...filter }], [['a', 'b']], caller), ['b']);
  t.throws(() => bind([{ kind: 'list', ...filter, codec: 'int4' }], [['1', 'x']], caller), { code: 'INVALID_QUERY' });
  t.throws(() => bind([{ kind: 'list', ...filter }], [['a\0']], caller), { code: 'INVALID_QUERY' });
  t.throws(() => bind([{ kind: 'value', ...filter }], [['a']], caller), { code: 'INVALID_QUERY', message: /a list/ });

  for (const text of texts) {
    const kinds = ['contains', 'starts', 'ends'] as const;
    const patterns = bind(
      kinds.map((pattern) => ({ kind: 'pattern', pattern, ...filter })),
      [text],
      caller,
    );
    const matches = await run(
      `select concat('<', $4::text, '>') like $1 as contains, concat($4::text, '>') like $2 as starts,
        concat('<', $4::text) like $3 as ends, 'something else' like $1 as other`,
      [...patterns, text],
    );
    t.strictSame(matches, [{ contains: true, starts: true, ends: true, other: text === '' }], JSON.stringify(text));
  }
  const search = (codec: string): Parameter => ({ kind: 'search', slot: 0, codec });
  t.strictSame(bind([search('int4'), search('uuid'), search('text')], ['12'], caller), ['12', null, '12']);
  t.strictSame(bind([search('int4'), search('text')], ['99999999999'], caller), [null, '99999999999']);
});

t.test('variables speak of the caller and of the time', async (t) => {
  const of = (variable: string, codec = 'text'): (string | null)[] =>
    bind([{ kind: 'value', slot: 0, codec, field: 'at', use: 'filter' }], [{ variable }], caller);
  t.strictSame(of('$CURRENT_USER'), ['a-user']);
  t.strictSame(of('$CURRENT_ROLE'), [null]);
  t.throws(() => of('$CURRENT_ROLES'), { code: 'INVALID_QUERY' });
  const roles = bind([{ kind: 'caller', variable: '$CURRENT_ROLES' }], [], caller);
  t.strictSame(await run('select to_json($1::text[]) as found', roles), [{ found: caller.roles }]);

  const now = new Date('2024-03-31T12:00:00.000Z');
  const moved: readonly (readonly [string, string])[] = [
    ['$NOW', '2024-03-31T12:00:00.000Z'],
    ['$NOW(-1 day)', '2024-03-30T12:00:00.000Z'],
    ['$NOW(+2 hours)', '2024-03-31T14:00:00.000Z'],
    ['$NOW(-1 month)', '2024-02-29T12:00:00.000Z'],
    ['$NOW(-13 months)', '2023-02-28T12:00:00.000Z'],
    ['$NOW(1 year)', '2025-03-31T12:00:00.000Z'],
    ['$NOW()', '2024-03-31T12:00:00.000Z'],
    ['$NOW(+8000 years)', '010024-03-31T12:00:00.000Z'],
    ['$NOW(-2024 years)', '0001-03-31T12:00:00.000Z BC'],
    ['$NOW(-2500 years)', '0477-03-31T12:00:00.000Z BC'],
  ];
  for (const [variable, expected] of moved) {
    t.equal(adjustNow(variable, now), expected, variable);
    await t.resolves(run('select $1::text::timestamptz::text as read', [expected]), `PostgreSQL reads ${expected}`);
  }
  for (const variable of ['$NOW(nonsense)', '$NOW(', '$NOW(-1 fortnight)', '$NOW(-1 year 2)', '$NOW(-999999999 years)'])
    t.throws(() => adjustNow(variable, now), { code: 'INVALID_QUERY' }, variable);
});

async function run(text: string, parameters: readonly (string | null)[] = []): Promise<Record<string, unknown>[]> {
  return withSql(server.url, async (connection) =>
    (await connection.unsafe(text, [...parameters] as string[])).map((row) => ({ ...row })),
  );
}
