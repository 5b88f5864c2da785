/** Who asks: tokens and their carriers, logging in and staying in, second factors, links in mails, addresses. */
import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { openSecret } from '../../../src/server/access/tokens.js';
import { argon2, loadPortable } from '../../../src/server/accounts/passwords.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  get,
  makeFolder,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import {
  claimsOf,
  codeOf,
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
const databaseUrl = await createLibrary(server, 'identities');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const mails = join(await makeFolder(), 'mails.ndjson');
const transport = join(await makeFolder(), 'transport.mjs');
await writeFile(mails, '');
await writeFile(
  transport,
  `import { appendFileSync } from 'node:fs';
   export const send = (mail) => appendFileSync(${JSON.stringify(mails)}, JSON.stringify(mail) + '\\n');`,
);
const options = {
  databaseUrl,
  SECRET,
  LOGIN_STALL_TIME: '0',
  RATE_LIMITER_LOGIN_ENABLED: 'false',
  LOGIN_BACKOFF_MAX: '0',
};
const service = await startTestService({
  ...options,
  EMAIL_TRANSPORT: transport,
  PUBLIC_URL: 'http://api.example.com',
  PASSWORD_RESET_URL_ALLOW_LIST: 'https://app.example.com/reset',
  SESSION_REFRESH_GRACE_PERIOD: '10s',
});
const other = await startTestService(options);
const READ = '/items/tags?limit=1';

const bearer = (token: string): Promise<Answer> => get(service, READ, { token });
const withCookie = (cookie: string, place = service): Promise<Answer> =>
  get(place, READ, { token: null, headers: { cookie } });

t.test('a token is carried by the header, the URL or the session cookie', async (t) => {
  t.match(await get(service, READ, { token: null }), failure(403, 'FORBIDDEN'));
  t.match(await bearer(ADMIN_TOKEN), { status: 200 });
  for (const scheme of ['bearer', 'BEARER', 'BeArEr']) {
    const headers = { authorization: `${scheme} ${ADMIN_TOKEN}` };
    t.match(await get(service, READ, { token: null, headers }), { status: 200 }, scheme);
  }
  t.match(await get(service, `${READ}&access_token=${ADMIN_TOKEN}`, { token: null }), { status: 200 });
  t.match(await get(service, `${READ}&access_token=`, { token: null }), failure(403, 'FORBIDDEN'));
  t.match(await get(service, `${READ}&access_token=${ADMIN_TOKEN}`), failure(400, 'INVALID_PAYLOAD'));
  t.match(await get(service, `${READ}&access_token=wrong`, { token: null }), failure(401, 'INVALID_CREDENTIALS'));
  for (const token of ['wrong', 'a.b.c', '...', forge({ alg: 'HS256' }, { iss: 'another' }, SECRET)]) {
    t.match(await bearer(token), failure(401, 'INVALID_CREDENTIALS'), token);
  }
  for (const authorization of ['Basic YTpi', 'Basic YTpi YTpi', 'Bearers x', ADMIN_TOKEN]) {
    const answer = await get(service, READ, { token: null, headers: { authorization } });
    t.match(answer, failure(403, 'FORBIDDEN'), `${authorization} carries no token`);
  }
  for (const authorization of ['Bearer', 'bearer', 'Bearer wrong token', `Bearer ${ADMIN_TOKEN} more`, 'Bearer  x']) {
    for (const cookie of ['other=1', `service_session_token=${ADMIN_TOKEN}`]) {
      const answer = await get(service, READ, { token: null, headers: { authorization, cookie } });
      t.match(answer, failure(401, 'INVALID_CREDENTIALS'), `${authorization} is not the public`);
    }
  }
  t.match(await withCookie(`other=1; service_session_token=${ADMIN_TOKEN}`), { status: 200 });
  t.match(await withCookie(`xservice_session_token=${ADMIN_TOKEN}`), failure(403, 'FORBIDDEN'));
  const proxied = { authorization: 'Basic YTpi', cookie: `service_session_token=${ADMIN_TOKEN}` };
  t.match(await get(service, READ, { token: null, headers: proxied }), { status: 200 }, 'the password of a proxy');
  const both = { cookie: 'service_session_token=wrong' };
  t.match(await get(service, READ, { headers: both }), { status: 200 }, 'the header comes before the cookie');
});

t.test('a static token with spaces, which no header could carry, is refused', async (t) => {
  const { id } = await makeUser(sql, 'spaces');
  const store = (token: string): Promise<Answer> =>
    request(service, 'PATCH', `/users/${id}`, {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ token }),
    });
  for (const token of ['a long static token', 'a-token ', 'a\ttoken'])
    t.match(await store(token), failure(400, 'INVALID_PAYLOAD'), JSON.stringify(token));
  t.match(await bearer('the-token-of-spaces'), { status: 200 }, 'the one before is still good');
  t.match(await store('a-long-static-token'), { status: 200 });
  t.match(await bearer('a-long-static-token'), { status: 200 });
});

t.test('login answers tokens, or sets them as cookies', async (t) => {
  const { email, id } = await makeUser(sql, 'modes');
  const json = await login(service, email.toUpperCase());
  t.match(json, { status: 200, headers: { 'set-cookie': undefined, 'cache-control': 'no-store' } });
  const { access_token, refresh_token, expires } = granted(json);
  t.equal(expires, 900_000);
  t.match(refresh_token, /^[\w-]{64}$/);
  t.match(claimsOf(access_token), { id, iss: 'service', admin_access: true, app_access: true, role: String });
  t.equal(Number(claimsOf(access_token)['exp']) - Number(claimsOf(access_token)['iat']), 900);
  t.match(await bearer(access_token), { status: 200 });
  t.match(await get(service, `${READ}&access_token=${access_token}`, { token: null }), { status: 200 });
  t.match(await bearer(refresh_token), failure(401, 'INVALID_CREDENTIALS'), 'a refresh token opens nothing');

  const cookie = await login(service, email, { mode: 'cookie' });
  t.strictSame(Object.keys(granted(cookie)).sort(), ['access_token', 'expires']);
  t.match(
    cookie.headers['set-cookie']?.[0],
    /^service_refresh_token=[\w-]{64}; Max-Age=604800; Path=\/; HttpOnly; SameSite=Lax$/,
  );

  const session = await login(service, email, { mode: 'session' });
  t.strictSame(granted(session), { expires: 86_400_000 });
  t.match(
    session.headers['set-cookie']?.[0],
    /^service_session_token=[\w-]+\.[\w-]+\.[\w-]+; Max-Age=86400; Path=\/; HttpOnly; SameSite=Lax$/,
  );
  t.match(await withCookie(cookieOf(session)), { status: 200 });
  t.match(await withCookie(cookieOf(session), other), { status: 200 }, 'on every instance with the same secret');
  const [row] =
    await sql`select last_access > now() - interval '1 minute' as recent from service_users where id = ${id}`;
  t.equal(row?.['recent'], true);
  const noted = await sql`
    select "user", ip, user_agent, item from service_activity where action = 'login' and "user" = ${id}`;
  t.strictSame(
    noted.map((each) => ({ ...each })),
    new Array(3).fill({ user: id, ip: '127.0.0.1', user_agent: null, item: id }),
    'who came in is noted',
  );
  t.strictSame(await get(service, '/auth', { token: null }).then((answer) => answer.json), {
    data: [],
    disableDefault: false,
  });
});

t.test('bad requests are 400, wrong ones 401, and neither says more', async (t) => {
  const { email } = await makeUser(sql, 'bad');
  const bodies: readonly unknown[] = [
    undefined,
    null,
    [],
    'text',
    {},
    { email },
    { password: PASSWORD },
    { email: 'notanemail', password: PASSWORD },
    { email: [email], password: PASSWORD },
    { email: { email }, password: PASSWORD },
    { email: `${'x'.repeat(300)}@example.com`, password: PASSWORD },
    { email: `a\0${email}`, password: PASSWORD },
    { email, password: 5 },
    { email, password: '' },
    { email, password: PASSWORD, mode: 'weird' },
    { email, password: PASSWORD, mode: {} },
    { email, password: PASSWORD, otp: 5 },
  ];
  for (const body of bodies) {
    const answer = await post(service, '/auth/login', body);
    t.match(answer, failure(400, 'INVALID_PAYLOAD'), JSON.stringify(body)?.slice(0, 80));
  }
  const text = await post(service, '/auth/login', {}, { headers: { 'content-type': 'text/plain' } });
  t.match(text, failure(415, 'UNSUPPORTED_MEDIA_TYPE'));
  const wrong = await login(service, email, { password: 'nope' });
  t.match(wrong, failure(401, 'INVALID_CREDENTIALS'));
  await sql`update service_users set status = 'suspended' where email = ${email}`;
  await sql`insert into service_users (email) values ('without-password@example.com')`;
  await sql`insert into service_users (email, password) values ('strange@example.com', '$argon2id$nonsense')`;
  for (const address of ['nobody@example.com', email, 'without-password@example.com', 'strange@example.com']) {
    t.equal((await login(service, address)).text, wrong.text, address);
  }
  t.match(await login(service, 'without-password@example.com', { password: ' ' }), failure(401, 'INVALID_CREDENTIALS'));
});

t.test('a refresh token is good once; who uses it again ends all that came from the login', async (t) => {
  const { email } = await makeUser(sql, 'rotating');
  const first = granted(await login(service, email));
  const unrelated = granted(await login(service, email));
  const refresh = (refresh_token: string, place = service): Promise<Answer> =>
    post(place, '/auth/refresh', { refresh_token });
  const second = granted(await refresh(first.refresh_token));
  t.not(second.refresh_token, first.refresh_token);
  t.match(await bearer(second.access_token), { status: 200 });
  const third = granted(await refresh(second.refresh_token, other));
  t.match(await refresh(first.refresh_token), failure(401, 'INVALID_CREDENTIALS'), 'the replayed one');
  t.match(await refresh(third.refresh_token), failure(401, 'INVALID_CREDENTIALS'), 'and with it the newest');
  t.match(await refresh(unrelated.refresh_token), { status: 200 }, 'but no other login');

  const racing = granted(await login(service, email));
  const answers = await Promise.all(
    Array.from({ length: 8 }, (_, index) => refresh(racing.refresh_token, index % 2 ? service : other)),
  );
  t.strictSame(answers.map(({ status }) => status).sort(), [200, 401, 401, 401, 401, 401, 401, 401], 'one at a time');

  for (const body of [{}, { mode: 'json' }, { mode: 'cookie' }, { mode: 'session' }, { refresh_token: 5 }]) {
    t.match(await post(service, '/auth/refresh', body), failure(400, 'INVALID_PAYLOAD'), JSON.stringify(body));
  }
  t.match(await refresh('bad'), failure(401, 'INVALID_CREDENTIALS'));
  t.match(await refresh('x'.repeat(64)), failure(401, 'INVALID_CREDENTIALS'));

  const cookie = cookieOf(await login(service, email, { mode: 'cookie' }));
  const renewed = await post(service, '/auth/refresh', { mode: 'cookie' }, { headers: { cookie } });
  t.strictSame(Object.keys(granted(renewed)).sort(), ['access_token', 'expires']);
  t.not(cookieOf(renewed), cookie);
  const bare = await request(service, 'POST', '/auth/refresh', { token: null, headers: { cookie: cookieOf(renewed) } });
  t.match(bare, { status: 200 }, 'a cookie needs no body');
  const [old] = await sql`
    update service_sessions set expires = now() where token in (
      select session.token from service_sessions session join service_users on id = "user" where email = ${email}) returning 1 as one`;
  t.ok(old);
  const late = await post(service, '/auth/refresh', {}, { headers: { cookie: cookieOf(bare) } });
  t.match(late, failure(401, 'INVALID_CREDENTIALS'), 'an expired one');
});

t.test('a session is renewed with grace, and replayed after it ends', async (t) => {
  const { email } = await makeUser(sql, 'session');
  const first = cookieOf(await login(service, email, { mode: 'session' }));
  const refresh = (cookie: string, place = service): Promise<Answer> =>
    post(place, '/auth/refresh', { mode: 'session' }, { headers: { cookie } });
  const sessionOf = (cookie: string): unknown => claimsOf(cookie.split('=')[1] ?? '')['session'];
  const answers = await Promise.all([refresh(first), refresh(first, other), refresh(first)]);
  const cookies = answers.map(cookieOf);
  t.strictSame(
    answers.map((answer) => answer.json),
    new Array(3).fill({ data: { expires: 86_400_000 } }),
  );
  t.equal(new Set(cookies.map(sessionOf)).size, 1, 'all get the same new session');
  t.not(sessionOf(cookies[0] as string), sessionOf(first));
  t.match(await withCookie(first), { status: 200 }, 'the old one is good for a moment');
  t.match(await withCookie(cookies[0] as string), { status: 200 });
  await sql`update service_sessions set expires = now() where token = ${String(sessionOf(first))}`;
  await waitFor(async () => (await withCookie(first)).status === 401, 5_000);
  const refused = await refresh(first);
  t.match(refused, failure(401, 'INVALID_CREDENTIALS'));
  t.match(refused.headers['set-cookie']?.[0], /^service_session_token=; Max-Age=0;/);
  await waitFor(async () => (await withCookie(cookies[0] as string)).status === 401, 5_000);
  t.match(await refresh(cookies[0] as string), failure(401, 'INVALID_CREDENTIALS'), 'its successor ended with it');
});

t.test('logging out ends the session at once, and may be done twice', async (t) => {
  const { email } = await makeUser(sql, 'leaving');
  const json = granted(await login(service, email));
  const logout = (body: object, headers = {}): Promise<Answer> => post(service, '/auth/logout', body, { headers });
  t.match(await logout({ refresh_token: json.refresh_token }), { status: 204, text: '' });
  t.match(await logout({ refresh_token: json.refresh_token }), { status: 204 });
  t.match(await post(service, '/auth/refresh', { refresh_token: json.refresh_token }), { status: 401 });
  t.match(await logout({}), failure(400, 'INVALID_PAYLOAD'));
  t.match(await bearer(json.access_token), { status: 200 }, 'an access token only expires');

  const cookie = cookieOf(await login(service, email, { mode: 'session' }));
  t.match(await withCookie(cookie), { status: 200 });
  t.match(await withCookie(cookie, other), { status: 200 });
  const left = await logout({ mode: 'session' }, { cookie });
  t.match(left, { status: 204 });
  t.match(left.headers['set-cookie']?.[0], /^service_session_token=; Max-Age=0; Path=\/; HttpOnly; SameSite=Lax$/);
  for (const place of [service, other]) {
    await waitFor(async () => (await withCookie(cookie, place)).status === 401, 5_000);
  }
  const refused = await withCookie(cookie);
  t.match(refused, failure(401, 'INVALID_CREDENTIALS'));
  t.match(refused.headers['set-cookie']?.[0], /^service_session_token=; Max-Age=0;/, 'the client drops the cookie');
});

t.test('a change of token, user, role or policy acts on every instance within 200 ms', async (t) => {
  const { id, email, token } = await makeUser(sql, 'changing');
  const { access_token } = granted(await login(service, email));
  const cookie = cookieOf(await login(service, email, { mode: 'session' }));
  const all = [service, other].flatMap((place) => [
    () => get(place, READ, { token }),
    () => get(place, READ, { token: access_token }),
    () => withCookie(cookie, place),
  ]);
  const times: number[] = [];
  /** Each carrier on each instance, and how long the last of them took to answer so. */
  const settle = async (wanted: readonly number[]): Promise<void> => {
    const begun = performance.now();
    await Promise.all(
      all.map((ask, index) => waitFor(async () => (await ask()).status === wanted[index % wanted.length], 5_000)),
    );
    times.push(Math.round(performance.now() - begun));
    t.pass(`${wanted} after ${times.at(-1)} ms`);
  };
  await settle([200]);
  const [role] = await sql<{ role: string }[]>`update service_users set role = null where id = ${id} returning role`;
  await settle([403]);
  t.ok(role);
  await sql`update service_users set role = (select id from service_roles where name = 'Administrator') where id = ${id}`;
  await settle([200]);
  await sql`update service_policies set admin_access = false where name = 'Administrator'`;
  await settle([403]);
  await sql`update service_policies set admin_access = true where name = 'Administrator'`;
  await settle([200]);
  await sql`update service_users set token = null where id = ${id}`;
  await settle([401, 200, 200]);
  await sql`update service_users set status = 'suspended' where id = ${id}`;
  await settle([401]);
  const [left] = await sql`select count(*)::int as sessions from service_sessions where "user" = ${id}`;
  t.equal(left?.['sessions'], 0, 'who is suspended has no session any more');
  await sql`update service_users set status = 'active' where id = ${id}`;
  await settle([401, 200, 401]);
  // A machine that is busy with something else may pause in any one of them.
  const median = times.toSorted((one, other) => one - other)[times.length >> 1] ?? Number.NaN;
  t.ok(median < 200, `${times} ms`);
});

t.test('a new password ends the sessions of the old one', async (t) => {
  const { id, email } = await makeUser(sql, 'repeating');
  const cookie = cookieOf(await login(service, email, { mode: 'session' }));
  const { refresh_token } = granted(await login(service, email));
  await sql`update service_users set password = (select password from service_users where email = 'admin@example.com') where id = ${id}`;
  await waitFor(async () => (await withCookie(cookie)).status === 401, 5_000);
  t.match(await post(service, '/auth/refresh', { refresh_token }), failure(401, 'INVALID_CREDENTIALS'));
  const password = 'chosen by its owner';
  await sql`update service_users set password = (select password from service_users where email = 'modes@example.com') where id = ${id}`;
  const own = cookieOf(await login(service, email, { mode: 'session' }));
  const elsewhere = cookieOf(await login(service, email, { mode: 'session' }));
  const changed = await request(service, 'PATCH', '/users/me?fields=email', {
    token: null,
    headers: { cookie: own, 'content-type': 'application/json' },
    body: JSON.stringify({ password }),
  });
  t.match(changed, { status: 200, json: { data: { email } } });
  await waitFor(async () => (await withCookie(elsewhere)).status === 401, 5_000);
  t.match(await withCookie(own), { status: 200 }, 'who made the change stays in');
  t.match(await login(service, email), failure(401, 'INVALID_CREDENTIALS'));
  t.match(await login(service, email, { password }), { status: 200 });
});

t.test('logins and failed logins make nobody else wait', async (t) => {
  const { email, id } = await makeUser(sql, 'quiet');
  await sql`insert into service_sessions (token, "user", expires) values ('long gone', ${id}, now() - interval '9 days')`;
  const heard: string[] = [];
  const ear = connectSql(databaseUrl);
  t.teardown(() => ear.end());
  const { unlisten } = await ear.listen('service_access', (payload) => heard.push(payload));
  await login(service, email, { password: 'nope' });
  const { refresh_token } = granted(await login(service, email));
  await post(service, '/auth/refresh', { refresh_token });
  await login(service, email, { mode: 'session' });
  await ear`select pg_notify('service_access', 'the end')`;
  await waitFor(async () => heard.includes('the end'), 5_000);
  t.strictSame(heard, ['the end'], 'no instance forgets anybody');
  await unlisten();
  const [gone] = await sql`select count(*)::int as sessions from service_sessions where token = 'long gone'`;
  t.equal(gone?.['sessions'], 0, 'and what has ended long ago is cleared away');
});

t.test('repeated failures lock an account, but never the last administrator out for good', async (t) => {
  const { email, id } = await makeUser(sql, 'guessed');
  const fail = (address: string): Promise<Answer> => login(service, address, { password: 'nope' });
  await sql`update service_settings set auth_login_attempts = 3`;
  await fail(email);
  await fail(email);
  t.match(await login(service, email), { status: 200 }, 'a good attempt begins anew');
  for (let attempt = 0; attempt < 3; attempt++) await fail(email);
  t.match(await login(service, email), failure(401, 'INVALID_CREDENTIALS'));
  const [row] = await sql`select status from service_users where id = ${id}`;
  t.equal(row?.['status'], 'suspended');
  await sql`update service_users set status = 'active' where id = ${id}`;
  await fail(email);
  t.match(await login(service, email), { status: 200 }, 'who is let in again begins anew');

  await sql`update service_users set status = 'archived' where id <> ${id} and status = 'active'`;
  await Promise.all(Array.from({ length: 5 }, () => fail(email)));
  t.match(await login(service, email), failure(401, 'INVALID_CREDENTIALS'), 'has to wait');
  const [last] = await sql`select status from service_users where id = ${id}`;
  t.equal(last?.['status'], 'active');
  await sql`update service_logins set failed_at = now() - interval '2 minutes' where "user" = ${id}`;
  t.match(await login(service, email), { status: 200 });
  await sql`update service_users set status = 'active' where status = 'archived'`;
  await sql`update service_settings set auth_login_attempts = null`;
});

t.test('an application stores the page that it showed last', async (t) => {
  const { id, token } = await makeUser(sql, 'wanderer');
  const track = (body: unknown, carried: string | null = token): Promise<Answer> =>
    request(service, 'PATCH', '/users/me/track/page', {
      token: carried,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  t.match(await track({ last_page: '/content/articles' }), { status: 204 });
  const [tracked] = await sql`select last_page from service_users where id = ${id}`;
  t.equal(tracked?.['last_page'], '/content/articles');
  t.equal((await sql`select from service_activity where item = ${id} and action = 'update'`).length, 0, 'no change');
  t.match(await track({}), failure(400, 'INVALID_PAYLOAD'));
  t.match(await track({ last_page: 'x'.repeat(256) }), failure(400, 'INVALID_PAYLOAD'));
  t.match(await track({ last_page: '/' }, null), failure(401, 'INVALID_CREDENTIALS'));
});

t.test('a second factor', async (t) => {
  const { email, id, token } = await makeUser(sql, 'careful');
  const tfa = (step: string, body: unknown, carried: string | null = token): Promise<Answer> =>
    post(service, `/users/me/tfa/${step}`, body, { token: carried });
  t.match(await tfa('generate', { password: PASSWORD }, null), failure(401, 'INVALID_CREDENTIALS'));
  t.match(await tfa('generate', {}), failure(400, 'INVALID_PAYLOAD'));
  t.match(await tfa('generate', { password: 'nope' }), failure(401, 'INVALID_CREDENTIALS'));
  const made = await tfa('generate', { password: PASSWORD });
  const { secret, otpauth_url } = (made.json as { data: { secret: string; otpauth_url: string } }).data;
  t.match(otpauth_url, /^otpauth:\/\/totp\/Lateral:careful%40example\.com\?.*secret=/);
  t.match(await login(service, email), { status: 200 }, 'generating asks for nothing yet');
  for (const body of [{ secret }, { secret, otp: '000000' }, { secret: 'short', otp: codeOf(secret) }, { otp: '1' }]) {
    t.match(await tfa('enable', body), failure(400, 'INVALID_PAYLOAD'), JSON.stringify(body));
  }
  t.match(await tfa('enable', { secret, otp: codeOf(secret) }), { status: 204 });
  t.match(await tfa('generate', { password: PASSWORD }), failure(400, 'INVALID_PAYLOAD'));

  t.match(await login(service, email), failure(401, 'INVALID_OTP'));
  t.match(await login(service, email, { otp: '000000' }), failure(401, 'INVALID_OTP'));
  t.match(await login(service, email, { otp: 'abcdef' }), failure(401, 'INVALID_OTP'));
  t.match(await login(service, email, { otp: codeOf(secret), password: 'nope' }), failure(401, 'INVALID_CREDENTIALS'));
  const otp = codeOf(secret);
  t.match(await login(service, email, { otp }), { status: 200 });
  t.match(await login(service, email, { otp }), failure(401, 'INVALID_OTP'), 'each is good once');
  t.match(await login(service, email, { otp: codeOf(secret, 1) }), { status: 200 }, 'a clock may be half a minute off');
  t.match(await login(service, email, { otp: codeOf(secret, 4) }), failure(401, 'INVALID_OTP'));
  const [counted] = await sql`select failures from service_logins where "user" = ${id}`;
  t.equal(counted?.['failures'], 1, 'a wrong code is an attempt');

  t.match(await tfa('disable', { otp: '000000' }), failure(400, 'INVALID_PAYLOAD'));
  t.match(await tfa('disable', { otp }), failure(400, 'INVALID_PAYLOAD'), 'a used one');
  await sql`update service_logins set otp_step = null where "user" = ${id}`;
  t.match(await tfa('disable', { otp: codeOf(secret) }), { status: 204 });
  t.match(await tfa('disable', { otp: codeOf(secret) }), failure(400, 'INVALID_PAYLOAD'));
  t.match(await login(service, email), { status: 200 });

  await sql`update service_users set tfa_secret = ${secret} where id = ${id}`;
  const lost = (key: string, carried: string | null): Promise<Answer> =>
    post(service, `/users/${key}/tfa/disable`, {}, { token: carried });
  t.match(await lost(id, null), failure(403, 'FORBIDDEN'));
  t.match(await lost('nobody', ADMIN_TOKEN), failure(403, 'FORBIDDEN'));
  t.match(await lost(id, ADMIN_TOKEN), { status: 204 });
  t.match(await login(service, email), { status: 200 });

  await sql`update service_policies set enforce_tfa = true where name = 'Administrator'`;
  const due = granted(await login(service, email));
  t.equal(claimsOf(due.access_token)['enforce_tfa'], true, 'the client learns that a second factor is due');
  await sql`update service_policies set enforce_tfa = false where name = 'Administrator'`;
});

/** Mails arrive after the answer. */
async function nextMail(to: string): Promise<{ text: string; token: string }> {
  let found: string | undefined;
  await waitFor(async () => {
    const lines = (await readFile(mails, 'utf8')).trim().split('\n');
    found = lines.findLast((line) => line.includes(`"${to}"`));
    return found !== undefined;
  }, 5_000);
  const { text } = JSON.parse(found ?? '{}') as { text: string };
  const token = new URL(/https?:\S+/.exec(text)?.[0] ?? '').searchParams.get('token') ?? '';
  await writeFile(mails, '');
  return { text, token };
}

t.test('a forgotten password is set by a link that works once', async (t) => {
  const { email } = await makeUser(sql, 'forgetful');
  const ask = (body: unknown): Promise<Answer> => post(service, '/auth/password/request', body);
  const reset = (body: unknown): Promise<Answer> => post(service, '/auth/password/reset', body);
  for (const body of [{}, { email: 5 }, { email, reset_url: 'https://evil.example.com/reset' }]) {
    t.match(await ask(body), failure(400, 'INVALID_PAYLOAD'), JSON.stringify(body));
  }
  for (const page of ['https://app.example.com/reset/more', 'https://app.example.com.evil.com/reset', 'javascript:x']) {
    t.match(await ask({ email, reset_url: page }), failure(400, 'INVALID_PAYLOAD'), page);
  }
  t.match(await ask({ email: 'nobody@example.com' }), { status: 204, text: '' });
  t.match(await ask({ email }), { status: 204, text: '' });
  const usual = await nextMail(email);
  t.match(usual.text, 'http://api.example.com/reset-password?token=');
  t.match(await ask({ email, reset_url: 'https://app.example.com/reset?lang=de' }), { status: 204 });
  const { text, token } = await nextMail(email);
  t.match(text, 'https://app.example.com/reset?lang=de&token=');
  t.match(await bearer(token), failure(403, 'INVALID_TOKEN'), 'the link opens nothing else');
  const { access_token } = granted(await login(service, email));
  t.match(await reset({ token: access_token, password: 'new one' }), failure(403, 'INVALID_TOKEN'));
  t.match(await reset({ token: 'x', password: 'new one' }), failure(403, 'INVALID_TOKEN'));
  t.match(await reset({ token }), failure(400, 'INVALID_PAYLOAD'));
  await sql`update service_settings set auth_password_policy = '/^.{8,}$/'`;
  const short = await reset({ token, password: 'short' });
  t.match(short, failure(400, 'FAILED_VALIDATION'));
  t.match(short.json, { errors: [{ extensions: { field: 'password', type: 'regex' } }] });
  const password = 'a new password';
  t.match(await reset({ token, password }), { status: 204 });
  await sql`update service_settings set auth_password_policy = null`;
  t.match(await login(service, email), failure(401, 'INVALID_CREDENTIALS'));
  t.match(await login(service, email, { password }), { status: 200 });
  t.match(await reset({ token, password: 'again and again' }), failure(403, 'FORBIDDEN'), 'used');
  t.match(await reset({ token: usual.token, password: 'again' }), failure(403, 'FORBIDDEN'), 'and so is an older one');
  const claims = { ...claimsOf(token), exp: Math.floor(Date.now() / 1_000) - 5 };
  const old = forge({ alg: 'HS256', typ: 'JWT' }, claims, SECRET);
  t.match(await reset({ token: old, password: 'again' }), failure(401, 'TOKEN_EXPIRED'));
});

t.test('an invitation makes a user who chooses a password', async (t) => {
  const [role] = await sql<{ id: string }[]>`select id from service_roles where name = 'Administrator'`;
  const invite = (body: object, token: string | null = ADMIN_TOKEN): Promise<Answer> =>
    post(service, '/users/invite', body, { token });
  const accept = (body: object): Promise<Answer> => post(service, '/users/invite/accept', body);
  const email = 'invited@example.com';
  const body = { email, role: role?.id };
  t.match(await invite(body, null), failure(403, 'FORBIDDEN'));
  const wrong = [
    { email },
    { role: role?.id },
    { ...body, email: [] },
    { ...body, email: ['x'] },
    { ...body, role: 'x' },
    { ...body, role: '00000000-0000-4000-8000-000000000000' },
    { ...body, invite_url: 'https://evil.example.com' },
  ];
  for (const each of wrong) t.match(await invite(each), failure(400, 'INVALID_PAYLOAD'), JSON.stringify(each));
  t.match(await invite({ ...body, email: [email, 'second@example.com', email] }), { status: 204 });
  const { token } = await nextMail(email);
  t.match(await invite(body), { status: 204 }, 'again sends another link');
  await nextMail(email);
  const [made] = await sql`select status, role from service_users where email = ${email}`;
  t.strictSame({ ...made }, { status: 'invited', role: role?.id });
  t.match(await login(service, email), failure(401, 'INVALID_CREDENTIALS'));
  t.match(await accept({ token: 'x', password: PASSWORD }), failure(403, 'INVALID_TOKEN'));
  t.match(await accept({ token }), failure(400, 'INVALID_PAYLOAD'));
  t.match(await accept({ token, password: PASSWORD }), { status: 204 });
  t.match(await login(service, email), { status: 200 });
  t.match(await accept({ token, password: 'another' }), failure(400, 'INVALID_PAYLOAD'), 'once');
  t.match(await invite(body), { status: 204 }, 'who already exists is left alone');
  const [after] = await sql`select status from service_users where email = ${email}`;
  t.equal(after?.['status'], 'active');
});

t.test('an administrator gets the token of a link, and passes it on without a mail', async (t) => {
  const email = 'linked@example.com';
  const made = await post(service, '/users?fields=id', { email, status: 'invited' }, { token: ADMIN_TOKEN });
  const { id } = (made.json as { data: { id: string } }).data;
  const issue = (key: string, token: string | null = ADMIN_TOKEN): Promise<Answer> =>
    post(service, `/users/${key}/password-token`, {}, { token });
  const { token: usersToken, id: user } = await makeUser(sql, 'no_administrator');
  await sql`update service_users set role = null where id = ${user}`;
  await waitFor(async () => (await issue(user, usersToken)).status === 403, 5_000);
  for (const other of [null, usersToken]) t.match(await issue(id, other), failure(403, 'FORBIDDEN'));
  for (const key of ['x', '%00', '00000000-0000-4000-8000-000000000000'])
    t.match(await issue(key), failure(403, 'FORBIDDEN'), key);
  const invitation = await issue(id);
  t.match(invitation, { status: 200, headers: { 'cache-control': /no-store/ } });
  t.match(invitation.json, { data: { token: String, purpose: 'invite', expires: 604_800_000 } });
  const tokenOf = (answer: Answer): string => (answer.json as { data: { token: string } }).data.token;
  const accept = (path: string, token: string, password: string): Promise<Answer> =>
    post(service, path, { token, password });
  t.match(await accept('/auth/password/reset', tokenOf(invitation), PASSWORD), failure(403, 'INVALID_TOKEN'));
  t.match(await accept('/users/invite/accept', tokenOf(invitation), PASSWORD), { status: 204 });
  t.match(await login(service, email), { status: 200 });
  const reset = await issue(id);
  t.match(reset.json, { data: { purpose: 'reset', expires: 86_400_000 } });
  t.match(await accept('/auth/password/reset', tokenOf(reset), `${PASSWORD}!`), { status: 204 });
  t.match(await accept('/auth/password/reset', tokenOf(reset), PASSWORD), failure(403, 'FORBIDDEN'), 'once');
  await sql`update service_users set provider = 'elsewhere' where email = ${email}`;
  t.match(await issue(id), failure(422, 'UNPROCESSABLE_CONTENT'), 'signs in elsewhere');
  await sql`update service_users set provider = 'default', status = 'suspended' where email = ${email}`;
  t.match(await issue(id), failure(422, 'UNPROCESSABLE_CONTENT'), 'suspended');
});

t.test('mails may lead to the Explorer, unless it is switched off', async (t) => {
  const body = { email: 'nobody@example.com', reset_url: 'http://api.example.com/explorer#/choose-password/reset' };
  t.match(await post(service, '/auth/password/request', body), { status: 204 });
  const off = await startTestService({ ...options, EXPLORER: 'false', PUBLIC_URL: 'http://api.example.com' });
  t.match(await post(off, '/auth/password/request', body), failure(400, 'INVALID_PAYLOAD'));
});

t.test('policies for some addresses count there alone', async (t) => {
  const { id, email, token } = await makeUser(sql, 'travelling');
  const behind = await startTestService({ ...options, IP_TRUST_PROXY: 'loopback' });
  const from = (address: string, carried = token): Promise<Answer> =>
    get(behind, READ, { token: carried, headers: { 'x-forwarded-for': address } });
  const allow = async (list: string | null): Promise<void> => {
    await sql`update service_policies set ip_access = ${list} where name = 'Only here'`;
    await sql`update service_users set role = null where id = ${id}`;
  };
  await sql`
    with policy as (insert into service_policies (name, admin_access) values ('Only here', true) returning id)
    insert into service_access (policy, "user") select id, ${id} from policy`;
  await allow('10.0.0.0/8, 192.0.2.7, 198.51.100.3-198.51.100.9, 2001:db8::/32');
  await waitFor(async () => (await from('203.0.113.1')).status === 401, 5_000);
  const addresses = ['10.1.2.3', '192.0.2.7', '198.51.100.5', '::ffff:10.1.2.3', '2001:db8::5', '2001:0db8:0::0001'];
  for (const address of addresses) {
    t.match(await from(address), { status: 200 }, address);
    t.match(await from(`${address}, 127.0.0.1`), { status: 200 }, `${address}, by another proxy`);
  }
  for (const address of ['192.0.2.8', '198.51.100.10', '2001:db9::1', '10.1.2.3, 203.0.113.1', 'nonsense', '']) {
    t.match(await from(address), failure(401, 'INVALID_IP'), address);
  }
  t.match(await get(service, READ, { token, headers: { 'x-forwarded-for': '10.1.2.3' } }), failure(401, 'INVALID_IP'));
  const enter = (address: string): Promise<Answer> =>
    login(behind, email, {}, { headers: { 'x-forwarded-for': address } });
  t.match(await enter('203.0.113.1'), failure(401, 'INVALID_IP'));
  const { access_token } = granted(await enter('10.1.2.3'));
  t.match(await from('10.1.2.3', access_token), { status: 200 });
  t.match(await from('203.0.113.1', access_token), failure(401, 'INVALID_IP'));
  await allow('not an address');
  await waitFor(async () => (await from('10.1.2.3')).status === 401, 5_000);
  await allow(null);
  await waitFor(async () => (await from('203.0.113.1')).status === 200, 5_000);
});

t.test('the secret is chosen, kept, or made up with a warning', async (t) => {
  const said: string[] = [];
  const observe = (event: { readonly kind: string }): void => void said.push(event.kind);
  const folder = await makeFolder();
  t.equal(await openSecret('chosen and long enough', folder, observe), 'chosen and long enough');
  t.strictSame(said, []);
  await openSecret('short', null, observe);
  const kept = await openSecret(null, folder, observe);
  t.ok(kept.length >= 32);
  t.equal(await openSecret(null, folder, observe), kept, 'the same after a restart');
  t.equal((await stat(join(folder, 'lateral.secret'))).mode & 0o777, 0o600);
  await writeFile(join(folder, 'lateral.secret'), '');
  t.ok((await openSecret(null, folder, observe)).length >= 32, 'an interrupted start leaves no empty key');
  t.not(await openSecret(null, null, observe), await openSecret(null, null, observe));
  t.strictSame(said, ['secret-short', 'secret-made-up', 'secret-made-up']);
});

t.test('behind TLS cookies are for TLS alone', async (t) => {
  const { email } = await makeUser(sql, 'secure');
  const headers = { 'x-forwarded-proto': 'https' };
  const enter = async (place: { readonly url: string }, mode = 'session'): Promise<string | undefined> =>
    (await login(place, email, { mode }, { headers })).headers['set-cookie']?.[0];
  t.notMatch(await enter(service), /Secure/, 'anybody can write a header');
  const proxied = await startTestService({ ...options, IP_TRUST_PROXY: '1' });
  t.match(await enter(proxied), /; Secure;/);
  t.match(await enter(proxied, 'cookie'), /; Secure;/);
  const named = await startTestService({
    ...options,
    PUBLIC_URL: 'https://api.example.com',
    SESSION_COOKIE_NAME: 'mine',
    SESSION_COOKIE_SAME_SITE: 'strict',
    SESSION_COOKIE_DOMAIN: 'example.com',
  });
  t.match(
    await enter(named),
    /^mine=\S+; Max-Age=86400; Path=\/; Domain=example.com; HttpOnly; Secure; SameSite=Strict$/,
  );
});

t.test(
  'where the binary of argon2 is left out, hashes are made and read in WebAssembly: they are the same',
  async (t) => {
    const portable = await loadPortable();
    const { hash, verify } = await argon2();
    const [made, native] = await Promise.all([portable.hash(PASSWORD), hash(PASSWORD)]);
    t.ok(await verify(made, PASSWORD));
    t.ok(await portable.verify(native, PASSWORD));
    t.notOk(await portable.verify(native, `${PASSWORD}!`));
    t.equal(made.slice(0, 31), native.slice(0, 31), 'of the same cost');
    await t.rejects(portable.verify('$argon2id$nonsense', PASSWORD));
  },
);
