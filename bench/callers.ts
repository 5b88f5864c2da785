/**
 * Reads with DATABASE_CALLER, of 100 callers: compared with pgbench, which sends the same settings and the same statement in one pipeline,
 * and with DATABASE_CALLER=service. All are measured in turns.
 */
import { createHash } from 'node:crypto';
import postgres from 'postgres';
import { DatabaseCaller } from '../src/server/access/database-caller.js';
import { ceiling } from './ceiling.js';
import { ADMINISTRATOR, type Report, type RunningService, startService } from './environment.js';
import { type LoadOptions, measure } from './load.js';
import type { Options } from './options.js';
import { postmasterOf, spentBy, spentByServer } from './processor.js';
import { prepareCounting } from './statement-count.js';

interface CallerOptions
  extends Pick<Options, 'connections' | 'poolSize' | 'seconds' | 'rounds' | 'settings' | 'data' | 'profile'> {
  /** The folder of the revision of `--against`, or null. */
  readonly before: string | null;
}

const DATABASE = 'bench_callers';
const LOGIN = 'bench_app';
const ROLE = 'bench_member';
const CALLERS = 100;
const NOTES_PER_CALLER = 50;
const MODES = ['service', 'claims', 'role'] as const;
type Mode = (typeof MODES)[number];

/** The aims: of `service` for reads that need no settings, of pgbench for all others. */
const PLAIN_TARGET = 0.9;
const TARGET = 0.8;

/** A read, and the part of a URL that names it for a key. */
const READS = [
  { title: 'by key, no policies', table: 'plain', pathOf: (key: number) => `/items/plain/${key}` },
  { title: 'by key, policy', table: 'notes', pathOf: (key: number) => `/items/notes/${key}` },
  { title: 'list of 10, policy', table: 'notes', pathOf: () => '/items/notes?limit=10&sort=-id' },
] as const;

type Read = (typeof READS)[number];

export async function measureCallers(serverUrl: string, options: CallerOptions, report: Report): Promise<void> {
  const url = await makeDatabase(serverUrl);
  const services: Contender[] = [];
  const start = async (mode: Mode, root: string | null = null): Promise<void> => {
    const service = await startService({
      databaseUrl: loginOf(url),
      poolSize: options.poolSize,
      profile: root === null && options.profile ? `${options.profile}/${mode}` : undefined,
      settings: { ...options.settings, DATABASE_CALLER: mode, READ_CACHE_SIZE: '0' },
      ...(root === null ? {} : { root }),
    });
    services.push({ mode, title: root === null ? mode : `${mode} before`, service });
  };
  try {
    await start('service');
    const callers = await makeCallers(url);
    for (const mode of ['claims', 'role'] as const) await start(mode);
    if (options.before !== null) for (const mode of MODES) await start(mode, options.before);
    await prepareCounting(serverUrl);
    for (const read of READS) {
      // Without claims the policy hides all rows.
      const served = read.table === 'plain' ? services : services.filter(({ mode }) => mode !== 'service');
      for (const line of await compare(read, served, callers, { ...options, url })) report(line);
    }
  } finally {
    await Promise.all(services.map(({ service }) => service.stop()));
  }
}

interface Contender {
  readonly mode: Mode;
  readonly title: string;
  readonly service: RunningService;
}

/** A policy in the manner of Supabase. Each run creates the database again. */
async function makeDatabase(serverUrl: string): Promise<string> {
  const server = postgres(serverUrl, { max: 1, onnotice: () => undefined });
  try {
    await server.unsafe(`drop database if exists ${DATABASE} with (force)`);
    await server.unsafe(`drop role if exists ${LOGIN}, ${ROLE}`);
    await server.unsafe(`create database ${DATABASE}`);
    await server.unsafe(`create role ${ROLE}`);
    await server.unsafe(`create role ${LOGIN} login noinherit password '${LOGIN}' in role ${ROLE}`);
  } finally {
    await server.end({ timeout: 5 });
  }
  const url = new URL(serverUrl);
  url.pathname = `/${DATABASE}`;
  await withSql(url.href, (sql) => sql.unsafe(SCHEMA));
  return url.href;
}

const SCHEMA = `
  grant create, usage on schema public to ${LOGIN};
  create schema auth;
  grant usage on schema auth to public;
  create function auth.uid() returns uuid language sql stable
    as $$ select nullif(nullif(current_setting('request.jwt.claims', true), '')::json ->> 'sub', '')::uuid $$;
  create table notes (id integer primary key, owner uuid not null, title text not null, body text not null);
  create index on notes (owner, id);
  create table plain (like notes including all);
  alter table notes enable row level security;
  create policy own on notes using (owner = (select auth.uid()));
  grant select on notes, plain to ${LOGIN}, ${ROLE}`;

interface BenchCaller {
  readonly user: string;
  readonly role: string;
  readonly email: string;
  readonly token: string;
  /** The keys of its rows. */
  readonly keys: readonly number[];
}

async function makeCallers(url: string): Promise<readonly BenchCaller[]> {
  return withSql(url, async (sql) => {
    const [role] = await sql<{ id: string }[]>`
      insert into service_roles (name, database_role) values ('member', ${ROLE}) returning id`;
    const roleId = role?.id ?? '';
    const [policy] = await sql<{ id: string }[]>`insert into service_policies (name) values ('member') returning id`;
    const policyId = policy?.id ?? '';
    await sql`insert into service_access (policy, role) values (${policyId}, ${roleId})`;
    await sql`
      insert into service_permissions (policy, collection, action, fields)
      select ${policyId}, collection, 'read', '*' from unnest(array['notes', 'plain']) as collection`;
    const callers: BenchCaller[] = [];
    for (let number = 0; number < CALLERS; number++) {
      const [token, email] = [`token-of-caller-${number}`, `caller${number}@example.com`];
      const digest = createHash('sha256').update(token).digest('hex');
      const [user] = await sql<{ id: string }[]>`
        insert into service_users (first_name, email, token, role)
        values (${`Caller ${number}`}, ${email}, ${digest}, ${roleId}) returning id`;
      const keys = Array.from({ length: NOTES_PER_CALLER }, (_, index) => 1 + index * CALLERS + number);
      callers.push({ user: user?.id ?? '', role: roleId, email, token, keys });
    }
    const owners = callers.map(({ user }) => user);
    for (const table of ['notes', 'plain'])
      await sql`
        insert into ${sql(table)} select n, (${owners}::text[]::uuid[])[1 + (n - 1) % ${CALLERS}], 'Note ' || n, repeat('text ', 20)
        from generate_series(1, ${CALLERS * NOTES_PER_CALLER}) as n`;
    await sql.unsafe('vacuum (analyze) notes, plain');
    await sql`checkpoint`;
    return callers;
  });
}

/** The figures of one contender, of the best round. */
interface Figures {
  readonly perSecond: number;
  /** Microseconds of the processor per request, of the service and of PostgreSQL. */
  readonly node: number;
  readonly server: number;
}

const NONE: Figures = { perSecond: 0, node: 0, server: 0 };

async function compare(
  read: Read,
  services: readonly Contender[],
  callers: readonly BenchCaller[],
  options: CallerOptions & { readonly url: string },
): Promise<readonly string[]> {
  const best = new Map<string, Figures>();
  const keep = (name: string, figures: Figures): void => {
    if (figures.perSecond > (best.get(name) ?? NONE).perSecond) best.set(name, figures);
  };
  const statements = await Promise.all(services.map(({ mode, service }) => pipelineOf(read, mode, service, callers)));
  for (let round = 0; round <= options.rounds; round++)
    for (const [index, { mode, title, service }] of services.entries()) {
      const load = loadOf(read, service, callers, { ...options, seconds: round === 0 ? 2 : options.seconds });
      const served = await underLoad(load, service.pid, options.data);
      if (round === 0) continue;
      keep(title, served);
      if (title !== mode) continue;
      const pipeline = statements[index];
      if (pipeline && (mode !== 'claims' || read.table !== 'plain'))
        for (const connections of [options.connections, options.poolSize])
          keep(`pgbench ${mode}`, await alone(pipeline, options.url, options, connections));
    }
  return services.map((contender) => line(read, contender, best));
}

function loadOf(
  { pathOf }: Read,
  { url }: RunningService,
  callers: readonly BenchCaller[],
  { connections, seconds }: CallerOptions,
): LoadOptions {
  const requests = Array.from({ length: NOTES_PER_CALLER }, (_, index) =>
    callers.map(({ keys, token }) => ({ path: pathOf(keys[index] ?? 0), caller: `Bearer ${token}` })),
  ).flat();
  return {
    url,
    paths: requests.map(({ path }) => path),
    callers: requests.map(({ caller }) => caller),
    headers: {},
    connections,
    seconds,
  };
}

async function underLoad(load: LoadOptions, pid: number, data: string): Promise<Figures> {
  const spent = spender(pid, data);
  const result = await measure(load);
  if (result.errors > 0) throw new Error(`${load.url}: ${result.errors} errors`);
  return { perSecond: result.requestsPerSecond, ...spent(result.requestsPerSecond * result.seconds) };
}

/** Begins to count the time of the processor; the returned function divides it by a number of requests. */
function spender(pid: number | null, data: string): (requests: number) => Omit<Figures, 'perSecond'> {
  const postmaster = postmasterOf(data);
  const now = (): [number, number] => [
    pid === null ? 0 : (spentBy(pid) ?? 0),
    postmaster === null ? 0 : (spentByServer(postmaster) ?? 0),
  ];
  const [nodeBefore, serverBefore] = now();
  return (requests) => {
    const [node, server] = now();
    return { node: ((node - nodeBefore) * 1_000) / requests, server: ((server - serverBefore) * 1_000) / requests };
  };
}

type Pipeline = Pick<Parameters<typeof ceiling>[0], 'text' | 'parameters' | 'before'>;

/** The settings and the statement of each request. */
async function pipelineOf(
  { pathOf }: Read,
  mode: Mode,
  { url }: RunningService,
  callers: readonly BenchCaller[],
): Promise<Pipeline> {
  const explained = await Promise.all(
    callers.map(async (caller) => {
      const path = pathOf(caller.keys[0] ?? 0);
      const headers = { authorization: `Bearer ${ADMINISTRATOR.token}`, prefer: 'explain' };
      const response = await fetch(`${url}${path}`, { headers });
      const { data } = (await response.json()) as { data: { sql: string; parameters: (string | null)[] } };
      return { caller, path, ...data };
    }),
  );
  const text = explained[0]?.sql ?? '';
  const parameters = explained.map((each) => each.parameters);
  if (mode === 'service') return { text, parameters };
  const database = new DatabaseCaller({ mode, roles: [], anonRole: null, claims: [], settings: [] });
  const settings = explained.map(({ caller: { user, role, email }, path }) =>
    database.settingsOf(
      { user, role, inDatabase: { email, role: ROLE } } as Parameters<DatabaseCaller['settingsOf']>[0],
      { method: 'GET', path: path.replace(/\?.*/, '') },
    ),
  );
  const before = {
    text: settings[0]?.text ?? '',
    parameters: settings.map(({ leading, parameters }) => [...leading, ...parameters]),
  };
  return { text, parameters, before };
}

async function alone(
  pipeline: Pipeline,
  databaseUrl: string,
  { seconds, data }: CallerOptions,
  connections: number,
): Promise<Figures> {
  const spent = spender(null, data);
  const { statementsPerSecond, statements } = await ceiling({
    ...pipeline,
    databaseUrl: loginOf(databaseUrl),
    connections,
    seconds,
  });
  return { perSecond: statementsPerSecond, ...spent(statements ?? statementsPerSecond * seconds) };
}

function line({ title, table }: Read, { mode, title: name }: Contender, best: ReadonlyMap<string, Figures>): string {
  const ours = best.get(name) ?? NONE;
  const isPlain = mode === 'claims' && table === 'plain';
  const other = isPlain ? 'service' : `pgbench ${mode}`;
  const theirs = best.get(other) ?? NONE;
  const target = isPlain ? PLAIN_TARGET : TARGET;
  const ratio = ours.perSecond / theirs.perSecond;
  if (name === mode && mode !== 'service' && !(ratio >= target)) process.exitCode = 1;
  const show = ({ perSecond, node, server }: Figures): string =>
    `${Math.round(perSecond).toLocaleString('en')}/s (${[node, server].map((each) => each.toFixed(0)).join(' + ')} µs)`;
  const aim = mode === 'service' ? '' : ` (target ${target})`;
  return `${title.padEnd(20)} ${name.padEnd(14)} ${show(ours).padEnd(24)} ${other} ${show(theirs)}: ${ratio.toFixed(2)}${aim}`;
}

function loginOf(databaseUrl: string): string {
  const url = new URL(databaseUrl);
  url.username = LOGIN;
  url.password = LOGIN;
  return url.href;
}

async function withSql<Result>(url: string, work: (sql: postgres.Sql) => Promise<Result>): Promise<Result> {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  try {
    return await work(sql);
  } finally {
    await sql.end({ timeout: 5 });
  }
}
