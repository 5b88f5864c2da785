/** Which connection a read gets: the order in which they are used, without a database. */
import t from 'tap';
import type { Connection } from '../../../src/server/postgres/wire/connection.js';
import { ConnectionSlots, type ReadProfile } from '../../../src/speed/batching/connection-slots.js';
import type { CostClass } from '../../../src/speed/batching/cost-model.js';

const profile = (costClass: CostClass): ReadProfile => ({
  costClass,
  isLimited: costClass === 'unknown' || costClass === 'slow',
  caller: '',
});

/** Four connections, by their numbers; the last was used last. */
function openSlots(): { slots: ConnectionSlots; take: (costClass: CostClass) => number } {
  const connections = Array.from({ length: 4 }, () => ({}) as Connection);
  const slots = new ConnectionSlots(connections, () => {});
  return {
    slots,
    take: (costClass) => connections.indexOf(slots.take(profile(costClass), '').connection),
  };
}

t.test('a cheap read takes the connection that was used last', async (t) => {
  const { take } = openSlots();
  t.strictSame([take('cheap'), take('cheap')], [3, 2]);
});

t.test('reads that are or may be slow leave the warm connections to cheap reads', async (t) => {
  const { take } = openSlots();
  t.strictSame([take('unknown'), take('slow'), take('cheap')], [0, 1, 3]);
});

t.test('the connection that may use several processors is for reads that are not cheap', async (t) => {
  const { slots, take } = openSlots();
  t.equal(take('moderate'), 0);
  t.equal(take('moderate'), 3, 'when it is taken, the warm ones');
  t.equal(slots.busy, 2);
});

t.test(
  'while other reads run, nothing takes the connection that may use several processors, unless it is the only one',
  async (t) => {
    const { slots, take } = openSlots();
    const parallel = slots.take(profile('slow'), '');
    t.equal(take('slow'), 1);
    slots.release(parallel, true);
    t.strictSame([take('slow'), take('moderate'), take('moderate')], [2, 3, 0]);
  },
);
