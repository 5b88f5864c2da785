/** The recorder of one thread: it records everything at usual rates, and an even part of requests that come too fast. */

import { setTimeout } from 'node:timers/promises';
import t from 'tap';
import { type TrafficBatch, type TrafficPull, TrafficRecorder } from '../../../src/features/traffic/recorder.js';
import { SecretNames } from '../../../src/features/traffic/secrets.js';
import { headerLine, type RecordedRequest, TrafficReader } from '../../../src/features/traffic/traffic-file.js';
import type { AnsweredRequest } from '../../../src/server/http/request-recorder.js';
import { passTime } from '../../support/time.js';

const recorder = new TrafficRecorder(() => ({ collections: new Map() }));
const TICK_MS = 5;

function requestOf(path: string): AnsweredRequest {
  return {
    method: 'GET',
    path,
    queryString: 'fields=id',
    headers: { prefer: '', accept: '' },
    route: '/items/:collection/:key',
    begun: performance.now(),
    identity: null,
    statementText: 'select 1',
    received: null,
    hasJsonBody: false,
    isWrite: false,
    sentBytes: 10,
    stageTimes: [0.1, -1, -1, -1, -1, 1, 0.25],
    wantsEvents: false,
  };
}

/** Sends requests for some time, then pulls what was recorded. */
async function send(id: string, perTick: number, milliseconds: number): Promise<TrafficBatch & { sent: number }> {
  let sent = 0;
  for (const begun = performance.now(); performance.now() - begun < milliseconds; ) {
    for (let each = 0; each < perTick; each++) recorder.add(requestOf(`/items/tags/${sent++}`), 200, recorder.draw());
    await setTimeout(TICK_MS);
  }
  return { ...recorder.pull({ ...recordingOf(id), isLast: false }), sent };
}

function recordedIn(lines: Uint8Array): readonly RecordedRequest[] {
  const reader = new TrafficReader('the batch');
  reader.add(headerLine({ started: new Date(), sample: 1, service: '1' }));
  for (const line of Buffer.from(lines).toString().split('\n')) reader.add(line);
  return reader.finish().recorded;
}

function recordingOf(id: string, sample = 1): TrafficPull {
  return { id, sample, begun: Date.now() - 1_000, isLast: false };
}

t.test('at usual rates every request is recorded, with its figures', async (t) => {
  recorder.pull(recordingOf('usual'));
  const { sent, requests, dropped, statements } = await send('usual', 1, 250);
  t.equal(requests, sent);
  t.equal(dropped, 0);
  t.match(statements, [/"text":"select 1"/]);
  recorder.add(requestOf('/items/tags/"quoted"'), 404, recorder.draw());
  const { lines } = recorder.pull({ ...recordingOf('usual'), isLast: true });
  t.match(recordedIn(lines), [
    { method: 'GET', path: '/items/:collection/:key', omitted: 'caller', status: 404, bytes: 10 },
  ]);
  t.equal(recorder.current, null, 'the last pull ends it');
});

t.test('a body that is no text is not recorded', async (t) => {
  recorder.pull(recordingOf('bytes'));
  const post = { ...requestOf('/items/tags'), method: 'POST', route: '/items/:collection', hasJsonBody: true };
  for (const received of [Buffer.from('{"name":"\xff"}', 'latin1'), Buffer.alloc(70_000, ' ')])
    recorder.add({ ...post, received }, 400, recorder.draw());
  const { lines } = recorder.pull({ ...recordingOf('bytes'), isLast: true });
  t.match(recordedIn(lines), [{ omitted: 'body' }, { omitted: 'large' }]);
});

t.test('a service with few requests records all of them, whatever they take', async (t) => {
  const document = JSON.stringify({ query: `{ ${'tags { id name } '.repeat(1_000)} }` });
  const post = { ...requestOf('/graphql'), method: 'POST', route: '/graphql', hasJsonBody: true };
  const record = (requests: number): number => {
    for (let each = 0; each < requests; each++) {
      const takers = recorder.draw();
      recorder.add({ ...post, received: Buffer.from(document) }, 200, takers);
    }
    return recorder.pull(recordingOf('few')).dropped;
  };
  recorder.pull(recordingOf('few'));
  // The time of a request is an average, which changes slowly.
  for (let turn = 0; turn < 100; turn++) record(64);
  for (let turn = 0; turn < 2; turn++) {
    await passTime(250, 'the share is computed again');
    record(1);
  }
  let dropped = 0;
  for (let turn = 0; turn < 4; turn++) {
    await passTime(250, 'the share is computed again');
    dropped += record(60);
  }
  t.equal(dropped, 0, '240 requests per second');
  recorder.pull({ ...recordingOf('few'), isLast: true });
});

t.test('an even part of requests that come too fast is recorded, and the others are counted', async (t) => {
  recorder.pull(recordingOf('fast'));
  recorder.pull(recordingOf('tenth', 0.1));
  await send('fast', 300, 250);
  recorder.pull(recordingOf('tenth', 0.1));
  const { sent, requests, dropped, lines } = await send('fast', 300, 400);
  t.ok(dropped > sent / 2, `${dropped} of ${sent} dropped`);
  t.ok(requests > 100, `${requests} recorded`);
  t.equal(requests + dropped, sent, 'every request is counted');
  const times = recordedIn(lines).map((each) => each.t);
  t.equal(times.length, requests);
  const middle = (Math.min(...times) + Math.max(...times)) / 2;
  const early = times.filter((time) => time < middle).length / times.length;
  t.ok(early > 0.3 && early < 0.7, `${early} of the recorded requests came in the first half of the time`);
  const tenth = recorder.pull({ ...recordingOf('tenth', 0.1), isLast: true });
  const share = (tenth.requests + tenth.dropped) / sent;
  t.ok(share > 0.07 && share < 0.13, `${share} of the requests, as its sample says`);
  recorder.pull({ ...recordingOf('fast'), isLast: true });
});

t.test('no text of a client keeps the search for secrets busy', (t) => {
  const names = new SecretNames({ collections: new Map() });
  const texts = ['#'.repeat(25), 'a'.repeat(30_000), '"""\\"""'.repeat(5_000), '# a\n'.repeat(10_000)];
  for (const text of texts) {
    const body = JSON.stringify({ query: `{ token ${text}\n }` });
    const begun = performance.now();
    names.omissionOf({ method: 'POST', route: '/graphql', path: '/graphql', queryString: '', body });
    t.ok(performance.now() - begun < 500, `${text.slice(0, 10)}: ${performance.now() - begun} ms`);
  }
  t.end();
});
