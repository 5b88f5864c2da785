/** A balancer in front of several servers of PostgreSQL: one address, and connections go to them in turns. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import t from 'tap';

/** The URL of the first with the port of the balancer. */
export async function balance(...urls: readonly [string, ...string[]]): Promise<string> {
  let turn = 0;
  const balancer = createServer((client) => {
    const { hostname, port } = new URL(urls[turn++ % urls.length] as string);
    const server = connect({ host: hostname, port: Number(port) });
    const pairs = [
      [client, server],
      [server, client],
    ] as const;
    for (const [from, to] of pairs) {
      from.on('error', () => to.destroy()).on('close', () => to.destroy());
      from.pipe(to);
    }
  });
  balancer.listen(0, '127.0.0.1');
  await once(balancer, 'listening');
  t.teardown(() => balancer.close());
  const address = new URL(urls[0]);
  address.hostname = '127.0.0.1';
  address.port = String((balancer.address() as AddressInfo).port);
  return address.href;
}
