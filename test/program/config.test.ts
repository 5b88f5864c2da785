/** Options: what an environment and flags may say, and how a wrong word is answered. */
import { availableParallelism } from 'node:os';
import t from 'tap';
import type { OptionName } from '../../src/app/option-names.js';
import { type FullConfig, options, readConfig } from '../../src/app/options.js';
import { readOwnOptions } from '../../src/features/traffic/own-options.js';
import { resolveConnection } from '../../src/server/config/connection-settings.js';
import { workersFor } from '../../src/server/config/option-kinds.js';
import { joinValues } from '../../src/server/config/words.js';

t.test('without any word the service has its defaults', async (t) => {
  const config = readConfig({});
  t.match(config, {
    HOST: '127.0.0.1',
    PORT: 8055,
    DATABASE_URL: null,
    DATABASE_SCHEMA: 'public',
    DATA_DIR: './data',
    DEMO_DATA: true,
    ADMIN_EMAIL: 'admin@example.com',
    ADMIN_PASSWORD: null,
    ADMIN_TOKEN: null,
    LOG_LEVEL: 'info',
    QUERY_LIMIT_DEFAULT: 100,
    QUERY_LIMIT_MAX: null,
    MAX_RELATIONAL_DEPTH: 10,
    MAX_PAYLOAD_SIZE: 1_048_576,
    CORS_ENABLED: false,
  });
  t.equal(Object.isFrozen(config), true);
  t.strictSame(readConfig({ PORT: '', DATABASE_URL: '' }), config, 'an empty variable says nothing');
  t.strictSame(readConfig({ PATH: '/bin', NO_OPTION: 'x' }), config, 'other variables are not ours');
});

t.test('the largest payload of a webhook is a size; 0 sends keys only', async (t) => {
  t.equal(readConfig({ WEBHOOK_MAX_PAYLOAD: '16mb' }).WEBHOOK_MAX_PAYLOAD, 16_777_216);
  t.equal(readConfig({ WEBHOOK_MAX_PAYLOAD: '0' }).WEBHOOK_MAX_PAYLOAD, 0);
});

t.test('the schemas to serve are a list, or the one schema', async (t) => {
  const schemasOf = (environment: Record<string, string>): unknown => {
    const { DATABASE_SCHEMA, DATABASE_SCHEMAS } = readConfig(environment);
    return [DATABASE_SCHEMA, DATABASE_SCHEMAS];
  };
  t.strictSame(schemasOf({}), ['public', ['public']]);
  t.strictSame(schemasOf({ DATABASE_SCHEMA: 'a,b' }), ['a,b', ['a,b']]);
  t.strictSame(schemasOf({ DATABASE_SCHEMAS: 'sales, HR ,x' }), ['sales', ['sales', 'HR', 'x']]);
  t.strictSame(schemasOf({ DATABASE_SCHEMA: 'hr', DATABASE_SCHEMAS: 'sales,hr' }), ['sales', ['sales', 'hr']]);
  for (const wrong of ['a,,b', 'a,', 'a,b,a'])
    t.throws(() => readConfig({ DATABASE_SCHEMAS: wrong }), {
      message: /^DATABASE_SCHEMAS: must be a comma separated/,
    });
});

t.test('a database may be on several hosts', async (t) => {
  const surroundings = { environment: {}, home: '/home/u', account: 'u', read: () => null, exists: () => false };
  const hostsOf = (url: string): readonly unknown[] => {
    const { hosts, target } = resolveConnection(url, surroundings);
    return [...hosts.map(({ name }) => name), target];
  };
  t.strictSame(hostsOf('postgres://u:p@h:5/d?sslmode=require'), ['h:5', 'any']);
  t.strictSame(hostsOf('postgres://u:p@a:1,b/d?target_session_attrs=read-write'), ['a:1', 'b:5432', 'read-write']);
  t.strictSame(hostsOf('postgres://a,b/d'), ['a:5432', 'b:5432', 'primary']);
  t.strictSame(hostsOf('postgres://a/d?target_session_attrs=primary'), ['a:5432', 'primary']);
  for (const [wrong, reason] of [
    ['postgres://a,,b/d', /must look like/],
    ['postgres://a:x,b/d', /must look like/],
    ['mysql://a,b/d', /must look like/],
    ['postgres://a,b/d?target_session_attrs=standby', /must be one of any, primary, read-write, not "standby"/],
  ] as const)
    t.throws(() => readConfig({ DATABASE_URL: wrong }), { message: reason }, wrong);
});

t.test('values are read in the forms people write', async (t) => {
  const cases: readonly (readonly [OptionName, string, FullConfig[OptionName]])[] = [
    ['PORT', '0', 0],
    ['PORT', '65535', 65_535],
    ['DATABASE_URL', 'postgres://u:p@h:5432/d', 'postgres://u:p@h:5432/d'],
    ['DATABASE_URL', 'postgresql://h/d?sslmode=require', 'postgresql://h/d?sslmode=require'],
    ['DATABASE_URL', 'postgres://u:p@h1:1,h2:2,[::1]:3/d', 'postgres://u:p@h1:1,h2:2,[::1]:3/d'],
    ['DATABASE_URL', 'postgres://h1,h2/d?target_session_attrs=any', 'postgres://h1,h2/d?target_session_attrs=any'],
    ['DEMO_DATA', 'false', false],
    ['DEMO_DATA', 'NO', false],
    ['DEMO_DATA', '0', false],
    ['DEMO_DATA', 'on', true],
    ['LOG_LEVEL', 'silent', 'silent'],
    ['ADMIN_TOKEN', '0123456789abcdef', '0123456789abcdef'],
    ['DATABASE_STATEMENT_TIMEOUT', '0', 0],
    ['DATABASE_STATEMENT_TIMEOUT', '250', 250],
    ['DATABASE_STATEMENT_TIMEOUT', '250ms', 250],
    ['DATABASE_STATEMENT_TIMEOUT', '1.5s', 1_500],
    ['DATABASE_STATEMENT_TIMEOUT', '15 m', 900_000],
    ['DATABASE_STATEMENT_TIMEOUT', '2H', 7_200_000],
    ['DATABASE_STATEMENT_TIMEOUT', '1d', 86_400_000],
    ['MAX_PAYLOAD_SIZE', '100', 100],
    ['MAX_PAYLOAD_SIZE', '100b', 100],
    ['MAX_PAYLOAD_SIZE', '500kb', 512_000],
    ['MAX_PAYLOAD_SIZE', '1.5MB', 1_572_864],
    ['MAX_PAYLOAD_SIZE', '1gb', 1_073_741_824],
    ['QUERY_LIMIT_MAX', '1', 1],
    ['WORKERS', '1', 1],
    ['WORKERS', '12', 12],
    ['WORKERS', 'auto', workersFor(availableParallelism(), 8)],
  ];
  for (const [name, given, expected] of cases)
    t.equal(readConfig({ [name]: given })[name], expected, `${name}=${given}`);
});

t.test('a value that makes no sense is refused with the name of its option', async (t) => {
  const cases: readonly (readonly [OptionName, string, RegExp])[] = [
    ['PORT', 'http', /^PORT: must be a whole number from 0 to 65535, not "http"$/],
    ['PORT', '65536', /^PORT: /],
    ['PORT', '-1', /^PORT: /],
    ['PORT', '80.5', /^PORT: /],
    ['PORT', '0x50', /^PORT: /],
    ['PORT', '1e3', /^PORT: /],
    ['DATABASE_URL', 'localhost:5432', /^DATABASE_URL: must look like postgres:/],
    ['DATABASE_URL', 'mysql://h/d', /^DATABASE_URL: /],
    ['DATABASE_POOL_SIZE', '0', /^DATABASE_POOL_SIZE: /],
    ['DEMO_DATA', 'maybe', /^DEMO_DATA: must be true or false, not "maybe"$/],
    ['LOG_LEVEL', 'loud', /^LOG_LEVEL: must be one of fatal, .*, not "loud"$/],
    ['ADMIN_TOKEN', 'short', /^ADMIN_TOKEN: must be 16 to 255 printable characters/],
    ['ADMIN_TOKEN', 'has a space in the middle', /^ADMIN_TOKEN: /],
    ['DATABASE_STATEMENT_TIMEOUT', 'soon', /^DATABASE_STATEMENT_TIMEOUT: must be a duration such as/],
    ['DATABASE_STATEMENT_TIMEOUT', '-1s', /^DATABASE_STATEMENT_TIMEOUT: /],
    ['DATABASE_STATEMENT_TIMEOUT', '5mb', /^DATABASE_STATEMENT_TIMEOUT: /],
    ['MAX_PAYLOAD_SIZE', '1x', /^MAX_PAYLOAD_SIZE: must be a size such as/],
    ['WEBHOOK_MAX_PAYLOAD', 'many', /^WEBHOOK_MAX_PAYLOAD: must be a size such as/],
    ['READ_CACHE_SIZE', '64', /^READ_CACHE_SIZE: must be at least 1mb, not "64"/],
    ['CACHE_STATUS_HEADER', 'Content-Length', /^CACHE_STATUS_HEADER: must be a header that the service does not send/],
    ['CACHE_STATUS_HEADER', 'x cache', /^CACHE_STATUS_HEADER: must be the name of a header/],
    ['READ_CACHE_MAX_LAG', '0', /^READ_CACHE_MAX_LAG: must be at least 20ms, not "0"/],
    ['QUERY_LIMIT_MAX', '0', /^QUERY_LIMIT_MAX: /],
    ['MAX_RELATIONAL_DEPTH', '1', /^MAX_RELATIONAL_DEPTH: /],
    ['WORKERS', '0', /^WORKERS: must be a whole number from 1 to 256/],
    ['WORKERS', '257', /^WORKERS: /],
    ['WORKERS', 'many', /^WORKERS: must be a whole number from 1 to 256, or auto, not "many"$/],
  ];
  for (const [name, given, message] of cases) {
    t.throws(() => readConfig({ [name]: given }), { name: 'StartError', message }, `${name}=${given}`);
  }
  t.throws(() => readConfig({ ADMIN_TOKEN: 'hush hush' }), { message: /^(?!.*hush)/ }, 'a secret is not repeated');
  t.throws(() => readConfig({ DATABASE_URL: 'u:hush@h' }), { message: /^(?!.*hush)/ }, 'nor is a password');
});

t.test('flags say the same as variables', async (t) => {
  t.strictSame(options.flags([]), {});
  t.strictSame(options.flags(['--port', '9000', '--data-dir=./x', '--LOG_LEVEL=warn']), {
    PORT: '9000',
    DATA_DIR: './x',
    LOG_LEVEL: 'warn',
  });
  t.strictSame(options.flags(['--database-url=postgres://h/d?a=b=c']), { DATABASE_URL: 'postgres://h/d?a=b=c' });
  t.throws(() => options.flags(['--portal', '1']), {
    name: 'StartError',
    message: 'unknown option "--portal": see lateral --help',
  });
  t.throws(() => options.flags(['--constructor', '1']), { message: /unknown option/ });
  t.throws(() => options.flags(['--to-string', '1']), { message: /unknown option/ });
  t.throws(() => options.flags(['9000']), { message: /unknown option "9000"/ });
  t.throws(() => options.flags(['-p', '9000']), { message: /unknown option "-p"/ });
  t.throws(() => options.flags(['--port']), { message: '--port needs a value' });
});

t.test('a former name stops the start and names the present option', async (t) => {
  const message = 'FAMILY_COMPATIBILITY was renamed: set DIRECTUS_COMPATIBILITY instead';
  for (const value of ['true', 'false']) t.throws(() => readConfig({ FAMILY_COMPATIBILITY: value }), { message });
  t.throws(() => readConfig({ FAMILY_COMPATIBILITY: 'true', DIRECTUS_COMPATIBILITY: 'true' }), { message });
  t.throws(() => readConfig(options.flags(['--family-compatibility=true'])), { message });
  t.equal(readConfig({ FAMILY_COMPATIBILITY: '', DIRECTUS_COMPATIBILITY: 'true' }).DIRECTUS_COMPATIBILITY, true);
});

t.test('with DIRECTUS_COMPATIBILITY cookies have the names of Directus unless configured', async (t) => {
  const namesOf = (environment: Record<string, string>): unknown => {
    const { SESSION_COOKIE_NAME, REFRESH_TOKEN_COOKIE_NAME } = readConfig(environment);
    return [SESSION_COOKIE_NAME, REFRESH_TOKEN_COOKIE_NAME];
  };
  const compatible = { DIRECTUS_COMPATIBILITY: 'true' };
  t.strictSame(namesOf({}), ['service_session_token', 'service_refresh_token']);
  t.strictSame(namesOf(compatible), ['directus_session_token', 'directus_refresh_token']);
  t.strictSame(namesOf({ ...compatible, SESSION_COOKIE_NAME: '' }), [
    'directus_session_token',
    'directus_refresh_token',
  ]);
  t.strictSame(namesOf({ ...compatible, SESSION_COOKIE_NAME: 'mine' }), ['mine', 'directus_refresh_token']);
  t.strictSame(namesOf({ ...compatible, REFRESH_TOKEN_COOKIE_NAME: 'service_refresh_token' }), [
    'directus_session_token',
    'service_refresh_token',
  ]);
});

t.test('every option says what it is for, and its default is one it takes', async (t) => {
  const rows = options.rows();
  t.strictSame(rows.map((row) => row.name).sort(), Object.keys(readConfig({})).sort());
  for (const { name, about, initial } of rows) {
    t.match(about, /^[A-Z].{9,}/, name);
    if (initial !== '') t.doesNotThrow(() => readConfig({ [name]: initial }), `${name}=${initial}`);
  }
});

t.test('the value of a flag may begin with a dash, and must not be missing or empty', async (t) => {
  t.strictSame(options.flags(['--admin-token', '-abcdefghijklmnop']), { ADMIN_TOKEN: '-abcdefghijklmnop' });
  t.strictSame(options.flags(['--ADMIN_TOKEN=--x', '--port', '9']), { ADMIN_TOKEN: '--x', PORT: '9' });
  const { operands, switches, values } = options.words(['a', '--own', '-1', '--json', '-'], ['json'], ['own']);
  t.strictSame([operands, [...switches], values], [['a', '-'], ['json'], { own: '-1' }]);
  const own = readOwnOptions('record', ['--token', '-abc', '-o', '-file', '--writes', 'x'], {
    token: 'value',
    output: 'value',
    writes: 'switch',
  });
  t.strictSame(
    [own.value('token'), own.value('output'), own.has('writes'), own.operands],
    ['-abc', '-file', true, ['x']],
  );
  for (const [words, message] of [
    [['--port'], '--port needs a value'],
    [['--port', '--host', 'x'], '--port needs a value, not "--host"'],
    [['--database-url', ''], '--database-url has an empty value: set it, or leave the option out'],
    [['--database-url='], '--database-url has an empty value: set it, or leave the option out'],
  ] as const) {
    t.throws(() => options.flags(words), { message });
    t.throws(() => readOwnOptions('record', words, { port: 'value', host: 'value', 'database-url': 'value' }), {
      message: `${message}: see lateral record --help`,
    });
  }
});

t.test('a value of two characters is not an option', async (t) => {
  const file = { 'env-file': { type: 'string' as const } };
  const words = ['capacity', '--step', '5s', '--json', '--workers', '16', '--port', '9000'];
  t.strictSame(joinValues(words, file), words);
  t.strictSame(joinValues(['--env-file', '5s', 'on'], file), ['--env-file=5s', 'on']);
});
