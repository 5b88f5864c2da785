/** Requests of programs that measure or attack a service: nothing is parsed. */
import { once } from 'node:events';
import { type Agent, type IncomingMessage, request } from 'node:http';

export const ATTACKS = ['deadlocks', 'chains', 'wide rows', 'mutations'] as const;

export type Attack = (typeof ATTACKS)[number];

/** Columns of text in the table `wide`. */
export const WIDE_COLUMNS = 200;

/** Posts a JSON document and returns the status, or 0 if the connection failed. */
export async function send(agent: Agent, url: string, token: string, body: string): Promise<number> {
  try {
    const headers = {
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
    };
    const outgoing = request(url, { method: 'POST', agent, headers });
    outgoing.end(body);
    const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
    incoming.resume();
    await once(incoming, 'end');
    return incoming.statusCode ?? 0;
  } catch {
    return 0;
  }
}
