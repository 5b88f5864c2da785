/** Figures of the service from the counters of `GET /server/metrics`: each is the difference between two readings. */

export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface Reading {
  /** Milliseconds. */
  readonly at: number;
  readonly samples: readonly Sample[];
}

/** The text format of Prometheus. */
export function readMetrics(text: string): Sample[] {
  return text.split('\n').flatMap((line) => {
    const [, name, labels = '', value] = /^([a-z_]\w*)(?:\{(.*)\})? ([^ ]+)/i.exec(line) ?? [];
    if (name === undefined || value === undefined) return [];
    const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, text = '']) => [key, text]);
    return [{ name, labels: Object.fromEntries(pairs), value: Number(value) }];
  });
}

export interface Figures {
  readonly perSecond: number;
  readonly errorsPerSecond: number;
  /** Milliseconds, or null if there was no request. */
  readonly p50: number | null;
  readonly p99: number | null;
  readonly batch: number | null;
  readonly statements: number | null;
  readonly busy: number;
  readonly waiting: number;
  readonly megabytes: number;
}

const OWN = /^\/(?:server\/(?:metrics|shapes)|explorer)/;

function figuresOf(now: Reading, before: Reading): Figures {
  const seconds = Math.max(0.001, (now.at - before.at) / 1_000);
  const grown = (name: string, want: (labels: Sample['labels']) => boolean = () => true): number =>
    Math.max(0, sum(now, name, want) - sum(before, name, want));
  const requests = grown('lateral_requests_total', ({ route = '' }) => !OWN.test(route));
  const statements = grown('lateral_statements_total', ({ kind }) => kind !== 'own' && kind !== 'catalog');
  const others = now.samples.filter(
    ({ name, labels }) => name === 'lateral_requests_total' && !OWN.test(labels['route'] ?? ''),
  );
  // Durations have only a method. If only this page used a method, its durations are left out.
  const methods = [...new Set(others.map(({ labels }) => labels['method'] ?? ''))].filter(
    (method) =>
      grown('lateral_requests_total', ({ method: each, route = '' }) => each === method && !OWN.test(route)) > 0,
  );
  const batches = grown('lateral_read_batch_size_count');
  return {
    perSecond: requests / seconds,
    errorsPerSecond: grown('lateral_requests_total', ({ status = '' }) => status.startsWith('5')) / seconds,
    p50: quantile(now, before, methods, 0.5),
    p99: quantile(now, before, methods, 0.99),
    batch: batches > 0 ? grown('lateral_read_batch_size_sum') / batches : null,
    statements: requests > 0 ? statements / requests : null,
    busy: sum(now, 'lateral_pool_connections_busy'),
    waiting: sum(now, 'lateral_pool_waiting'),
    megabytes: sum(now, 'process_resident_memory_bytes') / 1_048_576,
  };
}

/** Milliseconds by which each replica is behind. */
function lagsOf({ samples }: Reading): ReadonlyMap<string, number> {
  const lags = samples.filter(({ name }) => name === 'lateral_replica_lag_seconds');
  return new Map(lags.map(({ labels, value }) => [labels['server'] ?? '', value * 1_000]));
}

function sum({ samples }: Reading, name: string, want: (labels: Sample['labels']) => boolean = () => true): number {
  return samples.reduce((total, each) => (each.name === name && want(each.labels) ? total + each.value : total), 0);
}

/** Assumes that requests are spread evenly within a bucket of the histogram. */
function quantile(now: Reading, before: Reading, methods: readonly string[], share: number): number | null {
  const name = 'lateral_request_duration_seconds_bucket';
  const upTo = (reading: Reading, le: string): number =>
    sum(reading, name, (labels) => labels['le'] === le && methods.includes(labels['method'] ?? ''));
  const bounds = [...new Set(now.samples.flatMap((each) => (each.name === name ? [each.labels['le'] ?? ''] : [])))];
  const counts = bounds.map((le) => ({
    bound: le === '+Inf' ? Number.POSITIVE_INFINITY : Number(le),
    count: upTo(now, le) - upTo(before, le),
  }));
  counts.sort((one, other) => one.bound - other.bound);
  const total = counts.at(-1)?.count ?? 0;
  if (total <= 0) return null;
  const wanted = total * share;
  let [low, below] = [0, 0];
  for (const { bound, count } of counts) {
    if (count >= wanted) {
      if (bound === Number.POSITIVE_INFINITY) return low * 1_000;
      const part = count > below ? (wanted - below) / (count - below) : 1;
      return (low + (bound - low) * part) * 1_000;
    }
    low = bound;
    below = count;
  }
  return null;
}

export interface RouteFigures {
  readonly route: string;
  readonly requests: number;
  readonly errors: number;
}

type RouteCounts = ReadonlyMap<string, Omit<RouteFigures, 'route'>>;

function countRoutes({ samples }: Reading): RouteCounts {
  const found = new Map<string, { requests: number; errors: number }>();
  for (const { name, labels, value } of samples) {
    if (name !== 'lateral_requests_total' || OWN.test(labels['route'] ?? '')) continue;
    const route = `${labels['method']} ${labels['route']}`;
    const known = found.get(route) ?? { requests: 0, errors: 0 };
    known.requests += value;
    if (Number(labels['status']) >= 400) known.errors += value;
    found.set(route, known);
  }
  return found;
}

/** The part of a reading that is kept: hundreds of complete readings would fill the memory of an open page. */
export interface Point {
  /** Milliseconds. */
  readonly at: number;
  /** The figures, or null in the first sample, which has no predecessor. */
  readonly figures: Figures | null;
  readonly lags: ReadonlyMap<string, number>;
  readonly routes: RouteCounts;
}

export function pointOf(now: Reading, before: Reading | null): Point {
  return { at: now.at, figures: before && figuresOf(now, before), lags: lagsOf(now), routes: countRoutes(now) };
}

/** The busiest routes between two points. */
export function busiestRoutes(now: Point, before: Point): RouteFigures[] {
  return [...now.routes]
    .map(([route, { requests, errors }]) => {
      const earlier = before.routes.get(route) ?? { requests: 0, errors: 0 };
      return { route, requests: requests - earlier.requests, errors: errors - earlier.errors };
    })
    .filter(({ requests }) => requests > 0)
    .sort((one, other) => other.requests - one.requests)
    .slice(0, 12);
}
