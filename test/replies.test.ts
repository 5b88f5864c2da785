/** How replies leave: many at a time, with their headers as bytes, and with tags of what is in them. */
import { Agent } from 'node:http';
import t from 'tap';
import { tagOf } from '../src/http/tag.js';
import { ADMIN_TOKEN, createLibrary, get, sendRaw, startDatabase, startTestService, withSql } from './support.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'replies');
await withSql(databaseUrl, async (sql) => {
  await sql`create table letters (id int primary key, body text)`;
  await sql`insert into letters select n, repeat(chr(97 + n % 26), n * 7 % 5000) from generate_series(1, 3000) n`;
});

t.test('each of many at a time gets its own body under its own name', async (t) => {
  const service = await startTestService({ databaseUrl });
  const agent = new Agent({ keepAlive: true, maxSockets: 150 });
  t.teardown(() => agent.destroy());
  const ask = async (id: number): Promise<boolean> => {
    const { headers, json } = await get(service, `/items/letters/${id}`, {
      headers: { 'x-request-id': `letter-${id}` },
      agent,
    });
    const body = String.fromCharCode(97 + (id % 26)).repeat((id * 7) % 5000);
    const { data } = json as { data: { id: number; body: string } };
    return headers['x-request-id'] === `letter-${id}` && data.id === id && data.body === body;
  };
  const right = await Promise.all(Array.from({ length: 3_000 }, (_, position) => ask(position + 1)));
  t.equal(right.filter(Boolean).length, 3_000);
});

t.test('headers that find no room beside those of others', async (t) => {
  const service = await startTestService({ databaseUrl, CORS_ENABLED: 'true', CORS_ORIGIN: 'true' });
  const agent = new Agent({ keepAlive: true, maxSockets: 200 });
  t.teardown(() => agent.destroy());
  // They all ask for the same, so that one statement answers them; their headers are eight times what there is room for.
  const answers = await Promise.all(
    Array.from({ length: 600 }, (_, position) =>
      get(service, '/items/letters?limit=1&fields=id&sort=id', {
        headers: { origin: `https://${String(position).padStart(4, '0').repeat(600)}.example.com` },
        agent,
      }),
    ),
  );
  for (const [position, { status, text, headers }] of answers.entries()) {
    const origin = `https://${String(position).padStart(4, '0').repeat(600)}.example.com`;
    if (status !== 200 || text !== '{"data":[{"id":1}]}' || headers['access-control-allow-origin'] !== origin)
      t.fail(`the answer to ${position}: ${status} ${text}`);
  }
  t.equal(answers.length, 600);
});

t.test('no character of a header becomes the end of a line', async (t) => {
  const service = await startTestService({ databaseUrl, CORS_ENABLED: 'true', CORS_ORIGIN: 'true' });
  // As numbers of two bytes, their lower ones are a carriage return and a line feed.
  const head = [
    'GET /items/letters?limit=1 HTTP/1.1',
    'Host: here',
    `Authorization: Bearer ${ADMIN_TOKEN}`,
    'Origin: https://a\u010d\u010aX-Made-Up: yes',
    'Connection: close',
  ];
  const received = await sendRaw(service, [`${head.join('\r\n')}\r\n\r\n`], (text) => text.includes(']}'));
  t.match(received, /^HTTP\/1\.1 200 OK\r\n/);
  t.match(received, /\r\nAccess-Control-Allow-Origin: https:\/\/a\?+X-Made-Up: yes\r\n/);
  t.notMatch(received, /\nX-Made-Up/);
});

t.test('a tag tells bodies apart', async (t) => {
  const tags = new Set<string>();
  let bodies = 0;
  const add = (body: Buffer): void => {
    bodies++;
    tags.add(tagOf(body));
  };
  for (let length = 0; length < 40; length++) {
    add(Buffer.alloc(length));
    add(Buffer.alloc(length, 'x'));
  }
  // The two of length 0 are one.
  bodies--;
  for (let number = 0; number < 30_000; number++) {
    add(Buffer.from(`{"data":{"id":${number},"title":"one of many","views":7}}`));
    add(Buffer.from(`{"data":{"id":7,"title":"one of many","views":${number}}}.`));
  }
  t.equal(tags.size, bodies);
  const body = Buffer.from('- the same bytes elsewhere in memory');
  t.equal(tagOf(body), tagOf(Buffer.concat([Buffer.alloc(3), body]).subarray(3)));
  for (const tag of tags) if (!/^"[!#-~]+"$/.test(tag)) t.fail(`${tag} is none`);
});
