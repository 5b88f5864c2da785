/** The resource that is named for a load: by what reached its limit, not by what followed from that. */
import t from 'tap';
import {
  exhaustedBy,
  type Overload,
  overloadOf,
  type Step,
  searchRate,
} from '../../../src/features/traffic/capacity.js';
import type { LoadFigures } from '../../../src/features/traffic/load-samples.js';

const UNLIMITED = { limit: null, throttled: 0 };

/** Two processors, and nothing to do. */
const QUIET: LoadFigures = {
  processors: 2,
  service: { used: 0.1, ...UNLIMITED },
  database: { used: 0.1, ...UNLIMITED },
  clientProcessors: 0.1,
  machine: { processors: 2, idle: 1.7 },
  threads: 1,
  busiestThread: 0.1,
  threadProcessor: 0.1,
  activeStatements: 0.2,
  lockShare: 0,
  storageShare: 0,
  runningShare: 0.5,
  lockWaits: 0,
  pool: 'read',
  poolSize: 8,
  poolFull: 0,
  poolBusy: 0.2,
  waiting: 0,
  connections: 10,
  maxConnections: 100,
};

const HALF_USED = { used: 0.49, limit: 0.5, throttled: 0.97 };
const UNKNOWN = { used: null, ...UNLIMITED };

interface Case {
  readonly about: string;
  readonly load: Partial<LoadFigures>;
  readonly slowdown?: number;
  readonly isClientLate?: boolean;
  readonly resource: string;
}

const CASES: readonly Case[] = [
  { about: 'nothing is exhausted', load: {}, resource: 'none' },
  {
    about: 'PostgreSQL uses up its limit, which fills the pool and delays statements',
    load: { database: HALF_USED, poolFull: 1, machine: { processors: 2, idle: 1 } },
    slowdown: 9,
    resource: 'PostgreSQL processor',
  },
  {
    about: 'the service uses up its limit: its thread is busy, but half of the time without a processor',
    load: { service: HALF_USED, busiestThread: 0.98, threadProcessor: 0.47 },
    resource: 'service processor',
  },
  {
    about: 'a limit is reached although other programs are busy',
    load: { database: HALF_USED, machine: { processors: 2, idle: 0 } },
    slowdown: 9,
    resource: 'PostgreSQL processor',
  },
  {
    about: 'a thread has no reserve',
    load: { service: { used: 1.1, ...UNLIMITED }, busiestThread: 1, threadProcessor: 0.95, poolFull: 1 },
    resource: 'service processor',
  },
  {
    about: 'a thread waits for processors that other programs use',
    load: { busiestThread: 1, threadProcessor: 0.4, machine: { processors: 2, idle: 0.02 } },
    resource: 'other programs',
  },
  {
    about: 'a thread has no reserve although other programs are busy',
    load: {
      service: { used: 0.95, ...UNLIMITED },
      busiestThread: 1,
      threadProcessor: 0.9,
      machine: { processors: 2, idle: 0.02 },
    },
    resource: 'service processor',
  },
  {
    about: 'statements wait for processors that other programs use',
    load: { poolFull: 1, machine: { processors: 2, idle: 0 } },
    slowdown: 3,
    resource: 'other programs',
  },
  {
    about: 'PostgreSQL uses most of a machine that it shares with the service',
    load: {
      service: { used: 0.5, ...UNLIMITED },
      database: { used: 1.2, ...UNLIMITED },
      machine: { processors: 2, idle: 0.1 },
      busiestThread: 0.6,
      threadProcessor: 0.5,
    },
    slowdown: 3,
    resource: 'PostgreSQL processor',
  },
  {
    about: 'PostgreSQL in another container uses most of the machine',
    load: { database: UNKNOWN, activeStatements: 6, runningShare: 0.9, machine: { processors: 2, idle: 0 } },
    slowdown: 4,
    resource: 'PostgreSQL processor',
  },
  {
    about: 'a PostgreSQL on another machine became slower',
    load: { database: UNKNOWN, poolFull: 1 },
    slowdown: 3,
    resource: 'PostgreSQL processor',
  },
  {
    about: 'storage delays statements',
    load: { storageShare: 0.6, poolFull: 1 },
    slowdown: 3,
    resource: 'PostgreSQL storage',
  },
  { about: 'all connections are busy', load: { poolFull: 0.9 }, slowdown: 1.1, resource: 'connections' },
  {
    about: 'all connections are busy, and other programs do not matter',
    load: { poolFull: 0.9, machine: { processors: 2, idle: 0 } },
    slowdown: 1.1,
    resource: 'connections',
  },
  { about: 'statements wait for locks', load: { lockShare: 0.8, lockWaits: 5, poolFull: 1 }, resource: 'locks' },
  { about: 'the client is late', load: {}, isClientLate: true, resource: 'client' },
  {
    about: 'the client uses most of the machine',
    load: { clientProcessors: 1.2, machine: { processors: 2, idle: 0.1 }, service: { used: 0.5, ...UNLIMITED } },
    resource: 'client',
  },
  {
    about: 'a system that tells nothing about its processors',
    load: { database: UNKNOWN, machine: null, threadProcessor: null, busiestThread: 0.95 },
    resource: 'service processor',
  },
];

for (const { about, load, slowdown = 1, isClientLate = false, resource } of CASES)
  t.test(about, async (t) => {
    const overload: Overload = { load: { ...QUIET, ...load }, slowdown, isClientLate };
    const found = exhaustedBy(overload);
    t.equal(found.resource, resource, found.reason);
  });

t.test('the reason has the share of other programs', async (t) => {
  const load = { ...QUIET, machine: { processors: 2, idle: 0 }, busiestThread: 1, threadProcessor: 0.4 };
  const { reason } = exhaustedBy({ load, slowdown: 1, isClientLate: false });
  t.match(reason, /^the machine is busy with other programs: 85 % of its processors/);
});

/** PostgreSQL takes so many milliseconds for a request. */
function stepOf(perSecond: number, isKept: boolean, milliseconds: number): Step {
  const latency = { p50: 1, p90: 1, p99: 1, 'p99.9': 1 };
  const figures = { requests: perSecond, perSecond, latency, errors: 0, different: 0, causes: {}, lateness: latency };
  const load = { ...QUIET, activeStatements: (milliseconds * perSecond) / 1_000 };
  return { perSecond, isKept, isScarce: false, figures, load };
}

t.test('one short step with too little time of PostgreSQL does not make the others slow', async (t) => {
  const missed = stepOf(1_600, false, 0.2);
  const kept = [stepOf(100, true, 0.01), stepOf(200, true, 0.2), stepOf(400, true, 0.2), stepOf(800, true, 0.2)];
  const { slowdown } = overloadOf(missed, [...kept, missed]);
  t.ok(slowdown > 0.9 && slowdown < 1.3, `${slowdown} times as long`);
});

t.test('statements are compared with those at low rates', async (t) => {
  const missed = stepOf(900, false, 3);
  const { slowdown } = overloadOf(missed, [stepOf(400, true, 1), stepOf(800, true, 2), missed]);
  t.equal(slowdown, 3);
  t.equal(overloadOf(stepOf(900, false, 6), [stepOf(800, true, 2)]).slowdown, 3, 'without a low rate');
  t.equal(overloadOf(missed, [missed]).slowdown, 1, 'with itself if no rate was kept');
});

/** The rates that were tried. The service keeps 100 requests per second, but misses the first try of some rates. */
async function triedRates(firstRate: number, missedByChance: (rate: number) => boolean): Promise<number[]> {
  const tried: number[] = [];
  const attempt = async (rate: number): Promise<Step> => {
    const isDisturbed = !tried.includes(rate) && missedByChance(rate);
    tried.push(rate);
    return stepOf(rate, rate <= 100 && !isDisturbed, 1);
  };
  const steps = await searchRate(attempt, { firstRate, onStep: () => {} });
  t.equal(steps.length, tried.length);
  return tried;
}

t.test('the lowest missed rate is tried again at the end', async (t) => {
  const tried = await triedRates(10, () => false);
  t.ok(tried.length < 15, tried.join());
  t.ok(Math.min(...tried.filter((rate) => rate > 100)) < 104);
  t.equal(tried.filter((rate) => rate > 100).length - new Set(tried.filter((rate) => rate > 100)).size, 1, 'once');
});

t.test('the search goes on above a rate that was missed by chance', async (t) => {
  for (const chance of [20, 80]) {
    const tried = await triedRates(10, (rate) => rate === chance);
    const highest = Math.max(...tried.filter((rate) => rate <= 100));
    t.ok(highest > 96, `${chance}/s was missed: ${tried.join()}`);
  }
});
