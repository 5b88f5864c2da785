/**
 * What is shown can be sent back and found: for a column of each type, and values that include the extremes of its range, the
 * text of the value as an answer holds it finds the row as a filter, and changes nothing as a payload. All of it in REST and in
 * GraphQL; the texts are never parsed here, so that no digit is lost on the way. The seed is fixed unless PROPERTY_SEED names
 * another one or `random`.
 */
import { Agent } from 'node:http';
import fc from 'fast-check';
import t from 'tap';
import {
  type Answer,
  connectSql,
  createDatabase,
  type RequestOptions,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';
import { type Draw, drawn } from './property/draw.js';

interface Kind {
  readonly type: string;
  /** As texts that PostgreSQL reads. */
  readonly values: readonly string[];
  readonly random?: (draw: Draw) => string;
  /** Types that PostgreSQL cannot compare are only sent back. */
  readonly compared?: false;
  readonly listed?: false;
}

const digits = (draw: Draw, count: number): string =>
  String(draw.integer(1, 9)) + draw.repeat(count, count, () => draw.integer(0, 9)).join('');
const fraction = (draw: Draw): string =>
  draw.pick(['', `.${digits(draw, 2)}`, `.${digits(draw, 5)}`, '.5', '.000001', '.100000', '.120']);
const padded = (draw: Draw, most: number, width = 2): string => String(draw.integer(1, most)).padStart(width, '0');
const day = (draw: Draw): string =>
  `${draw.pick([padded(draw, 9999, 4), padded(draw, 9999, 4), `1${digits(draw, 3)}`])}-${padded(draw, 12)}-${padded(draw, 28)}`;
const clock = (draw: Draw): string => `${padded(draw, 23)}:${padded(draw, 59)}:${padded(draw, 59)}${fraction(draw)}`;
const era = (draw: Draw): string => (draw.chance(20) ? ' BC' : '');
const bytes = (draw: Draw): string =>
  `\\x${draw.repeat(0, 200, () => draw.integer(0, 255).toString(16).padStart(2, '0')).join('')}`;
const word = (draw: Draw): string =>
  draw
    .repeat(1, 8, () => draw.pick(['a', 'B', '"', '\\', ',', '{', '}', ' ', "'", 'é', '漢', '😀', '%', '=', '>', '$']))
    .join('');
const number = (draw: Draw): string =>
  `${draw.pick(['', '-'])}${digits(draw, draw.integer(0, 30))}${draw.pick(['', `.${digits(draw, draw.integer(0, 25))}`])}`;
const document = (draw: Draw): string =>
  draw.pick([
    number(draw),
    JSON.stringify(word(draw)),
    `{"a": ${number(draw)}, "b": [${number(draw)}, {"c": ${JSON.stringify(word(draw))}}]}`,
    `[${number(draw)}, null, true]`,
  ]);
const quoted = (text: string): string => `"${text.replace(/["\\]/g, '\\$&')}"`;
const array = (draw: Draw, element: (draw: Draw) => string): string =>
  `{${draw.repeat(1, 4, () => (draw.chance(20) ? 'NULL' : quoted(element(draw))))}}`;

const KINDS: Readonly<Record<string, Kind>> = {
  small: { type: 'int2', values: ['-32768', '32767', '0'] },
  whole: { type: 'int4', values: ['-2147483648', '2147483647', '0'] },
  big: { type: 'int8', values: ['9223372036854775807', '-9223372036854775808'], random: (draw) => digits(draw, 17) },
  exact: {
    type: 'numeric',
    values: [
      'NaN',
      'Infinity',
      '-Infinity',
      '1.500',
      '1e40',
      '12345678901234567890123',
      `0.${'0'.repeat(40)}1`,
      '-0.10',
    ],
    random: number,
  },
  scaled: { type: 'numeric(30,4)', values: ['12345678901234567890123456.7891', '0', '-1.5'] },
  single: { type: 'float4', values: ['NaN', 'Infinity', '-Infinity', '0.1', '-0', '3.4028235e38', '1e-45'] },
  double: {
    type: 'float8',
    values: ['NaN', 'Infinity', '-Infinity', '0.1', '-0', '1.7976931348623157e308', '5e-324', '0.30000000000000004'],
  },
  truth: { type: 'bool', values: ['true', 'false'], listed: false },
  words: {
    type: 'text',
    // A text that says null stands for null in every filter of this family.
    values: ['true', '$NOWHERE', 'a,b', '{"a":1}', '[1]', '12345678901234567890'],
    random: word,
  },
  varied: { type: 'varchar(50)', values: ['5', ' lead '], random: word },
  padded: { type: 'char(9)', values: ['a"', 'b'] },
  unique_key: { type: 'uuid', values: ['6f9619ff-8b86-d011-b42d-00cf4fc964ff'] },
  day: {
    type: 'date',
    values: ['infinity', '-infinity', '0001-01-01', '0001-12-31 BC', '4713-11-24 BC', '5874897-12-31', '9999-12-31'],
    random: (draw) => day(draw) + era(draw),
  },
  clock: { type: 'time', values: ['00:00:00', '24:00:00', '23:59:59.999999', '12:00:00.5'], random: clock },
  zoned_clock: { type: 'timetz', values: ['23:59:59.999999+15:59', '00:00:00-15:59:59', '24:00:00+00'] },
  moment: {
    type: 'timestamptz',
    values: [
      '2024-02-29 12:00:00.123999+02',
      'infinity',
      '-infinity',
      '4713-11-24 00:00:00+00 BC',
      '294276-12-31 23:59:59.999999+00',
      '0001-01-01 00:00:00+00',
      '0001-12-31 23:59:59.999999+00 BC',
      '12024-01-01 00:00:00.5+00',
    ],
    random: (draw) => `${day(draw)} ${clock(draw)}+00${era(draw)}`,
  },
  wall: {
    type: 'timestamp',
    values: [
      '1969-12-31 23:59:59.5',
      'infinity',
      '-infinity',
      '4713-11-24 00:00:00 BC',
      '294276-12-31 23:59:59.999999',
      '0001-12-31 23:59:59.25 BC',
      '2024-02-29 00:00:00',
    ],
    random: (draw) => `${day(draw)} ${clock(draw)}${era(draw)}`,
  },
  span: { type: 'interval', values: ['1 year 2 days -00:00:01', '-178000000 years', '00:00:00.000001'] },
  document: {
    type: 'json',
    values: ['"text"', '"true"', '12345678901234567890', '{"a":1.50,"b":1e400}', '-0'],
    random: document,
  },
  parsed: {
    type: 'jsonb',
    values: ['"text"', '"true"', '12345678901234567890', '{"a":1.50,"b":1e400}', '[]', '{}'],
    random: document,
  },
  bytes: { type: 'bytea', values: ['\\x', '\\x00', '\\x00ff22', '\\xfbff', `\\x${'ab'.repeat(100)}`], random: bytes },
  numbers: { type: 'int4[]', values: ['{1,NULL,3}', '{}', '{{1,2},{3,4}}'] },
  big_numbers: { type: 'int8[]', values: ['{9223372036854775807,-1}'] },
  exact_numbers: {
    type: 'numeric[]',
    values: ['{12345678901234567890.50,NULL,NaN}'],
    random: (draw) => array(draw, number),
  },
  lines: {
    type: 'text[]',
    values: ['{NULL,"NULL","null","",a}', '{}', '{{a,b},{c,d}}'],
    random: (draw) => array(draw, word),
  },
  moments: {
    type: 'timestamptz[]',
    values: ['{"2024-02-29 12:00:00.123456+00",NULL,infinity,"0044-03-15 00:00:00+00 BC"}'],
  },
  blobs: {
    type: 'bytea[]',
    values: ['{"\\\\x00ff",NULL,"\\\\x"}', '{}', '{{"\\\\x00"},{"\\\\xff"}}'],
    random: (draw) => array(draw, bytes),
  },
  documents: { type: 'jsonb[]', values: ['{"{\\"a\\": 12345678901234567890}",NULL,"[1,2]"}'] },
  mood: { type: '"a ""mood"""', values: ['ha"ppy', 'sad'] },
  moods: { type: '"a ""mood"""[]', values: ['{"ha\\"ppy",sad}'] },
  positive: { type: 'positive', values: ['1'] },
  mail: { type: 'mail', values: ['a"@b'] },
  pair: {
    type: 'pair',
    values: ['(1,"a""b")', '(,)', '(,"")', '(-5,"a,b(c)")'],
    random: (draw) => `(${draw.integer(0, 9)},${quoted(word(draw))})`,
  },
  pairs: { type: 'pair[]', values: ['{"(1,a)",NULL,"(,\\"b c\\")"}'] },
  deep_pair: {
    type: 'deep_pair',
    values: ['("(1,a)","{1,2}","2024-02-29 12:00:00.5+00","\\\\x00ff","{""b"": 12345678901234567890}")'],
  },
  labels: {
    type: 'hstore',
    values: ['"a"=>"1", "b"=>NULL', '"a\\"b"=>"c, d=>e"'],
    random: (draw) => `${quoted(word(draw))}=>${quoted(word(draw))}`,
  },
  span_of_days: {
    type: 'daterange',
    values: ['[2024-01-01,2024-02-01)', 'empty', '(,)', '[0044-03-15 BC,2024-01-01)'],
  },
  spans: { type: 'int4multirange', values: ['{[1,3),[5,9)}'] },
  address: { type: 'inet', values: ['10.0.0.1/8', '::1'] },
  place: { type: 'point', values: ['(1,2)', '(NaN,-Infinity)'], compared: false },
  bits: { type: 'bit varying', values: ['101'] },
  money: { type: 'money', values: ['-92233720368547758.08', '12.5'] },
  lexemes: { type: 'tsvector', values: [`'a"b' 'c':1A`] },
  markup: { type: 'xml', values: ['<a b="c">d</a>'], compared: false },
  folded: { type: 'citext', values: ['Abc'], random: word },
  tree: { type: 'ltree', values: ['a.b.c'] },
};

const RANDOM = 2;
const given = process.env['PROPERTY_SEED'] ?? '20260101';
const seed = given === 'random' ? Math.floor(Math.random() * 2_000_000_000) : Number(given);
t.comment(`PROPERTY_SEED=${seed}`);

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'round_trip');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create extension hstore; create extension citext; create extension ltree;
  create type "a ""mood""" as enum ('ha"ppy', 'sad');
  create domain positive as int4 check (value > 0);
  create domain mail as text;
  create type pair as (one int4, two text);
  create type deep_pair as (inside pair, list int4[], moment timestamptz, blob bytea, document jsonb);
  ${Object.entries(KINDS)
    .map(
      ([name, { type }]) =>
        `create table of_${name} (id int primary key generated always as identity, v ${type}, touched int default 0);`,
    )
    .join('\n')}`);
const service = await startTestService({ databaseUrl });
const headers = { 'content-type': 'application/json' };
const agent = new Agent({ keepAlive: true, maxSockets: 1 });
t.teardown(() => agent.destroy());

async function send(method: string, path: string, options: RequestOptions = {}): Promise<Answer> {
  return request(service, method, path, { headers, agent, ...options });
}

/** The value of `v` in an answer, as the text that stands there: it is the only field of the only item. */
function shownIn(answer: Answer): string {
  const start = answer.text.indexOf('{"v":') + '{"v":'.length;
  const depth = answer.text.slice(0, start).split('{').length - 1;
  if (answer.status !== 200 || depth < 2) throw new Error(`answered ${answer.status}: ${answer.text.slice(0, 300)}`);
  return answer.text.slice(start, -depth);
}

async function graphql(query: string, variables: string): Promise<Answer> {
  return send('POST', '/graphql', { body: `{"query":${JSON.stringify(query)},"variables":${variables}}` });
}

for (const [name, kind] of Object.entries(KINDS)) {
  t.test(`${kind.type}: what is shown is found and changes nothing`, async (t) => {
    const drawnValues = kind.random ? fc.sample(drawn(kind.random), { seed, numRuns: RANDOM }) : [];
    // The text of json may have spaces where the document of a payload has none.
    const asText = kind.type === 'json' ? 'v::jsonb::text' : 'v::text';
    for (const value of [...kind.values, ...drawnValues]) {
      const [row] = await sql.unsafe<{ id: number; kept: string }[]>(
        `insert into of_${name} (v) values ($1::text::${kind.type}) returning id, ${asText} as kept`,
        [value],
      );
      const { id, kept } = row as { id: number; kept: string };
      const label = `${kept.slice(0, 100)}`;
      const stays = async (way: string, answer: Answer): Promise<void> => {
        const [after] = await sql.unsafe<{ kept: string }[]>(
          `select ${asText} as kept from of_${name} where id = ${id}`,
        );
        if (answer.status !== 200 || answer.text.includes('"errors"') || after?.kept !== kept)
          t.same(
            { status: answer.status, kept: after?.kept, text: answer.text.slice(0, 300) },
            { kept },
            `${way}: ${label}`,
          );
        else t.pass(`${way}: ${label}`);
      };
      const finds = (way: string, answer: Answer): void => {
        const found = answer.status === 200 && new RegExp(`"id":"?${id}"?[,}]`).test(answer.text);
        t.ok(found, `${way} finds ${label}`, found ? {} : { answer: answer.text.slice(0, 300) });
      };
      const shown = shownIn(await send('GET', `/items/of_${name}/${id}?fields=v`));
      const inGraphql = shownIn(await graphql(`{ of_${name}_by_id(id: ${id}) { v } }`, '{}'));
      if (kind.compared !== false) {
        const condition = shown === '""' ? '{"_empty":true}' : `{"_eq":${shown}}`;
        const filter = `{"_and":[{"id":{"_eq":${id}}},{"v":${condition}}]}`;
        finds(
          'SEARCH',
          await send('SEARCH', `/items/of_${name}`, { body: `{"query":{"fields":["id"],"filter":${filter}}}` }),
        );
        finds('GET', await send('GET', `/items/of_${name}?fields=id&filter=${encodeURIComponent(filter)}`));
        if (kind.listed !== false) {
          const listed = filter.replace(`{"_eq":${shown}}`, () => `{"_in":[${shown}]}`);
          finds(
            '_in',
            await send('SEARCH', `/items/of_${name}`, { body: `{"query":{"fields":["id"],"filter":${listed}}}` }),
          );
        }
        finds(
          'GraphQL',
          await graphql(
            `query ($f: of_${name}_filter) { of_${name}(filter: $f) { id } }`,
            `{"f":{"_and":[{"id":{"_eq":"${id}"}},{"v":${condition.replace(`:${shown}}`, () => `:${inGraphql}}`)}}]}}`,
          ),
        );
      }
      await stays('PATCH', await send('PATCH', `/items/of_${name}/${id}`, { body: `{"v":${shown},"touched":1}` }));
      await stays(
        'GraphQL update',
        await graphql(
          `mutation ($d: update_of_${name}_input!) { update_of_${name}_item(id: ${id}, data: $d) { v } }`,
          `{"d":{"v":${inGraphql},"touched":2}}`,
        ),
      );
    }
  });
}
