/** Figures of the service, from what `GET /server/metrics` counts: each is the difference between two readings. */

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
  /** Milliseconds; null where there was no request. */
  readonly p50: number | null;
  readonly p99: number | null;
  readonly batch: number | null;
  readonly statements: number | null;
  readonly busy: number;
  readonly waiting: number;
  readonly megabytes: number;
}

const OWN = /^\/(?:server\/(?:metrics|shapes)|explorer)/;

export function figuresOf(now: Reading, before: Reading): Figures {
  const seconds = Math.max(0.001, (now.at - before.at) / 1_000);
  const grown = (name: string, want: (labels: Sample['labels']) => boolean = () => true): number =>
    Math.max(0, sum(now, name, want) - sum(before, name, want));
  const requests = grown('lateral_requests_total', ({ route = '' }) => !OWN.test(route));
  const all = grown('lateral_requests_total');
  const statements = grown('lateral_statements_total', ({ kind }) => kind !== 'own' && kind !== 'catalog');
  const batches = grown('lateral_read_batch_size_count');
  return {
    perSecond: requests / seconds,
    errorsPerSecond: grown('lateral_requests_total', ({ status = '' }) => status.startsWith('5')) / seconds,
    p50: quantile(now, before, 0.5),
    p99: quantile(now, before, 0.99),
    batch: batches > 0 ? grown('lateral_read_batch_size_sum') / batches : null,
    statements: all > 0 ? statements / all : null,
    busy: sum(now, 'lateral_pool_connections_busy'),
    waiting: sum(now, 'lateral_pool_waiting'),
    megabytes: sum(now, 'process_resident_memory_bytes') / 1_048_576,
  };
}

/** Milliseconds by which each replica is behind. */
export function lagsOf({ samples }: Reading): ReadonlyMap<string, number> {
  const lags = samples.filter(({ name }) => name === 'lateral_replica_lag_seconds');
  return new Map(lags.map(({ labels, value }) => [labels['server'] ?? '', value * 1_000]));
}

function sum({ samples }: Reading, name: string, want: (labels: Sample['labels']) => boolean = () => true): number {
  return samples.reduce((total, each) => (each.name === name && want(each.labels) ? total + each.value : total), 0);
}

/** Within a bucket of the histogram requests are taken to be spread evenly. */
function quantile(now: Reading, before: Reading, share: number): number | null {
  const name = 'lateral_request_duration_seconds_bucket';
  const bounds = [...new Set(now.samples.flatMap((each) => (each.name === name ? [each.labels['le'] ?? ''] : [])))];
  const counts = bounds.map((le) => ({
    bound: le === '+Inf' ? Number.POSITIVE_INFINITY : Number(le),
    count: sum(now, name, (labels) => labels['le'] === le) - sum(before, name, (labels) => labels['le'] === le),
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

/** The busiest routes between two readings. */
export function routesOf(now: Reading, before: Reading): RouteFigures[] {
  const found = new Map<string, { requests: number; errors: number }>();
  const count = ({ samples }: Reading, sign: 1 | -1): void => {
    for (const { name, labels, value } of samples) {
      if (name !== 'lateral_requests_total' || OWN.test(labels['route'] ?? '')) continue;
      const route = `${labels['method']} ${labels['route']}`;
      const known = found.get(route) ?? { requests: 0, errors: 0 };
      known.requests += sign * value;
      if (Number(labels['status']) >= 400) known.errors += sign * value;
      found.set(route, known);
    }
  };
  count(now, 1);
  count(before, -1);
  return [...found]
    .map(([route, figures]) => ({ route, ...figures }))
    .filter(({ requests }) => requests > 0)
    .sort((one, other) => other.requests - one.requests)
    .slice(0, 12);
}
