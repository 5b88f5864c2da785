/** Small services of the family's clients: exports by POST, random strings, and reading anew what the service remembers. */
import t from 'tap';
import { ADMIN_TOKEN, connectSql, createLibrary, get, startDatabase, startTestService } from '../../support/service.js';
import { failure, makeUser, post } from '../../support/users.js';

t.setTimeout(120_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'utils');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const service = await startTestService({ databaseUrl });
const admin = { token: ADMIN_TOKEN };

t.test('an export by POST is the file itself, with all items unless a limit is named', async (t) => {
  await sql`insert into tags (name) select 'tag ' || n from generate_series(1, 150) n`;
  const csv = await post(service, '/utils/export/tags', { format: 'csv', query: { fields: ['id', 'name'] } }, admin);
  t.match(csv, {
    status: 200,
    headers: { 'content-type': 'text/csv; charset=utf-8', 'content-disposition': /attachment; filename="tags.*\.csv"/ },
  });
  t.equal(csv.text.trim().split('\n').length, 156, 'a header and every item');
  const query = { fields: ['name'], filter: { id: { _lte: 2 } }, sort: ['-id'] };
  for (const [format, expected] of [
    ['json', '[{"name":"tech"},{"name":"news"}]'],
    ['yaml', '- name: tech\n- name: news\n'],
    ['csv', 'name\ntech\nnews\n'],
    ['xml', /<name>tech<\/name>[\s\S]*<name>news<\/name>/],
  ] as const)
    t.match(await post(service, '/utils/export/tags', { format, query }, admin), { status: 200, text: expected });
  const one = await post(service, '/utils/export/tags', { format: 'json', query: { limit: 1 } }, admin);
  t.equal((one.json as unknown[]).length, 1);
});

t.test('an export that is wrong, or not allowed', async (t) => {
  for (const [body, status, code] of [
    [{}, 400, 'INVALID_PAYLOAD'],
    [{ format: 'pdf' }, 400, 'INVALID_PAYLOAD'],
    [{ format: 'csv', query: 5 }, 400, 'INVALID_QUERY'],
    [{ format: 'csv', typo: {} }, 400, 'INVALID_PAYLOAD'],
    [{ format: 'csv', query: { filter: { name: { _nope: 1 } } } }, 400, 'INVALID_QUERY'],
    [{ format: 'csv', query: { fields: ['nope'] } }, 403, 'FORBIDDEN'],
  ] as const)
    t.match(await post(service, '/utils/export/tags', body, admin), failure(status, code), JSON.stringify(body));
  t.match(await post(service, '/utils/export/tags', { format: 'csv' }), failure(403, 'FORBIDDEN'));
  t.match(await post(service, '/utils/export/service_users', { format: 'csv' }, admin), failure(403, 'FORBIDDEN'));
});

t.test('random strings', async (t) => {
  const random = async (length: string): Promise<string> =>
    ((await get(service, `/utils/random/string${length}`, { token: null })).json as { data: string }).data;
  t.match(await random(''), /^[\w-]{32}$/);
  t.match(await random('?length=1'), /^[\w-]$/);
  t.match(await random('?length=500'), /^[\w-]{500}$/);
  t.not(await random(''), await random(''));
  for (const length of ['0', '501', '-1', '1.5', 'x', ''])
    t.match(await get(service, `/utils/random/string?length=${length}`), failure(400, 'INVALID_QUERY'), length);
});

t.test('caches are read again when an administrator asks for it', async (t) => {
  const user = await makeUser(sql, 'remembered');
  // Behind the back of the triggers that tell of changes.
  const setStatus = async (status: string): Promise<void> => {
    await sql`set session_replication_role = replica`;
    await sql`update service_users set status = ${status} where id = ${user.id}`;
    await sql`set session_replication_role = origin`;
  };
  const me = async (): Promise<number> => (await get(service, '/users/me', { token: user.token })).status;
  // The notification that the user was created may still be on its way, and make the service forget: then once more.
  let remembered = false;
  for (let attempt = 0; attempt < 10 && !remembered; attempt++) {
    await setStatus('active');
    t.match(await post(service, '/utils/cache/clear', {}, admin), { status: 200, text: '' });
    t.equal(await me(), 200);
    await setStatus('suspended');
    remembered = (await me()) === 200;
  }
  t.ok(remembered, 'remembered');
  t.match(await post(service, '/utils/cache/clear', {}), failure(403, 'FORBIDDEN'));
  t.match(await post(service, '/utils/cache/clear?system=true', {}, admin), { status: 200, text: '' });
  t.equal(await me(), 401);
});

t.test('the same in GraphQL', async (t) => {
  const query = 'mutation { utils_random_string(length: 7) other: utils_random_string utils_cache_clear }';
  t.match(await post(service, '/graphql/system', { query }, admin), {
    json: { data: { utils_random_string: /^[\w-]{7}$/, other: /^[\w-]{32}$/, utils_cache_clear: true } },
  });
});
