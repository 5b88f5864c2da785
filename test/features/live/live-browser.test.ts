/** A live query in a browser: `EventSource` with a session cookie. */
import t from 'tap';
import { openPage, skip } from '../../support/browser.js';
import { connectSql, createLibrary, startDatabase, startTestService, waitFor } from '../../support/service.js';
import { passTime } from '../../support/time.js';
import { makeUser, PASSWORD, SECRET } from '../../support/users.js';

t.test('EventSource gets answers with the session cookie, until its user is suspended', { skip }, async (t) => {
  const server = await startDatabase({ own: true });
  const url = await createLibrary(server, 'live_browser');
  const sql = connectSql(url);
  t.teardown(() => sql.end());
  const { email } = await makeUser(sql, 'browsing');
  const service = await startTestService({ databaseUrl: url, SECRET });
  const { page } = await openPage(service);
  await page.goto(`${service.url}/server/ping`);
  await page.evaluate(
    async ([email, password]) => {
      const body = JSON.stringify({ email, password, mode: 'session' });
      await fetch('/auth/login', { method: 'POST', headers: { 'content-type': 'application/json' }, body });
      const answers: string[] = [];
      const failures: string[] = [];
      Object.assign(globalThis, { answers, failures });
      const source = new EventSource('/items/tags?fields=name&filter[name][_starts_with]=seen');
      source.onmessage = ({ data }) => answers.push(data);
      source.addEventListener('failed', (event) => failures.push(String(Reflect.get(event, 'data'))));
    },
    [email, PASSWORD],
  );
  const has = (answers: readonly string[]): Promise<boolean> =>
    page
      .evaluate(() => (globalThis as unknown as { answers: string[] }).answers)
      .then((seen) => JSON.stringify(seen) === JSON.stringify(answers));
  await waitFor(() => has(['{"data":[]}']), 10_000);
  await sql`insert into tags (name) values ('seen')`;
  await waitFor(() => has(['{"data":[]}', '{"data":[{"name":"seen"}]}']), 10_000);
  await sql`update service_users set status = 'suspended' where email = ${email}`;
  // It takes effect within a second.
  await passTime(1_000, 'a suspension takes effect within a second');
  await sql`insert into tags (name) values ('seen too')`;
  await waitFor(
    async () => (await page.evaluate(() => (globalThis as unknown as { failures: string[] }).failures)).length > 0,
    10_000,
  );
  t.ok(await has(['{"data":[]}', '{"data":[{"name":"seen"}]}']), 'who is suspended gets no more');
});
