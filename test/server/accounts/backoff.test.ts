/** Failed logins slow the next ones down: nobody is suspended, nobody is kept out by others, and nothing tells who exists. */
import t from 'tap';
import { LoginBackoff } from '../../../src/server/accounts/login-backoff.js';
import {
  type Answer,
  connectSql,
  createLibrary,
  get,
  type RequestOptions,
  startDatabase,
  startTestService,
} from '../../support/service.js';
import { failure, login, makeUser } from '../../support/users.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'backoff');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const proxied = { databaseUrl, IP_TRUST_PROXY: 'loopback', LOGIN_STALL_TIME: '0' };
const from = (address: string): RequestOptions => ({ headers: { 'x-forwarded-for': address } });
const statusOf = async (answer: Promise<Answer>): Promise<number> => (await answer).status;

t.test('no number of failures suspends a user by default', async (t) => {
  const service = await startTestService({ ...proxied, LOGIN_BACKOFF_MAX: '0' });
  const { email, id } = await makeUser(sql, 'hated');
  for (let round = 0; round < 4; round++) {
    const guesses = Array.from({ length: 10 }, (_, n) =>
      login(service, email, { password: 'nope' }, from(`192.0.2.${10 * round + n}`)),
    );
    for (const guess of guesses) t.match(await guess, failure(401, 'INVALID_CREDENTIALS'));
  }
  const [row] = await sql`select status from service_users where id = ${id}`;
  t.equal(row?.['status'], 'active');
  t.match(await login(service, email, {}, from('192.0.2.1')), { status: 200 });
});

t.test('the former default of an installation goes, a choice stays', async (t) => {
  for (const [before, after] of [
    [25, null],
    [7, 7],
  ] as const) {
    await sql`update service_settings set auth_login_attempts = ${before}`;
    await sql`delete from service_migrations where name = '010_backoff.sql'`;
    await (await startTestService({ databaseUrl })).stop();
    const [row] = await sql`select auth_login_attempts from service_settings`;
    t.equal(row?.['auth_login_attempts'], after, `${before}`);
  }
  await sql`update service_settings set auth_login_attempts = null`;
});

t.test('an address that fails has to wait, the same for accounts that do not exist', async (t) => {
  const { email } = await makeUser(sql, 'guessed');
  const service = await startTestService({ ...proxied, LOGIN_BACKOFF_AFTER: '3', LOGIN_BACKOFF_MAX: '1h' });
  const guess = (address: string, account: string): Promise<number> =>
    statusOf(login(service, account, { password: 'nope' }, from(address)));
  const seen: Record<string, number[]> = {};
  for (const [address, account] of [
    ['198.51.100.1', email],
    ['198.51.100.2', 'nobody@example.com'],
  ] as const) {
    const statuses: number[] = [];
    // Together, so that no time passes between them.
    statuses.push(...(await Promise.all([1, 2, 3].map(() => guess(address, account)))));
    for (let round = 0; round < 40; round++) statuses.push(await guess(address, account));
    seen[account] = [...new Set(statuses)];
    t.ok(
      statuses.filter((status) => status === 401).length < 15,
      'a flood gets little further than the first failures',
    );
  }
  t.same(seen[email], [401, 429]);
  t.same(seen['nobody@example.com'], [401, 429]);
  const refused = await login(service, email, {}, from('198.51.100.1'));
  t.match(refused, failure(429, 'REQUESTS_EXCEEDED'), 'also with the password');
  t.match(refused.headers['retry-after'], /^\d+$/);
  t.match(await get(service, '/items/tags', from('198.51.100.1')), { status: 200 }, 'all else goes on');
});

t.test('an account is guessed at more slowly with each failure, wherever the guesses come from', async (t) => {
  const { email } = await makeUser(sql, 'wanted');
  const service = await startTestService({ ...proxied, LOGIN_BACKOFF_AFTER: '3' });
  for (const [at, account] of [email, 'no-one@example.com'].entries()) {
    const waits: number[] = [];
    for (let turn = 0; turn < 5; turn++) {
      const start = performance.now();
      const source = from(`192.0.2.${100 + 10 * at + turn}`);
      t.match(await login(service, account, { password: 'nope' }, source), failure(401, 'INVALID_CREDENTIALS'));
      waits.push(Math.round(performance.now() - start));
    }
    // A turn is so long after the one before it began.
    const [third = 0, fourth = 0, fifth = 0] = waits.slice(2);
    t.ok(third + fourth > 450 && fourth + fifth > 950, `${account}: ${waits.join(', ')} ms`);
  }
});

t.test('strangers who fail from everywhere keep nobody out', async (t) => {
  const { email } = await makeUser(sql, 'besieged');
  const service = await startTestService({ ...proxied, LOGIN_BACKOFF_AFTER: '3', RATE_LIMITER_LOGIN_ENABLED: 'false' });
  t.match(await login(service, email, {}, from('203.0.113.1')), { status: 200 }, 'the owner was here before');
  let attacking = true;
  const attack = async (address: string): Promise<number> => {
    let refused = 0;
    while (attacking)
      if ((await statusOf(login(service, email, { password: 'nope' }, from(address)))) === 429) refused++;
    return refused;
  };
  const attackers = Array.from({ length: 12 }, (_, n) => attack(`198.51.100.${100 + n}`));
  // They have failed often enough by then.
  while ((await statusOf(login(service, email, { password: 'nope' }, from('198.51.100.99')))) !== 429);
  t.match(await login(service, email, {}, from('203.0.113.1')), { status: 200 }, 'from where the owner was before');
  t.match(await login(service, email, {}, from('203.0.113.2')), { status: 200 }, 'from where nobody has failed');
  t.match(await login(service, email, { password: 'typo' }, from('203.0.113.3')), { status: 401 });
  t.match(await login(service, email, {}, from('203.0.113.3')), { status: 200 }, 'also with a slip');
  attacking = false;
  t.ok(
    (await Promise.all(attackers)).every((refused) => refused > 0),
    'while all who guess are held up',
  );
});

for (const threads of ['1', '2'])
  t.test(`an honest login is served next to 270 wrong ones from 30 addresses, ${threads} threads`, async (t) => {
    const { email } = await makeUser(sql, `patient-${threads}`);
    const service = await startTestService({ ...proxied, LOGIN_STALL_TIME: '500ms', WORKERS: threads });
    const first = performance.now();
    t.match(await login(service, email, {}, from('203.0.113.9')), { status: 200 });
    const start = performance.now();
    // About four times the time on a quiet machine. Hashes take longer next to other tests.
    const longest = Math.max(2_000, 5 * (start - first));
    const passed = (): number => Math.round(performance.now() - start);
    const wrong = Array.from({ length: 270 }, async (_, n) => {
      const guess = { password: 'nope' };
      const answer = await login(service, `nobody-${n}@example.com`, guess, from(`198.51.100.${n % 30}`));
      return { status: answer.status, retry: answer.headers['retry-after'], after: passed() };
    });
    await Promise.race(wrong);
    const honest: number[] = [];
    for (const [n, address] of ['203.0.113.10', '203.0.113.11', '203.0.113.12'].entries()) {
      const begun = performance.now();
      t.match(await login(service, email, {}, from(address)), { status: 200 }, `honest login ${n}`);
      honest.push(Math.round(performance.now() - begun));
    }
    const answers = await Promise.all(wrong);
    const last = Math.max(...answers.map(({ after }) => after));
    t.ok(
      honest.every((ms) => ms < longest),
      `honest: ${honest.join(', ')} ms, alone ${Math.round(start - first)} ms, the last wrong one after ${last} ms`,
    );
    t.ok(last < 15_000, `each has an answer in time: ${last} ms`);
    const refused = answers.filter(({ status }) => status !== 401);
    t.ok(
      refused.length > 0 &&
        refused.every(({ status, retry }) => (status === 429 || status === 503) && Number(retry) >= 1),
      `${refused.length} were refused`,
    );
  });

t.test(
  'threads count together',
  { skip: process.platform !== 'linux' && 'threads share a port on Linux' },
  async (t) => {
    const { email } = await makeUser(sql, 'spread');
    const options = { LOGIN_BACKOFF_MAX: '1h', RATE_LIMITER_LOGIN_ENABLED: 'false' };
    const service = await startTestService({ ...proxied, ...options, WORKERS: '2' });
    const guess = (): Promise<number> => statusOf(login(service, email, { password: 'nope' }, from('198.51.100.7')));
    const statuses = await Promise.all(Array.from({ length: 40 }, guess));
    // Ten are free, and a few more have their turn while the others are sent; two that count apart would let twenty pass.
    t.ok(statuses.filter((status) => status === 401).length < 20, String(statuses));
  },
);

/** With a clock of its own; answers the milliseconds of the refusal, or null. */
function clocked(
  after: number,
  maxWaitMs: number,
): { pass(ms: number): void; fail(address: string): Promise<number | null>; backoff: LoginBackoff } {
  let now = 1_000_000;
  const backoff = new LoginBackoff({ after, maxWaitMs }, () => now);
  return {
    backoff,
    pass: (ms) => {
      now += ms;
    },
    fail: async (address) => {
      try {
        // An account of its own for each attempt: only the address counts.
        await backoff.enter({ address, account: `${Math.random()}@example.com` });
        return null;
      } catch (error) {
        return Number(/after (\d+)ms/.exec((error as Error).message)?.[1]);
      }
    },
  };
}

t.test('waits double up to the longest, and failures are forgotten', async (t) => {
  const { fail, pass } = clocked(2, 4_000);
  t.equal(await fail('192.0.2.1'), null);
  t.equal(await fail('192.0.2.1'), null);
  for (const wait of [500, 1_000, 2_000, 4_000, 4_000]) {
    t.equal(await fail('192.0.2.1'), wait);
    pass(wait - 1);
    t.equal(await fail('192.0.2.1'), 1, 'a refused attempt makes it no longer');
    pass(1);
    t.equal(await fail('192.0.2.1'), null);
  }
  t.equal(await fail('192.0.2.2'), null, 'another address is another matter');
  pass(30_000 * 6);
  t.equal(await fail('192.0.2.1'), null);
  t.equal(await fail('192.0.2.1'), 500);
  pass(30_000 * 10);
  t.equal(await fail('192.0.2.1'), null);
  t.equal(await fail('192.0.2.1'), null);
});

t.test('spellings that the database takes for one account are counted as one', async (t) => {
  const spellings = [
    'info.\u03c3@example.com',
    'INFO.\u03a3@example.com',
    '\u0130nfo.\u03a3@example.com',
    '\uff29nfo.\u03c3@example.com',
  ];
  const { backoff } = clocked(2, 3_600_000);
  const attempts = spellings.map((account) => ({ address: '192.0.2.1', account }));
  const [first = { address: '', account: '' }, ...others] = attempts;
  for (const attempt of others) {
    await backoff.enter(first);
    backoff.settle(first, 'good');
    await backoff.enter(attempt);
    backoff.settle(attempt, 'void');
  }
  // From where the account came in before nobody is refused for what others did there: only the same account is known.
  for (let count = 0; count < 2; count++) await backoff.enter({ address: '192.0.2.1', account: `${count}` });
  await t.rejects(backoff.enter({ address: '192.0.2.1', account: 'other' }), /Too many requests/);
  for (const attempt of others) {
    await t.resolves(backoff.enter(attempt), attempt.account);
    backoff.settle(attempt, 'good');
  }
});

t.test('attempts that did not fail are not counted', async (t) => {
  const { backoff, fail } = clocked(2, 4_000);
  const attempt = { address: '192.0.2.1', account: 'owner@example.com' };
  for (let count = 0; count < 20; count++) {
    await backoff.enter(attempt);
    backoff.settle(attempt, count % 2 === 0 ? 'good' : 'void');
  }
  t.equal(await fail('192.0.2.1'), null);
  t.equal(await fail('192.0.2.1'), null);
  t.equal(await fail('192.0.2.1'), 500);
  await backoff.enter(attempt);
  t.pass('an account that came in from there before does not wait for others there');
  for (let count = 0; count < 2; count++) await backoff.enter(attempt).catch(() => {});
  await t.rejects(backoff.enter(attempt), /Too many requests/, 'until it is guessed at from there');
});
