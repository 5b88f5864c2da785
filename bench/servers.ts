/**
 * The same requests to the two servers of the service, uWebSockets and `node:http`, in turns: requests per second, latency, and the
 * processor time of the service for each request, which hardly depends on other programs.
 */
import { requestsOf } from './case.js';
import { findCase } from './cases.js';
import { ADMINISTRATOR, type Report, type RunningService, startService } from './environment.js';
import { type LoadResult, measure } from './load.js';
import type { Options } from './options.js';
import { spentBy } from './processor.js';

type ServersOptions = Pick<Options, 'connections' | 'poolSize' | 'seconds' | 'warmUp' | 'rounds' | 'settings'>;

const SERVERS = ['uws', 'node'] as const;
type ServerName = (typeof SERVERS)[number];

/** Reads by GET among the cases of the bench, and one whose responses come from memory: there the server is most of the work. */
const MEMORY = 'memory';
const IDS = ['key', 'key-1', 'key-128', 'many-to-one', 'nested', MEMORY];

export interface ServerFigures extends Pick<LoadResult, 'requestsPerSecond' | 'p50' | 'p99'> {
  /** Milliseconds of the service for each request, or null without /proc. */
  readonly processor: number | null;
}

export interface ServersResult {
  readonly cases: readonly { readonly title: string; readonly servers: Readonly<Record<ServerName, ServerFigures>> }[];
}

export async function measureServers(
  databaseUrl: string,
  options: ServersOptions,
  report: Report,
): Promise<ServersResult> {
  const cases: ServersResult['cases'][number][] = [];
  for (const id of IDS) {
    const services: { readonly name: ServerName; readonly service: RunningService }[] = [];
    try {
      for (const name of SERVERS) services.push({ name, service: await start(databaseUrl, id, name, options) });
      cases.push(await compare(id, services, options, report));
    } finally {
      await Promise.all(services.map(({ service }) => service.stop()));
    }
  }
  return { cases };
}

function start(
  databaseUrl: string,
  id: string,
  SERVER: ServerName,
  { poolSize, settings }: ServersOptions,
): Promise<RunningService> {
  const READ_CACHE_SIZE = id === MEMORY ? '64mb' : '0';
  return startService({ databaseUrl, poolSize, settings: { ...settings, READ_CACHE_SIZE, SERVER } });
}

async function compare(
  id: string,
  services: readonly { readonly name: ServerName; readonly service: RunningService }[],
  { connections, seconds, warmUp, rounds }: ServersOptions,
  report: Report,
): Promise<ServersResult['cases'][number]> {
  const found = findCase(id === MEMORY ? 'key' : id);
  if (!found) throw new Error(`There is no case ${id}`);
  const requests = requestsOf(found).slice(0, id === MEMORY ? 1 : undefined);
  const load = {
    paths: requests.map(({ path }) => path),
    headers: { authorization: `Bearer ${ADMINISTRATOR.token}` },
    connections: found.connections ?? connections,
  };
  const best = new Map<ServerName, ServerFigures>();
  if (warmUp > 0) for (const { service } of services) await measure({ ...load, url: service.url, seconds: warmUp });
  for (let round = 0; round < rounds; round++)
    for (const { name, service } of services) {
      const before = spentBy(service.pid);
      const result = await measure({ ...load, url: service.url, seconds });
      const after = spentBy(service.pid);
      if (result.errors > 0) throw new Error(`${found.title}, ${name}: ${result.errors} errors`);
      const { requestsPerSecond, p50, p99 } = result;
      const spent = before === null || after === null ? null : after - before;
      const processor = spent === null ? null : spent / (requestsPerSecond * result.seconds);
      if (requestsPerSecond > (best.get(name)?.requestsPerSecond ?? 0))
        best.set(name, { requestsPerSecond, p50, p99, processor });
    }
  const title = id === MEMORY ? 'by key, from memory' : found.title;
  const [uws, node] = SERVERS.map((name) => best.get(name));
  if (!uws || !node) throw new Error(`${title}: no request was answered`);
  report(`${title}: uws ${Math.round(uws.requestsPerSecond)}/s, node ${Math.round(node.requestsPerSecond)}/s`);
  return { title, servers: { uws, node } };
}
