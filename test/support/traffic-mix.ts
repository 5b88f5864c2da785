/** A mix of requests of many shapes by several callers, sent at a constant rate. */
import { elementAt } from '../../src/base/narrow.js';
import { OpenLoop, writeRequest } from '../../src/features/traffic/open-loop.js';
import { type RecordedRequest, type Traffic, TrafficReader } from '../../src/features/traffic/traffic-file.js';
import { ADMIN_TOKEN } from './service.js';

export interface MixedRequest {
  readonly method: string;
  readonly path: string;
  readonly body?: string;
  readonly token: string | null;
}

/** What the service recorded in so many milliseconds, read from its route. */
export async function recordRaw(url: string, milliseconds: number, sample = 1): Promise<Traffic> {
  const response = await fetch(`${url}/server/traffic?for=${milliseconds}ms&sample=${sample}`, {
    headers: { Authorization: `Bearer ${ADMIN_TOKEN}` },
  });
  const reader = new TrafficReader(url);
  for (const line of (await response.text()).split('\n')) reader.add(line);
  return reader.finish();
}

/** Sends the requests in turn at a constant rate; answers their statuses. */
export async function sendMix(
  url: string,
  requests: readonly MixedRequest[],
  perSecond: number,
  seconds: number,
): Promise<readonly number[]> {
  const target = new URL(url);
  const sendings = requests.map(({ method, path, body, token }) => ({
    bytes: writeRequest(
      {
        method,
        path,
        body,
        headers: {
          ...(token === null ? {} : { Authorization: `Bearer ${token}` }),
          ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        },
      },
      target.host,
    ),
  }));
  const statuses: number[] = [];
  const loop = new OpenLoop<(typeof sendings)[number]>(
    target,
    { onAnswer: (_, __, status) => statuses.push(status) },
    10_000,
  );
  await loop.connect(4);
  const begun = performance.now();
  let next = 0;
  const count = Math.round(perSecond * seconds);
  await loop.run(
    {
      peek: () => (next < count ? begun + (next * 1_000) / perSecond : null),
      take: () => elementAt(sendings, next++ % sendings.length),
    },
    begun + seconds * 1_000 + 30_000,
  );
  loop.end();
  return statuses;
}

/** How many requests there are of each shape and status. */
export function countsOf(requests: readonly RecordedRequest[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { shape, method, path, status } of requests) {
    const key = `${shape ?? `${method} ${path}`} ${status}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return counts;
}

/** Requests per second between the first and the last one. */
export function rateOf(requests: readonly RecordedRequest[]): number {
  const [first, last] = [requests[0]?.t ?? 0, requests.at(-1)?.t ?? 0];
  return ((requests.length - 1) * 1_000) / (last - first);
}
