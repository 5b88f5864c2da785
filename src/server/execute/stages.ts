/** The stages that a request passes, and the client that it came from: what the pipelines know of their transport. */

import type { Identity } from '../access/identity.js';
import type { KeptAnswer } from './reads/kept-answer.js';

/** In the order of a request. Names are resolved against the model that the caller may see, so it is restricted before planning. */
export const STAGES = ['identify', 'parse', 'restrict', 'plan', 'compile', 'execute', 'reply'] as const;

export type Stage = (typeof STAGES)[number];

/** The request as the database may learn it. */
export interface RequestOrigin {
  /** '' for the command line, and for messages of a WebSocket. */
  readonly method: string;
  /** Percent-encoded, without the query string. */
  readonly path: string;
}

export interface RequestClient extends RequestOrigin {
  /** The id of the request, as the log has it. */
  readonly id?: string;
  /** For limits per client; '' for the command line. */
  readonly address: string;
  /** Whether the client has disconnected. */
  readonly aborted: boolean;
  /** Calls back when the client disconnects. Absent if it cannot. */
  onAbort?(listener: () => void): void;
  /** Ends a stage: what has passed since the end of the stage before is its duration. */
  staged(stage: Stage): void;
  /** The text of the statement that answers it, without values: what names its shape in traces. */
  statement(text: string): void;
  /** The number of reads that its statement carried. */
  batched(reads: number): void;
  /** The Prefer header; '' for none. */
  readonly prefer: string;
  /** The position that the request brings; '' for none. */
  readonly position: string;
  /** The log position after the write, for the answer. */
  wrote(position: string): void;
  /** The preference that the answer reports as applied. */
  applied(preference: string): void;
  /** Whether the client asks for an answer of the database itself (`Cache-Control: no-cache`). */
  readonly noCache: boolean;
  /** The answer comes from memory (`Cache-Status`). */
  cached(answer: KeptAnswer, caller: Identity, isRepeatable: boolean): void;
}

/** For reads and writes without a client: of the command line, and of the service itself. */
export const NO_CLIENT: RequestClient = Object.freeze({
  address: '',
  method: '',
  path: '',
  aborted: false,
  prefer: '',
  position: '',
  staged: () => {},
  statement: () => {},
  batched: () => {},
  wrote: () => {},
  applied: () => {},
  noCache: false,
  cached: () => {},
});
