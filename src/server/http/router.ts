/** Routes as data: a method and a path whose named segments become parameters. Requests are counted by route. */
import { routeNotFound } from '../../base/errors.js';
import type { Exchange, RequestCounter } from './exchange.js';
import type { NameMapping, Outcome } from './reply.js';

export type Handler = (exchange: Exchange) => Outcome;

export interface Route {
  readonly method: string;
  /** E.g. `/items/:collection/:key`. Fixed segments match in upper and lower case, a trailing slash is ignored. */
  readonly path: string;
  readonly handle: Handler;
  /** The route reads its body piece by piece, through `openBody`: always, or if it is a form. */
  readonly streamsBody?: boolean | 'form';
  /** A POST that may be a read: then the route itself refuses what writes with `Lateral-View-As`. */
  readonly mayRead?: boolean;
  /** A write that compares `If-Match` and `If-None-Match`: for others these headers are refused. */
  readonly isConditional?: boolean;
}

export function streamsBody({ streamsBody = false }: Route, { headers }: Exchange): boolean {
  return streamsBody === 'form' ? isForm(headers.contentType) : streamsBody;
}

export function isForm(contentType: string): boolean {
  return /^multipart\/form-data/i.test(contentType);
}

interface Entry {
  readonly segments: readonly (string | null)[];
  /** The position of the parameter that names a collection; -1 for none. */
  readonly collection: number;
  readonly route: Route;
  readonly stats: RouteStats;
}

export class Router {
  /** By method, first segment and number of segments: at most a handful are compared per request. */
  readonly #entries = new Map<string, Map<string, Entry[][]>>();

  /** Requests that match no route. */
  readonly unmatched = new RouteStats('', '');

  constructor(routes: readonly Route[]) {
    for (const route of routes) {
      const segments = route.path.slice(1).split('/');
      const stats = new RouteStats(route.method, route.path);
      const entry = {
        segments: segments.map((each) => (each.startsWith(':') ? null : each)),
        collection: segments.filter((each) => each.startsWith(':')).indexOf(':collection'),
        route,
        stats,
      };
      const first = segments[0]?.toLowerCase() ?? '';
      const ofMethod = this.#entries.get(route.method) ?? new Map<string, Entry[][]>();
      const ofSegment = ofMethod.get(first) ?? [];
      ofSegment[segments.length] = [...(ofSegment[segments.length] ?? []), entry];
      this.#entries.set(route.method, ofMethod.set(first, ofSegment));
    }
  }

  /** The statistics of every route, and of requests without one. */
  get stats(): readonly RouteStats[] {
    const entries = [...this.#entries.values()].flatMap((ofMethod) => [...ofMethod.values()].flat(2));
    return [...entries.map((entry) => entry.stats), this.unmatched];
  }

  /** A HEAD request is answered by the route of GET; the writer leaves the body out. */
  find(exchange: Exchange, names: NameMapping | null = null): Route {
    const segments = segmentsOf(exchange.path);
    const ofMethod = this.#entries.get(exchange.method === 'HEAD' ? 'GET' : exchange.method);
    const first = segments[0] ?? '';
    const ofSegment = ofMethod?.get(first) ?? ofMethod?.get(first.toLowerCase());
    for (const entry of ofSegment?.[segments.length] ?? []) {
      const parameters = match(entry, segments);
      if (parameters) {
        const name = parameters[entry.collection];
        exchange.parameters =
          names !== null && name !== undefined ? parameters.with(entry.collection, names.parameter(name)) : parameters;
        exchange.routeStats = entry.stats;
        return entry.route;
      }
    }
    throw routeNotFound(exchange.path);
  }
}

/** As split() would make them, which costs several times as much; a trailing slash makes none. */
function segmentsOf(path: string): string[] {
  const segments: string[] = [];
  let start = 1;
  for (let end = path.indexOf('/', 1); end >= 0; end = path.indexOf('/', start)) {
    segments.push(path.slice(start, end));
    start = end + 1;
  }
  if (segments.length === 0 || start < path.length) segments.push(path.slice(start));
  return segments;
}

/** The parameters of the path, or null if it does not match. */
function match({ segments: expected }: Entry, segments: readonly string[]): string[] | null {
  const parameters: string[] = [];
  // The first segment is the one by which the entry was found.
  for (let position = 1; position < segments.length; position++) {
    const fixed = expected[position];
    const segment = segments[position] ?? '';
    if (fixed === null) {
      const decoded = decode(segment);
      if (decoded === null || decoded === '') return null;
      parameters.push(decoded);
    } else if (fixed !== segment && fixed !== segment.toLowerCase()) return null;
  }
  return parameters;
}

function decode(segment: string): string | null {
  if (!segment.includes('%')) return segment;
  try {
    return decodeURIComponent(segment);
  } catch {
    return null;
  }
}

/** Upper bounds in seconds; what took longer falls into one more bucket. */
export const DURATION_BOUNDS_S: readonly number[] = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
];

/** The client has left before its response was written. */
export const CLIENT_LEFT_STATUS = 499;

interface StatusStats {
  /** In the order of their first count: what was counted first stays first. */
  readonly number: number;
  /** Requests by duration, not cumulative: each one counts in one bucket. */
  readonly buckets: Float64Array;
  seconds: number;
}

let created = 0;

/** Requests of a route: how many, with which status, how fast. Every request passes here, so the counts are plain arrays until metrics are requested. */
export class RouteStats implements RequestCounter {
  readonly byStatus = new Map<number, StatusStats>();

  constructor(
    readonly method: string,
    /** The path as the route names it: values of clients must not become labels. */
    readonly path: string,
  ) {}

  count(status: number, ms: number): void {
    let stats = this.byStatus.get(status);
    if (!stats) {
      stats = { number: ++created, buckets: new Float64Array(DURATION_BOUNDS_S.length + 1), seconds: 0 };
      this.byStatus.set(status, stats);
    }
    const seconds = ms / 1_000;
    let bucket = 0;
    while (seconds > (DURATION_BOUNDS_S[bucket] ?? Number.POSITIVE_INFINITY)) bucket++;
    stats.buckets[bucket] = (stats.buckets[bucket] ?? 0) + 1;
    stats.seconds += seconds;
  }
}
