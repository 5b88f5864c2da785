/** The changes of the database without other features: several listeners share one stream, which is open while one of them holds it. */
import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { withCore } from '../../../src/app/start.js';
import { StreamedChanges } from '../../../src/features/change-stream/changes.js';
import type { Transaction } from '../../../src/server/changes/change-source.js';
import type { ChangeEvent, ChangeListener } from '../../../src/server/changes/changes.js';
import { connectSql, createLibrary, startDatabase, waitFor } from '../../support/service.js';

const server = await startDatabase();
const url = await createLibrary(server, 'changes');
const sql = connectSql(url);
t.teardown(() => sql.end());

function withChanges(mode: string, work: (changes: StreamedChanges) => Promise<void>): Promise<void> {
  const config = readConfig({ DATABASE_URL: url, LIVE: mode });
  const silent = (): void => {};
  return withCore(config, silent, silent, async ({ changes }) => {
    if (!(changes instanceof StreamedChanges)) throw new Error('there is no stream');
    try {
      await work(changes);
    } finally {
      await changes.stop();
    }
  });
}

/** Wants one column of the tags. */
class Recorder implements ChangeListener {
  readonly transactions: Transaction[] = [];
  resyncs = 0;
  readonly subscriptions = 2;

  constructor(private readonly column: string) {}

  wanted({ name, columns }: Parameters<ChangeListener['wanted']>[0]): readonly boolean[] | null {
    return name === 'tags' ? columns.map((each) => each.name === this.column) : null;
  }

  committed(transaction: Transaction): void {
    this.transactions.push(transaction);
  }

  resynced(): void {
    this.resyncs++;
  }
}

t.test('each listener gets the rows of a transaction, with the columns that any of them wants', (t) =>
  withChanges('triggers', async (changes) => {
    const [first, second, late] = [new Recorder('id'), new Recorder('name'), new Recorder('id')];
    for (const listener of [first, second]) changes.add(listener);
    await changes.hold(first);
    await changes.opened();
    changes.add(late);
    await waitFor(async () => [first, second, late].every(({ resyncs }) => resyncs > 0), 5_000);
    await sql`update tags set name = name || '!' where id = 1`;
    await waitFor(async () => [first, second, late].every(({ transactions }) => transactions.length === 1), 5_000);
    const [{ changes: changed } = { changes: [] }] = first.transactions;
    t.match(changed, [{ table: { name: 'tags' }, rows: [{ action: 'update' }] }]);
    const { 'live:stream': health } = await changes.check();
    t.match(health, [{ status: 'ok', observedValue: 6, observedUnit: 'subscriptions' }]);
  }),
);

t.test('the stream stays open while one listener holds it', (t) =>
  withChanges('triggers', async (changes) => {
    const [first, second] = [new Recorder('id'), new Recorder('id')];
    for (const listener of [first, second]) {
      changes.add(listener);
      await changes.hold(listener);
    }
    await changes.opened();
    changes.release(first);
    await sql`update tags set name = name || '!' where id = 2`;
    await waitFor(async () => first.transactions.length === 1, 5_000);
    changes.release(second);
    t.equal(changes.stream.state, 'open', 'a listener may return soon');
    await waitFor(async () => changes.stream.state === 'closed', 10_000);
    const { resyncs } = second;
    await changes.hold(second);
    await waitFor(async () => second.resyncs > resyncs, 5_000);
  }),
);

t.test('a program gets the keys of changed items', (t) =>
  withChanges('triggers', async (changes) => {
    const events: ChangeEvent[] = [];
    await changes.watch((event) => events.push(event));
    await sql`update tags set name = name || '!' where id = 3`;
    await waitFor(async () => events.length === 1, 5_000);
    t.strictSame(events, [{ collection: 'tags', action: 'update', key: '3' }]);
  }),
);

t.test('with LIVE=off there are no changes', (t) =>
  withChanges('off', async (changes) => {
    t.equal(await changes.obstacle(), 'LIVE is off');
    await t.rejects(changes.hold(new Recorder('id')), { message: /There are no live queries: LIVE is off/ });
    t.match(await changes.check(), { 'live:stream': [{ status: 'ok', output: 'off: LIVE is off' }] });
  }),
);
