/** Three instances whose requests are counted. */
import { Agent } from 'node:http';
import type { Service } from '../../src/app/start.js';
import { get, startTestService, type TestOptions } from './service.js';

export interface Asked {
  readonly statuses: Readonly<Record<number, number>>;
  /** Milliseconds. */
  readonly slowest: number;
}

/** How many of so many requests, spread over the instances, were answered with each status, and the longest wait. */
export async function askAll(services: readonly Service[], count: number, address: string): Promise<Asked> {
  const statuses: Record<number, number> = {};
  let slowest = 0;
  const agent = new Agent({ keepAlive: true, maxSockets: 8 });
  const send = async (position: number): Promise<void> => {
    const start = performance.now();
    const service = services[position % services.length] as Service;
    const { status } = await get(service, '/server/ping', { agent, headers: { 'x-forwarded-for': address } });
    statuses[status] = (statuses[status] ?? 0) + 1;
    slowest = Math.max(slowest, performance.now() - start);
  };
  await Promise.all(Array.from({ length: count }, (_, position) => send(position)));
  agent.destroy();
  return { statuses, slowest };
}

export async function startThree(options: TestOptions): Promise<Service[]> {
  return Promise.all([1, 2, 3].map(() => startTestService(options)));
}
