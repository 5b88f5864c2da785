/** Two instances behind haproxy are restarted in turn, under load: no request fails. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, writeFile } from 'node:fs/promises';
import { Agent } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { packagePath } from '../../src/base/package-files.js';
import { findProgram, freePort } from '../support/programs.js';
import { ADMIN_TOKEN, createLibrary, get, makeFolder, request, startDatabase, waitFor } from '../support/service.js';

const ROUNDS = Number(process.env['ROUNDS'] ?? 10);
const RATE = Number(process.env['RATE'] ?? 1_000);

t.setTimeout(300_000);
const databaseUrl = await createLibrary(await startDatabase(), 'rolling');
const folder = await makeFolder();

interface Instance {
  readonly port: number;
  readonly adminPort: number;
  child: ChildProcess;
}

function start(port: number, adminPort: number): ChildProcess {
  const child = spawn(process.execPath, [packagePath('dist', 'src', 'main.js'), 'start'], {
    env: {
      PATH: process.env['PATH'] ?? '',
      DATABASE_URL: databaseUrl,
      ADMIN_TOKEN,
      SECRET: 'the-secret-that-both-instances-have-in-common',
      PORT: String(port),
      ADMIN_PORT: String(adminPort),
      DRAIN_DELAY: '2s',
      LOG_LEVEL: 'warn',
    },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  return child;
}

async function launch(): Promise<Instance> {
  const port = await freePort();
  const adminPort = await freePort();
  return { port, adminPort, child: start(port, adminPort) };
}

/** For haproxy, which looks every 200 ms and later where the machine is busy: as whoever restarts instances has to, it is asked. */
async function isUp({ port, adminPort }: Instance): Promise<void> {
  await waitFor(() => answers(adminPort, '/ready', /^ready/), 60_000);
  await waitFor(() => answers(statistics, '/;csv', new RegExp(`^lateral,at-${port},.*,UP,`, 'm')), 60_000);
}

function answers(port: number, path: string, expected: RegExp): Promise<boolean> {
  return get({ url: `http://127.0.0.1:${port}` }, path).then(
    ({ text }) => expected.test(text),
    () => false,
  );
}

/** A refusal of the service is JSON; one of haproxy, which knows of no server, is not. */
function reasonOf(json: unknown): string {
  const errors = (json as { readonly errors?: readonly { readonly message: string }[] } | undefined)?.errors;
  return errors === undefined ? ' by haproxy' : `: ${errors[0]?.message}`;
}

const instances = [await launch(), await launch()] as const;
const front = await freePort();
const statistics = await freePort();
const file = join(folder, 'haproxy.cfg');
await writeFile(
  file,
  `defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout check 5s
  option redispatch
  retries 2
frontend api
  bind 127.0.0.1:${front}
  option forwardfor
  default_backend lateral
frontend statistics
  bind 127.0.0.1:${statistics}
  stats enable
  stats uri /
backend lateral
  option httpchk GET /ready
  http-reuse safe
  default-server check inter 200ms fall 2 rise 1 pool-purge-delay 4s
${instances.map(({ port, adminPort }) => `  server at-${port} 127.0.0.1:${port} port ${adminPort}`).join('\n')}
`,
);
await chmod(file, 0o644);
const haproxy = spawn((await findProgram('haproxy')) ?? 'haproxy', ['-q', '-db', '-f', file], { stdio: 'inherit' });
t.teardown(() => haproxy.kill('SIGKILL'));
const service = { url: `http://127.0.0.1:${front}` };
await Promise.all(instances.map(isUp));

t.test(`${ROUNDS} restarts at ${RATE} requests a second`, async (t) => {
  const agent = new Agent({ keepAlive: true, maxSockets: 64 });
  const outcomes: Record<string, number> = {};
  const servedBy: number[] = [];
  let going = true;
  const ask = async (number: number): Promise<void> => {
    const write = number % 10 === 0;
    const body = JSON.stringify({ name: `tag ${number}` });
    const answer = write
      ? request(service, 'POST', '/items/tags', { agent, body, headers: { 'content-type': 'application/json' } })
      : get(service, '/items/articles/1?fields=id,title,author.name', { agent });
    const outcome = await answer.then(
      ({ status, json }) => `${write ? 'write' : 'read'} ${status}${status === 503 ? reasonOf(json) : ''}`,
      (error: { code?: unknown; message?: unknown }) => `${write ? 'write' : 'read'} ${error.code ?? error.message}`,
    );
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
  };
  const pending = new Set<Promise<void>>();
  const begun = performance.now();
  let sent = 0;
  const load = (async () => {
    while (going) {
      // What was late is sent at once, as far as there are connections for it.
      for (const due = (RATE * (performance.now() - begun)) / 1_000; sent < due && pending.size < 256; sent++) {
        const asked = ask(sent).finally(() => pending.delete(asked));
        pending.add(asked);
      }
      await sleep(5);
    }
    await Promise.all(pending);
  })();
  for (let round = 0; round < ROUNDS; round++) {
    const instance = instances[round % 2] as Instance;
    instance.child.kill('SIGTERM');
    const [code] = (await once(instance.child, 'exit')) as [number | null];
    servedBy.push(code ?? -1);
    instance.child = start(instance.port, instance.adminPort);
    await isUp(instance);
  }
  going = false;
  await load;
  agent.destroy();
  const seconds = (performance.now() - begun) / 1_000;
  t.comment(
    `${sent} requests in ${seconds.toFixed(1)} s (${Math.round(sent / seconds)} a second): ${JSON.stringify(outcomes)}`,
  );
  t.strictSame(Object.keys(outcomes).sort(), ['read 200', 'write 200'], JSON.stringify(outcomes));
  t.strictSame(new Set(servedBy), new Set([0]), 'each instance has ended well');
});
