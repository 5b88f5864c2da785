/** Work that waits in turn: shares and turns of callers, deadlines, and work inside of other work. */
import { EventEmitter } from 'node:events';
import { setImmediate as nextTurn } from 'node:timers/promises';
import t from 'tap';
import { ServiceError, serviceUnavailable } from '../../src/base/errors.js';
import { Heap } from '../../src/base/heap.js';
import { Limiter, type LimiterOptions, OWN_TURN, type Place, type Turn } from '../../src/base/limiter.js';

const REFUSED = { code: 'SERVICE_UNAVAILABLE', status: 503 };

/** A queue whose work ends when the test says so. */
class Work {
  readonly limiter: Limiter;
  /** The names of the work that was admitted, in order. */
  readonly begun: string[] = [];
  readonly #ends = new Map<string, () => void>();

  constructor(size: number, options: Partial<LimiterOptions> = {}) {
    const refusal = (): Error => serviceUnavailable('database', 'All connections are taken');
    this.limiter = new Limiter(size, { waitTimeout: 2_000, refusal, ...options });
  }

  begin(name: string, turn: Turn): Promise<string> {
    const result = this.limiter.run(turn, () => {
      this.begun.push(name);
      return new Promise<string>((resolve) => this.#ends.set(name, () => resolve(name)));
    });
    result.catch(() => {});
    return result;
  }

  async end(name: string): Promise<void> {
    await nextTurn();
    this.#ends.get(name)?.();
    await nextTurn();
  }
}

const ann: Turn = { caller: 'ann' };
const bob: Turn = { caller: 'bob' };

class Client extends EventEmitter {
  aborted = false;

  onAbort(listener: () => void): void {
    this.on('abort', listener);
  }

  abort(): void {
    this.aborted = true;
    this.emit('abort');
  }
}

t.test('callers take turns, and the work of each keeps its order', async (t) => {
  const work = new Work(1);
  for (const name of ['a1', 'a2', 'a3']) void work.begin(name, ann);
  for (const name of ['b1', 'b2']) void work.begin(name, bob);
  await nextTurn();
  for (const name of ['a1', 'b1', 'a2', 'b2']) await work.end(name);
  t.strictSame(work.begun, ['a1', 'b1', 'a2', 'b2', 'a3']);
});

t.test('callers who were not served yet are served in the order in which they came', async (t) => {
  const work = new Work(1);
  const names = ['a', 'b', 'c', 'd', 'e'];
  for (const caller of names) void work.begin(caller, { caller });
  await nextTurn();
  for (const name of names) await work.end(name);
  t.strictSame(work.begun, names);
});

t.test('a caller with much work gets turns while new callers come', async (t) => {
  const work = new Work(1);
  for (const name of ['a1', 'a2']) void work.begin(name, ann);
  await nextTurn();
  let current = 'a1';
  for (let guest = 0; guest < 10 && !work.begun.includes('a2'); guest++) {
    void work.begin(`guest ${guest}`, { caller: `guest ${guest}` });
    await work.end(current);
    current = work.begun.at(-1) ?? '';
  }
  t.strictSame(work.begun, ['a1', 'guest 0', 'a2']);
});

t.test('work without a caller takes its turn beside new callers', async (t) => {
  const work = new Work(2);
  for (const name of ['batch 1', 'batch 2', 'batch 3']) void work.begin(name, { caller: '' });
  await nextTurn();
  let current = 'batch 1';
  for (let guest = 0; guest < 10 && !work.begun.includes('batch 3'); guest++) {
    void work.begin(`guest ${guest}`, { caller: `guest ${guest}` });
    await work.end(current);
    current = work.begun.at(-1) ?? '';
  }
  t.strictSame(work.begun, ['batch 1', 'batch 2', 'batch 3']);
});

t.test('work that comes later does not pass work that waits', async (t) => {
  const work = new Work(1);
  void work.begin('first', ann);
  void work.begin('second', ann);
  await work.end('first');
  void work.begin('third', ann);
  await work.end('second');
  t.strictSame(work.begun, ['first', 'second', 'third']);
});

t.test('a caller has at most a quarter of the places for work that takes several locks', async (t) => {
  const work = new Work(8);
  void work.begin('b1', bob);
  for (const name of ['a1', 'a2', 'a3']) void work.begin(name, { ...ann, takesLocks: true });
  void work.begin('a4', ann);
  await nextTurn();
  t.strictSame(work.begun, ['b1', 'a1', 'a2', 'a4']);
  await work.end('a1');
  t.strictSame(work.begun, ['b1', 'a1', 'a2', 'a4', 'a3']);
});

t.test('a caller has at most half of the places, the service itself all of them', async (t) => {
  const work = new Work(8);
  void work.begin('b1', bob);
  for (let n = 0; n < 40; n++) void work.begin(`a${n}`, ann);
  await nextTurn();
  t.equal(work.begun.length, 5);
  void work.begin('b2', bob);
  await nextTurn();
  t.equal(work.begun.at(-1), 'b2', 'another caller does not wait');
  for (let n = 0; n < 5; n++) void work.begin(`own${n}`, OWN_TURN);
  await nextTurn();
  t.equal(work.begun.length, 8);
  t.equal(work.limiter.waiting, 39);
});

t.test('a caller that is alone has three quarters, and half as soon as another one comes', async (t) => {
  const work = new Work(8);
  for (let n = 0; n < 40; n++) void work.begin(`a${n}`, ann);
  await nextTurn();
  t.equal(work.begun.length, 6);
  void work.begin('b', bob);
  await nextTurn();
  t.equal(work.begun.at(-1), 'b', 'another caller does not wait');
  for (const name of ['a0', 'a1']) await work.end(name);
  t.equal(work.begun.length, 7, 'the first gives up places');
  await work.end('a2');
  t.equal(work.begun.length, 8, 'and keeps half of them');
});

t.test('with one place, each caller may have it', async (t) => {
  const work = new Work(1);
  void work.begin('a', ann);
  await nextTurn();
  t.strictSame(work.begun, ['a']);
});

t.test('work whose client disconnects leaves the queue', async (t) => {
  const work = new Work(1);
  const client = new Client();
  void work.begin('running', ann);
  const left = work.begin('left', { ...ann, client });
  void work.begin('next', ann);
  await nextTurn();
  t.equal(work.limiter.waiting, 2);
  client.abort();
  await t.rejects(left, REFUSED);
  t.equal(work.limiter.waiting, 1);
  await work.end('running');
  t.strictSame(work.begun, ['running', 'next']);
});

t.test('a client that cannot report that it disconnected is asked when its turn comes', async (t) => {
  const work = new Work(1);
  const client = { aborted: false };
  void work.begin('running', ann);
  const left = work.begin('left', { ...ann, client });
  void work.begin('next', ann);
  await nextTurn();
  client.aborted = true;
  await work.end('running');
  await t.rejects(left, REFUSED);
  t.strictSame(work.begun, ['running', 'next']);
});

t.test('a wait has an end', async (t) => {
  const work = new Work(1, { waitTimeout: 20 });
  void work.begin('running', ann);
  await t.rejects(work.begin('late', bob), REFUSED);
  t.equal(work.limiter.isStarved, true);
  t.equal(work.limiter.waiting, 0);
  await work.end('running');
  t.equal(work.limiter.isStarved, false);
});

t.test('a full queue refuses the last work of the caller who waits most', async (t) => {
  const work = new Work(1, { maxWaiting: 3 });
  void work.begin('running', ann);
  const waiting = ['a1', 'a2', 'a3'].map((name) => work.begin(name, ann));
  const other = work.begin('b1', bob);
  await t.rejects(waiting[2] as Promise<string>, REFUSED);
  t.equal(work.limiter.waiting, 3);
  await work.end('running');
  await work.end('b1');
  t.equal(await other, 'b1');
});

t.test('callers with a lower rank come first', async (t) => {
  const work = new Work(1);
  for (const [caller, rank] of [
    ['a', 3],
    ['b', 3],
    ['c', 2],
    ['b', 1],
  ] as const)
    void work.begin(`${caller} ${rank}`, { caller, rank });
  await nextTurn();
  for (const name of ['a 3', 'b 3', 'b 1', 'c 2']) await work.end(name);
  t.strictSame(work.begun, ['a 3', 'b 3', 'b 1', 'c 2']);
});

t.test('the error says whether the caller has most of the waiting work', async (t) => {
  const refusal = (isBusiest: boolean): Error => new Error(isBusiest ? 'too many of yours' : 'too many');
  const work = new Work(1, { maxWaiting: 2, refusal });
  for (const name of ['running', 'first']) void work.begin(name, ann);
  void work.begin('second', ann);
  await t.rejects(work.begin('third', ann), { message: 'too many of yours' });
  const crowd = new Work(1, { maxWaiting: 2, refusal });
  for (const caller of ['running', 'first', 'second']) void crowd.begin(caller, { caller });
  await t.rejects(crowd.begin('third', { caller: 'third' }), { message: 'too many' });
});

t.test('an admission takes no longer where thousands of callers wait', async (t) => {
  const limiter = new Limiter(8, {});
  const held: Place[] = [];
  const callers = Array.from({ length: 9_000 }, (_, index) => Promise.resolve(limiter.enter({ caller: `${index}` })));
  const entered = callers.map((entering) => entering.then((place) => held.push(place)));
  await nextTurn();
  const before = process.cpuUsage();
  for (let place = held.shift(); place; place = held.shift()) {
    place.leave();
    if (held.length === 0) await nextTurn();
  }
  await Promise.all(entered);
  const { user } = process.cpuUsage(before);
  t.ok(
    user < 500_000,
    `9,000 admissions took ${user / 1_000} ms of processor time; one that looks at all callers takes 0.2 ms`,
  );
});

t.test('a heap has the least entry first, also after entries have changed', (t) => {
  const heap = new Heap<{ rank: number }>((one, other) => one.rank < other.rank);
  const entries = Array.from({ length: 200 }, (_, index) => ({ rank: (index * 7_919) % 211 }));
  for (const entry of entries) heap.put(entry);
  for (const [index, entry] of entries.entries()) {
    if (index % 3 === 0) heap.delete(entry);
    if (index % 3 === 1) heap.put(Object.assign(entry, { rank: (index * 104_729) % 223 }));
  }
  const left = entries.filter((_, index) => index % 3 !== 0).map(({ rank }) => rank);
  const taken: number[] = [];
  for (let { first } = heap; first; { first } = heap) {
    taken.push(first.rank);
    heap.delete(first);
  }
  t.strictSame(
    taken,
    left.sort((one, other) => one - other),
  );
  t.end();
});

t.test('after a deadlock, callers that took part in it run one at a time, others do not', async (t) => {
  const work = new Work(16);
  work.limiter.calm(['ann', 'bob']);
  const locks = { takesLocks: true };
  void work.begin('a1', { ...ann, ...locks });
  void work.begin('a2', { ...ann, ...locks });
  void work.begin('b1', { ...bob, ...locks });
  void work.begin('a3', ann);
  void work.begin('c1', { caller: 'cem', ...locks });
  void work.begin('c2', { caller: 'cem', ...locks });
  await nextTurn();
  t.strictSame(work.begun, ['a1', 'a3', 'c1', 'c2'], 'work with a single lock does not wait either');
  await work.end('a1');
  t.strictSame(work.begun.slice(4), ['b1']);
  await work.end('b1');
  t.strictSame(work.begun.slice(5), ['a2']);
});

t.test('work inside of other work takes its place and does not wait for one', async (t) => {
  const { limiter } = new Work(1, { waitTimeout: 200 });
  limiter.followPlaces();
  let most = 0;
  let running = 0;
  const inner = () =>
    limiter.run(bob, async () => {
      most = Math.max(most, ++running);
      await nextTurn();
      running--;
      return limiter.run(ann, async () => limiter.isInside);
    });
  t.strictSame(await limiter.run(ann, () => Promise.all([inner(), inner(), inner()])), [true, true, true]);
  t.equal(most, 1, 'one at a time');
  t.equal(limiter.isInside, false);
});

t.test('work that outlives the work around it waits like all other work', async (t) => {
  const { limiter } = new Work(1);
  limiter.followPlaces();
  let late: Promise<boolean> | null = null;
  await limiter.run(ann, async () => {
    late = nextTurn().then(() => limiter.run(ann, async () => limiter.isInside));
  });
  t.equal(await late, true, 'it has a place of its own');
  t.equal(limiter.waiting, 0);
});

t.test('a queue that is closed refuses what waits and what comes', async (t) => {
  const work = new Work(1);
  void work.begin('running', ann);
  const waiting = work.begin('waiting', bob);
  work.limiter.close();
  await t.rejects(waiting, ServiceError);
  await t.rejects(work.begin('late', bob), REFUSED);
});
