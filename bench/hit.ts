/**
 * Node's own time per request whose shape is known, from the arrival of the request to the driver. The very route of the
 * service runs; in place of the driver stands a function that never answers, so that nothing behind it is counted.
 */
import type { HttpRequest, HttpResponse } from 'uWebSockets.js';
import { Identities } from '../src/access/identity.js';
import { readConfig } from '../src/config.js';
import { findIdentity } from '../src/execute/accounts.js';
import type { Database } from '../src/execute/database.js';
import { Reads } from '../src/execute/reads.js';
import { sourceOf } from '../src/execute/source.js';
import { Exchange } from '../src/http/exchange.js';
import { Router } from '../src/http/router.js';
import { Mirror } from '../src/mirror/watch.js';
import { itemsRoutes } from '../src/resources/items.js';
import { loadGrammar } from '../src/sql/verify.js';
import { CASES } from './cases.js';
import { ADMINISTRATOR, openDatabase } from './environment.js';

const ROUNDS = 60;
const REQUESTS = 2_000;
const TARGET = 30;

export async function measureHits(databaseUrl: string): Promise<void> {
  const database = await openDatabase(databaseUrl);
  const mirror = await Mirror.start(sourceOf(database), () => undefined, 0);
  try {
    const identities = new Identities((digest) => findIdentity(database, digest));
    await identities.identify(`Bearer ${ADMINISTRATOR.token}`);
    await loadGrammar();
    for (const [title, urlOf] of requests()) {
      const driver = { calls: 0 };
      const router = makeRouter(identities, mirror, driver);
      const times = Array.from({ length: ROUNDS }, (_, round) => timeRound(router, urlOf, round * REQUESTS));
      if (driver.calls !== ROUNDS * REQUESTS) throw new Error(`${title}: a request did not reach the driver`);
      const sorted = times.toSorted((one, other) => one - other);
      const median = sorted[ROUNDS >> 1] ?? Number.NaN;
      const isFast = median < TARGET;
      console.log(
        `${title.padEnd(34)} ${median.toFixed(2).padStart(7)} µs per hit (best ${sorted[0]?.toFixed(2)}), ` +
          `${isFast ? 'under' : 'NOT under'} ${TARGET} µs`,
      );
      if (!isFast) process.exitCode = 1;
    }
  } finally {
    await mirror.close();
    await database.close();
  }
}

type UrlOf = (turn: number) => { readonly path: string; readonly query: string };

function requests(): readonly (readonly [string, UrlOf])[] {
  const keys = pathsOf('key').map(split);
  const nested = split(pathsOf('nested')[0] ?? '');
  const filter = split(pathsOf('filter')[0] ?? '');
  const nestedQuery = nested.query.replace(/(_gte\]=)\d+/, '$1');
  return [
    ['by key', (turn) => keys[turn % keys.length] ?? nested],
    ['nested, the same URL', () => nested],
    [
      'filter, another value each time',
      (turn) => ({ ...filter, query: filter.query.replace(/(_gte\]=)\d+/, `$1${turn}`) }),
    ],
    [
      'nested, another value each time',
      (turn) => ({ ...nested, query: nestedQuery.replace('_gte]=', `_gte]=${turn}`) }),
    ],
  ];
}

function pathsOf(id: string): readonly string[] {
  const found = CASES.find((each) => each.id === id)?.requests;
  return Array.isArray(found) ? found.map((request) => request.path) : [];
}

function split(path: string): { path: string; query: string } {
  const [before = '', query = ''] = path.split('?', 2);
  return { path: before, query };
}

function makeRouter(identities: Identities, mirror: Mirror, driver: { calls: number }): Router {
  const config = readConfig({});
  const database = {
    cell: () => {
      driver.calls++;
      return new Promise<never>(() => undefined);
    },
  } as unknown as Database;
  const readLimits = {
    defaultLimit: config.QUERY_LIMIT_DEFAULT,
    maxNodes: config.MAX_QUERY_NODES,
    shapes: config.SHAPE_CACHE_SIZE,
    cost: config.MAX_QUERY_COST,
    batchTimeout: config.DATABASE_STATEMENT_TIMEOUT,
  };
  const limits = {
    relationalDepth: config.MAX_RELATIONAL_DEPTH,
    bracketDepth: config.QUERYSTRING_MAX_PARSE_DEPTH,
    arrayLength: config.QUERYSTRING_ARRAY_LIMIT,
    jsonDepth: config.MAX_JSON_QUERY_DEPTH,
    pageSize: config.QUERY_LIMIT_MAX,
    wholeRows: config.STREAM_ABOVE,
  };
  const reads = new Reads(database, mirror, readLimits, () => undefined);
  return new Router(itemsRoutes({ identities, reads, limits }));
}

/**
 * Microseconds of processor time per request, garbage collection included; what others take of the machine is not.
 * Everything up to the driver runs at once: no request waits for another.
 */
function timeRound(router: Router, urlOf: UrlOf, first: number): number {
  const headers: Readonly<Record<string, string>> = { authorization: `Bearer ${ADMINISTRATOR.token}` };
  const response = { onAborted: () => response } as unknown as HttpResponse;
  const arrivals = Array.from({ length: REQUESTS }, (_, index) => {
    const { path, query } = urlOf(first + index);
    return {
      getCaseSensitiveMethod: () => 'GET',
      getUrl: () => path,
      getQuery: () => query,
      getHeader: (name: string) => headers[name] ?? '',
    } as unknown as HttpRequest;
  });
  const begun = process.cpuUsage();
  for (const request of arrivals) {
    const exchange = new Exchange(request, response, 0);
    void router.find(exchange)(exchange);
  }
  const { user, system } = process.cpuUsage(begun);
  return (user + system) / REQUESTS;
}
