/** A case of the bench: requests that differ only in their values, and what they are compared with. */
export interface Case {
  readonly id: string;
  readonly title: string;
  /** Cases that write run last and delete what they wrote. */
  readonly method?: 'SEARCH' | 'POST' | 'PATCH' | 'DELETE';
  readonly requests: readonly BenchRequest[] | (() => readonly BenchRequest[]);
  /** Reads, although its method could write. */
  readonly reads?: true;
  /** Requests of different shapes: there is no single statement to compare with. */
  readonly cold?: true;
  /** The number of connections, if it is not that of the whole run. */
  readonly connections?: number;
  /** The numbers of pgbench's clients for the ceiling, if it is not the better of 8 and 32; empty if the case has no ceiling. */
  readonly clients?: readonly number[];
  /** Sent to a service whose connections to PostgreSQL are encrypted. */
  readonly tls?: true;
  /** Sent by a reader whose policies restrict the visible rows and fields. */
  readonly restricted?: true;
  /** Another case that this one is compared with, measured in the same rounds, and its name in the report. */
  readonly beside?: { readonly id: string; readonly as: string };
  /** The smallest ratio that meets the target: of the ceiling, or of the other case. */
  readonly target?: number;
  /** SQL written by hand for the same effect: the ceiling runs it in place of the statement of the service. */
  readonly plain?: { readonly text: string; readonly parameters: readonly (readonly string[])[] };
  /** SQL that runs before each measurement, such as to insert the rows again that it deletes. */
  readonly prepare?: string;
  /** Measured by the bytes that arrive: a request takes seconds, so complete responses would be too few. */
  readonly streamed?: true;
}

export interface BenchRequest {
  readonly path: string;
  readonly body?: string;
}

export function isWrite({ method, reads }: Case): boolean {
  return !reads && (method === 'POST' || method === 'PATCH' || method === 'DELETE');
}

export function requestsOf({ requests }: Pick<Case, 'requests'>): readonly BenchRequest[] {
  return typeof requests === 'function' ? requests() : requests;
}
