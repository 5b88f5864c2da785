/**
 * Warm statements are planned once: what PostgreSQL says of them on the service's own connections. A view shows the
 * prepared statements of the connection that reads it, so that with one connection a request for it tells of all before it.
 */
import t from 'tap';
import { Connection } from '../../support/protocol-client.js';
import { createLibrary, startDatabase, startTestService, waitFor, withSql } from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'planned');
await withSql(databaseUrl, async (sql) => {
  await sql
    .unsafe(`
    insert into articles (id, title, status, views, author)
      select n, 'Article ' || n, (array['draft', 'published', 'archived'])[n % 3 + 1], n % 1000, n % 5 + 1 from generate_series(101, 5100) n;
    insert into comments (article, author, body) select n, n % 5 + 1, 'Comment' from generate_series(101, 5100) n;
    insert into articles_tags (articles_id, tags_id, sort) select n, n % 4 + 1, 1 from generate_series(101, 5100) n;
    insert into articles_blocks (articles_id, item, collection, sort) select n, '1', 'block_text', 1 from generate_series(101, 5100) n;
    create index on comments (article);
    create index on articles_tags (articles_id);
    create index on articles_blocks (articles_id);
    create index on articles (views);
    create table notes (id int primary key, text text);
    insert into notes values (1, 'one');
    create view plans as select 1 as id, (select json_agg(row_to_json(p)) from pg_prepared_statements p) as all;
    create view written as select id, text, (select json_agg(row_to_json(p)) from pg_prepared_statements p) as all from notes;
    insert into service_collections (collection, primary_key) values ('plans', 'id'), ('written', 'id');
    analyze;`)
    .simple();
});
const oneOfEach = { DATABASE_POOL_SIZE: '1', DATABASE_WRITE_POOL_SIZE: '1', WORKERS: '1' };
const service = await startTestService({ databaseUrl, READ_BATCHING: 'true', ...oneOfEach });
const connection = new Connection(service);
t.teardown(() => connection.close());

interface Plans {
  readonly statement: string;
  readonly generic_plans: number;
  readonly custom_plans: number;
}

async function ask(method: string, path: string, body?: string, on = connection): Promise<string> {
  const answer = await on.request(method, path, body);
  if (answer.status !== 200) throw new Error(`${method} ${path} was answered ${answer.status}: ${answer.body}`);
  return answer.body;
}

/** By statement. */
function readPlans(text: string): Map<string, Plans> {
  const { data } = JSON.parse(text) as { data: { all: Plans[] | null } };
  return new Map((data.all ?? []).map((plans) => [plans.statement, plans]));
}

const plansOfReads = async (): Promise<Map<string, Plans>> => readPlans(await ask('GET', '/items/plans/1?fields=all'));
const plansOfWrites = async (): Promise<Map<string, Plans>> =>
  readPlans(await ask('PATCH', '/items/written/1?fields=all', '{"text":"two"}'));

/** The first six may be planned for their values: from then on the plan has to stand. */
const FIRST = 6;
const TIMES = 50;

/** Runs the work often; answers what became of each statement that it used. */
async function watch(
  work: (turn: number) => Promise<unknown>,
  plans: () => Promise<Map<string, Plans>>,
): Promise<{ statement: string; generic: number; custom: number }[]> {
  const run = async (from: number, times: number): Promise<void> => {
    for (let turn = from; turn < from + times; turn++) await work(turn);
  };
  // The first time a shape is seen it is not prepared.
  await run(0, FIRST + 2);
  const before = await plans();
  await run(FIRST + 2, TIMES);
  const changes = [...(await plans()).values()].map(({ statement, generic_plans, custom_plans }) => ({
    statement,
    generic: generic_plans - (before.get(statement)?.generic_plans ?? 0),
    custom: custom_plans - (before.get(statement)?.custom_plans ?? 0),
  }));
  return changes.filter(
    ({ statement, generic, custom }) =>
      // Behind a pooler each transaction begins with its settings.
      generic + custom > 0 &&
      !/pg_prepared_statements|"plans"|"written"|^select set_config\('search_path'/.test(statement),
  );
}

function graphql(query: string, variables: unknown): [method: string, path: string, body: string] {
  return ['POST', '/graphql', JSON.stringify({ query, variables })];
}

const NESTED = 'fields=id,author.name,comments.body,comments.author.name,tags.tags_id.name';
const READS: Readonly<Record<string, (key: number) => [method: string, path: string, body?: string]>> = {
  'by key': (key) => ['GET', `/items/articles/${key}?fields=id,title`],
  nested: (key) => ['GET', `/items/articles/${key}?${NESTED}`],
  'many-to-any': (key) => ['GET', `/items/articles/${key}?fields=id,blocks.collection,blocks.item:block_text.text`],
  'a list with many-to-one': () => ['GET', '/items/articles?limit=25&fields=id,title,author.name'],
  'a filter and an order': (key) => [
    'GET',
    `/items/articles?filter[status][_eq]=${key % 2 ? 'draft' : 'published'}&sort=-views&limit=25&fields=id,title`,
  ],
  'an aggregate': (key) => [
    'GET',
    `/items/articles?filter[author][_eq]=${(key % 5) + 1}&aggregate[count]=*&groupBy=status`,
  ],
  'GraphQL, nested': (id) =>
    graphql('query ($id: ID!) { articles_by_id(id: $id) { id author { name } comments { body } } }', { id }),
};

for (const [name, read] of Object.entries(READS)) {
  t.test(`${name}: planned once`, async (t) => {
    const run = (): ReturnType<typeof watch> => watch((turn) => ask(...read(101 + turn)), plansOfReads);
    let used = await run();
    // Whether one plan is right for all values is found out beside the first requests.
    if (used.some(({ custom }) => custom > 0)) used = await run();
    t.equal(used.length, 1, 'one statement');
    t.match(used, [{ generic: TIMES, custom: 0 }]);
  });
}

t.test('batches: planned once', async (t) => {
  const crowd = Array.from({ length: 16 }, () => new Connection(service));
  const read = READS['nested'] as (key: number) => [method: string, path: string];
  let used: Awaited<ReturnType<typeof watch>> = [];
  const isBatch = ({ statement }: { readonly statement: string }): boolean => statement.includes('with ordinality');
  const batch = (turn: number): Promise<unknown> =>
    Promise.all(crowd.map((each, position) => ask(...read(101 + turn * 16 + position), undefined, each)));
  // Whether they are batched depends on what a read was found to cost: on a busy machine that takes more of them.
  await waitFor(async () => {
    used = (await watch(batch, plansOfReads)).filter(isBatch);
    return used.some(({ generic, custom }) => generic > FIRST && custom === 0);
  }, 30_000);
  t.match(used, [{ custom: 0 }], `${used[0]?.generic} batches`);
  for (const each of crowd) each.close();
});

const WRITES: Readonly<Record<string, (turn: number) => [method: string, path: string, body: string]>> = {
  'an update and what is shown of it': (turn) => [
    'PATCH',
    `/items/articles/${101 + turn}?${NESTED}`,
    JSON.stringify({ title: `Turn ${turn}` }),
  ],
  'a nested create and what is shown of it': (turn) => [
    'POST',
    `/items/articles?${NESTED}`,
    JSON.stringify({
      title: `Turn ${turn}`,
      author: { name: 'Somebody' },
      comments: [{ body: 'One' }, { body: 'Two' }],
    }),
  ],
  'a mutation': (turn) =>
    graphql(
      'mutation ($id: ID!, $title: String) { update_articles_item(id: $id, data: { title: $title }) { id title } }',
      {
        id: 101 + turn,
        title: `Turn ${turn}`,
      },
    ),
};

for (const [name, write] of Object.entries(WRITES)) {
  t.test(`${name}: planned once`, async (t) => {
    const used = await watch((turn) => ask(...write(turn)), plansOfWrites);
    t.ok(used.length === 1 || used.length === 2, 'the chain, and the read behind it where it is not known already');
    for (const each of used) t.match(each, { generic: TIMES, custom: 0 });
  });
}
