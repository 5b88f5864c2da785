/**
 * A program that sends large transactions without a pause over many connections, until it is ended, and reports the number of answers by
 * status: `node busy-writer.js URL TOKEN CONNECTIONS ATTACK`, started with `fork`.
 */
import { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Attack, send, WIDE_COLUMNS } from './sender.js';

const STEPS = 96;
const ROWS = 6;

interface Body {
  readonly path: string;
  readonly text: string;
}

const [url = '', token = '', connections = '40', attack = 'deadlocks'] = process.argv.slice(2);
const positions = Array.from({ length: STEPS }, (_, step) => 1 + (step % ROWS));
const backward = [...positions].reverse();

function transaction(rows: readonly number[], collection: string, body: object): Body {
  const operations = rows.map((id) => ({ method: 'PATCH', path: `/items/${collection}/${id}?fields=id`, body }));
  return { path: '/transactions', text: JSON.stringify({ operations }) };
}

function mutation(rows: readonly number[]): Body {
  const fields = rows.map((id, n) => `u${n}: update_stock_item(id: ${id}, data: { amount: ${n} }) { id }`);
  return { path: '/graphql', text: JSON.stringify({ query: `mutation { ${fields.join(' ')} }` }) };
}

const WIDE = Object.fromEntries(Array.from({ length: WIDE_COLUMNS }, (_, n) => [`c${n}`, 'x'.repeat(50)]));

const BODIES: Readonly<Record<Attack, readonly Body[]>> = {
  deadlocks: [transaction(positions, 'stock', { amount: 1 }), transaction(backward, 'stock', { amount: 2 })],
  chains: [transaction(positions, 'stock', { amount: 1 })],
  'wide rows': [transaction(positions.slice(0, 24), 'wide', WIDE)],
  mutations: [mutation(positions), mutation(backward)],
};

const agent = new Agent({ keepAlive: true });
const counted: Record<string, number> = {};
const bodies = BODIES[attack as Attack];
process.once('message', () => process.send?.(counted, () => process.exit()));
for (let position = 0; position < Number(connections); position++) void writeFrom(position);

async function writeFrom(position: number): Promise<never> {
  for (let turn = position; ; turn++) {
    const { path, text } = bodies[turn % bodies.length] as Body;
    const status = await send(agent, url + path, token, text);
    counted[status] = (counted[status] ?? 0) + 1;
    if (status === 0) await sleep(50);
  }
}
