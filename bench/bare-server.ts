/** The plainest server, to compare with: uWebSockets alone, which sends the same bytes for each request. */
import { loadSockets, openPort } from '../src/server/http/uws-transport.js';

export interface BareTask {
  /** The headers after the name of the first, in ASCII. */
  readonly head: string;
  readonly body: string;
}

const MAX_HEAD_BYTES = 16_384;
const FIRST_HEADER = Buffer.from('X-Request-Id');

process.once('message', ({ head, body }: BareTask) => void serve(Buffer.from(head), Buffer.from(body)));
process.once('disconnect', () => process.exit());

async function serve(head: Buffer, body: Buffer): Promise<void> {
  const uws = await loadSockets(MAX_HEAD_BYTES);
  const app = uws.App().any('/*', (response) => {
    response.writeHeader(FIRST_HEADER, head);
    response.end(body);
  });
  const socket = await openPort(app, { host: '127.0.0.1', port: 0, shared: false });
  process.send?.(uws.us_socket_local_port(socket));
}
