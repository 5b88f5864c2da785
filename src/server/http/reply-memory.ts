/** Replies in memory, as the HTTP server uses them: an equal request gets an equal reply before anything of it is parsed. */
import type { Exchange } from './exchange.js';
import type { HeldRequest } from './held-request.js';
import type { Reply } from './reply.js';
import type { ServerRequest, ServerResponse } from './transport.js';

/** The names and values of the headers that may change a reply, one after the other. */
export type KeptHeaders = readonly string[];

/** Numbers that grow. As long as they are the same, a token belongs to the same caller, who may read the same. */
export interface Revisions {
  /** Grows whenever a token may belong to another caller. */
  readonly identities: number;
  /** Grows whenever extensions may add other conditions to reads. */
  readonly readHooks: number;
}

export interface HeldForReply {
  readonly request: HeldRequest;
  /** The method and the URL. */
  readonly url: string;
  /** The headers that may change a reply. */
  readonly headers: KeptHeaders;
  /** The id that the client gives; '' for none. */
  readonly requestId: string;
}

export interface ReplyMemory {
  /** Differs if the caller of a request may have become another since. */
  readonly revision: number;
  /** Answers the GET request if its reply is kept. Otherwise returns its headers, if replies of its URL are kept, or null. */
  answer(path: string, request: ServerRequest, response: ServerResponse): true | KeptHeaders | null;
  /** A request with a body, if replies to its URL are kept, or null if it passes through the stages without waiting for its body. */
  hold(path: string, request: ServerRequest): HeldForReply | null;
  /** Answers the request with this body if its reply is kept. */
  answerHeld(held: HeldForReply, body: Buffer, response: ServerResponse): boolean;
  /** The reply that is about to leave, with its headers after the request id. */
  keep(exchange: Exchange, reply: Reply, head: string): void;
}
