/** Work that cannot be done in slices is done one at a time, and callers have their turns one after the other. */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import type { Steps } from '../../src/base/time-slices.js';
import { CallerBudgets } from '../../src/server/execute/caller-budget.js';
import { encodeInSlices, TurnQueue } from '../../src/server/node/turns.js';

const block = (milliseconds: number): void => {
  for (const end = performance.now() + milliseconds; performance.now() < end; );
};

t.test('one caller with much to do does not hold up another', async (t) => {
  const queue = new TurnQueue();
  const done: string[] = [];
  const ask = (caller: string): Promise<unknown> => queue.run(caller, () => done.push(caller));
  await Promise.all([...['a', 'a', 'a', 'a', 'b', 'b', 'c'].map(ask)]);
  t.strictSame(done, ['a', 'b', 'c', 'a', 'b', 'a', 'a']);
});

t.test('the loop is left to others for as long as the work took', async (t) => {
  const queue = new TurnQueue();
  const starts: number[] = [];
  const work = (): void => {
    starts.push(performance.now());
    block(40);
  };
  let turns = 0;
  const timer = setInterval(() => turns++, 1);
  await Promise.all([1, 2, 3].map(() => queue.run('a', work)));
  clearInterval(timer);
  const gaps = starts.slice(1).map((start, index) => start - (starts[index] ?? 0));
  for (const gap of gaps) t.ok(gap >= 75, `${gap} ms lie between two beginnings`);
  t.ok(turns > 5, `others had ${turns} turns`);
});

t.test('work that fails passes the turn on', async (t) => {
  const queue = new TurnQueue();
  const failed = queue.run('a', () => {
    throw new Error('no');
  });
  const other = queue.run('b', () => 'done');
  await t.rejects(failed, { message: 'no' });
  t.equal(await Promise.race([other, sleep(5_000)]), 'done');
});

const LARGE = 100_000;
const billed = { caller: { user: 'a', administrator: false }, from: { address: '' } };

function* threeSteps(done: string[]): Steps<string> {
  for (const step of ['one', 'two']) {
    block(30);
    done.push(step);
    yield;
  }
  block(30);
  return 'three';
}

t.test('large work leaves the loop to others after each step', async (t) => {
  const budgets = new CallerBudgets({ share: 10, burst: 1_000 });
  const done: string[] = [];
  const timer = setInterval(() => done.push('other'), 1);
  t.equal(await budgets.inTurn(billed, LARGE, () => threeSteps(done)), 'three');
  clearInterval(timer);
  const [first, second] = [done.indexOf('one'), done.indexOf('two')];
  t.ok(done.slice(first, second).includes('other'), 'between the first and the second step');
  t.ok(done.slice(second).includes('other'), 'between the second and the third');
});

t.test('work that has begun within the budget is done to its end, and counted', async (t) => {
  const budgets = new CallerBudgets({ share: 0.001, burst: 1 });
  t.equal(await budgets.inTurn(billed, LARGE, () => threeSteps([])), 'three');
  await t.rejects(Promise.resolve(budgets.inTurn(billed, LARGE, () => threeSteps([]))), { code: 'REQUESTS_EXCEEDED' });
  t.throws(() => budgets.inTurn(billed, 1, () => threeSteps([])), { code: 'REQUESTS_EXCEEDED' });
});

t.test('a long text is encoded as at once, also where a character lies across two steps', async (t) => {
  const text = `x${'😀'.repeat(600_000)}é${'y'.repeat(1_100_000)}`;
  t.ok((await encodeInSlices(text)).equals(Buffer.from(text)));
  t.equal((await encodeInSlices('')).length, 0);
});
