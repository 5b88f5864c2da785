/** Strangers who register: what the settings allow, the mail that verifies an address, and that nobody learns who is there. */
import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { startService } from '../../../src/app/start.js';
import { mailbox } from '../../support/mailbox.js';
import {
  type Answer,
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';
import { failure, granted, PASSWORD, post, SECRET } from '../../support/users.js';

t.setTimeout(120_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'registration');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const mails = await mailbox();
const options = {
  databaseUrl,
  SECRET,
  LOGIN_STALL_TIME: '0',
  REGISTER_STALL_TIME: '0',
  EMAIL_TRANSPORT: mails.transport,
};
const service = await startTestService({
  ...options,
  RATE_LIMITER_REGISTRATION_ENABLED: 'false',
  USER_REGISTER_URL_ALLOW_LIST: 'https://app.example.com/verify',
});

const register = (body: object, place: { url: string } = service): Promise<Answer> =>
  post(place, '/users/register', { password: PASSWORD, ...body });
const login = (email: string): Promise<Answer> => post(service, '/auth/login', { email, password: PASSWORD });

async function set(settings: object): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(service, 'PATCH', '/settings', { headers, body: JSON.stringify(settings) });
}

const pathOf = (link: string): string => new URL(link).pathname + new URL(link).search;

t.test('registration is off until the settings allow it', async (t) => {
  t.match(await register({ email: 'early@example.com' }), failure(403, 'FORBIDDEN'));
  t.equal((await sql`select from service_users where email = 'early@example.com'`).length, 0);
  t.match(await get(service, '/server/info', { token: null }), {
    json: { data: { project: { public_registration: false, public_registration_verify_email: true } } },
  });
});

t.test('a new user verifies the address by the link in a mail, and logs in', async (t) => {
  const [role] = await sql<{ id: string }[]>`insert into service_roles (name) values ('Reader') returning id`;
  t.equal((await set({ public_registration: true, public_registration_role: role?.id })).status, 200);
  const email = 'New.User@example.com';
  t.match(await register({ email, first_name: 'New', last_name: null }), { status: 204, text: '' });
  t.match(await sql`select status, role, first_name, password from service_users where email = ${email}`, [
    { status: 'unverified', role: role?.id, first_name: 'New', password: /^\$argon2/ },
  ]);
  t.match(await login(email), failure(401, 'INVALID_CREDENTIALS'), 'not before the address is verified');
  t.match(await register({ email: email.toLowerCase() }), { status: 204 }, 'asks for another link');
  const [first = '', second = ''] = await mails.links(email);
  t.ok(first.startsWith(`${service.url}/users/register/verify-email?token=`));
  for (const link of [second, first]) {
    const answer = await get(service, pathOf(link), { token: null });
    t.match(answer, { status: 302, headers: { location: `${service.url}/users/register/verified` } });
  }
  t.equal((await get(service, '/users/register/verified', { token: null })).status, 200);
  t.ok(granted(await login(email)).access_token);
  t.match(await register({ email }), { status: 204 });
  t.equal((await mails.links(email)).length, 2, 'who already exists gets no mail');
});

t.test('a link verifies the address for the password that was registered with it', async (t) => {
  const email = 'owned@example.com';
  const come = (password: string): Promise<Answer> => post(service, '/auth/login', { email, password });
  const open = (link: string): Promise<Answer> => get(service, pathOf(link), { token: null });
  const state = async (): Promise<unknown> =>
    (await sql`select status, first_name from service_users where email = ${email}`)[0];
  t.match(await register({ email, password: 'of a stranger', first_name: 'Stranger' }), { status: 204 });
  const strange = await mails.link(email);
  t.match(await register({ email, password: 'of the owner' }), { status: 204 });
  const own = await mails.link(email);
  t.strictSame(await state(), { status: 'unverified', first_name: null }, 'the last registration counts');
  t.match(await open(strange), failure(403, 'FORBIDDEN'), 'links of those before do not');
  t.strictSame(await state(), { status: 'unverified', first_name: null });
  t.match(await open(own), { status: 302 });
  t.match(await come('of a stranger'), failure(401, 'INVALID_CREDENTIALS'));
  t.ok(granted(await come('of the owner')).access_token);
  t.match(await register({ email, password: 'of a stranger', first_name: 'Stranger' }), { status: 204 });
  t.match(await open(strange), failure(403, 'FORBIDDEN'));
  t.ok(granted(await come('of the owner')).access_token, 'a verified account is replaced by nobody');
  t.strictSame(await state(), { status: 'active', first_name: null });
  t.equal((await mails.links(email)).length, 2);
});

t.test('links that are no good, and pages that may be linked to', async (t) => {
  const email = 'pages@example.com';
  t.match(await register({ email, verification_url: 'https://evil.example.com/' }), failure(400, 'INVALID_PAYLOAD'));
  t.match(await register({ email, verification_url: 'https://app.example.com/verify' }), { status: 204 });
  const [link = ''] = await mails.links(email);
  t.match(link, /^https:\/\/app\.example\.com\/verify\?token=/);
  const token = new URL(link).searchParams.get('token') ?? '';
  const verify = (text: string): Promise<Answer> =>
    get(service, `/users/register/verify-email${text}`, { token: null });
  t.match(await verify(''), failure(400, 'INVALID_PAYLOAD'));
  t.match(await verify('?token=x'), failure(403, 'INVALID_TOKEN'));
  t.match(await verify(`?token=${token.slice(0, -3)}`), failure(403, 'INVALID_TOKEN'));
  t.match(await post(service, '/auth/password/reset', { token, password: 'x' }), failure(403, 'INVALID_TOKEN'));
  await sql`update service_users set status = 'suspended' where email = ${email}`;
  t.match(await verify(`?token=${token}`), failure(403, 'FORBIDDEN'), 'a suspended user stays suspended');
  await sql`update service_users set status = 'unverified' where email = ${email}`;
  await set({ project_url: 'https://project.example.com/welcome' });
  t.match(await verify(`?token=${token}`), {
    status: 302,
    headers: { location: 'https://project.example.com/welcome', 'cache-control': 'no-store' },
  });
});

t.test('without verification a user is active at once; the filter and the policy of passwords hold', async (t) => {
  t.match(await set({ public_registration_email_filter: { email: { _nope: 1 } } }), failure(400, 'INVALID_PAYLOAD'));
  t.match(await set({ public_registration_email_filter: { nope: { _eq: 1 } } }), failure(400, 'INVALID_PAYLOAD'));
  await set({
    public_registration_verify_email: false,
    public_registration_email_filter: { email: { _ends_with: '@example.com' } },
    auth_password_policy: '/^.{8,}$/',
  });
  t.match(await register({ email: 'at.once@example.com' }), { status: 204 });
  t.ok(granted(await login('at.once@example.com')).access_token);
  t.match(await register({ email: 'other@example.org' }), failure(403, 'FORBIDDEN'));
  t.match(await register({ email: 'short@example.com', password: 'short' }), failure(400, 'FAILED_VALIDATION'));
  for (const body of [{ email: 'no address' }, { email: 5 }, {}, { email: 'a@example.com', password: null }])
    t.match(await register(body), failure(400, 'INVALID_PAYLOAD'), JSON.stringify(body));
  t.equal((await sql`select from service_users where email like 'short%' or email like 'other%'`).length, 0);
});

t.test('a role with every right is not given away', async (t) => {
  const [role] = await sql<{ id: string }[]>`select id from service_roles where name = 'Administrator'`;
  const [below] = await sql<{ id: string }[]>`
    insert into service_roles (name, parent) values ('Below', ${role?.id ?? null}) returning id`;
  const [later] = await sql<{ id: string }[]>`insert into service_roles (name) values ('Later') returning id`;
  t.equal((await set({ public_registration_role: later?.id })).status, 200);
  for (const id of [role?.id, below?.id]) {
    const refused = await set({ public_registration_role: id });
    t.match(refused, failure(400, 'INVALID_PAYLOAD'));
    t.match(refused.text, /public_registration_role.* must be a role without admin access/);
  }
  t.match(await sql`select public_registration_role as role from service_settings`, [{ role: later?.id }]);
  t.match(await register({ email: 'early.bird@example.com' }), { status: 204 });

  await sql`update service_roles set parent = ${role?.id ?? null} where id = ${later?.id ?? null}`;
  const events: { readonly kind: string }[] = [];
  const config = readConfig({ ...options, PORT: '0', WORKERS: '1', DATABASE_URL: databaseUrl });
  const watched = await startService(
    config,
    (event) => void events.push(event),
    () => {},
  );
  t.teardown(() => watched.stop());
  t.match(await register({ email: 'chief@example.com' }, watched), failure(403, 'FORBIDDEN'));
  t.match(
    events.filter(({ kind }) => kind === 'registration-refused'),
    [{ role: later?.id }],
    'who runs the service learns why',
  );
  t.equal((await sql`select from service_users where email = 'chief@example.com'`).length, 0);
  await set({ public_registration_role: null });
});

t.test('taken and free addresses look the same, and few may be tried', async (t) => {
  const limited = await startTestService({ ...options, REGISTER_STALL_TIME: '300ms' });
  const begun = performance.now();
  const taken = await register({ email: 'AT.ONCE@example.com' }, limited);
  t.ok(performance.now() - begun >= 295, 'takes its time');
  const free = await register({ email: 'free@example.com' }, limited);
  const shown = ({ status, text, headers }: Answer): object => [status, text, Object.keys(headers)];
  t.strictSame(shown(taken), shown(free));
  t.equal((await sql`select from service_users where lower(email) = 'at.once@example.com'`).length, 1);
  for (let count = 0; count < 3; count++) await register({ email: 'free@example.com' }, limited);
  t.match(await register({ email: 'one.more@example.com' }, limited), failure(429, 'REQUESTS_EXCEEDED'));
});

t.test('the same in GraphQL', async (t) => {
  await set({ public_registration_verify_email: true });
  const ask = async (query: string): Promise<unknown> => (await post(service, '/graphql/system', { query })).json;
  t.strictSame(await ask(`mutation { users_register(email: "ql@example.com", password: "${PASSWORD}") }`), {
    data: { users_register: true },
  });
  const [link = ''] = await mails.links('ql@example.com');
  const token = new URL(link).searchParams.get('token');
  t.strictSame(await ask(`mutation { users_register_verify(token: "${token}") }`), {
    data: { users_register_verify: true },
  });
  t.ok(granted(await login('ql@example.com')).access_token);
});
