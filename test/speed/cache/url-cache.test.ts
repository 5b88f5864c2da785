/** URLs of one pattern are parsed once: what comes out of the cache is what the parser would have said. */
import t from 'tap';
import type { Parsed } from '../../../src/compiler/request/ast.js';
import { patternOf, UrlCache } from '../../../src/compiler/request/parse-cache.js';
import type { ParseLimits } from '../../../src/compiler/request/parse-context.js';
import { parseRead } from '../../../src/compiler/request/rest.js';

const LIMITS: ParseLimits = {
  relationalDepth: 10,
  jsonDepth: 10,
  bracketDepth: 10,
  arrayLength: 500,
  pageSize: null,
  wholeRows: 10_000,
  nodes: 1_000,
};

const TEMPLATES = [
  'fields=id,title&filter[id][_gte]=V&sort=id&limit=25',
  'filter[id]=V',
  'filter%5Bid%5D%5B_eq%5D=V',
  'filter[id][_in]=V',
  'filter[id][_in][]=V&filter[id][_in][]=V',
  'filter[_or][0][id][_eq]=V&filter[_or][1][title][_contains]=V',
  'filter[document][_json][a][_gt]=V',
  'filter[document][_json][a][_eq]=V',
  'filter[title][_null]=V',
  'filter[title][_between]=V,V',
  'filter[id][_eq]=V&filter[id][_eq]=V',
  'deep[comments][_filter][id][_lt]=V&deep[comments][_limit]=V',
  'limit=V&filter[author][name][_starts_with]=V',
  'aggregate[count]=*&filter[year(created)][_eq]=V',
  'filter=V',
];
const VALUES = [
  ...['1', '0', '42', '007', '730451928000000', 'p730451928000000', '12345678901234567890', '-5', '1.5', '1e5', '.5'],
  ...[
    'true',
    'false',
    'null',
    'NULL',
    'True',
    'a',
    'a-b_c.d',
    '2024-01-01T10:00:00',
    'a,b',
    '$NOW',
    '$CURRENT_USER',
    '',
  ],
  ...[
    '[1]',
    '{"a":1}',
    '"null"',
    '%22null%22',
    'a%20b',
    'a+b',
    '%',
    '\u0001',
    '\uE000',
    '9f1c2d3e-0000-4000-8000-000000000000',
    'x'.repeat(65),
  ],
];

type Outcome = Parsed | string;

function outcomeOf(parse: () => Parsed): Outcome {
  try {
    return parse();
  } catch (error) {
    return String(error);
  }
}

t.test('every value of every pattern is read as by the parser, in any order', async (t) => {
  const cache = new UrlCache();
  let compared = 0;
  for (let turn = 0; turn < 4; turn++)
    for (const template of TEMPLATES)
      for (const [position] of VALUES.entries()) {
        let next = position * (turn + 1);
        const url = template.replaceAll('V', () => VALUES[next++ % VALUES.length] as string);
        const parse = (text: string): Parsed => parseRead('articles', null, text, LIMITS);
        const expected = outcomeOf(() => parse(url));
        const found = outcomeOf(() => cache.get('list articles', url, parse));
        if (JSON.stringify(found) !== JSON.stringify(expected)) t.same(found, expected, url);
        compared++;
      }
  t.equal(compared, 4 * TEMPLATES.length * VALUES.length);
});

t.test('a URL whose pattern was seen twice is not parsed again', async (t) => {
  const cache = new UrlCache();
  let parsed = 0;
  const ask = (value: string): Parsed =>
    cache.get('list articles', `filter[id][_eq]=${value}&limit=25`, (text) => {
      parsed++;
      return parseRead('articles', null, text, LIMITS);
    });
  ask('1');
  ask('2');
  const before = parsed;
  t.strictSame(ask('3').values, ['3']);
  t.strictSame(ask('4').values, ['4']);
  t.equal(parsed, before);
  ask('null');
  t.equal(parsed, before + 1, 'a value that the parser reads in a way of its own');
});

t.test('limits, fields and sorts are part of the pattern', async (t) => {
  t.strictSame(patternOf('limit=5&filter[id][_eq]=7')?.values, ['7']);
  t.equal(patternOf('limit=5&sort=id&fields=id'), null);
});
