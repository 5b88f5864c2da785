/** Deadlines that are kept, missed, and set while others are missed. */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { type Deadline, Deadlines } from '../../../src/speed/batching/read-batcher.js';
import { waitFor } from '../../support/service.js';

const TIME = 60;

t.test('removed deadlines do not expire, the rest do, each once, in order and not too soon', async (t) => {
  const deadlines = new Deadlines(TIME);
  const missed: number[] = [];
  const times: number[] = [];
  const add = (number: number): Deadline => {
    const begun = performance.now();
    return deadlines.add(() => {
      missed.push(number);
      times.push(performance.now() - begun);
    });
  };
  for (let number = 0; number < 6; number++) {
    const deadline = add(number);
    // Where the machine stalls, those before it may be missed here already: it itself cannot be.
    if (number === 0 || number === 4) deadlines.remove(deadline);
    await sleep(20);
  }
  await waitFor(async () => missed.length >= 4, 5_000);
  await sleep(2 * TIME);
  t.strictSame(missed, [1, 2, 3, 5]);
  for (const time of times) t.ok(time >= TIME - 1, `after ${Math.round(time)} ms`);
});

t.test('one that is set by one that is missed, and one after a rest', async (t) => {
  const deadlines = new Deadlines(TIME);
  const missed: string[] = [];
  let set = 0;
  let time = 0;
  deadlines.add(() => {
    missed.push('first');
    set = performance.now();
    deadlines.add(() => {
      missed.push('third');
      time = performance.now() - set;
    });
  });
  deadlines.add(() => missed.push('second'));
  await waitFor(async () => missed.length >= 3, 5_000);
  t.strictSame(missed, ['first', 'second', 'third']);
  t.ok(time >= TIME - 1, `after ${Math.round(time)} ms`);
  await sleep(2 * TIME);
  deadlines.add(() => missed.push('after a rest'));
  await waitFor(async () => missed.length >= 4, 5_000);
  t.strictSame(missed.slice(3), ['after a rest']);
});
