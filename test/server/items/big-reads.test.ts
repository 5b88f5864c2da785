/**
 * Bytes on their way through: what PostgreSQL sends is read in whole messages wherever the network cuts it, rows
 * that are joined lose nothing, and a large body reaches a client that takes its time, or does not hurt when it leaves.
 */
import { once } from 'node:events';
import { Agent, type IncomingMessage, request as openRequest } from 'node:http';
import fc from 'fast-check';
import t from 'tap';
import { RowBatch } from '../../../src/server/postgres/pools/row-stream.js';
import { MessageReader } from '../../../src/server/postgres/wire/message-reader.js';
import { BatchMemory, ResponseMemory } from '../../../src/server/postgres/wire/response-memory.js';
import { ADMIN_TOKEN, createDatabase, get, startDatabase, startTestService, withSql } from '../../support/service.js';

t.setTimeout(120_000);
const ROW = 0x44;
const SEPARATOR = 0x1e;
const server = await startDatabase();

t.test('messages arrive whole wherever they are cut, and joined rows hold every cell', async (t) => {
  const cell = fc.oneof(
    { weight: 8, arbitrary: fc.uint8Array({ maxLength: 40 }) },
    { weight: 4, arbitrary: fc.uint8Array({ minLength: 2_000, maxLength: 9_000 }) },
    // More than is read at a time, and more than a piece holds.
    { weight: 1, arbitrary: fc.nat({ max: 400_000 }).map((size) => new Uint8Array(size + 60_000).fill(size)) },
  );
  const run = fc.record({
    cells: fc.array(
      cell.map((content) => Buffer.from(content).map(visible)),
      { maxLength: 60 },
    ),
    notices: fc.array(fc.nat({ max: 60 }), { maxLength: 5 }),
    cuts: fc.array(fc.nat({ max: 1_000_000 }), { maxLength: 12 }),
    apart: fc.option(fc.nat({ max: 2 })),
  });
  fc.assert(
    fc.property(run, ({ cells, notices, cuts, apart }) => {
      const memory = new BatchMemory(new ResponseMemory(1e9, 1e9));
      const joining = apart === null ? null : { separator: SEPARATOR, apart };
      const batch = new RowBatch(memory, joining, { refuse: (error) => t.fail(error), full: () => {} });
      let noticed = 0;
      const reader = new MessageReader(
        (bytes, start, _, owned) => {
          if (bytes[start] === ROW) batch.row(bytes, start + 5, owned);
          else noticed++;
        },
        { admit: () => true, release: () => {} },
      );
      const messages = cells.map((each) => row([each]));
      for (const place of notices) messages.splice(place, 0, message('N', Buffer.from('a notice')));
      feed(reader, Buffer.concat(messages), cuts);
      const isCounted = batch.rows === cells.length && noticed === notices.length;
      const taken = batch.take();
      const alone = taken.slice(0, apart ?? taken.length);
      return (
        isCounted &&
        alone.every((each, position) => each.equals(cells[position] as Uint8Array)) &&
        joinCells(taken).equals(joinCells(cells)) &&
        taken.length <= cells.length
      );
    }),
    { numRuns: 300, seed: 8 },
  );
  t.pass('300 runs');
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

function message(type: string, content: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.write(type, 'latin1');
  head.writeUInt32BE(content.length + 4, 1);
  return Buffer.concat([head, content]);
}

function row(cells: readonly Uint8Array[]): Buffer {
  const count = Buffer.alloc(2);
  count.writeUInt16BE(cells.length);
  const parts = cells.map((cell) => {
    const length = Buffer.alloc(4);
    length.writeInt32BE(cell.length);
    return Buffer.concat([length, cell]);
  });
  return message('D', Buffer.concat([count, ...parts]));
}

/** No separator. */
function visible(byte: number): number {
  return 0x20 + (byte % 90);
}

/** In pieces, in memory that is used again, as a socket has it. */
function feed(reader: MessageReader, bytes: Buffer, cuts: readonly number[]): void {
  const memory = Buffer.alloc(65_536);
  const places = [...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].toSorted((one, other) => one - other);
  let start = 0;
  for (const place of places)
    while (start < place) {
      const size = bytes.copy(memory, 0, start, Math.min(place, start + memory.length));
      reader.take(memory, size);
      start += size;
    }
}

function joinCells(cells: readonly Uint8Array[]): Buffer {
  return Buffer.concat(cells.flatMap((each, position) => (position === 0 ? [each] : [Buffer.of(SEPARATOR), each])));
}

async function open(url: string, path: string, agent: Agent | false): Promise<IncomingMessage> {
  const headers = { authorization: `Bearer ${ADMIN_TOKEN}` };
  const outgoing = openRequest(`${url}${path}`, { agent, headers });
  outgoing.on('error', () => {});
  outgoing.end();
  const [response] = (await once(outgoing, 'response', { signal: AbortSignal.timeout(30_000) })) as [IncomingMessage];
  return response;
}
