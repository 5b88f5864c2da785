/**
 * DATABASE_CALLER compared with SQL by hand: a random schema with 50 policies and eight roles, callers with random claims. Each response must be
 * that of the same role with the same settings. PROPERTY_SEED, CALLER_ROUNDS, CALLER_READS and CALLER_WRITES choose the run.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import t from 'tap';
import type { Service } from '../../../src/app/start.js';
import { inForce, makeCaller, type Permission } from '../../support/callers.js';
import { EventStream } from '../../support/event-stream.js';
import {
  type Answer,
  connectSql,
  createDatabase,
  databaseUrl,
  request,
  type Sql,
  startDatabase,
  startTestService,
} from '../../support/service.js';
import { type Compared, DENIED, Requests } from './caller-property/requests.js';
import {
  childrenOf,
  defineTables,
  makePolicies,
  makeTables,
  ORGS,
  Random,
  ROLES,
  randomValue,
  type Table,
} from './caller-property/schema.js';

const text = process.env['PROPERTY_SEED'] ?? '34';
const SEED = text === 'random' ? Math.floor(Math.random() * 2_000_000_000) : Number(text);
const ROUNDS = Number(process.env['CALLER_ROUNDS'] ?? 1);
/** For each round, in both modes together. */
const READS = Number(process.env['CALLER_READS'] ?? 240);
const WRITES = Number(process.env['CALLER_WRITES'] ?? 60);
t.setTimeout(120_000 + ROUNDS * (60_000 + (READS + WRITES) * 200));
t.comment(`PROPERTY_SEED=${SEED} CALLER_ROUNDS=${ROUNDS} CALLER_READS=${READS} CALLER_WRITES=${WRITES}`);
const LOGIN = { user: 'app', password: 'app' };
const MODES = ['claims', 'role'] as const;
type Mode = (typeof MODES)[number];

const server = await startDatabase({ own: true, settings: { wal_level: 'logical' } });
const owner = connectSql(await createDatabase(server, 'roles_of_callers'));
await owner.unsafe(`
  create role app login password 'app' replication;
  ${ROLES.map((role) => `create role ${role}; grant ${role} to app;`).join('\n')}`);
await owner.end();

const keys = await generateKeyPair('RS256', { extractable: true });
const published = { ...(await exportJWK(keys.publicKey)), kid: 'one', alg: 'RS256', use: 'sig' };
const issuer = createServer((_, response) => {
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ keys: [published] }));
});
await new Promise<void>((resolve) => issuer.listen(0, '127.0.0.1', resolve));
t.teardown(() => issuer.close());
const ISSUER = `http://127.0.0.1:${(issuer.address() as AddressInfo).port}`;

interface Person {
  readonly token: string;
  readonly user: string;
  readonly role: string | null;
  readonly databaseRole: string;
  /** As the database gets them. */
  readonly claims: Readonly<Record<string, unknown>>;
}

interface Round {
  readonly sql: Sql;
  readonly services: Readonly<Record<Mode, Service>>;
  readonly people: readonly Person[];
  readonly tables: readonly Table[];
  readonly requests: Requests;
  readonly random: Random;
}

async function prepare(number: number): Promise<Round> {
  const random = new Random(SEED + number);
  const name = `compared_${number}`;
  const sql = connectSql(await createDatabase(server, name));
  t.teardown(() => sql.end());
  const tables = makeTables(random);
  await sql.unsafe(`
    grant create on database ${name} to app;
    grant create, usage on schema public to app;
    set role app;
    create schema auth;
    grant usage on schema auth to public;
    create function auth.claims() returns json language sql stable
      as $$ select coalesce(nullif(current_setting('request.jwt.claims', true), ''), '{}')::json $$;
    create function auth.uid() returns uuid language sql stable as $$ select (auth.claims() ->> 'sub')::uuid $$;
    create table visits (number integer primary key, who uuid);
    grant select on visits to ${random.some(ROLES, 85).join()};
    ${defineTables(random, tables)}
    reset role`);
  const options = {
    databaseUrl: databaseUrl(server, name, LOGIN),
    WORKERS: '1',
    DATABASE_POOL_SIZE: '3',
    DATABASE_WRITE_POOL_SIZE: '2',
    DATABASE_CLAIMS: 'org,level',
    DATABASE_ROLES: ROLES.join(),
    JWT_ISSUERS: JSON.stringify([
      { issuer: ISSUER, jwks_url: `${ISSUER}/keys`, audience: 'lateral', user: 'email', trust_email: true },
    ]),
  };
  const services = {
    claims: await startTestService({ ...options, DATABASE_CALLER: 'claims' }),
    role: await startTestService({ ...options, DATABASE_CALLER: 'role' }),
  };
  for (const child of tables.filter(({ parent }) => parent !== null)) {
    const list = childrenOf(child);
    await sql`
      insert into service_relations (many_collection, many_field, one_collection, one_field)
      values (${child.name}, 'parent', ${child.parent}, ${list})`;
    await sql`insert into service_fields (collection, field, special) values (${child.parent}, ${list}, 'o2m')`;
  }
  const people = await makePeople(sql, random, tables);
  const users = people.map(({ user }) => user);
  for (const { name: table, columns, parent } of tables)
    for (let id = 1; id <= 60; id++) {
      const row = Object.fromEntries(columns.map((column) => [column.name, randomValue(random, column, users)]));
      await sql`insert into ${sql(table)} ${sql({ id, ...row, ...(parent === null ? {} : { parent: 1 + random.below(60) }) })}`;
    }
  for (let number = 1; number <= 30; number += 2)
    await sql`insert into visits values (${number}, ${random.pick(users)})`;
  await sql`grant select on t0 to ${sql.unsafe(ROLES.join())}`;
  await sql`create policy first on t0 using (true)`;
  for (const service of Object.values(services))
    for (const person of people) await inForce(service, { ...person, policies: [] }, '/items/t0?fields=id');
  await sql`drop policy first on t0`;
  const policies = makePolicies(random, tables);
  await sql.unsafe(policies.join(';\n'));
  return { sql, services, people, tables, random, requests: new Requests(random, tables, users, ROUNDS === 1) };
}

/** Two people for each role: one with a token of the service, and one with a token of the issuer that has more claims. */
async function makePeople(sql: Sql, random: Random, tables: readonly Table[]): Promise<Person[]> {
  const permissions: readonly Permission[] = tables.flatMap(({ name: collection }) =>
    (['read', 'create', 'update', 'delete'] as const).map((action) => ({ collection, action })),
  );
  const people: Person[] = [];
  for (const [index, databaseRole] of [...ROLES, ...ROLES].entries()) {
    const name = `${random.pick(ORGS)}.${index}`;
    const { token, user, role } = await makeCaller(sql, name, [{ permissions }]);
    const isForeign = index >= ROLES.length;
    const email = `${name}@example.com`;
    const extra = isForeign ? { org: random.pick(ORGS), level: random.below(10) } : {};
    // The claim of a token comes before the role of the user.
    await sql`update service_roles set database_role = ${isForeign ? random.pick(ROLES) : databaseRole} where id = ${role}`;
    const signed = new SignJWT({ email, email_verified: true, role: databaseRole, ...extra })
      .setProtectedHeader({ alg: 'RS256', kid: 'one' })
      .setIssuer(ISSUER)
      .setSubject(name)
      .setAudience('lateral')
      .setExpirationTime('12h');
    const claims = { sub: user, role: databaseRole, email, ...extra };
    people.push({ token: isForeign ? await signed.sign(keys.privateKey) : token, user, role, databaseRole, claims });
  }
  return people;
}

class Undone extends Error {}

interface Expected {
  readonly result: unknown;
  /** The rows of all tables afterwards. */
  readonly state: string | null;
}

const CLASSES: Readonly<Record<string, string>> = { '42501': DENIED, '23505': 'unique', '23503': 'foreign_key' };

const REFUSALS: ReadonlySet<string> = new Set(Object.values(CLASSES));

/** What the database itself answers, with the same role and settings; nothing of it stays. */
async function ask(
  { sql, tables }: Round,
  mode: Mode,
  person: Person,
  compared: Compared,
  isWrite: boolean,
): Promise<Expected> {
  const { method, path, expected, isLive = false } = compared;
  let result: unknown = null;
  let state: string | null = null;
  const run = async (tx: Sql): Promise<void> => {
    await tx`
      select set_config('request.jwt.claims', ${JSON.stringify(person.claims)}, true),
        set_config('request.method', ${isLive ? '' : method}, true),
        set_config('request.path', ${isLive ? '' : (path.split('?', 1)[0] as string)}, true),
        set_config('lateral.user', ${person.user}, true), set_config('lateral.role', ${person.role ?? ''}, true)`;
    await tx.unsafe(`set local role ${mode === 'role' ? person.databaseRole : LOGIN.user}`);
    result = await expected(tx);
    await tx.unsafe('reset role');
    if (isWrite && result !== DENIED) state = await stateOf(tx, tables);
    throw new Undone();
  };
  try {
    await sql.begin((tx) => run(tx as unknown as Sql));
  } catch (error) {
    if (!(error instanceof Undone)) {
      const code = String((error as { code?: string }).code);
      if (!CLASSES[code]) throw error;
      result = CLASSES[code];
    }
  }
  return { result, state: isWrite ? (state ?? (await stateOf(sql, tables))) : null };
}

async function stateOf(sql: Sql, tables: readonly Table[]): Promise<string> {
  const states: string[] = [];
  for (const { name } of tables) {
    // Rolled back, a sequence goes on: keys that it makes differ.
    const [row] = await sql.unsafe(`
      select md5(string_agg(value, ' ' order by value)) as state
      from (select (to_jsonb(each) || case when id > 9999 then '{"id": 0}' else '{}' end::jsonb)::text as value from ${name} each) each`);
    states.push(String(row?.['state']));
  }
  return states.join();
}

async function send(service: Service, person: Person, compared: Compared): Promise<unknown> {
  const { method, path, body, actual, isLive } = compared;
  if (isLive) return follow(service, person, compared);
  const answer = await request(service, method, path, {
    token: person.token,
    headers: { 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return failureOf(answer, path) ?? actual(answer);
}

/** The first state of a live query. */
async function follow(service: Service, person: Person, { path, actual }: Compared): Promise<unknown> {
  const stream = new EventStream(service, path, { token: person.token });
  try {
    await Promise.race([stream.count(1), stream.ended()]);
    if (stream.status !== 200) return stream.status === 403 ? DENIED : `${stream.status} ${stream.text}`;
    return actual({ json: JSON.parse(String(stream.events[0]?.data)) } as Answer);
  } finally {
    stream.close();
  }
}

function failureOf({ status, text: body, json }: Answer, path: string): string | null {
  const [error] =
    (json as { errors?: { message: string; extensions: { code: string; type?: string } }[] } | undefined)?.errors ?? [];
  if (!error) return status < 300 ? null : `${status} ${body}`;
  const { code, type } = error.extensions;
  // A schema has only what the role may use.
  const isUnknown =
    path === '/graphql' &&
    /Cannot query field|is not defined by type|Unknown type|must not have a selection/.test(error.message);
  if (code === 'FORBIDDEN' || isUnknown) return DENIED;
  return code === 'FAILED_VALIDATION' && type !== undefined ? type : `${status} ${body}`;
}

interface Difference extends Pick<Compared, 'method' | 'path' | 'body'> {
  readonly mode: Mode;
  readonly role: string;
  readonly got: unknown;
  readonly expected: unknown;
}

const BATCH = 60;

async function compareReads(round: Round, mode: Mode): Promise<Difference[]> {
  const { random, people, requests, services } = round;
  const wanted = Array.from({ length: BATCH }, () => [random.pick(people), requests.read()] as const);
  const expected: unknown[] = [];
  for (const [person, compared] of wanted) expected.push((await ask(round, mode, person, compared, false)).result);
  const left = wanted.entries();
  const answers: unknown[] = [];
  await Promise.all(
    Array.from({ length: 12 }, async () => {
      for (const [index, [person, compared]] of left) answers[index] = await send(services[mode], person, compared);
    }),
  );
  return wanted.flatMap(([person, { method, path, body }], index) =>
    JSON.stringify(answers[index]) === JSON.stringify(expected[index])
      ? []
      : [{ mode, method, path, body, role: person.databaseRole, got: answers[index], expected: expected[index] }],
  );
}

async function compareWrite(round: Round, mode: Mode): Promise<Difference[]> {
  const { random, people, requests, services, sql, tables } = round;
  const [person, compared] = [random.pick(people), requests.write()];
  const expected = await ask(round, mode, person, compared, true);
  const result = await send(services[mode], person, compared);
  const got = { result, state: await stateOf(sql, tables) };
  const isRefused = (outcome: unknown): boolean => REFUSALS.has(String(outcome));
  const isSame = compared.isSeveral
    ? isRefused(got.result) === isRefused(expected.result) && got.state === expected.state
    : JSON.stringify(got) === JSON.stringify(expected);
  if (isSame) return [];
  const { method, path, body } = compared;
  return [{ mode, method, path, body, role: person.databaseRole, got, expected }];
}

for (let number = 0; number < ROUNDS; number++)
  t.test(`round ${number}`, async (t) => {
    const round = await prepare(number);
    const wrong: Difference[] = [];
    const counts = { reads: 0, writes: 0 };
    for (let turn = 0; counts.reads < READS || counts.writes < WRITES; turn++) {
      const mode = MODES[turn % 2] as Mode;
      if (counts.reads < READS) {
        wrong.push(...(await compareReads(round, mode)));
        counts.reads += BATCH;
      }
      for (let writes = 0; writes < BATCH / 4 && counts.writes < WRITES; writes++, counts.writes++)
        wrong.push(...(await compareWrite(round, mode)));
    }
    t.strictSame(wrong.slice(0, 3), [], `PROPERTY_SEED=${SEED}`);
    t.equal(wrong.length, 0, `${counts.reads} reads, ${counts.writes} writes`);
    await Promise.all(Object.values(round.services).map((service) => service.stop()));
  });
