/** DATABASE_CALLER beside SQL by hand: random policies, roles and claims; each answer must be that of the same role with the same settings. */
import t from 'tap';
import type { Service } from '../../src/service/start.js';
import { inForce, type MadeCaller, makeCaller, type Permission } from '../support/callers.js';
import {
  type Answer,
  connectSql,
  createDatabase,
  databaseUrl,
  request,
  type Sql,
  startDatabase,
  startTestService,
} from '../support/service.js';

const SEED = Number(process.env['SEED'] ?? 34);
const ROUNDS = Number(process.env['ROUNDS'] ?? 8);
const REQUESTS = Number(process.env['REQUESTS'] ?? 60);
const LOGIN = { user: 'app', password: 'app' };
const TABLES = ['parents', 'children'] as const;
const ROLES = ['r1', 'r2', 'r3'] as const;

let state = SEED;
function random(below: number): number {
  state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
  return Math.floor((state / 0x80000000) * below);
}
function pick<Value>(values: readonly Value[]): Value {
  return values[random(values.length)] as Value;
}

const server = await startDatabase({ own: true });
const sql = connectSql(await createDatabase(server, 'compared'));
const byHand = connectSql(databaseUrl(server, 'compared', LOGIN));
t.teardown(() => Promise.all([sql.end(), byHand.end()]));
await sql.unsafe(`
  create role app login password 'app';
  ${ROLES.map((role) => `create role ${role}; grant ${role} to app;`).join('\n')}
  grant create on database compared to app;
  grant create, usage on schema public to app;
  set role app;
  create schema auth;
  grant usage on schema auth to public;
  create function auth.claims() returns json language sql stable
    as $$ select coalesce(nullif(current_setting('request.jwt.claims', true), ''), '{}')::json $$;
  create function auth.uid() returns uuid language sql stable as $$ select (auth.claims() ->> 'sub')::uuid $$;
  create table parents (id integer primary key, owner uuid, org text, rank integer);
  create table children (id integer primary key, parent integer references parents, owner uuid, org text, rank integer);
  create table visits (id integer primary key, who uuid);
  ${TABLES.map((table) => `alter table ${table} enable row level security; alter table ${table} force row level security;`).join('\n')}
  grant select, update on parents, children to r1, r2;
  grant select on parents, children, visits to r3;
  grant select on visits to r1, r2;
  reset role`);

const permissions: readonly Permission[] = TABLES.flatMap((collection) =>
  (['read', 'update'] as const).map((action) => ({ collection, action })),
);
const options = { databaseUrl: databaseUrl(server, 'compared', LOGIN), WORKERS: '1', DATABASE_POOL_SIZE: '3' };
const services = {
  claims: await startTestService({ ...options, DATABASE_CALLER: 'claims' }),
  role: await startTestService({ ...options, DATABASE_CALLER: 'role' }),
};
type Mode = keyof typeof services;

interface Person extends MadeCaller {
  readonly email: string;
  readonly databaseRole: string;
}

await sql`insert into service_relations (many_collection, many_field, one_collection, one_field) values ('children', 'parent', 'parents', 'children')`;
await sql`insert into service_fields (collection, field, special) values ('parents', 'children', 'o2m')`;
const people: Person[] = [];
for (const org of ['x', 'y', 'z', 'x', 'y', 'z']) {
  const name = `${org}.${people.length}`;
  const databaseRole = ROLES[people.length % 3] as string;
  const made = await makeCaller(sql, name, [{ permissions }]);
  await sql`update service_roles set database_role = ${databaseRole} where id = ${made.role}`;
  people.push({ ...made, email: `${name}@example.com`, databaseRole });
}
for (let id = 1; id <= 40; id++)
  await sql`insert into parents values (${id}, ${pick(people).user}, ${pick(['x', 'y', 'z'])}, ${random(10)})`;
for (let id = 1; id <= 120; id++)
  await sql`insert into children values (${id}, ${1 + random(40)}, ${pick(people).user}, ${pick(['x', 'y', 'z'])}, ${random(10)})`;
for (let id = 1; id <= 5; id++) await sql`insert into visits values (${id}, ${pick(people).user})`;
await sql`create policy first on parents using (true)`;
for (const service of Object.values(services))
  for (const person of people) await inForce(service, person, '/items/parents');

/** Conditions of policies: over claims, roles, the request, other tables, and none of these. */
const CONDITIONS = [
  'owner = (select auth.uid())',
  'owner = auth.uid()',
  "org = split_part(auth.claims() ->> 'email', '.', 1)",
  'rank > 4',
  "current_user = 'r1' or rank < 3",
  "current_setting('request.method', true) = 'GET'",
  "current_setting('request.path', true) like '/items/%'",
  "current_setting('lateral.user', true) = owner::text or rank = 1",
  'exists (select from visits where who = (select auth.uid()))',
  "(select auth.claims() ->> 'role') = 'r2' or org = 'x'",
  'true',
] as const;

async function makePolicies(): Promise<string[]> {
  const made: string[] = [];
  for (const table of TABLES) {
    for (const { name } of await sql<
      { name: string }[]
    >`select policyname as name from pg_policies where tablename = ${table}`)
      await sql.unsafe(`drop policy ${name} on ${table}`);
    for (let index = 0; index <= random(3); index++) {
      const kind = random(4) === 0 ? 'restrictive' : 'permissive';
      const to = pick(['public', 'public', 'r1', 'r2', 'r1, r3']);
      const nested = table === 'children' ? ['exists (select from parents where parents.id = children.parent)'] : [];
      const policy = `create policy p${index} on ${table} as ${kind} for ${pick(['all', 'select', 'update'])} to ${to} using (${pick([...CONDITIONS, ...nested])})`;
      await sql.unsafe(policy);
      made.push(policy);
    }
  }
  return made;
}

/** One request, and the SQL whose result its answer must be. */
interface Compared {
  readonly method: 'GET' | 'PATCH' | 'POST';
  readonly path: string;
  readonly body?: unknown;
  readonly expected: (tx: Sql) => Promise<unknown>;
  readonly actual: (answer: Answer) => unknown;
}

const DENIED = 'denied';
const dataOf = ({ json }: Answer): unknown => (json as { data?: unknown }).data;
const idsOf = (rows: unknown): number[] => (rows as { id: number }[]).map(({ id }) => id);

function makeRequest(): Compared {
  const [rank, id, table] = [random(10), 1 + random(40), pick(TABLES)];
  switch (random(6)) {
    case 0:
      return {
        method: 'GET',
        path: `/items/${table}?filter[rank][_gte]=${rank}&fields=id&sort=id&limit=10&meta=filter_count`,
        expected: async (tx) => [
          idsOf(await tx`select id from ${tx(table)} where rank >= ${rank} order by id limit 10`),
          Number((await tx`select count(*) from ${tx(table)} where rank >= ${rank}`)[0]?.['count']),
        ],
        actual: (answer) => [
          idsOf(dataOf(answer)),
          (answer.json as { meta: { filter_count: number } }).meta.filter_count,
        ],
      };
    case 1:
      return {
        method: 'GET',
        path: `/items/${table}/${id}?fields=id`,
        expected: async (tx) => idsOf(await tx`select id from ${tx(table)} where id = ${id}`)[0] ?? DENIED,
        actual: (answer) => (dataOf(answer) as { id: number }).id,
      };
    case 2:
      return {
        method: 'GET',
        path: `/items/parents?fields=id,children.id&sort=id&limit=-1&filter[rank][_lt]=${rank}&deep[children][_sort]=id&deep[children][_limit]=-1`,
        expected: async (tx) =>
          [
            ...(await tx`
              select id, array(select id from children where parent = parents.id order by id) as children
              from parents where rank < ${rank} order by id`),
          ].map((row) => [row['id'], row['children']]),
        actual: (answer) =>
          (dataOf(answer) as { id: number; children: { id: number }[] }[]).map((row) => [row.id, idsOf(row.children)]),
      };
    case 3:
      return {
        method: 'GET',
        path: `/items/parents?fields=id&sort=id&limit=-1&filter[children][rank][_eq]=${rank}`,
        expected: async (tx) =>
          idsOf(
            await tx`select id from parents p where exists (select from children c where c.parent = p.id and c.rank = ${rank}) order by id`,
          ),
        actual: (answer) => idsOf(dataOf(answer)),
      };
    case 4:
      return {
        method: 'POST',
        path: '/graphql',
        body: { query: `{ ${table}_aggregated(filter: { rank: { _neq: ${rank} } }) { countAll } }` },
        expected: async (tx) =>
          Number((await tx`select count(*) from ${tx(table)} where rank <> ${rank}`)[0]?.['count']),
        actual: (answer) =>
          (dataOf(answer) as Record<string, [{ countAll: number }]>)[`${table}_aggregated`]?.[0].countAll,
      };
    default:
      return {
        method: 'PATCH',
        path: `/items/${table}/${id}?fields=id`,
        body: { org: 'x' },
        // The row stays as it was, in both: the expected statement is undone, and the other repeats a value of a trigger.
        expected: async (tx) =>
          idsOf(await tx`update ${tx(table)} set org = 'x' where id = ${id} returning id`)[0] ?? DENIED,
        actual: (answer) => (dataOf(answer) as { id: number }).id,
      };
  }
}

class Undone extends Error {}

/** What the database itself answers, with the same role and settings; nothing of it stays. */
async function ask(mode: Mode, person: Person, { method, path, expected }: Compared): Promise<unknown> {
  const claims = { sub: person.user, role: person.databaseRole, email: person.email };
  let result: unknown = DENIED;
  try {
    await byHand.begin(async (tx) => {
      await tx`
        select set_config('request.jwt.claims', ${JSON.stringify(claims)}, true), set_config('request.method', ${method}, true),
          set_config('request.path', ${path.split('?', 1)[0] as string}, true), set_config('lateral.user', ${person.user}, true),
          set_config('lateral.role', ${person.role ?? ''}, true)`;
      if (mode === 'role') await tx.unsafe(`set local role ${person.databaseRole}`);
      result = await expected(tx as unknown as Sql);
      throw new Undone();
    });
  } catch (error) {
    if (error instanceof Undone) return result;
    if ((error as { code?: string }).code !== '42501') throw error;
  }
  return DENIED;
}

async function send(service: Service, person: Person, { method, path, body, actual }: Compared): Promise<unknown> {
  const headers = { 'content-type': 'application/json' };
  const answer = await request(service, method, path, {
    token: person.token,
    headers,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const errors = (answer.json as { errors?: { extensions: { code: string } }[] } | undefined)?.errors;
  if (errors?.[0]?.extensions.code === 'FORBIDDEN') return DENIED;
  if (answer.status !== 200) return `${answer.status} ${answer.text}`;
  return actual(answer);
}

// A trigger keeps rows as they are, so that all requests of a round see the same.
await sql.unsafe(`
  create function kept() returns trigger language plpgsql as $$ begin return old; end $$;
  ${TABLES.map((table) => `create trigger kept before update on ${table} for each row execute function kept();`).join('\n')}`);

type Tap = typeof t;

async function compare(t: Pick<Tap, 'strictSame' | 'equal'>, mode: Mode, policies: readonly string[]): Promise<void> {
  const wanted = Array.from({ length: REQUESTS }, () => [pick(people), makeRequest()] as const);
  const expected: unknown[] = [];
  for (const [person, compared] of wanted) expected.push(await ask(mode, person, compared));
  const left = wanted.entries();
  const answers: unknown[] = [];
  await Promise.all(
    Array.from({ length: 12 }, async () => {
      for (const [index, [person, compared]] of left) answers[index] = await send(services[mode], person, compared);
    }),
  );
  const wrong = wanted.flatMap(([person, { method, path, body }], index) =>
    JSON.stringify(answers[index]) === JSON.stringify(expected[index])
      ? []
      : [{ method, path, body, role: person.databaseRole, got: answers[index], expected: expected[index] }],
  );
  t.strictSame(wrong.slice(0, 3), [], `seed ${SEED}\n${policies.join('\n')}`);
  t.equal(wrong.length, 0);
}

for (let round = 0; round < ROUNDS; round++)
  t.test(`round ${round}`, async (t) => {
    const policies = await makePolicies();
    await compare(t, 'claims', policies);
    await compare(t, 'role', policies);
  });
