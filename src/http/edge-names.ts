/** Names of collections at the edge of the service: what clients call them, where that is not what they are called inside. */
import type { ServiceError } from '../errors.js';
import type { Reply } from './reply.js';

export interface EdgeNames {
  /** A segment of a path that names a collection. */
  parameter(name: string): string;
  query(queryString: string): string;
  body(value: unknown): unknown;
  reply(reply: Reply): Reply;
  /** What the client learns of an error. */
  error(error: ServiceError): { readonly code: string; readonly message: string };
  /** A message over a WebSocket, as JSON, that has come or that leaves. */
  messageIn(text: string): string;
  messageOut(text: string): string;
}
