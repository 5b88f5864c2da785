/** Access tokens of foreign issuers: whom they name, and what is refused. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, exportSPKI, generateKeyPair, type JWTPayload, SignJWT, UnsecuredJWT } from 'jose';
import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import {
  type Answer,
  connectSql,
  createLibrary,
  get,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { failure } from '../../support/users.js';

const ROLE = '6f1f3f43-0000-4000-8000-000000000001';
const EDITOR = '6f1f3f43-0000-4000-8000-000000000002';

type Keys = Awaited<ReturnType<typeof generateKeyPair>>;

/** Publishes keys as an issuer does; `published` may change at any time. */
async function startIssuer(): Promise<{ url: string; published: object[]; fetches: () => number; down: boolean }> {
  let fetches = 0;
  const issuer = { url: '', published: [] as object[], fetches: () => fetches, down: false };
  const server = createServer((_, response) => {
    fetches++;
    response.writeHead(issuer.down ? 500 : 200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ keys: issuer.published }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  issuer.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return issuer;
}

const publish = async ({ publicKey }: Keys, kid: string): Promise<object> => ({
  ...(await exportJWK(publicKey)),
  kid,
  alg: 'RS256',
  use: 'sig',
});

const first = await generateKeyPair('RS256', { extractable: true });
const second = await generateKeyPair('RS256', { extractable: true });
const known = await startIssuer();
const creating = await startIssuer();
const silent = await startIssuer();
known.published = [await publish(first, 'one')];
creating.published = [await publish(first, 'one')];
silent.down = true;

const issuers = [
  { issuer: known.url, jwks_url: `${known.url}/keys`, audience: 'lateral', user: 'email' },
  {
    issuer: creating.url,
    name: 'staff',
    jwks_url: `${creating.url}/keys`,
    audience: ['lateral', 'other'],
    create: true,
    role: 'Reader',
    role_claim: 'position',
  },
  { issuer: silent.url, jwks_url: `${silent.url}/keys`, audience: 'lateral' },
];

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'foreign_tokens');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql
  .unsafe(`
  insert into service_roles (id, name) values ('${ROLE}', 'Reader'), ('${EDITOR}', 'Editor');
  insert into service_users (email, role, status) values
    ('ann@example.com', '${ROLE}', 'active'), ('gone@example.com', '${ROLE}', 'suspended');`)
  .simple();
const service = await startTestService({ databaseUrl, JWT_ISSUERS: JSON.stringify(issuers) });

interface Signing {
  readonly keys?: Keys;
  readonly kid?: string;
  readonly lifetime?: string;
  readonly audience?: string;
}

function sign(
  issuer: { url: string },
  claims: JWTPayload,
  { keys = first, kid = 'one', lifetime = '5m', audience = 'lateral' }: Signing = {},
): Promise<string> {
  return new SignJWT(claims)
    .setProtectedHeader({ alg: 'RS256', kid })
    .setIssuer(issuer.url)
    .setAudience(audience)
    .setIssuedAt()
    .setExpirationTime(lifetime)
    .sign(keys.privateKey);
}

const me = (token: string): Promise<Answer> => get(service, '/users/me?fields=id', { token });
const refused = (code: string, status = code === 'INVALID_TOKEN' ? 403 : 401): object => failure(status, code);
const ann = { sub: 'a-1', email: 'Ann@Example.com', email_verified: true };

t.test('a user is found by the address that the issuer has verified', async (t) => {
  const [{ id } = { id: '' }] = await sql`select id from service_users where email = 'ann@example.com'`;
  t.match(await me(await sign(known, ann)), { status: 200, json: { data: { id } } });
  t.match(await me(await sign(known, { ...ann, email_verified: false })), refused('INVALID_CREDENTIALS'));
  t.match(await me(await sign(known, { sub: 'a-1', email: ann.email })), refused('INVALID_CREDENTIALS'));
  t.match(await me(await sign(known, { ...ann, email: 'nobody@example.com' })), refused('INVALID_CREDENTIALS'));
  t.match(await me(await sign(known, { ...ann, email: 'gone@example.com' })), refused('INVALID_CREDENTIALS'));
});

t.test('a user who is not known is created once, with the role of the issuer or of the token', async (t) => {
  const claims = { sub: 'b-1', email: 'ben@example.com', email_verified: true, given_name: 'Ben', family_name: 'B' };
  const token = await sign(creating, claims);
  const answers = await Promise.all([1, 2, 3].map(() => me(token)));
  for (const answer of answers) t.equal(answer.status, 200);
  const read = async (): Promise<unknown[]> => [
    ...(await sql`select email, first_name, last_name, role, provider, status from service_users
      where external_identifier = 'b-1'`),
  ];
  const ben = {
    email: claims.email,
    first_name: 'Ben',
    last_name: 'B',
    role: ROLE,
    provider: 'staff',
    status: 'active',
  };
  t.strictSame(await read(), [ben]);
  t.equal((await me(await sign(creating, { ...claims, position: 'Editor' }))).status, 200);
  t.strictSame(await read(), [{ ...ben, role: EDITOR }], 'the role follows the token');
  t.match(await me(await sign(creating, { ...claims, position: 'Nobody' })), refused('FORBIDDEN', 403));
  t.match(await me(await sign(creating, { ...claims, position: 7 })), refused('INVALID_TOKEN'));
  const [logged] = await sql`select count(*)::int as n from service_activity where collection = 'service_users'`;
  t.equal(logged?.['n'], 2, 'both writes are in the activity log');
  await sql`update service_users set status = 'suspended' where external_identifier = 'b-1'`;
  await sql`notify service_access`;
  t.match(await me(await sign(creating, { ...claims, n: 1 })), refused('INVALID_CREDENTIALS'));
});

t.test('an address that a local user has makes nobody that user', async (t) => {
  const token = await sign(creating, { sub: 'thief', email: 'ann@example.com', email_verified: true });
  t.match(await me(token), refused('FORBIDDEN', 403));
});

t.test('forged and foreign tokens are refused', async (t) => {
  const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const stranger = await generateKeyPair('RS256');
  const publicKey = new TextEncoder().encode(await exportSPKI(first.publicKey));
  const confused = new SignJWT(ann).setProtectedHeader({ alg: 'HS256', kid: 'one' }).setIssuer(known.url);
  const [head = '', , signature = ''] = (await sign(known, ann)).split('.');
  const now = Math.floor(Date.now() / 1_000);
  const changed = encode({ ...ann, iss: known.url, aud: 'lateral', exp: now + 60, email: 'admin@example.com' });
  const tokens: Record<string, string | Promise<string>> = {
    'the public key as a secret': confused.setAudience('lateral').setExpirationTime('5m').sign(publicKey),
    'no signature': new UnsecuredJWT(ann).setIssuer(known.url).setAudience('lateral').setExpirationTime('5m').encode(),
    'a key of somebody else': sign(known, ann, { keys: stranger }),
    'another audience': sign(known, ann, { audience: 'another' }),
    'the audience of another issuer': sign(known, ann, { audience: 'other' }),
    'changed claims': `${head}.${changed}.${signature}`,
    'no subject': sign(creating, { email: ann.email, email_verified: true }),
  };
  for (const [name, token] of Object.entries(tokens)) t.match(await me(await token), refused('INVALID_TOKEN'), name);
  t.match(await me(await sign(known, ann, { lifetime: '-1m' })), refused('TOKEN_EXPIRED'));
  t.match(await me(await sign({ url: 'https://stranger' }, ann)), refused('INVALID_CREDENTIALS'), 'an unknown issuer');
  t.match(await me(await sign(silent, ann)), refused('SERVICE_UNAVAILABLE', 503), 'an issuer without keys');
  silent.down = false;
  silent.published = [await publish(first, 'one')];
  t.match(await me(await sign(silent, ann)), refused('INVALID_CREDENTIALS'), 'a user whom it does not create');
});

t.test('keys change without a restart', { timeout: 40_000 }, async (t) => {
  creating.published = [await publish(second, 'two')];
  const token = await sign(creating, { sub: 'c-1' }, { keys: second, kid: 'two' });
  // Keys are fetched at most every five seconds, however many tokens name unknown ones.
  await waitFor(async () => (await me(token)).status === 200, 15_000);
  t.ok(creating.fetches() <= 3, `${creating.fetches()} fetches`);
  t.match(await me(await sign(creating, { sub: 'c-2' })), refused('INVALID_TOKEN'), 'the old key counts no more');
});

t.test('options that cannot work are refused', async (t) => {
  const entry = { issuer: 'https://id.example.com', jwks_url: 'https://id.example.com/keys', audience: 'a' };
  const wrong: [object, RegExp][] = [
    [{ ...entry, jwks_url: 'http://id.example.com/keys' }, /"jwks_url" must begin with https/],
    [{ ...entry, audience: [] }, /"audience" must be a string or a list/],
    [{ ...entry, issuer: 'service' }, /must not be "service"/],
    [{ ...entry, name: 'default' }, /must not be "default"/],
    [{ ...entry, user: 'name' }, /"user" must be "subject" or "email"/],
    [{ ...entry, algorithm: 'HS256' }, /unknown member "algorithm"/],
  ];
  for (const [value, message] of wrong)
    t.throws(() => readConfig({ JWT_ISSUERS: JSON.stringify([value]) }), { message });
  t.throws(() => readConfig({ JWT_ISSUERS: JSON.stringify([entry, entry]) }), { message: /each "issuer" once/ });
  t.throws(() => readConfig({ JWT_ISSUERS: '{' }), { message: /must be a JSON list/ });
});
