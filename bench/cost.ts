/**
 * Processor time per request, of Node and of PostgreSQL apart, and the bytes that travelled. Unlike requests per second it
 * hardly changes on a machine that others use too, so it shows what one change of the code saves. Linux only: it reads
 * /proc. Options of the service are given by the environment, e.g. COMPRESSION.
 *
 *   node dist/bench/cost.js flat stream --requests 40 --connections 4 --header "Accept-Encoding: gzip"
 */
import { Agent, request } from 'node:http';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { packagePath } from '../src/base/package-files.js';
import { type BenchRequest, type Case, isWrite } from './case.js';
import { CASES } from './cases.js';
import { ADMINISTRATOR, prepareData, startDatabase, startService } from './environment.js';
import { readPeak } from './memory.js';
import { postmasterOf, spentBy, spentByServer } from './processor.js';

const WARM_UP = 10;

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      requests: { type: 'string', default: '40' },
      connections: { type: 'string', default: '4' },
      pool: { type: 'string', default: '8' },
      data: { type: 'string', default: packagePath('bench', 'results', 'data') },
      header: { type: 'string', multiple: true, default: [] },
      profile: { type: 'string' },
    },
  });
  const directory = resolve(values.data);
  const cases = CASES.filter((each) => positionals.includes(each.id) && !isWrite(each));
  const headers = Object.fromEntries(values.header.map((each) => each.split(/: */, 2) as [string, string]));
  const database = await startDatabase(directory, () => undefined);
  try {
    await prepareData(database.url, () => undefined);
    const profile = values.profile === undefined ? undefined : resolve(values.profile);
    const service = await startService({ databaseUrl: database.url, poolSize: Number(values.pool), profile });
    try {
      const postmaster = postmasterOf(directory) ?? 0;
      const spent = (): [number, number] => [spentBy(service.pid) ?? 0, spentByServer(postmaster) ?? 0];
      for (const each of cases) {
        const load: Load = { url: service.url, headers, connections: Number(values.connections) };
        await send(each, { ...load, requests: WARM_UP });
        const before = spent();
        const begun = performance.now();
        const requests = Number(values.requests);
        const bytes = await send(each, { ...load, requests });
        const seconds = (performance.now() - begun) / 1_000;
        const after = spent();
        const node = (after[0] - before[0]) / requests;
        const postgresql = (after[1] - before[1]) / requests;
        console.log(
          `${each.title}: Node ${node.toFixed(2)} ms, PostgreSQL ${postgresql.toFixed(2)} ms, ` +
            `${Math.round(bytes / requests).toLocaleString('en')} bytes per request; ` +
            `${(requests / seconds).toFixed(1)} requests/s; memory of Node at most ${Math.round(await readPeak(service.pid))} MiB`,
        );
      }
    } finally {
      await service.stop();
    }
  } finally {
    await database.stop();
  }
}

interface Load {
  readonly url: string;
  readonly headers: Record<string, string>;
  readonly connections: number;
}

/** Returns the bytes of all bodies. */
async function send(each: Case, load: Load & { readonly requests: number }): Promise<number> {
  const agent = new Agent({ keepAlive: true, maxSockets: load.connections });
  const requests = typeof each.requests === 'function' ? each.requests() : each.requests;
  let left = load.requests;
  let bytes = 0;
  const work = async (): Promise<void> => {
    while (left-- > 0) {
      const received = await ask(each, requests[left % requests.length] as BenchRequest, load, agent);
      bytes += received;
    }
  };
  await Promise.all(Array.from({ length: load.connections }, work));
  agent.destroy();
  return bytes;
}

function ask(each: Case, { path, body }: BenchRequest, { url, headers }: Load, agent: Agent): Promise<number> {
  return new Promise((done, fail) => {
    const sent = request(`${url}${encodeURI(path)}`, {
      agent,
      method: each.method ?? 'GET',
      headers: {
        Authorization: `Bearer ${ADMINISTRATOR.token}`,
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...headers,
      },
    });
    sent.on('error', fail);
    sent.on('response', (response) => {
      let bytes = 0;
      if (response.statusCode !== 200) fail(new Error(`${each.title}: status ${response.statusCode}`));
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
      });
      response.on('end', () => done(bytes));
      response.on('error', fail);
    });
    sent.end(body);
  });
}

await main();
