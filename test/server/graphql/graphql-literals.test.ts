/**
 * Documents that differ in their literals alone are parsed and validated once; what becomes of each, places of errors included, is
 * what becomes of a document that was never seen before.
 */
import { Lexer, Source, TokenKind } from 'graphql';
import t from 'tap';
import { runSteps } from '../../../src/base/time-slices.js';
import { schemaAccessOf } from '../../../src/compiler/access/graphql-access.js';
import { DocumentFailure, FieldFailure } from '../../../src/compiler/graphql/failure.js';
import { findLiterals, Operations, type RunInBudget } from '../../../src/compiler/graphql/operations.js';
import { Schemas } from '../../../src/compiler/graphql/schema.js';
import { buildModel } from '../../../src/compiler/model/introspect.js';
import type { ParseLimits } from '../../../src/compiler/request/parse-context.js';
import { catalogSourceOf } from '../../../src/server/postgres/catalog/catalog.js';
import { locateSystemTables } from '../../../src/server/postgres/catalog/migrate.js';
import { Database } from '../../../src/server/postgres/pools/database.js';
import { createLibrary, request, startDatabase, startTestService } from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'graphql_literals');
const database = await Database.open({
  url: databaseUrl,
  schema: 'public',
  otherSchemas: [],
  connections: 1,
  sessions: 1,
  streams: 1,
  imports: 1,
  waitTimeout: 10_000,
  statementTimeout: 10_000,
  connectTimeout: 10_000,
});
await locateSystemTables(database, null);
const access = schemaAccessOf(null, buildModel((await catalogSourceOf(database).load()).document, 1, database));
await database.close();

const DOCUMENT_LIMITS = { tokens: 1_000, depth: 10, nodes: 100, aliases: 10, introspection: true };
const LIMITS: ParseLimits = {
  relationalDepth: 10,
  jsonDepth: 10,
  bracketDepth: 10,
  arrayLength: 500,
  pageSize: null,
  wholeRows: 10_000,
  nodes: 1_000,
};

function makeOperations(): Operations {
  return new Operations(new Schemas(1, []), DOCUMENT_LIMITS, LIMITS, 16_777_216);
}

/** What comes of a document, and how many documents had to be parsed for it. */
async function outcome(operations: Operations, text: string, variables: object = {}): Promise<[unknown, number]> {
  let parsed = 0;
  const run: RunInBudget = (_, work) => {
    // Only parsing a document has several steps.
    const steps = work();
    const first = steps.next();
    if (first.done) return first.value;
    parsed++;
    return runSteps(steps);
  };
  try {
    const asked = { text, operationName: null, variables: { ...variables }, safe: false };
    return [plain(await operations.parse(asked, access, 'items', run)), parsed];
  } catch (error) {
    if (error instanceof DocumentFailure) return [error.errors, parsed];
    if (!(error instanceof FieldFailure)) throw error;
    return [{ position: error.position, cause: String(error.cause) }, parsed];
  }
}

function plain(value: object): unknown {
  return JSON.parse(JSON.stringify(value));
}

const schemas = makeOperations();
/** Each time as if nothing had been seen before; schemas are costly and change nothing. */
function freshOutcome(text: string, variables: object = {}): Promise<[unknown, number]> {
  return outcome(new Operations(schemas.schemas, DOCUMENT_LIMITS, LIMITS, 16_777_216), text, variables);
}

/** A place for a number is a `#`, for a string a `?`. */
const DOCUMENTS: readonly string[] = [
  '{ articles(filter: { id: { _gte: # } }, limit: #) { id title } other: tags(limit: #) { like_it: id } }',
  '{ articles(filter: { title: { _in: [?, ?] } }, sort: ?) { id comments(limit: #, filter: { body: { _eq: ? } }) { id } } }',
  'query ($n: Int = 5, $no: Boolean = false) { articles(limit: $n, page: #) @skip(if: $no) { id } one: tags_by_id(id: #) { id } }',
  '{ articles(filter: { meta: { _json: { a: { _eq: # }, b: [?, { c: # }] } } }) { id } }',
  '{ articles { comments(limit: #) { id } ...A } } fragment A on articles { comments(limit: #) { body } }',
  'mutation { create_tags_item(data: { name: ? }) { id name } delete_articles_item(id: #) { id } }',
  'mutation { create_articles_item(data: { title: ?, meta: { a: [#] }, comments: [{ body: ? }] }) { id } }',
  '{\n articles(search: ?, offset: #) { id } } ',
];

const NUMBERS = ['1', '25', '25', '1', '0', '7', '12', '3'];
const STRINGS = ['"a"', '"b"', '"id"', '"-id"', '"title"', '"$NOW"', '"1"', '"b"'];
const OTHERS = [
  ['-1', '2147483648', '9007199254740993', '1.5', '1e3', '-0', '100000000000000000000', '"1"', '""'],
  ['"\\u0041"', '"\\u{1F600}"', '"a \\"b\\" \\\\"', '"""\n  block "quoted" \\"""\n"""', '"ü😀"', '"__schema"'],
  ['01', '1.', '"\\x"', '"open', '.5', '1a', '"\ud800"', '# 1 "two"\n 5', '""""""', '1"a"'],
];

function fill(document: string, next: () => number): string {
  const usual = next() % 2 === 0;
  return document.replace(/[?#]/g, (place) => {
    const common = place === '#' ? NUMBERS : STRINGS;
    const list = usual || next() % 3 > 0 ? common : (OTHERS[next() % OTHERS.length] ?? common);
    return list[next() % list.length] ?? '';
  });
}

/** Numbers that look random and are the same in every run. */
function generator(): () => number {
  let state = 42;
  return () => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return state >> 8;
  };
}

t.test('any literals have the outcome of a new document', async (t) => {
  const shared = makeOperations();
  const next = generator();
  let saved = 0;
  for (let turn = 0; turn < 400; turn++) {
    const text = fill(DOCUMENTS[turn % DOCUMENTS.length] ?? '', next);
    const [found, parsed] = await outcome(shared, text);
    const [expected] = await freshOutcome(text);
    if (parsed === 0) saved++;
    t.strictSame(found, expected, text);
  }
  t.ok(saved > 100, `${saved} of 400 documents were not parsed`);
});

t.test('a document that differs in literals is not parsed again', async (t) => {
  const shared = makeOperations();
  const text = (key: number, limit: number): string =>
    `{ articles(filter: { id: { _gte: ${key} } }, limit: ${limit}) { id author { id } } }`;
  const parsed: number[] = [];
  for (const [key, limit] of [
    [1, 1],
    [2, 25],
    [3, 0],
    [-4, -1],
  ] as const)
    parsed.push((await outcome(shared, text(key, limit)))[1]);
  t.strictSame(parsed, [1, 0, 0, 0], 'equal by chance is not equal for ever');
  t.strictSame((await outcome(shared, text(5, 5).replace('{ id }', '{ name }')))[1], 1, 'another selection');
  t.strictSame((await outcome(shared, text(5, 5).replace(': 5 }', ': 5.0 }')))[1], 1, 'another kind of literal');
});

t.test('errors that only a new document can report', async (t) => {
  const shared = makeOperations();
  const limited = (limit: string): string => `{\n  tags { id } articles(limit: ${limit}) { id }\n}`;
  await outcome(shared, limited('5'));
  t.match((await outcome(shared, limited('2147483648')))[0], [
    { message: /32-bit/, locations: [{ line: 2, column: 31 }] },
  ]);
  const merged = (one: number, other: number): string =>
    `{ articles { comments(limit: ${one}) { id } comments(limit: ${other}) { body } } }`;
  t.match((await outcome(shared, merged(1, 1)))[0], { kind: 'query' });
  t.match(await outcome(shared, merged(2, 2)), [{ kind: 'query' }, 0]);
  t.match((await outcome(shared, merged(2, 3)))[0], [{ message: /differing arguments/ }]);
  const types = (name: string): string => `{ __type(name: "${name}") { name } }`;
  await outcome(shared, types('articles'));
  t.strictSame((await outcome(shared, types('tags')))[0], (await freshOutcome(types('tags')))[0]);
  t.strictSame((await outcome(shared, types('nothing')))[0], (await freshOutcome(types('nothing')))[0]);
});

t.test('literals are found where the lexer of graphql-js finds them', async (t) => {
  const next = generator();
  let compared = 0;
  for (let turn = 0; turn < 300; turn++) {
    const text = fill(DOCUMENTS[turn % DOCUMENTS.length] ?? '', next);
    const found = findLiterals(text);
    if (!found) continue;
    const expected = tokensOf(text);
    if (!expected) continue;
    compared++;
    t.strictSame(
      found.literals.map(({ start, end, node }) => [start, end, node.value]),
      expected,
      text,
    );
  }
  t.ok(compared > 100);
});

/** Null for what the lexer refuses. */
function tokensOf(text: string): unknown[] | null {
  const found: unknown[] = [];
  const literals: readonly TokenKind[] = [TokenKind.STRING, TokenKind.BLOCK_STRING, TokenKind.INT, TokenKind.FLOAT];
  try {
    const lexer = new Lexer(new Source(text));
    for (let token = lexer.advance(); token.kind !== TokenKind.EOF; token = lexer.advance())
      if (literals.includes(token.kind)) found.push([token.start, token.end, token.value]);
    return found;
  } catch {
    return null;
  }
}

t.test('answers over HTTP, and the places of errors in them', async (t) => {
  const service = await startTestService({ databaseUrl });
  const ask = async (query: string): Promise<unknown> => {
    const headers = { 'content-type': 'application/json' };
    return (await request(service, 'POST', '/graphql', { headers, body: JSON.stringify({ query }) })).json;
  };
  const byKey = (title: string, key: number): string =>
    `{ articles(filter: { title: { _eq: "${title}" } }) { id } tags_by_id(id: ${key}) { name } }`;
  t.strictSame(await ask(byKey('Hello World', 1)), { data: { articles: [{ id: '1' }], tags_by_id: { name: 'news' } } });
  for (const title of ['a', 'Hello World', 'something long that is not there'])
    t.match(await ask(byKey(title, 999)), {
      data: { articles: title === 'Hello World' ? [{ id: '1' }] : [], tags_by_id: null },
      errors: [{ path: ['tags_by_id'], locations: [{ line: 1, column: byKey(title, 999).indexOf('tags_by_id') + 1 }] }],
    });
  for (const name of ['one', 'two and more'])
    t.match(await ask(`mutation { create_tags_item(data: { name: "${name}" }) { name } }`), {
      data: { create_tags_item: { name } },
    });
});
