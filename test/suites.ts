/**
 * The suites that `npm test` leaves out, because they take long, load the machine or need more than Node.
 * `node dist/test/run.js --suite NAME` runs one, the scripts of package.json call that, and .github/workflows/nightly.yml runs all.
 */
export interface Step {
  /** Test files by name, several at a time. */
  readonly files?: readonly string[];
  /** A program of dist/test instead. It gets the words that follow the name of the suite. */
  readonly program?: string;
  readonly environment?: Readonly<Record<string, string>>;
  /** `npm test` runs these files too. Here `environment` makes them longer. */
  readonly daily?: boolean;
  /** For each file; a few if absent. */
  readonly minutes?: number;
}

export interface Suite {
  readonly about: string;
  /** Packages of Debian. Tests that miss one say so and skip. */
  readonly packages?: readonly string[];
  readonly steps: readonly Step[];
}

const BROWSER = ['chromium'];

export const SUITES: Readonly<Record<string, Suite>> = {
  system: {
    about:
      'whole systems: starts, commands, several schemas, reads without src/speed and the samples of all documents; CI runs it on each push',
    steps: [
      {
        files: [
          'readme',
          'schema-changes',
          'start',
          'several-schemas',
          'workers',
          'plan-checks',
          'system-schema',
          'live-triggers',
          'snapshot-refused',
          'snapshot-command',
          'embedded',
          'adopt',
          'admin',
          'doctor',
          'snapshot',
          'pooler',
          'libpq-parameters',
          'managed',
          'instances',
          'storage',
        ],
      },
      {
        files: ['reads', 'relations', 'conditions', 'views', 'values', 'json', 'composites', 'envelope', 'graphql'],
        daily: true,
        environment: { SPEED: 'none' },
      },
    ],
  },
  explorer: {
    about: 'the pages of the Explorer in Chromium',
    packages: BROWSER,
    steps: [
      { files: ['explorer'] },
      {
        files: [
          'graphql-ide',
          'explorer-data',
          'explorer-pages',
          'explorer-model',
          'explorer-relations',
          'explorer-docs',
          'explorer-hostile',
          'explorer-view-as',
          'explorer-types',
          'explorer-files',
          'explorer-keyboard',
          'explorer-boards',
          'explorer-people',
          'explorer-record',
          'explorer-webhooks',
          'explorer-capacity',
          'explorer-tasks',
          'explorer-dialogs',
          'explorer-mishaps',
        ],
      },
    ],
  },
  live: {
    about: 'live queries and WebSockets under load, while PostgreSQL restarts, fails over or loses its log',
    packages: ['postgresql-15'],
    steps: [
      { files: ['live-burdens', 'live-faults', 'live-standby', 'live-wal', 'live-triggers-shared'] },
      {
        files: ['live-oracle'],
        daily: true,
        environment: { LIVE_SUBSCRIPTIONS: '200', LIVE_WRITES: '20000' },
        minutes: 60,
      },
      { files: ['live-oracle-faults'], minutes: 60 },
      { files: ['websocket-limits'], environment: { HOSTILE_FRAMES: '100000' }, minutes: 60 },
    ],
  },
  cache: {
    about: 'reads from memory against an oracle: a million reads, failover, a stopped standby, several instances',
    packages: ['postgresql-15'],
    steps: [
      { files: ['cache-standby', 'cache-failover', 'cache-instances', 'cache-grants'], minutes: 20 },
      {
        files: ['cache-traps'],
        environment: { CACHE_TURNS: '25', CACHE_ENTRIES: '10000' },
        minutes: 20,
      },
      {
        files: ['cache-oracle'],
        environment: { CACHE_READS: '1000000', CACHE_USERS: '50', CACHE_SEED: 'random', CACHE_MAX_LAG: '1000' },
        minutes: 180,
      },
    ],
  },
  webhooks: {
    about:
      'webhooks while instances, receivers and PostgreSQL are killed, over a failover, and with receivers that hang; in full with WEBHOOK_CHANGES=100000 WEBHOOK_KILLS=200',
    packages: ['postgresql-15'],
    steps: [
      { files: ['webhook-failover', 'webhook-slow', 'webhook-edges'], minutes: 20 },
      { files: ['webhook-faults'], minutes: 60 },
    ],
  },
  faults: {
    about: 'kills, restarts, resets, a full disk and locks: what clients see; `--minutes 2` instead of 10',
    steps: [
      {
        files: ['schema-faults', 'schema-hostile', 'schema-live', 'killed-backends', 'backoff', 'half-open', 'faults'],
      },
      { program: 'faults/main', minutes: 60 },
    ],
  },
  load: {
    about: 'fairness between callers, memory limits and plans under load, and 3,000 tables',
    steps: [
      {
        files: [
          'fairness',
          'head-of-line',
          'starvation',
          'slow-readers',
          'bounded',
          'uneven-plans',
          'big-reads',
          'embedded-hung',
          'stream',
          'connection',
          'hostile-images',
        ],
      },
      { files: ['many-tables'], minutes: 15 },
      { files: ['large-volumes', 'large-rows'], minutes: 20 },
      {
        files: ['import', 'compression'],
        daily: true,
        environment: { IMPORT_ROWS: '100000', COMPRESSED_COPIES: '20', COMPRESSED_READS: '2000' },
        minutes: 20,
      },
      { files: ['busy-machine'] },
      { files: ['busy-writers'] },
    ],
  },
  traffic: {
    about:
      'recording and replaying for a minute, also Pagila from the folder PAGILA, and capacity with scarce resources',
    steps: [
      { files: ['traffic'], environment: { TRAFFIC_SECONDS: '60', TRAFFIC_RATE: '200' }, minutes: 20 },
      { files: ['capacity'], minutes: 20 },
      { files: ['traffic-pagila'], environment: { TRAFFIC_SECONDS: '60', TRAFFIC_RATE: '100' }, minutes: 20 },
    ],
  },
  twin: {
    about:
      'plans of an empty twin compared with those of filled databases (in the folder SAMPLE_DATABASES), and missing indexes of ten kinds',
    steps: [
      { files: ['twin-fidelity'], minutes: 30 },
      { files: ['index-kinds'], minutes: 30 },
    ],
  },
  snapshots: {
    about: 'round trips of public schemas (dumps in the folder SAMPLE_SCHEMAS) through snapshots',
    packages: ['postgresql'],
    steps: [{ files: ['snapshot-schemas'], minutes: 30 }],
  },
  replicas: {
    about: 'reads on two standbys: 100,000 writes, each read again',
    steps: [
      { files: ['foreign-servers', 'replica-failover'] },
      { files: ['replicas'], environment: { REPLICA_PAIRS: '100000' }, minutes: 120 },
    ],
  },
  property: {
    about:
      'random models, rows and requests against an oracle, damaged requests, and many writers and readers at a time',
    steps: [
      {
        files: ['property', 'writes-property', 'access-property', 'graphql-parity', 'random-writes'],
        daily: true,
        environment: { PROPERTY_SEED: 'random', PROPERTY_CASES: '20000', KILLS: '500' },
        minutes: 180,
      },
      {
        files: ['extensions-property'],
        daily: true,
        environment: { PROPERTY_SEED: 'random', EXTENSION_WRITES: '20000', EXTENSION_KILLS: '500' },
        minutes: 180,
      },
      { files: ['create-lateral'], daily: true, environment: { FETCH_REQUESTS: '1000' }, minutes: 30 },
      { files: ['hostile'], daily: true, environment: { HOSTILE_RUNS: '20000' }, minutes: 60 },
      {
        files: ['database-caller-property'],
        environment: { PROPERTY_SEED: 'random', CALLER_ROUNDS: '5', CALLER_READS: '4000', CALLER_WRITES: '1000' },
        minutes: 120,
      },
      { files: ['caller-leaks'], environment: { CALLER_REQUESTS: '100000' }, minutes: 120 },
      { files: ['database-caller'], daily: true, environment: { CALLER_REQUESTS: '100000' }, minutes: 120 },
      { files: ['linearizability'], daily: true, environment: { LINEARIZABILITY_OPERATIONS: '100000' }, minutes: 60 },
      {
        files: ['key-plans', 'shards', 'mcp'],
        daily: true,
        environment: { KEY_FUZZ: '3000', SHARD_MODELS: '5', SHARD_REQUESTS: '100', MCP_HOSTILE_CALLS: '2000' },
        minutes: 120,
      },
      { files: ['concurrency'], daily: true, environment: { WRITERS_SECONDS: '60' }, minutes: 30 },
    ],
  },
  cluster: {
    about: 'several instances, failover and poolers; `-- rolling-restart` runs one part',
    packages: ['pgbouncer', 'haproxy', 'redis-server'],
    steps: [
      { program: 'cluster/main', minutes: 60 },
      {
        files: ['transfers'],
        environment: { TRANSFER_CLIENTS: '100', TRANSFERS: '100' },
        minutes: 120,
      },
    ],
  },
  package: {
    about:
      'the package as npm would publish it (its size, npx in an empty folder, import with types), next to packages of npm: Express, and the client and the conformance tests of MCP',
    steps: [
      { program: 'package/mounted', minutes: 20 },
      { program: 'package/agents', minutes: 20 },
      // The last: to make the package, it builds \`dist\` without the tests.
      { program: 'package/main', minutes: 20 },
    ],
  },
  deletions: {
    about: 'each feature deleted from a copy of the sources, which must compile, start and answer',
    steps: [{ files: ['deletable'], daily: true, environment: { DELETED_FEATURES: 'each' }, minutes: 20 }],
  },
  tools: {
    about: 'tools made for Directus, in exact versions from npm; skipped without a registry',
    steps: [{ program: 'package/tools', minutes: 20 }],
  },
  image: {
    about: 'the steps of deploy/Dockerfile in a root filesystem, as root',
    packages: ['mmdebstrap', 'util-linux'],
    steps: [{ program: 'package/image', minutes: 40 }],
  },
};

/** The test files that `npm test` leaves to the suites. */
export const LEFT_OUT: ReadonlySet<string> = new Set(
  Object.values(SUITES)
    .flatMap(({ steps }) => steps)
    .flatMap(({ files = [], daily = false }) => (daily ? [] : files)),
);
