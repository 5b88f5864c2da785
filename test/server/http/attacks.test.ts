/** Attacks on who asks and on the door itself: each tried, each refused with a clear answer, none of them noticed by others. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  get,
  request,
  sendRaw,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import {
  claimsOf,
  cookieOf,
  failure,
  forge,
  granted,
  login,
  makeUser,
  PASSWORD,
  post,
  SECRET,
} from '../../support/users.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'attacked');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const options = {
  databaseUrl,
  SECRET,
  LOGIN_STALL_TIME: '0',
  RATE_LIMITER_LOGIN_ENABLED: 'false',
  LOGIN_BACKOFF_MAX: '0',
};
const service = await startTestService(options);
const READ = '/items/tags?limit=1';
const HS256 = { alg: 'HS256', typ: 'JWT' };
const soon = (): number => Math.floor(Date.now() / 1_000) + 600;

t.test('tokens in the wrong algorithm, forged, expired or with strange claims', async (t) => {
  const { id, email } = await makeUser(sql, 'forged');
  const { access_token } = granted(await login(service, email));
  const claims = { iss: 'service', id, iat: soon() - 700, exp: soon() };
  t.match(await get(service, READ, { token: forge(HS256, claims, SECRET) }), { status: 200 }, 'this is how they look');
  const [head = '', payload = '', signature = ''] = access_token.split('.');
  const changed = Buffer.from(JSON.stringify({ ...claimsOf(access_token), exp: soon() + 1 })).toString('base64url');
  const invalid: Readonly<Record<string, string>> = {
    none: forge({ alg: 'none' }, claims, null),
    None: forge({ alg: 'None', typ: 'JWT' }, claims, null),
    'none, but signed': forge({ alg: 'none' }, claims, SECRET),
    'no algorithm': forge({}, claims, SECRET),
    HS384: forge({ alg: 'HS384' }, claims, SECRET, 'sha384'),
    HS512: forge({ alg: 'HS512' }, claims, SECRET, 'sha512'),
    'RS256 that is HMAC': forge({ alg: 'RS256' }, claims, SECRET),
    'another secret': forge(HS256, claims, 'another secret'),
    'an empty secret': forge(HS256, claims, ''),
    'a key of its own': forge({ ...HS256, jwk: { kty: 'oct', k: 'AAAA' }, kid: '../../dev/null' }, claims, 'AAAA'),
    'an extension': forge({ ...HS256, crit: ['exp'] }, claims, SECRET),
    'no signature': `${head}.${payload}.`,
    'a signature cut short': `${head}.${payload}.${signature.slice(0, -6)}`,
    'claims changed': `${head}.${changed}.${signature}`,
    'no end': forge(HS256, { iss: 'service', id }, SECRET),
    'an end that is a text': forge(HS256, { ...claims, exp: String(soon()) }, SECRET),
    'not yet good': forge(HS256, { ...claims, nbf: soon() }, SECRET),
    'no user': forge(HS256, { ...claims, id: undefined }, SECRET),
    'a user that is SQL': forge(HS256, { ...claims, id: "' or true --" }, SECRET),
    'a user that is a list': forge(HS256, { ...claims, id: [id] }, SECRET),
    'a session that is no text': forge(HS256, { ...claims, session: { $ne: null } }, SECRET),
    'a session that cannot be': forge(HS256, { ...claims, session: 'x\0' }, SECRET),
    'another purpose': forge(HS256, { ...claims, scope: 'password-reset' }, SECRET),
    'expired and forged': forge(HS256, { ...claims, exp: 1 }, 'another secret'),
  };
  for (const [name, token] of Object.entries(invalid)) {
    t.match(await get(service, READ, { token }), failure(403, 'INVALID_TOKEN'), name);
    const headers = { cookie: `service_session_token=${token}` };
    t.match(await get(service, READ, { token: null, headers }), failure(403, 'INVALID_TOKEN'), `${name}, as a cookie`);
    t.match(
      await get(service, `${READ}&access_token=${token}`, { token: null }),
      { status: 403 },
      `${name}, in the URL`,
    );
  }
  const expired = forge(HS256, { ...claims, exp: soon() - 601 }, SECRET);
  t.match(await get(service, READ, { token: expired }), failure(401, 'TOKEN_EXPIRED'));
  const nobody = forge(HS256, { ...claims, id: '00000000-0000-4000-8000-000000000000' }, SECRET);
  t.match(await get(service, READ, { token: nobody }), failure(401, 'INVALID_CREDENTIALS'));
  const session = forge(HS256, { ...claims, session: 'f'.repeat(64) }, SECRET);
  t.match(await get(service, READ, { token: session }), failure(401, 'INVALID_CREDENTIALS'));
});

t.test('claims of a token about its holder are not believed', async (t) => {
  const { id } = await makeUser(sql, 'boasting');
  await sql`update service_users set role = null where id = ${id}`;
  const claims = { iss: 'service', id, role: 'x', admin_access: true, app_access: true, exp: soon() };
  t.match(await get(service, READ, { token: forge(HS256, claims, SECRET) }), failure(403, 'FORBIDDEN'));
});

t.test('a token that was good is refused when it expires, though it is remembered', async (t) => {
  const brief = await startTestService({ ...options, ACCESS_TOKEN_TTL: '2s', SESSION_COOKIE_TTL: '2s' });
  const { email } = await makeUser(sql, 'brief');
  const { access_token } = granted(await login(brief, email));
  const cookie = cookieOf(await login(brief, email, { mode: 'session' }));
  const asks = [
    () => get(brief, READ, { token: access_token }),
    () => get(brief, READ, { token: null, headers: { cookie } }),
  ];
  for (const answer of await Promise.all(asks.map((ask) => ask()))) t.match(answer, { status: 200 });
  for (const ask of asks) {
    await waitFor(async () => (await ask()).status !== 200, 20_000);
    t.match(await ask(), failure(401, 'TOKEN_EXPIRED'));
  }
  const late = await post(brief, '/auth/refresh', { mode: 'session' }, { headers: { cookie } });
  t.match(late, failure(401, 'INVALID_CREDENTIALS'));
});

t.test('one kind of token does not pass for another', async (t) => {
  const { email } = await makeUser(sql, 'mixing');
  const { access_token, refresh_token } = granted(await login(service, email));
  const cookie = cookieOf(await login(service, email, { mode: 'session' }));
  const session = cookie.split('=')[1] ?? '';
  const refresh = (body: object, headers = {}): Promise<Answer> => post(service, '/auth/refresh', body, { headers });
  for (const token of [access_token, session, String(claimsOf(session)['session'])]) {
    t.match(await refresh({ refresh_token: token }), failure(401, 'INVALID_CREDENTIALS'));
  }
  for (const token of [access_token, refresh_token]) {
    const headers = { cookie: `service_session_token=${token}` };
    t.match(await refresh({ mode: 'session' }, headers), failure(401, 'INVALID_CREDENTIALS'));
  }
  t.match(await refresh({ mode: 'cookie' }, { cookie: `service_refresh_token=${session}` }), { status: 401 });
  const [row] = await sql<{ token: string }[]>`select token from service_sessions where kind = 'refresh' limit 1`;
  t.match(await refresh({ refresh_token: row?.token }), { status: 401 }, 'what the table holds opens nothing');
  const [user] = await sql<{ token: string }[]>`select token from service_users where token is not null limit 1`;
  t.match(await get(service, READ, { token: user?.token ?? '' }), { status: 401 });
});

t.test('the time of a refusal does not tell whether there is such a user', async (t) => {
  await makeUser(sql, 'timed');
  const stalling = await startTestService({ ...options, LOGIN_STALL_TIME: '250ms' });
  const time = async (place: { readonly url: string }, email: string): Promise<number> => {
    const begun = performance.now();
    t.equal((await login(place, email, { password: 'nope' })).status, 401);
    return performance.now() - begun;
  };
  const median = (times: number[]): number => times.sort((one, other) => one - other)[times.length >> 1] ?? 0;
  const [known, unknown]: [number[], number[]] = [[], []];
  for (let round = 0; round < 9; round++) {
    known.push(await time(service, 'timed@example.com'));
    unknown.push(await time(service, `nobody-${round}@example.com`));
  }
  const ratio = median(known) / median(unknown);
  t.ok(ratio > 0.5 && ratio < 2, `the same work is done: ${ratio.toFixed(2)}`);
  for (const email of ['timed@example.com', 'nobody@example.com']) {
    t.ok((await time(stalling, email)) >= 245, 'and no refusal comes early');
  }
  const begun = performance.now();
  await post(stalling, '/auth/password/request', { email: 'nobody@example.com' });
  t.ok(performance.now() - begun >= 245, 'nor the answer to a forgotten password');
});

t.test('another site cannot make a browser act with its cookies', async (t) => {
  const { email } = await makeUser(sql, 'lured');
  const open = await startTestService({
    ...options,
    CORS_ENABLED: 'true',
    CORS_ORIGIN: 'https://friend.example.com',
    PUBLIC_URL: 'https://api.example.com',
  });
  const cookie = cookieOf(await login(open, email, { mode: 'session' }));
  const act = (headers: Record<string, string>, place = open): Promise<Answer> =>
    request(place, 'POST', '/items/tags', {
      token: null,
      headers: { 'content-type': 'application/json', cookie, ...headers },
      body: '{"name":"acted"}',
    });
  const evil = { origin: 'https://evil.example.com' };
  const refused: Record<string, string>[] = [
    evil,
    { origin: 'null' },
    { 'sec-fetch-site': 'cross-site' },
    { ...evil, 'sec-fetch-site': 'cross-site' },
    { ...evil, 'sec-fetch-site': 'same-site' },
    { origin: 'https://friend.example.com.evil.com' },
    { ...evil, authorization: 'Basic YTpi' },
  ];
  for (const headers of refused) t.match(await act(headers), failure(403, 'FORBIDDEN'), JSON.stringify(headers));
  const allowed: Record<string, string>[] = [
    {},
    { origin: open.url },
    { origin: 'https://api.example.com', 'sec-fetch-site': 'same-site' },
    { origin: 'https://friend.example.com', 'sec-fetch-site': 'cross-site' },
    { ...evil, 'sec-fetch-site': 'same-origin' },
  ];
  for (const headers of allowed) t.match(await act(headers), { status: 200 }, JSON.stringify(headers));
  t.match(
    await act({ origin: 'https://friend.example.com' }, service),
    { status: 403 },
    'without CORS there are no friends',
  );
  const carried = { ...evil, authorization: `Bearer ${ADMIN_TOKEN}` };
  t.match(await act(carried), { status: 200 }, 'a header that a page had to know is no cookie');
  t.match(await act({ ...evil, cookie: 'theme=dark' }), failure(403, 'FORBIDDEN'), 'only the public');
  const refreshCookie = cookieOf(await login(open, email, { mode: 'cookie' }));
  for (const path of ['/auth/refresh', '/auth/logout']) {
    const answer = await post(open, path, {}, { headers: { ...evil, cookie: refreshCookie } });
    t.match(answer, failure(403, 'FORBIDDEN'), path);
  }
  const read = await get(open, READ, { token: null, headers: { ...evil, cookie } });
  t.match(read, { status: 200, headers: { 'access-control-allow-origin': undefined } }, 'a read shows them nothing');
  const form = { ...evil, 'content-type': 'application/x-www-form-urlencoded' };
  t.match(await act(form), { status: 403 });
  t.match(await act({ 'content-type': 'text/plain' }), failure(415, 'UNSUPPORTED_MEDIA_TYPE'));
});

t.test('headers cannot be injected, doubled or smuggled', async (t) => {
  const raw = (lines: string[], body = ''): Promise<string> =>
    sendRaw(
      service,
      [`${['GET /server/ping HTTP/1.1', 'Host: x', ...lines, 'Connection: close'].join('\r\n')}\r\n\r\n${body}`],
      (received) => /^HTTP.*\r\n\r\n/s.test(received),
    );
  for (const value of ['a\\r\\nSet-Cookie: x=1', 'a%0d%0aSet-Cookie:%20x=1', '<script>', 'x'.repeat(500)]) {
    const answer = await raw([`X-Request-Id: ${value}`]);
    t.notMatch(answer, /set-cookie|<script>|x{200}/i, value.slice(0, 40));
  }
  const smuggled = await sendRaw(
    service,
    [
      'POST /auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: 44\r\nTransfer-Encoding: chunked\r\n\r\n' +
        '0\r\n\r\nGET /server/ping HTTP/1.1\r\nHost: x\r\n\r\n',
    ],
    (received) => received.includes('\r\n\r\n'),
  );
  t.notMatch(smuggled, /pong/, 'two lengths are no two requests');
  const doubled = await sendRaw(
    service,
    [
      `GET ${READ} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic eDp5\r\nAuthorization: Bearer wrong\r\nConnection: close\r\n\r\n`,
    ],
    (received) => /\r\n\r\n.+/s.test(received),
  );
  t.match(doubled, /^HTTP\/1\.1 40[0-3]/);
  const { email } = await makeUser(sql, 'heading');
  for (const address of [
    `${email}\r\nBcc: all@example.com`,
    `${email}\nX: y`,
    `a b@example.com`,
    `${email},b@example.com x`,
  ]) {
    for (const path of ['/auth/login', '/auth/password/request']) {
      const answer = await post(service, path, { email: address, password: PASSWORD });
      t.match(answer, failure(400, 'INVALID_PAYLOAD'), JSON.stringify(address));
    }
  }
  const odd = { 'user-agent': `\xff\xfe${'u'.repeat(3_000)}`, origin: `https://${'o'.repeat(900)}` };
  t.match(
    await login(service, email, {}, { headers: odd }),
    { status: 200 },
    'what a client calls itself may be anything',
  );
});

t.test('paths have one meaning', async (t) => {
  const paths = [
    '/items/../items/tags',
    '/items/articles/../tags',
    '/server/../items/tags',
    '//items/tags',
    '/items//tags',
    '/./items/tags',
    '/%69tems/tags',
    '/items%2ftags',
    '/items/tags%00',
    '/items/tags;admin=true',
    '/items\\tags',
    '/items/tags#x',
    '/ITEMS/tags/',
    '/items/tags/%2e%2e/articles',
    '/auth/login/../../items/tags',
    '/items/service_users',
    '/items/service_sessions',
    '/items/service_logins',
    '/items/pg_authid',
    '/items/public.tags',
    '/items/"tags"',
    '/items/__proto__',
    '/items/constructor/prototype',
  ];
  for (const path of paths) {
    const answer = await get(service, path, { token: null });
    t.ok([400, 403, 404].includes(answer.status), `${path}: ${answer.status}`);
  }
  for (const target of ['*', 'http://evil.example.com/items/tags']) {
    // The parser takes what is no path for another version of HTTP.
    t.match(await get(service, target, { token: null }), { status: 505 }, target);
  }
  for (const path of paths.filter((each) => /service_(sessions|logins)/.test(each))) {
    const answer = await get(service, path, { token: ADMIN_TOKEN });
    t.notMatch(answer.text, /[0-9a-f]{64}/, `${path} shows no digest`);
  }
});

t.test('too much and too slow', { timeout: 60_000 }, async (t) => {
  const small = await startTestService({ ...options, MAX_PAYLOAD_SIZE: '10kb', BODY_TIMEOUT: '300ms' });
  const large = await post(small, '/auth/login', { email: 'a@example.com', password: 'x'.repeat(20_000) });
  t.match(large, failure(400, 'INVALID_PAYLOAD'));
  const deep = await request(small, 'POST', '/auth/login', {
    token: null,
    headers: { 'content-type': 'application/json' },
    body: '['.repeat(9_000),
  });
  t.match(deep, failure(400, 'INVALID_PAYLOAD'));
  t.match(await login(service, 'nobody@example.com', { password: 'x'.repeat(500_000) }), { status: 401 });
  for (const token of ['x'.repeat(30_000), `${'a'.repeat(10_000)}.${'b'.repeat(10_000)}.c`, '.'.repeat(10_000)]) {
    t.match(await get(small, READ, { token }), failure(401, 'INVALID_CREDENTIALS'));
  }
  const cookie = Array.from({ length: 2_000 }, (_, index) => `c${index}=1`).join('; ');
  t.match(await get(small, READ, { token: null, headers: { cookie } }), failure(403, 'FORBIDDEN'));

  const slow = (path: string, type: string, length: string): Promise<string> =>
    sendRaw(small, [
      `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Type: ${type}\r\nAuthorization: Bearer ${ADMIN_TOKEN}\r\n${length}\r\n\r\n`,
    ]);
  const begun = performance.now();
  const answers = await Promise.all([
    slow('/auth/login', 'application/json', 'Content-Length: 1000'),
    slow('/auth/login', 'application/json', 'Transfer-Encoding: chunked'),
    slow('/items/tags', 'application/json', 'Content-Length: 1000'),
    slow('/utils/import/tags', 'application/x-ndjson', 'Content-Length: 1000'),
  ]);
  for (const answer of answers)
    t.match(answer, /^HTTP\/1\.1 400 .*BODY_TIMEOUT/s, 'the connection is closed with an answer');
  t.ok(performance.now() - begun < 8_000, 'soon');
  const idle = Array.from({ length: 200 }, () =>
    sendRaw(small, [
      'POST /auth/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{',
    ]),
  );
  t.match(await get(small, READ), { status: 200 }, 'two hundred who send nothing keep nobody out');
  await Promise.all(idle);
});

t.test("any body that a route of identity cannot use is the sender's fault", { timeout: 60_000 }, async (t) => {
  const routes: Readonly<Record<string, readonly string[]>> = {
    '/auth/login': ['email', 'password', 'otp', 'mode'],
    '/auth/refresh': ['refresh_token', 'mode'],
    '/auth/logout': ['refresh_token', 'mode'],
    '/auth/password/request': ['email', 'reset_url'],
    '/auth/password/reset': ['token', 'password'],
    '/users/invite': ['email', 'role', 'invite_url'],
    '/users/invite/accept': ['token', 'password'],
    '/users/me/tfa/generate': ['password'],
    '/users/me/tfa/enable': ['secret', 'otp'],
    '/users/me/tfa/disable': ['otp'],
    '/users/00000000-0000-4000-8000-000000000000/tfa/disable': [''],
    '/users/%00/tfa/disable': [''],
    '/users/%00/password-token': [''],
  };
  const values: readonly unknown[] = [
    null,
    '',
    0,
    1e308,
    true,
    [],
    [[]],
    {},
    { toString: 'x' },
    'a\u0000b',
    '\ud800',
    "' or 1=1 --",
    '../../x',
    'x'.repeat(70_000),
    '__proto__',
    'a@b',
    '00000000-0000-4000-8000-000000000000',
    forge(HS256, { iss: 'service', scope: 'invite', email: 'a\0@b', mark: 'x', exp: soon() }, SECRET),
    forge(HS256, { iss: 'service', scope: 'password-reset', email: 'a\0@b', mark: '\0', exp: soon() }, SECRET),
  ];
  const good = {
    email: 'fuzzed@example.com',
    password: PASSWORD,
    token: 'x',
    role: 'x',
    secret: 'x',
    otp: '1',
    refresh_token: 'x',
  };
  const quiet = await startTestService({ ...options, LOG_LEVEL: 'silent' });
  const wrong: string[] = [];
  for (const [route, names] of Object.entries(routes)) {
    const bodies = names.flatMap((name) => values.map((value) => ({ ...good, [name]: value })));
    for (let first = 0; first < bodies.length; first += 10) {
      const some = bodies.slice(first, first + 10);
      const answers = await Promise.all(some.map((body) => post(quiet, route, body, { token: ADMIN_TOKEN })));
      for (const [index, { status }] of answers.entries())
        if (status >= 500) wrong.push(`${route} ${status}: ${JSON.stringify(some[index]).slice(0, 300)}`);
    }
  }
  t.strictSame(wrong, []);
});

t.test('no secret reaches the log, whatever happens', { timeout: 60_000 }, async (t) => {
  const { email, token } = await makeUser(sql, 'logged');
  const child = spawn(process.execPath, [packagePath('dist', 'src', 'main.js'), 'start'], {
    env: { ...process.env, DATABASE_URL: databaseUrl, PORT: '0', LOG_LEVEL: 'trace', SECRET, LOGIN_STALL_TIME: '0' },
  });
  t.teardown(() => child.kill('SIGKILL'));
  let log = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (log += chunk));
  await waitFor(async () => /ready at (\S+)/.test(log), 30_000);
  const place = { url: /ready at (\S+)/.exec(log)?.[1] ?? '' };
  const first = granted(await login(place, email));
  const second = granted(await post(place, '/auth/refresh', { refresh_token: first.refresh_token }));
  const cookie = cookieOf(await login(place, email, { mode: 'session' }));
  await login(place, email, { password: 'a wrong password' });
  await get(place, `${READ}&access_token=${token}`, { token: null });
  await get(place, READ, { token: 'an-unknown-token' });
  await sql`alter table service_logins rename to service_logins_away`;
  const broken = await login(place, email);
  await sql`alter table service_logins_away rename to service_logins`;
  t.match(broken, failure(503, 'SERVICE_UNAVAILABLE'));
  t.notMatch(broken.text, /service_logins|argon2/, 'nor a client');
  await waitFor(async () => log.includes('answered a request with 503'), 5_000);
  child.kill('SIGTERM');
  await once(child, 'exit');
  const secrets = {
    PASSWORD,
    'a wrong password': 'a wrong password',
    token,
    'an unknown token': 'an-unknown-token',
    SECRET,
    access: first.access_token,
    refresh: first.refresh_token,
    'the next refresh': second.refresh_token,
    session: cookie.split('=')[1] ?? '',
    hash: '$argon2',
  };
  for (const [name, secret] of Object.entries(secrets)) t.notOk(log.includes(secret), name);
});
