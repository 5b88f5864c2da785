/**
 * The SQL of representative reads, as files to be read by people. A change of the compiler shows here as a change of these
 * files; UPDATE_GOLDEN=1 writes them anew.
 */
import t from 'tap';
import { schemaAccessOf } from '../../src/compiler/access/graphql-access.js';
import { type PermissionRow, Permissions, readRules } from '../../src/compiler/access/permissions.js';
import { compileBatchRead, compileRead } from '../../src/compiler/compile/read.js';
import { Operations } from '../../src/compiler/graphql/operations.js';
import { Schemas } from '../../src/compiler/graphql/schema.js';
import { buildModel } from '../../src/compiler/model/introspect.js';
import { holdsTable } from '../../src/compiler/model/model.js';
import { linkPlan } from '../../src/compiler/plan/links.js';
import { planOperation } from '../../src/compiler/plan/operation.js';
import { planRead } from '../../src/compiler/plan/read.js';
import type { Parsed } from '../../src/compiler/request/ast.js';
import type { ParseLimits } from '../../src/compiler/request/parse-context.js';
import { parseRead, parseSearch } from '../../src/compiler/request/rest.js';
import { loadGrammar } from '../../src/compiler/sql/grammar.js';
import { arrayLiteral } from '../../src/compiler/sql/literal.js';
import { bind } from '../../src/compiler/sql/parameter.js';
import { pretty } from '../../src/compiler/sql/pretty.js';
import { verify } from '../../src/compiler/sql/verify.js';
import { catalogSourceOf } from '../../src/server/postgres/catalog/catalog.js';
import { locateSystemTables } from '../../src/server/postgres/catalog/migrate.js';
import { Database } from '../../src/server/postgres/pools/database.js';
import { fencedRead, unevenRead } from '../../src/speed/plan-choices/uneven.js';
import { compareGolden, goldenNames, goldenStatement } from '../support/golden.js';
import { createLibrary, startDatabase, withSql } from '../support/service.js';

const REQUESTS: Readonly<Record<string, string>> = {
  'by-key': '/articles/1',
  'by-key-nested': '/articles/1?fields=title,author.name,comments.body',
  'list-default': '/articles',
  'nested-many-to-one': '/articles?fields=id,author.name,author.born&limit=25',
  'nested-one-to-many': '/articles?fields=id,comments.id,comments.author.name',
  'nested-many-to-many': '/articles?fields=id,tags.tags_id.name',
  'nested-shared-subtree': '/articles?fields=title,author.name,author.articles.title&limit=20',
  'nested-one-to-one': '/authors?fields=name,licence.number&filter[licence][number][_starts_with]=A&sort=licence.id',
  'nested-across-schemas': '/sales_orders?fields=id,author.name&filter[author][born][_gt]=1900-01-01',
  'many-to-any-scoped': '/articles?fields=blocks.collection,blocks.item:block_text.text,blocks.item:block_image.url',
  'filter-many-to-one': '/articles?fields=id&filter[author][name][_eq]=Ada Lovelace',
  'filter-one-to-many': '/articles?fields=id&filter[comments][author][name][_icontains]=a',
  'filter-many-to-many': '/articles?fields=id&filter[tags][tags_id][name][_in]=news,tech',
  'filter-many-to-any': '/articles?fields=id&filter[blocks][item:block_text][text][_contains]=text',
  'filter-some-none':
    '/articles?fields=id&filter[comments][_some][body][_eq]=Nice!&filter[tags][_none][tags_id][name][_eq]=fun',
  'filter-operators':
    '/articles?fields=id&filter={"_or":[{"views":{"_between":[1,9]}},{"slug":{"_starts_with":"a%"}},{"rating":{"_nin":[1,2]}},{"body":{"_nempty":true}}]}',
  'filter-text-order': '/articles?fields=id&filter[slug][_between]=a,m&filter[title][_gt]=B',
  'filter-arrays':
    '/samples?fields=id&filter={"tags":{"_contains_all":["a","b"],"_length":{"_gt":2}},"numbers":{"_contains_any":[1,2]}}',
  'filter-ranges':
    '/samples?fields=id&filter={"span":{"_contains_value":5,"_overlaps":"[1,9)"},"spans":{"_adjacent":"[1,9)"}}',
  'filter-documents': '/samples?fields=id&filter={"doc":{"_json_contains":{"a":[1]},"_has_key":"a"}}',
  'filter-networks': '/samples?fields=id&filter={"host":{"_within_network":"10.0.0.0/8"}}',
  'filter-full-text':
    '/samples?fields=id&filter={"words":{"_fts":"sql -http"},"title":{"_fts":{"query":"join","config":"english"}}}&sort=-rank(words)',
  'search-vector': '/worded?fields=id&search=hello',
  'filter-similar': '/samples?fields=id&filter[title][_similar]=tabels',
  'filter-trees': '/samples?fields=id&filter[tree][_descendant_of]=top.sql',
  'filter-functions': '/articles?fields=id&filter[year(published_at)][_eq]=2023&filter[count(comments)][_gt]=1',
  'filter-json': '/articles?fields=id,json(meta, lang)&filter[meta][_json][nested.a[0]][_gte]=1',
  'filter-caller': '/articles?fields=id&filter[title][_eq]=$CURRENT_USER.role.name',
  search: '/articles?fields=id&search=hello',
  'sort-nested': '/articles?fields=id&sort=-author.name,title',
  'sort-function': '/articles?fields=id&sort=-year(published_at),count(comments)',
  'sort-to-many': '/articles?fields=id&sort=-comments.created',
  deep: '/authors?fields=name,articles.title,articles.comments.id&deep={"articles":{"_filter":{"status":"published"},"_sort":"-views","_limit":3,"comments":{"_limit":1,"_offset":1}}}',
  aggregate:
    '/articles?aggregate[count]=*&aggregate[sum]=views,rating&groupBy=status,year(published_at)&having[count][_gt]=1&sort=-count',
  'aggregate-deep':
    '/authors?fields=id,articles&deep[articles][_aggregate][avg]=rating&deep[articles][_groupBy]=status',
  meta: '/articles?fields=id&filter[author][name][_eq]=Ada Lovelace&meta=*&limit=5&page=2',
  'meta-estimated':
    '/articles?fields=id&filter[author][name][_eq]=Ada Lovelace&filter[views][_gt]=5&meta=estimated_count&limit=5',
  'cursor-first': '/articles?fields=id&sort=id&limit=3&cursor=',
  'cursor-next': '/articles?fields=id&sort=-rating,title&limit=3&cursor=WyI0LjUwIiwgIkJldGEiLCAiOCJd',
  'cursor-nulls-behind': '/articles?fields=id&sort=rating&limit=3&cursor=WyI0LjUwIiwgIjgiXQ',
  'cursor-among-nulls': '/articles?fields=id&sort=-rating&limit=3&cursor=W251bGwsICI4Il0',
  'cursor-row': '/comments?fields=id&limit=3&cursor=WyI4Il0',
  stream: '/articles?fields=id,author.name&limit=-1&meta=filter_count',
  singleton: '/settings?fields=id,title',
  keys: 'SEARCH /articles {"keys":[1,2],"query":{"fields":["id"]}}',
};

/** Reads of a caller of whom the rules below say what they may see. */
const RESTRICTED: Readonly<Record<string, string>> = {
  'restricted-list': '/articles?limit=5&meta=*',
  'restricted-estimated': '/articles?fields=id&search=hello&meta=estimated_count',
  'restricted-nested': '/articles?fields=title,author.name,comments.body,count(comments)&limit=5',
  'restricted-shared-subtree': '/comments?fields=id,article.title,article.comments.body,author.name&limit=5',
  'restricted-filter': '/comments?fields=id&filter[article][author][name][_eq]=Ada Lovelace&sort=-article.views',
  'restricted-aggregate': '/articles?aggregate[count]=*&aggregate[max]=views&groupBy=author.name',
  'restricted-search': '/articles?fields=id&search=hello',
};

const RULES: readonly PermissionRow[] = [
  rule('articles', 'read', { status: { _eq: 'published' } }, 'id,title,author,comments'),
  rule('articles', 'read', { author: { name: { _eq: '$CURRENT_USER.first_name' } } }, 'id,title,body,views,comments'),
  rule('authors', 'read', { articles: { _some: { status: { _eq: 'published' } } } }, 'id,name'),
  rule('comments', 'read', { _or: [{ author: { _nnull: true } }, { article: { status: { _eq: 'draft' } } }] }, '*'),
];

function rule(collection: string, action: string, permissions: object | null, fields: string): PermissionRow {
  return { collection, action, permissions, validation: null, presets: null, fields };
}

const DOCUMENT_LIMITS = { tokens: 5_000, depth: 15, nodes: 1_000, aliases: 200, introspection: true };
const LIMITS: ParseLimits = {
  relationalDepth: 10,
  jsonDepth: 10,
  bracketDepth: 10,
  arrayLength: 500,
  pageSize: null,
  wholeRows: 10_000,
  nodes: 1_000,
};
const CALLER = { user: '00000000-0000-0000-0000-000000000001', role: null, roles: [], policies: [] };

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'golden');
await withSql(databaseUrl, async (sql) => {
  await sql`create schema ext`;
  await sql`create schema sales`;
  await sql`create table sales.orders (id serial primary key, author integer references authors)`;
  await sql`create extension ltree schema ext`;
  await sql`create extension pg_trgm schema ext`;
  await sql`create table samples (id int primary key, tags text[], numbers int[], span int4range, spans int4multirange, doc jsonb, host inet, title text, words tsvector, tree ext.ltree)`;
  await sql`create table worded (id int primary key, words tsvector)`;
  await sql`insert into service_collections (collection, search_field) values ('worded', 'words')`;
  await sql`create table licences (id serial primary key, author integer unique references authors, number text)`;
  await sql`insert into service_fields (collection, field, special) values ('authors', 'licence', 'o2o')`;
  await sql`
    insert into service_relations (many_collection, many_field, one_collection, one_field)
    values ('licences', 'author', 'authors', 'licence')`;
  await sql`create table settings (id serial primary key, title text default 'Untitled')`;
  await sql`insert into service_collections (collection, singleton) values ('settings', true)`;
});
const database = await Database.open({
  url: databaseUrl,
  schema: 'public',
  otherSchemas: ['sales'],
  connections: 1,
  sessions: 1,
  streams: 1,
  imports: 1,
  waitTimeout: 10_000,
  statementTimeout: 10_000,
  connectTimeout: 10_000,
});
t.teardown(() => database.close());
await loadGrammar();
await locateSystemTables(database, null);
const model = buildModel((await catalogSourceOf(database).load()).document, 1, database);

const access = new Permissions('golden', readRules(RULES));
const view = access.view(model);

for (const [name, request] of [...Object.entries(REQUESTS), ...Object.entries(RESTRICTED)]) {
  t.test(name, async (t) => {
    const { request: read, values } = parse(request);
    const plan = planRead(read, name in RESTRICTED ? view : model, { defaultLimit: 100, maxNodes: 1_000 });
    const { text, parameters } = compileRead(plan);
    check(text);
    const bound = bind(parameters, values, CALLER);
    await compareGolden(t, 'reads', name, `-- ${request}\n${goldenStatement(text, bound)}`);
    t.equal(flat(pretty(text)), flat(text), 'the lines hold the statement that runs');
    const alone = await database.cell(text, [...bound]);
    if (plan.stream || parameters.length === 0) return;
    const together = compileBatchRead(plan).text;
    check(together);
    const cells = await numberedCells(
      together,
      bound.map((value) => arrayLiteral([value, value, value])),
    );
    t.strictSame(
      cells,
      [1, 2, 3].map((number) => [number, alone?.toString()]),
      'the statement for many sets of values answers each as the one for one set does',
    );
  });
}

const DOCUMENTS: Readonly<Record<string, string>> = {
  'graphql-list': '{ articles(limit: 5) { id heading: title rating author { name __typename } } }',
  'graphql-operation':
    '{ newest: articles(sort: ["-id"], limit: 2) { id comments_func { count } } one: articles_by_id(id: 1) { title } other: tags_by_id(id: 9) { name } settings { title } }',
  'graphql-union': '{ articles(limit: 1) { blocks { item { __typename ... on block_text { text } } } } }',
  'graphql-aggregated':
    '{ articles_aggregated(groupBy: ["status"]) { by: group countAll sum { total: rating } max { published_at } } }',
};

for (const [name, text] of Object.entries(DOCUMENTS)) {
  t.test(name, async (t) => {
    const access = schemaAccessOf(null, model);
    const operations = new Operations(new Schemas(1, []), DOCUMENT_LIMITS, LIMITS, 1_048_576);
    const request = { text, operationName: null, variables: {}, safe: true };
    const document = await operations.parse(request, access, 'items');
    if (document.kind !== 'query') throw new Error('it must be a query');
    const { request: operation, values } = document.parsed;
    const plan = planOperation(operation, model, { defaultLimit: 100, maxNodes: 1_000 });
    const { text: statement, parameters } = compileRead(plan);
    check(statement);
    const bound = bind(parameters, values, CALLER);
    await compareGolden(t, 'reads', name, `-- ${text}\n${goldenStatement(statement, bound)}`);
    t.match(JSON.parse(String(await database.cell(statement, [...bound]))), { data: Object });
    if (bound.length === 0) return;
    const cells = await numberedCells(
      compileBatchRead(plan).text,
      bound.map((value) => arrayLiteral([value, value])),
    );
    t.equal(cells.length, 2, 'one batch answers both reads');
  });
}

function numberedCells(text: string, parameters: string[]): Promise<[number, string | undefined][]> {
  return new Promise((resolve, reject) => {
    const cells: [number, string | undefined][] = [];
    database.readConnections[0]?.run({
      text,
      parameters,
      prepare: false,
      columns: 2,
      row: (number, cell) => cells.push([number, cell?.toString()]),
      end: (error) => (error ? reject(error) : resolve(cells)),
    });
  });
}

t.test('batch', async (t) => {
  const request = '/articles/1?fields=id,title,author.name';
  const parsed = parse(request);
  const plan = planRead(parsed.request, model, { defaultLimit: 100, maxNodes: 1_000 });
  const { text } = compileBatchRead(plan);
  check(text);
  const bound = bind(compileRead(plan).parameters, parsed.values, CALLER);
  const values = bound.map((value) => arrayLiteral([value, '2', '3']));
  await compareGolden(t, 'reads', 'batch', `-- ${request}, and 2 and 3 with it\n${goldenStatement(text, values)}`);
});

t.test('linked', async (t) => {
  const request = '/articles/1?fields=title,author.name,comments.body,tags.tags_id.name';
  const parsed = parse(request);
  const plan = planRead(parsed.request, model, { defaultLimit: 100, maxNodes: 1_000 });
  const plain = compileRead(plan);
  const linked = { links: linkPlan(plan), parameters: plain.parameters };
  const { text, parameters } = compileRead(plan, linked);
  check(text);
  check(compileBatchRead(plan, linked).text);
  t.strictSame(parameters, plain.parameters, 'the values of the read without links');
  const bound = bind(parameters, parsed.values, CALLER);
  await compareGolden(t, 'reads', 'linked', `-- ${request}, with its links\n${goldenStatement(text, bound)}`);
});

t.test('fenced', async (t) => {
  const request = '/articles?fields=id,title&filter[status][_eq]=draft&sort=-published_at&limit=10';
  const parsed = parse(request);
  const plan = planRead(parsed.request, model, { defaultLimit: 100, maxNodes: 1_000 });
  const page = unevenRead(plan)?.page;
  if (!page) throw new Error('it must be a page that values filter');
  const fenced = fencedRead(plan, page.level);
  const { text, parameters } = compileRead(fenced);
  check(text);
  t.strictSame(parameters, compileRead(plan).parameters, 'the values of the read without a fence');
  const bound = bind(parameters, parsed.values, CALLER);
  const title = `-- ${request}, its rows found before they are put in order`;
  await compareGolden(t, 'reads', 'fenced', `${title}\n${goldenStatement(text, bound)}`);
});

function check(text: string): void {
  verify(text, 'read', (schema, table) => holdsTable(model, schema, table));
}

t.test('no file is left over', async (t) => {
  t.strictSame(
    await goldenNames('reads'),
    // Geometries need PostGIS: their file is compared where that is.
    [
      ...Object.keys({ ...REQUESTS, ...RESTRICTED, ...DOCUMENTS }),
      'batch',
      'fenced',
      'filter-geometry',
      'linked',
    ].sort(),
  );
});

function parse(request: string): Parsed {
  const [, method, collection = '', key = null, query = ''] =
    /^(SEARCH )?\/(\w+)(?:\/(\w+))?(?:\?(.*)| (?=\{)(?:.*))?$/.exec(request) ?? [];
  if (method === undefined) return parseRead(collection, key, query, LIMITS);
  return parseSearch(collection, JSON.parse(request.slice(request.indexOf('{'))), '', LIMITS);
}

/** Line breaks and indentation aside. */
function flat(text: string): string {
  return text.replace(/\s+/g, ' ').replace(/\( /g, '(').replace(/ \)/g, ')').trim();
}
