/**
 * A program that reads items by key over kept connections, one every few milliseconds whatever the last one took, and tells how
 * long each took: `node steady-reader.js URL TOKEN SECONDS`, started with `fork`. In the process that attacks the service its
 * figures would hold what building and parsing large bodies takes there.
 */
import { once } from 'node:events';
import { Agent, get, type IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

export interface SteadyReads {
  /** Milliseconds of each read. */
  readonly taken: number[];
  /** The statuses that were not 200. */
  readonly failed: readonly number[];
}

const INTERVAL_MS = 25;

const [url = '', token = '', seconds = '1'] = process.argv.slice(2);
const agent = new Agent({ keepAlive: true });
const taken: number[] = [];
const failed: number[] = [];
const running: Promise<void>[] = [];
const end = performance.now() + Number(seconds) * 1_000;
while (performance.now() < end) {
  running.push(read(`/items/articles/${1 + (running.length % 5)}?fields=id,title`));
  await sleep(INTERVAL_MS);
}
await Promise.all(running);
process.send?.({ taken, failed } satisfies SteadyReads);
process.disconnect();
agent.destroy();

async function read(path: string): Promise<void> {
  const start = performance.now();
  const outgoing = get(`${url}${path}`, { agent, headers: { authorization: `Bearer ${token}` } });
  const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
  for await (const _ of incoming);
  taken.push(performance.now() - start);
  if (incoming.statusCode !== 200) failed.push(incoming.statusCode ?? 0);
}
