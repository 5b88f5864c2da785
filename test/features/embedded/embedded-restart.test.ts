/** The embedded PostgreSQL is killed, as the system does where memory runs out: it is started again, and nothing is lost. */
import { cp, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { startService } from '../../../src/app/start.js';
import type { Event } from '../../../src/base/observe.js';
import type { EmbeddedLogEvent } from '../../../src/features/embedded/log-events.js';
import { ADMIN_TOKEN, type Answer, get, makeFolder, request, waitFor, ways } from '../../support/service.js';

const WITHIN = 60_000;

t.test('a server that was killed is started again', async (t) => {
  const directory = await makeFolder();
  if (process.env['TEST_TEMPLATE']) await cp(process.env['TEST_TEMPLATE'], directory, { recursive: true });
  const said: (Event | EmbeddedLogEvent)[] = [];
  const config = readConfig({ DATA_DIR: directory, PORT: '0', ADMIN_TOKEN, DEMO_DATA: 'false', ...ways() });
  const service = await startService(
    config,
    (event) => said.push(event),
    () => {},
  );
  t.teardown(() => service.stop());
  const readPid = async (): Promise<number> =>
    Number((await readFile(join(directory, 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0]);
  const create = (email: string): Promise<Answer> =>
    request(service, 'POST', '/users', {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ first_name: 'Kept', email }),
    });
  const find = (email: string): Promise<Answer> => get(service, `/users?filter[email][_eq]=${email}&fields=email`);
  t.equal((await create('before@example.com')).status, 200);

  const statuses = new Set<number>();
  for (const round of [1, 2]) {
    const killed = await readPid();
    process.kill(killed, 'SIGKILL');
    await waitFor(async () => {
      const { status } = await find('before@example.com');
      statuses.add(status);
      return status === 200 && said.filter(({ kind }) => kind === 'embedded-restarted').length >= 2 * round;
    }, WITHIN);
    t.not(await readPid(), killed);
    t.match(await find('before@example.com'), { status: 200, json: { data: [{ email: 'before@example.com' }] } });
    await waitFor(async () => (await create(`after-${round}@example.com`)).status === 200, WITHIN);
  }
  t.match(
    await find('after-1@example.com'),
    { json: { data: [{ email: 'after-1@example.com' }] } },
    'nor what came later',
  );
  statuses.delete(200);
  statuses.delete(503);
  t.strictSame([...statuses], [], 'requests meanwhile are 503');
  t.match(
    said.filter(({ kind }) => kind === 'embedded-restarted'),
    [{ message: /exited \(SIGKILL\); restarting it/ }, { message: /Restarted the embedded PostgreSQL after \d+ ms/ }],
  );
  const last = await readPid();
  await service.stop();
  t.throws(() => process.kill(last, 0), { code: 'ESRCH' }, 'and it ends with the service');
});
