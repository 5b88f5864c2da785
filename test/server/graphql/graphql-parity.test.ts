/**
 * REST and GraphQL offer the same: random reads in both give the same data, random writes leave the same rows. Each service
 * has a database of its own for the writes, made from the same template.
 */
import fc from 'fast-check';
import t from 'tap';
import {
  type Answer,
  connectSql,
  copyDatabase,
  createLibrary,
  request,
  startDatabase,
  startTestService,
  withSql,
} from '../../support/service.js';
import { drawn } from '../items/property/draw.js';
import { KEYED_SCHEMAS, KEYED_SQL } from './keyed.js';
import { TABLES } from './library.js';
import { drawRead, type Twin } from './reads.js';
import { drawWrite, type TwinWrite } from './writes.js';

const given = process.env['PROPERTY_SEED'] ?? '20260101';
const SEED = given === 'random' ? Math.floor(Math.random() * 2_000_000_000) : Number(given);
const READS = Number(process.env['PROPERTY_CASES'] ?? 60);
const WRITES = Math.ceil(READS / 3);
const JSON_BODY = { 'content-type': 'application/json' };

t.comment(`PROPERTY_SEED=${SEED} PROPERTY_CASES=${READS}`);
t.setTimeout(180_000 + READS * 300);
const server = await startDatabase();
const first = await createLibrary(server, 'by_rest');
await withSql(first, (sql) => sql.unsafe(KEYED_SQL).simple());
const second = await copyDatabase(server, 'by_rest', 'by_graphql');
const rest = await startTestService({ databaseUrl: first, DATABASE_SCHEMAS: KEYED_SCHEMAS });
const graphql = await startTestService({ databaseUrl: second, DATABASE_SCHEMAS: KEYED_SCHEMAS });

t.test(`${READS} random reads give the same data`, async (t) => {
  const reads = fc.sample(drawn(drawRead), { seed: SEED, numRuns: READS });
  let rows = 0;
  for (const read of reads) {
    const expected = await askRest(read);
    const answer = await ask(read.document, read.variables);
    const { data, errors } = answer.json as Result;
    if (expected.status !== 200) {
      const [code] = (expected.json as Result).errors?.map(({ extensions }) => extensions.code) ?? [];
      if (errors?.[0]?.extensions.code !== code) t.fail(`${read.document} fails in REST alone: ${expected.text}`);
      continue;
    }
    const wanted = { result: read.expect((expected.json as { data: unknown }).data) };
    rows += Array.isArray(wanted.result) ? wanted.result.length : 1;
    if (!t.strictSame({ data, errors }, { data: wanted, errors: undefined }, read.document.slice(0, 200))) {
      t.comment(JSON.stringify({ rest: read.rest, key: read.key, variables: read.variables, document: read.document }));
      break;
    }
  }
  t.ok(rows > READS, `${rows} rows were compared`);
});

t.test(`${WRITES} random writes leave the same rows`, async (t) => {
  const [one, other] = [connectSql(first), connectSql(second)];
  t.teardown(() => Promise.all([one.end(), other.end()]));
  let done = 0;
  for (const write of fc.sample(drawn(drawWrite), { seed: SEED, numRuns: WRITES })) {
    const body = JSON.stringify(write.body);
    // Node sends the body of a DELETE only with its length.
    const headers = { ...JSON_BODY, 'content-length': String(Buffer.byteLength(body)) };
    const expected = await request(rest, write.method, write.path, { headers, body });
    const answer = await ask(write.document, write.variables);
    const { errors } = answer.json as Result;
    const codes = [(expected.json as Result | undefined)?.errors?.[0]?.extensions.code, errors?.[0]?.extensions.code];
    if (codes[0] === undefined) done++;
    const same =
      codes[0] === codes[1] && t.strictSame(await rowsOf(other), await rowsOf(one), write.document.slice(0, 150));
    if (!same) {
      t.fail(describe(write, expected, answer));
      break;
    }
  }
  t.ok(done > WRITES / 2, `${done} writes were carried out`);
});

interface Result {
  readonly data?: unknown;
  readonly errors?: readonly { readonly extensions: { readonly code: string } }[];
}

function askRest({ collection, key, rest: query }: Twin): Promise<Answer> {
  if (key === null)
    return request(rest, 'SEARCH', `/items/${collection}`, { headers: JSON_BODY, body: JSON.stringify({ query }) });
  const parameters = Object.entries(query).map(
    ([name, value]) => `${name}=${encodeURIComponent(name === 'fields' ? String(value) : JSON.stringify(value))}`,
  );
  return request(rest, 'GET', `/items/${collection}/${encodeURIComponent(key)}?${parameters.join('&')}`);
}

function ask(query: string, variables: unknown): Promise<Answer> {
  return request(graphql, 'POST', '/graphql', { headers: JSON_BODY, body: JSON.stringify({ query, variables }) });
}

function describe(write: TwinWrite, expected: Answer, answer: Answer): string {
  return JSON.stringify({ ...write, rest: expected.text.slice(0, 500), graphql: answer.text.slice(0, 500) });
}

async function rowsOf(sql: ReturnType<typeof connectSql>): Promise<unknown> {
  const rows: Record<string, unknown> = {};
  for (const { name } of TABLES) {
    const table = name.startsWith('sales_') ? sql`sales.${sql(name.slice('sales_'.length))}` : sql(name);
    const [found] = await sql`select coalesce(json_agg(t order by t::text), '[]') as rows from ${table} t`;
    rows[name] = found?.['rows'];
  }
  return rows;
}
