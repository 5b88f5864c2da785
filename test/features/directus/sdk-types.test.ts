/** `lateral types`: its output is the schema type that the family's SDK takes. Programs are compiled against the real SDK. */
import t from 'tap';
import typescript from 'typescript-api';
import { packagePath } from '../../../src/base/package-files.js';
import { createLibrary, runProgram, startDatabase, withSql } from '../../support/service.js';

t.setTimeout(120_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'types');
await withSql(databaseUrl, async (sql) => {
  await sql`create table settings (id serial primary key, title text)`;
  await sql`insert into service_collections (collection, singleton) values ('settings', true)`;
  await sql`create type mood as enum ('sad', 'ok')`;
  await sql`create type output as enum ('json', 'csv')`;
  await sql`create table "odd name/✓" (id uuid primary key default gen_random_uuid(), "a b" int[], mood mood not null default 'ok',
    output output, opens time, tags text, size bigint, owner uuid references service_users (id))`;
  await sql`insert into service_fields (collection, field, special) values ('odd name/✓', 'tags', 'cast-csv')`;
  await sql`alter table service_users add column badge integer`;
  await sql`alter table authors add column boss uuid references "odd name/✓" (id)`;
  await sql`insert into service_fields (collection, field, special) values ('odd name/✓', 'staff', 'o2m'), ('authors', 'boss', 'm2o')`;
  await sql`insert into service_relations (many_collection, many_field, one_collection, one_field)
    values ('authors', 'boss', 'odd name/✓', 'staff')`;
});

const IMPORTS = `import { aggregate, createDirectus, createItem, readItem, readItems, readSettings, readSingleton, readUsers, rest, updateItem, updateSingleton } from '@directus/sdk';
import type { Schema } from './schema.js';
const client = createDirectus<Schema>('http://localhost').with(rest());
`;

/** What has to compile: each value is given the type that the service answers. */
const PROGRAMS: Readonly<Record<string, string>> = {
  'nested fields': `
    const articles = await client.request(readItems('articles', {
      fields: ['id', 'title', 'published_at', 'meta', 'author', { comments: ['body', { author: ['name'] }] }, { tags: [{ tags_id: ['name'] }] }],
      sort: ['-published_at', 'title'],
      deep: { comments: { _limit: 3, _sort: '-created' } },
      limit: 5,
    }));
    const [first] = articles;
    if (first) {
      const id: number = first.id;
      const title: string = first.title;
      const published: string | null = first.published_at;
      const author: number | null = first.author;
      const bodies: (string | null)[] = (first.comments ?? []).map((each) => each.body);
      const names: (string | undefined)[] = (first.comments ?? []).map(({ author }) => (typeof author === 'object' ? author?.name : ''));
      const tags: (string | null | undefined)[] = (first.tags ?? []).map(({ tags_id }) => (typeof tags_id === 'object' ? tags_id?.name : ''));
      console.log(id, title, published, author, bodies, names, tags);
    }
    const keys: number[] | null = (await client.request(readItem('articles', 1, { fields: ['comments'] }))).comments;
    const blocks = await client.request(readItems('articles', { fields: [{ blocks: ['collection', { item: { block_text: ['text'], block_image: ['url'] } }] }] }));
    for (const block of blocks[0]?.blocks ?? []) {
      if (block.collection === 'block_text') { const text: string | null = block.item.text; console.log(text); }
    }
    const site = await client.request(readSingleton('settings', { fields: ['title'] }));
    const name: string | null = site.title;
    const odd = await client.request(readItems('odd name/✓', { fields: ['id', 'mood', 'output', 'tags', 'size', 'opens', 'staff', { owner: ['email', 'badge'] }] }));
    for (const each of odd) {
      const key: string = each.id;
      const mood: 'sad' | 'ok' = each.mood;
      const output: string | null = each.output;
      const list: string[] | null = each.tags;
      const opens: string | null = each.opens;
      const staff: number[] = each.staff;
      const badge: number | null | undefined = each.owner?.badge;
      console.log(key, mood, output, list, opens, staff, badge);
    }
    const users = await client.request(readUsers({ fields: ['id', 'email', 'badge'] }));
    const badges: (number | null)[] = users.map((user) => user.badge);
    const project: string = (await client.request(readSettings({ fields: ['project_name'] }))).project_name;
    console.log(keys, name, badges, project);`,
  filters: `
    const found = await client.request(readItems('articles', {
      fields: ['id', 'year(published_at)', 'count(comments)', 'json(meta, lang)'],
      filter: { _and: [
        { published_at: { _between: ['2023-01-01', '$NOW'] } },
        { published_at: { _gte: '2023-01-01T00:00:00Z' } },
        { 'year(published_at)': { _eq: '2023' } },
        { rating: { _gte: 3 } },
        { status: { _in: ['published', 'draft'] } },
        { author: { born: { _lt: '1990-01-01' } } },
        { comments: { _some: { created: { _null: false } } } },
        { meta: { _null: false } },
      ] },
    }));
    const years: number[] = found.map((each) => each.published_at_year);
    const counts: number[] = found.map((each) => each.comments_count);
    await client.request(readItems('odd name/✓', { filter: { opens: { _gt: '08:00' }, size: { _gt: 5 }, mood: { _eq: 'ok' } } }));
    await client.request(createItem('articles', { title: 'New', author: 1, published_at: '2024-01-01T00:00:00Z' as 'datetime' }));
    await client.request(updateItem('articles', 1, { comments: [1, 2] }));
    await client.request(updateSingleton('settings', { title: 'Magazine' }));
    console.log(years, counts);`,
  aggregate: `
    const groups = await client.request(aggregate('articles', {
      aggregate: { count: '*', sum: ['views'], max: 'views' },
      groupBy: ['status', 'year(published_at)'],
      query: { filter: { published_at: { _nnull: true } }, limit: -1 },
    }));
    const counts: (string | null)[] = groups.map((each) => each.count);
    const sums: (string | null)[] = groups.map((each) => each.sum.views);
    const states: (string | null)[] = groups.map((each) => each.status);
    const total = await client.request(aggregate('articles', { aggregate: { countDistinct: 'author' } }));
    console.log(counts, sums, states, total[0]?.countDistinct);`,
};

/** What must not compile, one statement each. */
const MISTAKES: readonly string[] = [
  `await client.request(readItems('articels'));`,
  `await client.request(readItems('settings'));`,
  `await client.request(readSingleton('articles'));`,
  `await client.request(readItems('articles', { fields: ['titel'] }));`,
  `await client.request(readItems('articles', { fields: [{ comments: ['title'] }] }));`,
  `await client.request(readItems('articles', { fields: [{ title: ['name'] }] }));`,
  `await client.request(readItems('articles', { fields: ['year(title)'] }));`,
  `await client.request(readItems('authors', { fields: ['hour(born)'] }));`,
  `await client.request(readItems('articles', { filter: { published_at: { _contains: '2023' } } }));`,
  `await client.request(readItems('articles', { filter: { published_at: { _gt: 2023 } } }));`,
  `await client.request(readItems('articles', { filter: { author: { nmae: { _eq: 'x' } } } }));`,
  `await client.request(readItems('odd name/✓', { filter: { mood: { _eq: 'glad' } } }));`,
  `await client.request(readItems('articles', { fields: [{ blocks: [{ item: { authors: ['name'] } }] }] }));`,
  `await client.request(aggregate('articles', { aggregate: { sum: ['veiws'] } }));`,
  `await client.request(aggregate('articles', { aggregate: { count: '*' }, groupBy: ['year(title)'] }));`,
  `const [article] = await client.request(readItems('articles', { fields: ['id'] })); console.log(article?.title);`,
  `const views: string | undefined = (await client.request(readItem('articles', 1, { fields: ['views'] }))).views; console.log(views);`,
];

t.test('programs of the SDK compile with --strict against the printed schema, and mistakes do not', async (t) => {
  const { code, output, complaints } = await runProgram(['types', '--database-url', databaseUrl]);
  t.equal(code, 0, complaints);
  const programs = Object.entries(PROGRAMS).map(([name, text]) => [`${name}.ts`, IMPORTS + text] as const);
  const mistakes = IMPORTS + MISTAKES.map((text) => `{ ${text} }`).join('\n');
  const errors = compile(new Map([['schema.ts', output], ...programs, ['mistakes.ts', mistakes]]));
  t.strictSame(errors('schema.ts'), [], 'the schema itself');
  for (const [name] of programs) t.strictSame(errors(name), [], name);
  const lines = new Set(errors('mistakes.ts').map(({ line }) => line));
  const offset = IMPORTS.split('\n').length - 1;
  for (const [index, text] of MISTAKES.entries()) t.ok(lines.has(offset + index), text);
  t.equal(lines.size, MISTAKES.length, 'nothing else is wrong there');
});

interface Mistake {
  readonly line: number;
  readonly text: string;
}

/** One program of all files, beside this package's modules; answers what the compiler says of each. */
function compile(files: ReadonlyMap<string, string>): (name: string) => Mistake[] {
  const options: typescript.CompilerOptions = {
    strict: true,
    noEmit: true,
    skipLibCheck: true,
    target: typescript.ScriptTarget.ES2022,
    module: typescript.ModuleKind.NodeNext,
    moduleResolution: typescript.ModuleResolutionKind.NodeNext,
    lib: ['lib.es2022.d.ts', 'lib.dom.d.ts'],
    types: [],
  };
  const folder = packagePath('test');
  const texts = new Map([...files].map(([name, text]) => [`${folder}/${name}`, text]));
  const host = typescript.createCompilerHost(options);
  const { getSourceFile, fileExists, readFile } = host;
  host.getSourceFile = (name, version, ...rest) => {
    const text = texts.get(name);
    return text === undefined
      ? getSourceFile(name, version, ...rest)
      : typescript.createSourceFile(name, text, version);
  };
  host.fileExists = (name) => texts.has(name) || fileExists(name);
  host.readFile = (name) => texts.get(name) ?? readFile(name);
  const program = typescript.createProgram([...texts.keys()], options, host);
  return (name) => {
    const file = program.getSourceFile(`${folder}/${name}`);
    const found = [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)];
    return found.map(({ messageText, start = 0 }) => ({
      line: file?.getLineAndCharacterOfPosition(start).line ?? -1,
      text: typescript.flattenDiagnosticMessageText(messageText, '\n'),
    }));
  };
}
