/**
 * A program that sends small transactions one after the other over one connection, and reports how long each took:
 * `node steady-writer.js URL TOKEN SECONDS`, started with `fork`. A process of its own: one that also attacks the service would measure itself.
 */
import { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { send } from './sender.js';

export interface SteadyWrites {
  /** Milliseconds of each transaction. */
  readonly taken: number[];
  /** The statuses that were not 200. */
  readonly failed: readonly number[];
}

const PAUSE_MS = 5;

const [url = '', token = '', seconds = '1'] = process.argv.slice(2);
const agent = new Agent({ keepAlive: true, maxSockets: 1 });
const taken: number[] = [];
const failed: number[] = [];
const end = performance.now() + Number(seconds) * 1_000;
for (let turn = 0; performance.now() < end; turn++) {
  const operations = [1, 2].map((id) => ({
    method: 'PATCH',
    path: `/items/notes/${id}?fields=id`,
    body: { amount: turn },
  }));
  const start = performance.now();
  const status = await send(agent, `${url}/transactions`, token, JSON.stringify({ operations }));
  taken.push(performance.now() - start);
  if (status !== 200) failed.push(status);
  await sleep(PAUSE_MS);
}
process.send?.({ taken, failed } satisfies SteadyWrites);
process.disconnect();
agent.destroy();
