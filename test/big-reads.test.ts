/**
 * Bytes on their way through: what PostgreSQL sends reaches the driver in whole messages wherever the network cuts it, rows
 * that are joined lose nothing, and a large body reaches a client that takes its time, or does not hurt when it leaves.
 */
import { once } from 'node:events';
import { Agent, type IncomingMessage, request as openRequest } from 'node:http';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import fc from 'fast-check';
import t from 'tap';
import { Joiner, openDriverSocket } from '../src/postgres/driver-socket.js';
import { BatchMemory, ResponseMemory } from '../src/postgres/response-memory.js';
import { ADMIN_TOKEN, createDatabase, get, startDatabase, startTestService, withSql } from './support.js';

t.setTimeout(120_000);
const server = await startDatabase();

t.test('messages arrive whole wherever they are cut, and joined rows hold every cell', async (t) => {
  const peers: Socket[] = [];
  const peer = createServer((socket) => peers.push(socket.setNoDelay())).listen(0, '127.0.0.1');
  await once(peer, 'listening');
  const { port } = peer.address() as AddressInfo;
  const joiner = new Joiner(new BatchMemory(new ResponseMemory(1e9, 1e9)));
  const connected = once(peer, 'connection');
  const socket = await openDriverSocket({ host: ['127.0.0.1'], port: [port], path: false, ssl: false }, joiner);
  socket.on('error', () => {});
  let received: Buffer[] = [];
  let expected = 0;
  let complete: () => void = () => {};
  let bytes = 0;
  socket.on('data', (data: Buffer) => {
    received.push(data);
    bytes += data.length;
    if (data.includes(END)) complete();
  });
  await connected;
  const carry = async (messages: readonly Buffer[], cuts: readonly number[]): Promise<readonly Buffer[]> => {
    received = [];
    bytes = 0;
    const whole = Buffer.concat([...messages, message('Z', END)]);
    expected = whole.length;
    const arrived = new Promise<void>((resolve) => {
      complete = resolve;
    });
    const places = cuts.map((cut) => cut % whole.length).toSorted((one, other) => one - other);
    for (const [index, place] of [0, ...places].entries()) {
      peers[0]?.write(whole.subarray(place, places[index] ?? whole.length));
      await new Promise(setImmediate);
    }
    await arrived;
    return received;
  };
  const cell = fc.oneof(fc.uint8Array({ maxLength: 40 }), fc.uint8Array({ minLength: 2_000, maxLength: 9_000 }));
  const sent = fc.oneof(
    { weight: 5, arbitrary: cell.map((content) => row([Buffer.from(content).map(visible)])) },
    { weight: 1, arbitrary: cell.map((content) => message('N', Buffer.from(Buffer.from(content).map(visible)))) },
    { weight: 1, arbitrary: fc.constant(row([null])) },
    { weight: 1, arbitrary: fc.constant(row([Buffer.from('one'), Buffer.from('two')])) },
  );
  const run = fc.record({
    messages: fc.array(sent, { maxLength: 60 }),
    cuts: fc.array(fc.nat({ max: 200_000 }), { maxLength: 12 }),
    apart: fc.option(fc.nat({ max: 2 })),
  });
  await fc.assert(
    fc.asyncProperty(run, async ({ messages, cuts, apart }) => {
      if (apart === null) joiner.end();
      else joiner.begin(SEPARATOR, apart);
      const got = await carry(messages, cuts);
      const parsed = got.flatMap(split);
      if (apart === null)
        return bytes === expected && Buffer.concat(parsed).equals(Buffer.concat([...messages, message('Z', END)]));
      const rows = messages.filter((each) => each[0] === ROW).length;
      const isFewer = parsed.length <= messages.length + 1;
      return (
        joiner.rows === rows && isFewer && unjoin(parsed, apart).equals(unjoin([...messages, message('Z', END)], apart))
      );
    }),
    { numRuns: 300, seed: 8 },
  );
  t.pass('300 runs');
  socket.destroy();
  for (const each of peers) each.destroy();
  peer.close();
});

t.test('a large body', async (t) => {
  const databaseUrl = await createDatabase(server, 'large');
  await withSql(databaseUrl, (sql) =>
    sql
      .unsafe(`
        create table wide (id integer primary key, text text not null);
        insert into wide select n, repeat(md5(n::text), 60) from generate_series(1, 10000) n;
        create table single (id integer primary key, text text not null);
        insert into single select 1, repeat('0123456789', 2000000);`)
      .simple(),
  );
  const service = await startTestService({ databaseUrl });
  const path = '/items/wide?limit=9000&sort=id';
  const expected = (await get(service, path)).text;
  t.equal((JSON.parse(expected) as { data: unknown[] }).data.length, 9_000);
  t.ok(expected.length > 16_000_000, 'more than sockets hold');

  t.test('reaches a client that takes its time, whole', async (t) => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const pieces: Buffer[] = [];
    for await (const piece of await open(service.url, path, agent)) {
      pieces.push(piece as Buffer);
      if (pieces.length % 50 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    }
    t.ok(Buffer.concat(pieces).toString() === expected, 'the same bytes');
    const next = await open(service.url, '/items/wide/1?fields=id', agent);
    t.equal(
      Buffer.concat((await next.toArray()) as Buffer[]).toString(),
      '{"data":{"id":1}}',
      'and the next one after it',
    );
    agent.destroy();
  });

  t.test('disturbs nobody when its client leaves half-way', async (t) => {
    for (let round = 0; round < 5; round++) {
      const response = await open(service.url, path, false);
      await once(response, 'data');
      response.destroy();
    }
    t.ok((await get(service, path)).text === expected);
  });

  t.test('may be one cell', async (t) => {
    const { status, json } = await get(service, '/items/single/1');
    t.equal(status, 200);
    t.ok((json as { data: { text: string } }).data.text === '0123456789'.repeat(2_000_000));
  });

  t.test('is waited for when the service stops', async (t) => {
    const stopping = await startTestService({ databaseUrl });
    const response = await open(stopping.url, path, false);
    const stopped = stopping.stop();
    const bytes = Buffer.concat((await response.toArray()) as Buffer[]);
    t.ok(bytes.toString() === expected);
    await stopped;
  });
});

const ROW = 0x44;
const SEPARATOR = 0x1e;
const END = Buffer.from('\u0001\u0002the end\u0003');

function message(type: string, content: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.write(type, 'latin1');
  head.writeUInt32BE(content.length + 4, 1);
  return Buffer.concat([head, content]);
}

function row(cells: readonly (Uint8Array | null)[]): Buffer {
  const count = Buffer.alloc(2);
  count.writeUInt16BE(cells.length);
  const parts = cells.map((cell) => {
    const length = Buffer.alloc(4);
    length.writeInt32BE(cell?.length ?? -1);
    return Buffer.concat([length, cell ?? Buffer.alloc(0)]);
  });
  return message('D', Buffer.concat([count, ...parts]));
}

/** No separator, and nothing that ends a run. */
function visible(byte: number): number {
  return 0x20 + (byte % 90);
}

/** Each piece has to hold whole messages alone. */
function split(bytes: Buffer): Buffer[] {
  const messages: Buffer[] = [];
  for (let start = 0; start < bytes.length; ) {
    const end = start + 1 + bytes.readUInt32BE(start + 1);
    if (end > bytes.length) throw new Error('a message was cut');
    messages.push(bytes.subarray(start, end));
    start = end;
  }
  return messages;
}

/** As if nothing had been joined. */
function unjoin(messages: readonly Buffer[], apart: number): Buffer {
  let rows = 0;
  return Buffer.concat(
    messages.flatMap((each) => {
      if (each[0] !== ROW) return [each];
      rows++;
      const isPlain = each.readUInt16BE(5) !== 1 || each.readInt32BE(7) < 0;
      if (isPlain || rows <= apart) return [each];
      if (each.readInt32BE(7) !== each.length - 11) throw new Error('a row has a wrong length');
      const cells = each.subarray(11).toString('latin1').split(String.fromCharCode(SEPARATOR));
      return cells.map((cell) => row([Buffer.from(cell, 'latin1')]));
    }),
  );
}

async function open(url: string, path: string, agent: Agent | false): Promise<IncomingMessage> {
  const headers = { authorization: `Bearer ${ADMIN_TOKEN}` };
  const outgoing = openRequest(`${url}${path}`, { agent, headers });
  outgoing.on('error', () => {});
  outgoing.end();
  const [response] = (await once(outgoing, 'response', { signal: AbortSignal.timeout(30_000) })) as [IncomingMessage];
  return response;
}
