/** The life cycle of a subscription: its caller is resolved again when rights change or a session ends, also while it is being resolved. */
import t from 'tap';
import { forbidden, unprocessable } from '../../../src/base/errors.js';
import { Subscriber, Subscribers } from '../../../src/features/live/subscribers.js';
import { type Identity, PUBLIC } from '../../../src/server/access/identity.js';
import { waitFor } from '../../support/service.js';

const LIMITS = { subscriptions: 10, perCaller: 10, keys: 10 };
const ALICE: Identity = { ...PUBLIC, user: 'alice' };

/** Records what happens. `resolving` runs while the caller is being resolved. */
class Recorder extends Subscriber {
  current: Identity = ALICE;
  resolving: () => void = () => {};
  error: unknown = null;
  readonly resolvedAs: (string | null)[] = [];
  readonly withdrawn: boolean[] = [];
  readonly ends: unknown[] = [];
  attempts = 0;
  readonly source = { address: '192.0.2.1', identify: (): Identity => this.current };
  readonly listener = {
    withdraw: (isSame: boolean): boolean => {
      this.withdrawn.push(isSame);
      return false;
    },
  };

  constructor(readonly waitsForRights: boolean) {
    super();
  }

  async resolve(caller: Identity, isValid: () => boolean): Promise<void> {
    const { error } = this;
    this.attempts++;
    this.resolving();
    await Promise.resolve();
    if (error !== null) throw error;
    if (!isValid()) return;
    this.resolvedAs.push(caller.user);
    this.resolved(caller, 'query');
  }

  onUnresolved(): void {}
  onClosed(): void {}
  ping(): void {}
  end(error: unknown): void {
    this.ends.push(error);
  }
}

const begin = async (): Promise<void> => {};

t.test('a session that ends while its caller is resolved is noticed', async (t) => {
  const subscribers = new Subscribers(LIMITS, () => {});
  const subscriber = new Recorder(false);
  subscriber.resolving = () => {
    if (subscriber.attempts > 1) return;
    subscriber.current = PUBLIC;
    subscribers.sessionsEnded();
  };
  await subscribers.add(subscriber, begin);
  t.strictSame(subscriber.resolvedAs, [null], 'the former caller is never used');
  t.equal(subscriber.attempts, 2);
});

t.test('rights that change while the caller is resolved are noticed', async (t) => {
  const subscribers = new Subscribers(LIMITS, () => {});
  const subscriber = new Recorder(false);
  subscriber.resolving = () => {
    if (subscriber.attempts > 1) return;
    // An error of the former rights is void.
    subscriber.error = null;
    subscribers.rightsChanged();
  };
  subscriber.error = forbidden();
  await subscribers.add(subscriber, begin);
  t.equal(subscriber.attempts, 2);
  t.ok(subscriber.isResolved);
});

t.test('an answer that waits is withdrawn if rights have changed, not if a token was renewed', async (t) => {
  const subscribers = new Subscribers(LIMITS, () => {});
  const subscriber = new Recorder(false);
  await subscribers.add(subscriber, begin);
  const { version } = subscriber;
  subscribers.renew(subscriber);
  t.notOk(subscriber.isResolved, 'nothing is sent until the caller is known');
  await waitFor(async () => subscriber.isResolved, 5_000);
  subscribers.rightsChanged();
  t.notOk(subscriber.isResolved);
  await waitFor(async () => subscriber.isResolved, 5_000);
  t.strictSame(subscriber.withdrawn, [false, true, false]);
  t.ok(subscriber.version > version);
});

t.test('a refused query ends, a refused subscription to events waits for rights', async (t) => {
  const subscribers = new Subscribers(LIMITS, () => {});
  const query = new Recorder(false);
  const events = new Recorder(true);
  for (const each of [query, events]) {
    await subscribers.add(each, begin);
    each.error = forbidden();
  }
  subscribers.rightsChanged();
  await waitFor(async () => query.ends.length > 0 && events.attempts > 1, 5_000);
  t.match(query, { isClosed: true, ends: [{ code: 'FORBIDDEN' }] });
  t.match(events, { isClosed: false, isResolved: false, ends: [] });
  events.error = null;
  subscribers.rightsChanged();
  await waitFor(async () => events.isResolved, 5_000);
  events.error = unprocessable('not a table');
  subscribers.rightsChanged();
  await waitFor(async () => events.isClosed, 5_000);
  t.match(events.ends, [{ code: 'UNPROCESSABLE_CONTENT' }]);
});

t.test('a subscription that cannot begin is closed, and the last one to end is reported', async (t) => {
  let empty = 0;
  const subscribers = new Subscribers(LIMITS, () => empty++);
  const subscriber = new Recorder(true);
  subscriber.error = forbidden();
  await t.rejects(subscribers.add(subscriber, begin), { code: 'FORBIDDEN' });
  t.equal(empty, 1);
  const other = new Recorder(true);
  await subscribers.add(other, begin);
  subscribers.endAll();
  subscribers.close(other);
  t.strictSame(other.ends, [null]);
  t.equal(empty, 2);
  t.equal(subscribers.counts.total, 0);
});
