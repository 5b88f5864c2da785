/** What is learned of reads from the time of their statements: a table of inputs and outputs. */
import t from 'tap';
import { type CostClass, CostModel } from '../../../src/speed/batching/cost-model.js';

interface Statement {
  readonly ms: number;
  /** As many as the model says, where it is left out. */
  readonly reads?: number;
  readonly failed?: boolean;
  readonly times?: number;
}

interface Case {
  readonly name: string;
  readonly statements: readonly Statement[];
  readonly costClass: CostClass;
  readonly batchSize: number;
  readonly trialSize: number;
  readonly maxSlots: number;
}

const CASES: readonly Case[] = [
  { name: 'nothing is known', statements: [], costClass: 'unknown', batchSize: 1, trialSize: 1, maxSlots: 2 },
  {
    name: 'the cheapest reads share one connection',
    statements: [{ ms: 0.05 }],
    costClass: 'cheap',
    batchSize: 64,
    trialSize: 2,
    maxSlots: 1,
  },
  {
    name: 'a cheap read: eight fit into the budget',
    statements: [{ ms: 0.5 }],
    costClass: 'cheap',
    batchSize: 8,
    trialSize: 2,
    maxSlots: 2,
  },
  {
    name: 'a little more is moderate: as many as the budget allows',
    statements: [{ ms: 0.6 }],
    costClass: 'moderate',
    batchSize: 6,
    trialSize: 2,
    maxSlots: 2,
  },
  {
    name: 'where the budget allows none, a batch is tried',
    statements: [{ ms: 50 }],
    costClass: 'moderate',
    batchSize: 2,
    trialSize: 2,
    maxSlots: 2,
  },
  {
    name: 'a slow read: two would take too long',
    statements: [{ ms: 100, times: 40 }],
    costClass: 'slow',
    batchSize: 1,
    trialSize: 1,
    maxSlots: 2,
  },
  {
    name: 'a busy machine: a batch takes as long as one read, however many there are',
    statements: [{ ms: 40, times: 7 }],
    costClass: 'moderate',
    batchSize: 64,
    trialSize: 64,
    maxSlots: 2,
  },
  {
    name: 'a batch that does not pay is given up',
    statements: [
      { ms: 10, reads: 1 },
      { ms: 20, reads: 2 },
    ],
    costClass: 'moderate',
    batchSize: 1,
    trialSize: 1,
    maxSlots: 2,
  },
  {
    name: 'and not tried again for fifteen statements',
    statements: [
      { ms: 10, reads: 1 },
      { ms: 20, reads: 2 },
      { ms: 10, reads: 1, times: 15 },
    ],
    costClass: 'moderate',
    batchSize: 1,
    trialSize: 1,
    maxSlots: 2,
  },
  {
    name: 'but with the next',
    statements: [
      { ms: 10, reads: 1 },
      { ms: 20, reads: 2 },
      { ms: 10, reads: 1, times: 16 },
    ],
    costClass: 'moderate',
    batchSize: 2,
    trialSize: 2,
    maxSlots: 2,
  },
  {
    name: 'the cost falls by half of the difference',
    statements: [
      { ms: 100, reads: 1 },
      { ms: 1, reads: 1 },
    ],
    costClass: 'slow',
    batchSize: 2,
    trialSize: 2,
    maxSlots: 2,
  },
  {
    name: 'and rises by a hundredth of it',
    statements: [
      { ms: 0.5, reads: 1 },
      { ms: 100.5, reads: 1 },
    ],
    costClass: 'moderate',
    batchSize: 2,
    trialSize: 2,
    maxSlots: 2,
  },
  {
    name: 'what failed fast teaches nothing',
    statements: [{ ms: 0.1, failed: true, times: 5 }],
    costClass: 'unknown',
    batchSize: 1,
    trialSize: 1,
    maxSlots: 2,
  },
  {
    name: 'what failed after a long time is slow',
    statements: [{ ms: 5_000, failed: true }],
    costClass: 'slow',
    batchSize: 1,
    trialSize: 1,
    maxSlots: 2,
  },
];

for (const { name, statements, ...expected } of CASES) {
  t.test(name, async (t) => {
    const model = new CostModel();
    for (const { ms, reads, failed = false, times = 1 } of statements)
      for (let turn = 0; turn < times; turn++) model.learn(ms, reads ?? model.batchSize, failed);
    const { costClass, batchSize, trialSize, maxSlots } = model;
    t.strictSame({ costClass, batchSize, trialSize, maxSlots }, expected);
  });
}

t.test('batches grow while they pay, and stay small where each read takes its time', async (t) => {
  const [busy, steady] = [new CostModel(), new CostModel()];
  const sizes: number[] = [];
  for (let turn = 0; turn < 7; turn++) {
    sizes.push(busy.batchSize);
    busy.learn(40, busy.batchSize, false);
  }
  t.strictSame(sizes, [1, 2, 4, 8, 16, 32, 64]);
  for (let turn = 0; turn < 40; turn++) {
    t.ok(steady.batchSize <= 2);
    steady.learn(10 * steady.batchSize, steady.batchSize, false);
  }
});

t.test('a batch that took too long makes its reads slow until they have shown to be faster', async (t) => {
  const model = new CostModel();
  model.learn(0.2, 1, false);
  t.equal(model.costClass, 'cheap');
  model.markSlow();
  t.equal(model.costClass, 'slow');
  t.equal(model.expectedMs(2), 500.1);
  let statements = 0;
  for (; model.costClass !== 'cheap'; statements++) model.learn(0.2, 1, false);
  t.equal(statements, 10, 'each halves the difference');
});

t.test('the expected time of a statement is known after the first', async (t) => {
  const model = new CostModel();
  t.equal(model.expectedMs(1), null);
  model.learn(2, 1, false);
  t.equal(model.expectedMs(3), 6.1);
});
