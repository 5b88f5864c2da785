/**
 * Processor time per request, of Node and of PostgreSQL apart, and the bytes that travelled. Unlike requests per second it
 * hardly changes on a machine that others use too, so it shows what one change of the code saves. Linux only: it reads
 * /proc. Options of the service are given by the environment, e.g. COMPRESSION.
 *
 *   node dist/bench/cost.js flat stream --requests 40 --connections 4 --header "Accept-Encoding: gzip"
 */
import { readdirSync, readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { packagePath } from '../src/files.js';
import { type BenchRequest, CASES, type Case, isWrite } from './cases.js';
import { ADMINISTRATOR, prepareData, startDatabase, startService } from './environment.js';

const WARM_UP = 10;
/** Of the clock in /proc: a hundredth of a second on every Linux. */
const MILLISECONDS_PER_TICK = 10;

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
      const postmaster = Number(readFileSync(join(directory, 'postgres', 'postmaster.pid'), 'utf8').split('\n', 1)[0]);
      for (const each of cases) {
        const load: Load = { url: service.url, headers, connections: Number(values.connections) };
        await send(each, { ...load, requests: WARM_UP });
        const before = [spentBy(service.pid), spentByServer(postmaster)] as const;
        const begun = performance.now();
        const requests = Number(values.requests);
        const bytes = await send(each, { ...load, requests });
        const seconds = (performance.now() - begun) / 1_000;
        const node = (spentBy(service.pid) - before[0]) / requests;
        const postgresql = (spentByServer(postmaster) - before[1]) / requests;
        console.log(
          `${each.title}: Node ${node.toFixed(2)} ms, PostgreSQL ${postgresql.toFixed(2)} ms, ` +
            `${Math.round(bytes / requests).toLocaleString('en')} bytes per request; ` +
            `${(requests / seconds).toFixed(1)} requests/s; memory of Node at most ${peakOf(service.pid)} MiB`,
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

/** Answers the bytes of all bodies. */
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

/** Milliseconds of processor time of a process. */
function spentBy(pid: number): number {
  const [user = 0, system = 0] = timesOf(pid);
  return (user + system) * MILLISECONDS_PER_TICK;
}

/** Of all processes of a server, those that have ended included. */
function spentByServer(postmaster: number): number {
  const ended = timesOf(postmaster).reduce((sum, each) => sum + each, 0) * MILLISECONDS_PER_TICK;
  const running = readdirSync('/proc').filter((name) => /^\d+$/.test(name) && parentOf(Number(name)) === postmaster);
  return running.reduce((sum, name) => sum + spentBy(Number(name)), ended);
}

/** User and system time, and those of children that have ended, in ticks. */
function timesOf(pid: number): readonly number[] {
  return (statOf(pid) ?? []).slice(11, 15).map(Number);
}

function parentOf(pid: number): number {
  return Number(statOf(pid)?.[1]);
}

/** The fields behind the name, which may hold spaces; null when the process is gone. */
function statOf(pid: number): readonly string[] | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return null;
  }
}

function peakOf(pid: number): number {
  const kilobytes = /VmHWM:\s*(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  return Math.round(Number(kilobytes) / 1_024);
}

await main();
