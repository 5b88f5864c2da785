/** Deadlines that are kept, missed, and set while others are missed. */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { type Deadline, Deadlines } from '../src/execute/deadlines.js';

const TIME = 60;

t.test('what is removed in time is not missed, the rest is, each once and in its order', async (t) => {
  const deadlines = new Deadlines(TIME);
  const missed: number[] = [];
  const begun = performance.now();
  const times: number[] = [];
  const all: Deadline[] = [];
  for (let number = 0; number < 6; number++) {
    all.push(
      deadlines.add(() => {
        missed.push(number);
        times.push(performance.now() - begun - number * 20);
      }),
    );
    await sleep(Math.max(0, begun + (number + 1) * 20 - performance.now()));
  }
  deadlines.remove(all[4] as Deadline);
  deadlines.remove(all[0] as Deadline);
  await sleep(2 * TIME);
  t.strictSame(missed, [0, 1, 2, 3, 5]);
  for (const time of times) t.ok(time >= TIME - 1, `after ${Math.round(time)} ms`);
});

t.test('one that is set by one that is missed', async (t) => {
  const deadlines = new Deadlines(TIME);
  const missed: string[] = [];
  deadlines.add(() => {
    missed.push('first');
    deadlines.add(() => missed.push('third'));
  });
  deadlines.add(() => missed.push('second'));
  await sleep(TIME + 30);
  t.strictSame(missed, ['first', 'second']);
  await sleep(TIME + 30);
  t.strictSame(missed, ['first', 'second', 'third']);
  deadlines.add(() => missed.push('after a rest'));
  await sleep(TIME + 30);
  t.equal(missed.at(-1), 'after a rest');
});
