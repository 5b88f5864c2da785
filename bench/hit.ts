/**
 * CPU time of Node per request of a known shape, from its arrival until it is in the queue of its shape. It runs the route of the service
 * itself. A function that never answers replaces the queues, so that nothing behind them is measured.
 */
import type { HttpRequest, HttpResponse } from 'uWebSockets.js';
import { readConfig } from '../src/app/options.js';
import { withCore } from '../src/app/start.js';
import { Identities } from '../src/server/access/identities.js';
import { Tokens } from '../src/server/access/tokens.js';
import { lookUpAccount } from '../src/server/accounts/accounts.js';
import { itemsRoutes } from '../src/server/api/items/items.js';
import { parseLimits } from '../src/server/config/parse-limits.js';
import { createClientAddressResolver } from '../src/server/http/client-address.js';
import { Exchange, type ServerHooks } from '../src/server/http/exchange.js';
import { Router } from '../src/server/http/router.js';
import { ReadBatcher } from '../src/speed/batching/read-batcher.js';
import { CASES } from './cases.js';
import { ADMINISTRATOR } from './environment.js';

const ROUNDS = 60;
const REQUESTS = 2_000;
const TARGET = 30;

export async function measureHits(databaseUrl: string): Promise<void> {
  const config = readConfig({ DATABASE_URL: databaseUrl, READ_BATCHING: 'false' });
  await withCore(
    config,
    () => undefined,
    () => undefined,
    async (core) => {
      const { database, reads, writes } = core;
      const identities = new Identities((holder) => lookUpAccount(database, holder), {
        verifiers: [new Tokens('bench')],
        cookieName: 'session',
        stalenessMs: 60_000,
      });
      await identities.identify({
        headers: { viewAs: '', authorization: `Bearer ${ADMINISTRATOR.token}` },
        accessToken: '',
        address: '127.0.0.1',
        cookie: () => '',
        begun: 0,
        cookieRefused: false,
        fromAdministrator: false,
        identity: null,
        viewedAs: () => undefined,
      });
      const ignore = (): void => undefined;
      const clientAddress = createClientAddressResolver(config);
      const hooks = {
        clientAddress,
        timing: false,
        timingFor: 'false' as const,
        positions: null,
        caches: false,
        names: null,
        answersOrigins: false,
        respond: ignore,
        respondError: ignore,
        openResponse: (): never => {
          throw new Error('no response stays open here');
        },
      };
      const router = new Router(
        itemsRoutes({
          identities,
          reads,
          writes,
          limits: parseLimits(config),
          live: () => null,
          exportItems: () => null,
        }),
      );
      let calls = 0;
      ReadBatcher.prototype.execute = () => {
        calls++;
      };
      for (const [title, urlOf] of requests()) {
        calls = 0;
        const times = Array.from({ length: ROUNDS }, (_, round) => timeRound(router, hooks, urlOf, round * REQUESTS));
        if (calls !== ROUNDS * REQUESTS) throw new Error(`${title}: a request did not reach the driver at once`);
        print(title, times);
      }
    },
  );
}

function print(title: string, times: readonly number[]): void {
  const sorted = times.toSorted((one, other) => one - other);
  const median = sorted[ROUNDS >> 1] ?? Number.NaN;
  const isFast = median < TARGET;
  console.log(
    `${title.padEnd(34)} ${median.toFixed(2).padStart(7)} µs per hit (best ${sorted[0]?.toFixed(2)}), ` +
      `${isFast ? 'under' : 'NOT under'} ${TARGET} µs`,
  );
  if (!isFast) process.exitCode = 1;
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

/**
 * Microseconds of CPU time per request, including garbage collection and excluding other processes. Everything before the driver runs
 * synchronously: no request waits for another.
 */
function timeRound(router: Router, hooks: ServerHooks, urlOf: UrlOf, first: number): number {
  const headers: Readonly<Record<string, string>> = { authorization: `Bearer ${ADMINISTRATOR.token}` };
  const response = { onAborted: () => response } as unknown as HttpResponse;
  const arrivals = Array.from({ length: REQUESTS }, (_, index) => {
    const { path, query } = urlOf(first + index);
    return {
      getCaseSensitiveMethod: () => 'GET',
      getUrl: () => path,
      getQuery: () => query,
      forEach: (take: (name: string, value: string) => void) => {
        for (const name in headers) take(name, headers[name] ?? '');
      },
    } as unknown as HttpRequest;
  });
  const begun = process.cpuUsage();
  for (const request of arrivals) {
    const exchange = new Exchange(request, response, hooks);
    void router.find(exchange).handle(exchange);
  }
  const { user, system } = process.cpuUsage(begun);
  return (user + system) / REQUESTS;
}
