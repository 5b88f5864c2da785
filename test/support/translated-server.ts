/**
 * A PostgreSQL that speaks another language, as one with another `lc_messages` does: a proxy that replaces the words of its
 * errors. SQLSTATEs, routines, names, values and what PostgreSQL itself never translates stay as they are.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import t from 'tap';

/** Where a sentence has the names of tables: German has them behind the key, Japanese in front of it. */
export type WordOrder = 'german' | 'japanese';

/** Answers the address of the same database behind the proxy. */
export async function translateServer(url: string, order: WordOrder): Promise<string> {
  const target = new URL(url);
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const backend = connect({ host: target.hostname, port: Number(target.port), noDelay: true });
    for (const socket of [client, backend]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => {
        sockets.delete(socket);
        client.destroy();
        backend.destroy();
      });
    }
    client.setNoDelay(true);
    client.on('data', (bytes) => (SSL_REQUEST.equals(bytes) ? client.write('N') : backend.write(bytes)));
    let pending: Buffer = Buffer.alloc(0);
    backend.on('data', (bytes) => {
      pending = Buffer.concat([pending, bytes]);
      const messages: Buffer[] = [];
      for (let end = endOf(pending); end !== null; end = endOf(pending)) {
        messages.push(translateMessage(pending.subarray(0, end), order));
        pending = pending.subarray(end);
      }
      client.write(Buffer.concat(messages));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const translated = new URL(url);
  translated.port = String((server.address() as AddressInfo).port);
  return translated.href;
}

const SSL_REQUEST = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]);

/** Of the first message; null where it has not arrived yet. */
function endOf(bytes: Buffer): number | null {
  if (bytes.length < 5) return null;
  const end = 1 + bytes.readUInt32BE(1);
  return end <= bytes.length ? end : null;
}

const ERROR_RESPONSE = 'E'.charCodeAt(0);
const NOTICE_RESPONSE = 'N'.charCodeAt(0);

/** Errors of `elog` are not translated, and those of `raise` are in the words of who wrote the function. */
const UNTRANSLATED = /^(XX000|P0001|LT...)$/;

function translateMessage(message: Buffer, order: WordOrder): Buffer {
  if (message[0] !== ERROR_RESPONSE && message[0] !== NOTICE_RESPONSE) return message;
  const fields = message
    .toString('utf8', 5, message.length - 2)
    .split('\0')
    .map((field): [type: string, value: string] => [field.charAt(0), field.slice(1)]);
  const code = fields.find(([type]) => type === 'C')?.[1] ?? '';
  if (UNTRANSLATED.test(code)) return message;
  const translated = fields.map(([type, value]) => `${type}${translateField(type, value, order)}\0`);
  const body = Buffer.from(`${translated.join('')}\0`);
  const head = Buffer.alloc(5);
  head[0] = message[0] as number;
  head.writeUInt32BE(body.length + 4, 1);
  return Buffer.concat([head, body]);
}

function translateField(type: string, value: string, order: WordOrder): string {
  if (type === 'S') return 'FEHLER';
  if (!'MDHW'.includes(type)) return value;
  const translated = translateText(value);
  const [, key = '', rest = ''] = /^(.*\)=\(.*\))(.*)$/s.exec(translated) ?? [];
  return type === 'D' && order === 'japanese' && key !== '' ? `${rest.trim()} ${key}` : translated;
}

/** What is in quotes or parentheses, and the name of a function in front of them, are no words of the sentence. */
const PART = /"((?:[^"]|"")*)"|[\w.]*\(.*\)|[A-Za-z]+/gs;

function translateText(text: string): string {
  return text.replace(PART, (part, quoted?: string) => {
    if (quoted !== undefined) return `»${quoted}«`;
    return part.includes('(') ? part : 'wort';
  });
}
