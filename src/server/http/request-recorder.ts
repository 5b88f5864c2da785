/** Records requests that were answered, while somebody asks for it. */
import type { Identity } from '../access/identity.js';

/** A request that was answered, as the HTTP server knows it. */
export interface AnsweredRequest {
  readonly method: string;
  /** As sent, without the query string. */
  readonly path: string;
  /** Without the access token. */
  readonly queryString: string;
  readonly headers: { readonly prefer: string; readonly accept: string };
  readonly route: string;
  /** By the clock of `performance`. */
  readonly begun: number;
  /** The caller, or null if the request was refused before, or if the route asks for no caller. */
  readonly identity: Identity | null;
  /** The text of its last statement; '' for none. */
  readonly statementText: string;
  readonly received: Buffer | null;
  /** Whether the body was collected, and is JSON or empty. */
  readonly hasJsonBody: boolean;
  readonly isWrite: boolean;
  /** Bytes of the response, before compression. */
  readonly sentBytes: number;
  /** Milliseconds by stage, negative for those that it did not pass; null for none. */
  readonly stageTimes: readonly number[] | null;
  /** Whether it is a stream of events. */
  readonly wantsEvents: boolean;
}

export interface RequestRecorder {
  /** The recordings that run, or null if there are none: a request pays for this comparison alone. */
  readonly current: readonly unknown[] | null;
  /** Calls back when a recording begins or ends. */
  onChange(listener: () => void): void;
  /** Decides which recordings have the request that ends now, with a bit for each. */
  draw(): number;
  /** `takers` comes from `draw`. */
  add(request: AnsweredRequest, status: number, takers: number): void;
}

/** For a service that records nothing. */
export const NO_RECORDER: RequestRecorder = { current: null, onChange: () => {}, draw: () => 0, add: () => {} };
