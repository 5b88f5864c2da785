/** The messages of statements that are sent together, read back byte by byte. */
import t from 'tap';
import { writeQueries } from '../../../src/server/postgres/wire/message-writer.js';
import { PreparedStatements } from '../../../src/server/postgres/wire/protocol.js';
import { settingQuery, transactionQuery, type WireQuery } from '../../../src/server/postgres/wire/wire-query.js';

interface Message {
  readonly type: string;
  readonly body: Buffer;
}

function messagesIn(bytes: Buffer): readonly Message[] {
  const messages: Message[] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = at + 1 + bytes.readInt32BE(at + 1);
    messages.push({ type: String.fromCharCode(bytes[at] ?? 0), body: bytes.subarray(at + 5, end) });
    at = end;
  }
  return messages;
}

/** The name and the values of a Bind. */
function readBind({ body }: Message): { readonly name: string; readonly values: readonly (string | null)[] } {
  const nameEnd = body.indexOf(0, 1);
  const count = body.readUInt16BE(nameEnd + 3);
  const values: (string | null)[] = [];
  let at = nameEnd + 5;
  for (let index = 0; index < count; index++) {
    const length = body.readInt32BE(at);
    at += 4;
    values.push(length < 0 ? null : body.toString('utf8', at, at + length));
    at += Math.max(length, 0);
  }
  t.equal(body.readInt16BE(at), 0, 'all results are texts');
  t.equal(at + 2, body.length, 'nothing follows');
  return { name: body.toString('latin1', 1, nameEnd), values };
}

function statement(parameters: readonly (string | null)[], more: Partial<WireQuery> = {}): WireQuery {
  return { text: 'select $1', parameters, prepare: true, columns: 1, row: () => {}, end: () => {}, ...more };
}

function write(queries: readonly WireQuery[], prepared = new PreparedStatements('public', false)): readonly Message[] {
  return messagesIn(writeQueries(queries, prepared, []));
}

const bindsIn = (messages: readonly Message[]): readonly Message[] => messages.filter(({ type }) => type === 'B');
const typesOf = (messages: readonly Message[]): string => messages.map(({ type }) => type).join('');

t.test('values arrive as they are: short and long, ASCII and not, null', async (t) => {
  const values = ['', null, 'a', 'é', '😀', 'a'.repeat(40), 'a'.repeat(41), `${'a'.repeat(40)}é`, 'x'.repeat(300_000)];
  const messages = write([statement(values)]);
  t.equal(typesOf(messages), 'PBES');
  t.strictSame(readBind(messages[1] as Message).values, values);
});

t.test('shared values stand in front of those of a statement, each time', async (t) => {
  const settings = { text: 'select set_config($1, $2)', leading: ['{"sub":"é"}', '', 'member'], parameters: ['GET'] };
  const read = statement(['1']);
  const prepared = new PreparedStatements('public', false);
  for (const path of ['/items/one', '/items/two']) {
    const setting = settingQuery({ ...settings, parameters: ['GET', path] }, read);
    const binds = bindsIn(write([transactionQuery('begin'), setting, read, transactionQuery('commit')], prepared));
    t.strictSame(
      binds.map((bind) => readBind(bind).values),
      [[], [...settings.leading, 'GET', path], ['1'], []],
    );
  }
});

t.test('a known text is sent by its name alone', async (t) => {
  const prepared = new PreparedStatements('public', false);
  const first = write([statement(['1'])], prepared);
  const second = write([statement(['2'])], prepared);
  t.equal(typesOf(first), 'PBES');
  t.equal(typesOf(second), 'BES');
  const { name } = readBind(second[0] as Message);
  t.equal(name, readBind(first[1] as Message).name);
  t.ok((first[0] as Message).body.toString('latin1').startsWith(`${name}\0select $1\0`));
  prepared.forget('select $1');
  const third = write([statement(['3'])], prepared);
  t.equal(typesOf(third), 'CPBES', 'a forgotten name is closed in front of all others');
  t.equal((third[0] as Message).body.toString('latin1'), `S${name}\0`);
});

t.test('too many values fail, and leave nothing for the next statement', async (t) => {
  const prepared = new PreparedStatements('public', false);
  const many = Array.from({ length: 65_536 }, () => '1');
  t.throws(() => writeQueries([statement(['1']), statement(many)], prepared, []), { code: '54000' });
  t.equal(typesOf(write([statement(['1'])], prepared)), 'BES');
  t.strictSame(readBind(bindsIn(write([statement(many.slice(1))]))[0] as Message).values.length, 65_535);
});

t.test('a message is not changed by the next one', async (t) => {
  const prepared = new PreparedStatements('public', false);
  for (const size of [10, 100_000]) {
    const first = writeQueries([statement(['a'.repeat(size)])], prepared, []);
    const copy = Buffer.from(first);
    writeQueries([statement(['b'.repeat(size)])], prepared, []);
    t.ok(first.equals(copy));
  }
});

t.test('a portal is described and executed for some rows, and flushed', async (t) => {
  const portal = { maxRows: 7, suspended: () => {} };
  const decoder = { describe: () => {}, row: () => {} };
  const messages = write([statement(['1'], { portal, decoder, prepare: false })]);
  t.equal(typesOf(messages), 'PBDEH');
  t.equal(messages[3]?.body.readInt32BE(1), 7);
  t.equal(readBind(messages[1] as Message).name, '');
});
