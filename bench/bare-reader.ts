/**
 * The plainest program that reads a row, to compare with: uWebSockets, and one socket to PostgreSQL with a prepared statement. It knows no
 * errors, no types and no second connection, and sends the same bytes for each request that the service sends for one.
 */
import { createHash, createHmac, pbkdf2Sync, randomBytes } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { loadSockets, openPort } from '../src/server/http/uws-transport.js';

export interface ReaderTask {
  readonly databaseUrl: string;
  readonly text: string;
  readonly parameters: readonly (string | null)[];
  /** The headers after the name of the first, in ASCII. */
  readonly head: string;
}

const MAX_HEAD_BYTES = 16_384;
const FIRST_HEADER = Buffer.from('X-Request-Id');

process.once('message', (task: ReaderTask) => void serve(task));
process.once('disconnect', () => process.exit());

async function serve({ databaseUrl, text, parameters, head }: ReaderTask): Promise<void> {
  const socket = await logIn(new URL(databaseUrl));
  socket.write(Buffer.concat([message('P', `s\0${text}\0\0\0`), message('S', '')]));
  await nextMessages(socket);
  const values = parameters.map((each) =>
    each === null ? int32(-1) : Buffer.concat([int32(Buffer.byteLength(each)), Buffer.from(each)]),
  );
  const bind = Buffer.concat([Buffer.from('\0s\0\0\0'), int16(values.length), ...values, Buffer.from('\0\0')]);
  const query = Buffer.concat([message('B', bind), message('E', '\0\0\0\0\0'), message('S', '')]);
  const headers = Buffer.from(head);
  const uws = await loadSockets(MAX_HEAD_BYTES);
  const app = uws.App().any('/*', (response) => {
    let isAborted = false;
    response.onAborted(() => {
      isAborted = true;
    });
    socket.once('data', (answer: Buffer) => {
      if (isAborted) return;
      const row = answer.indexOf('D');
      const body = answer.subarray(row + 11, row + 11 + answer.readInt32BE(row + 7));
      response.cork(() => {
        response.writeHeader(FIRST_HEADER, headers);
        response.end(body);
      });
    });
    socket.write(query);
  });
  const listening = await openPort(app, { host: '127.0.0.1', port: 0, shared: false });
  process.send?.(uws.us_socket_local_port(listening));
}

/** By SCRAM-SHA-256, as the embedded PostgreSQL wants it. */
async function logIn({ hostname, port, username, password, pathname }: URL): Promise<Socket> {
  const socket = connect(Number(port), hostname).setNoDelay();
  const parameters = Buffer.from(`user\0${username}\0database\0${pathname.slice(1)}\0\0`);
  socket.write(Buffer.concat([int32(8 + parameters.length), int32(196_608), parameters]));
  await nextMessages(socket);
  const first = `n=,r=${randomBytes(18).toString('base64')}`;
  socket.write(
    message('p', Buffer.concat([Buffer.from('SCRAM-SHA-256\0'), int32(3 + first.length), Buffer.from(`n,,${first}`)])),
  );
  const challenge = (await nextMessages(socket)).subarray(9).toString();
  const [, nonce = '', salt = '', rounds = ''] = /r=([^,]*),s=([^,]*),i=(\d+)/.exec(challenge) ?? [];
  const salted = pbkdf2Sync(decodeURIComponent(password), Buffer.from(salt, 'base64'), Number(rounds), 32, 'sha256');
  const key = createHmac('sha256', salted).update('Client Key').digest();
  const signed = `${first},r=${nonce},s=${salt},i=${rounds},c=biws,r=${nonce}`;
  const signature = createHmac('sha256', createHash('sha256').update(key).digest()).update(signed).digest();
  const proof = key.map((byte, index) => byte ^ (signature[index] ?? 0));
  socket.write(message('p', `c=biws,r=${nonce},p=${Buffer.from(proof).toString('base64')}`));
  await nextMessages(socket);
  return socket;
}

function nextMessages(socket: Socket): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    socket.once('data', (data: Buffer) =>
      data[0] === 0x45 ? reject(new Error(data.toString('latin1'))) : resolve(data),
    );
    socket.once('error', reject);
  });
}

function message(type: string, content: string | Buffer): Buffer {
  return Buffer.concat([Buffer.from(type), int32(4 + Buffer.byteLength(content)), Buffer.from(content)]);
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

function int16(value: number): Buffer {
  return int32(value).subarray(2);
}
