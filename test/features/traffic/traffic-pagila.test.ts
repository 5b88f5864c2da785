/**
 * Pagila under a mix of 60 shapes, recorded and replayed. PAGILA names the folder with pagila-schema.sql and pagila-data.sql.gz
 * (https://github.com/devrimgunduz/pagila); without it the test is skipped.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import t from 'tap';
import { makeCaller, makePolicy } from '../../support/callers.js';
import { runCommand } from '../../support/command.js';
import { findProgram } from '../../support/programs.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createDatabase,
  get,
  makeFolder,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { countsOf, type MixedRequest, rateOf, recordRaw, sendMix } from '../../support/traffic-mix.js';

const folder = process.env['PAGILA'];
const psql = await findProgram('psql');
const SECONDS = Number(process.env['TRAFFIC_SECONDS'] ?? 10);
const RATE = Number(process.env['TRAFFIC_RATE'] ?? 100);

function mix(tokens: readonly (string | null)[]): MixedRequest[] {
  const key = (number: number): number => (number % 200) + 1;
  const columns = ['title', 'release_year', 'rental_duration', 'rental_rate', 'length', 'rating'];
  const paths = columns.flatMap((column, index) => [
    `/items/film/${key(index * 7)}?fields=film_id,${column}`,
    `/items/film?fields=film_id,${column}&sort=-${column}&limit=${index + 5}`,
    `/items/film?filter[${column}][_nnull]=true&aggregate[count]=*&groupBy=rating`,
    `/items/inventory?fields=inventory_id,film_id.${column}&limit=${index + 3}`,
    `/items/film?filter[${column}][_nnull]=true&filter[length][_gt]=${60 + index}&fields=${column}&limit=4`,
    `/items/actor?fields=first_name&filter[last_name][_starts_with]=${String.fromCharCode(65 + index)}&limit=${index + 1}`,
    `/items/rental?fields=rental_id,customer_id.first_name&filter[customer_id][_eq]=${key(index)}&limit=${index + 2}`,
    `/items/customer/${key(index)}?fields=first_name,${index % 2 ? 'store_id' : 'email'}`,
    `/items/city?fields=city,country_id.country&sort=city&limit=${index + 10}`,
  ]);
  const gets = paths.map((path, index) => ({ method: 'GET', path, token: tokens[index % tokens.length] ?? null }));
  const graphql = columns.map((column, index) => ({
    method: 'POST',
    path: '/graphql',
    body: JSON.stringify({ query: `{ film(limit: ${index + 2}, sort: ["film_id"]) { film_id ${column} } }` }),
    token: tokens[index % tokens.length] ?? null,
  }));
  const searches = columns.map((column) => ({
    method: 'SEARCH',
    path: '/items/film',
    body: JSON.stringify({ query: { fields: [column], filter: { film_id: { _lt: 20 } } } }),
    token: ADMIN_TOKEN,
  }));
  return [...gets, ...graphql, ...searches];
}

async function load(url: string, sql: string): Promise<void> {
  if (psql === null) throw new Error('psql is missing');
  const child = spawn(psql, ['-q', '-v', 'ON_ERROR_STOP=0', url], { stdio: ['pipe', 'ignore', 'ignore'] });
  child.stdin.on('error', () => {});
  child.stdin.end(sql);
  await once(child, 'close');
}

t.test('Pagila', { skip: folder === undefined || psql === null ? 'PAGILA and psql are needed' : false }, async (t) => {
  const server = await startDatabase();
  const databaseUrl = await createDatabase(server, 'pagila');
  await load(databaseUrl, await readFile(join(folder ?? '', 'pagila-schema.sql'), 'utf8'));
  await load(databaseUrl, gunzipSync(await readFile(join(folder ?? '', 'pagila-data.sql.gz'))).toString());
  await (await startTestService({ databaseUrl, WORKERS: '1' })).stop();
  const sql = connectSql(databaseUrl);
  t.teardown(() => sql.end());
  const read = (collection: string) => ({ collection, action: 'read' as const });
  const clerk = await makeCaller(sql, 'clerk', [
    { permissions: ['film', 'inventory', 'rental', 'customer'].map(read) },
  ]);
  await makePolicy(sql, 'everyone', { permissions: ['film', 'actor', 'city', 'country'].map(read) });
  const service = await startTestService({ databaseUrl, WORKERS: '2' });
  const requests = mix([ADMIN_TOKEN, clerk.token, null]);
  await sendMix(service.url, requests, 50, requests.length / 50);
  const file = join(await makeFolder(), 'pagila.lateral');
  const target = ['--url', service.url, '--token', ADMIN_TOKEN];
  const recording = runCommand(['record', ...target, '--for', `${SECONDS + 4}s`, '-o', file]);
  await waitFor(
    async () => /^lateral_traffic_recordings 1$/m.test((await get(service, '/server/metrics')).text),
    5_000,
  );
  await sendMix(service.url, requests, RATE, SECONDS);
  const { complaints } = await recording;
  t.comment(complaints);
  const again = recordRaw(service.url, (SECONDS + 6) * 1_000);
  const replayed = await runCommand(['replay', file, ...target, '--json']);
  const result = JSON.parse(replayed.output);
  const first = result.shapes.length;
  t.ok(first >= 60, `${first} shapes`);
  t.match(result.replayed, [{ errors: 0, different_status: 0 }], 'every status is equal');
  t.equal(result.replayed[0].requests, Math.round(RATE * SECONDS));
  const rate = result.replayed[0].requests / SECONDS;
  t.comment(`${rate}/s`, result.recorded, result.replayed);
  const second = (await again).recorded.filter(({ path }) => !path.startsWith('/server'));
  const counts = countsOf(second);
  const perShape = new Map<string, number>();
  for (const [key, count] of counts) {
    const shape = key.replace(/ \d+$/, '');
    perShape.set(shape, (perShape.get(shape) ?? 0) + count);
  }
  for (const { shape, recorded } of result.shapes)
    if (perShape.has(shape))
      t.ok(Math.abs((perShape.get(shape) ?? 0) / recorded.requests - 1) <= 0.01, `${shape}: within 1 %`);
  t.ok(Math.abs(rateOf(second) / RATE - 1) < 0.02, `${rateOf(second)}/s of ${RATE}/s`);
});
