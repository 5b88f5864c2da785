/** Failures of a connection: what they mean for the statements on it. */
import { serviceUnavailable } from '../../../base/errors.js';
import { codeOf } from '../../../base/narrow.js';
import { isOfAnotherServer, isPlanOutdated } from '../../../base/sqlstate.js';

/** The server has forgotten the statement, or its plan is outdated. */
export function isOutdated(error: Error): boolean {
  return codeOf(error) === '26000' || isPlanOutdated(error);
}

/** The name belongs to a statement that this connection has not prepared: its backend serves others too. */
export function isTaken(error: Error): boolean {
  return codeOf(error) === '42P05';
}

/** Whether PostgreSQL refused a write in a read-only transaction: the server may have become a standby. */
export function isReadOnly(error: Error): boolean {
  return codeOf(error) === '25006';
}

/** The connection or the server ended before the answer. A pooler reports that as 08. */
export function isLostOnTheWay(error: unknown): boolean {
  return !isOfAnotherServer(error) && /^(CONNECTION_(?!SHARED)|ECONNRESET|EPIPE|57P0[123]|08)/.test(codeOf(error));
}

export function mixedUp(): Error {
  return Object.assign(new Error('The connection is shared with others, as by a pooler'), {
    code: 'CONNECTION_SHARED',
  });
}

export function isFatal(error: Error): boolean {
  return !('severity' in error) || error.severity === 'FATAL' || error.severity === 'PANIC';
}

export function closed(): Error {
  return Object.assign(new Error('The connection was closed'), { code: 'CONNECTION_CLOSED' });
}

export function unanswered(): Error {
  return Object.assign(new Error('PostgreSQL did not answer in time'), { code: 'CONNECTION_TIMEOUT' });
}

/** For a statement on a lost connection. */
export function connectionLost(): Error {
  return serviceUnavailable('database', 'The connection was lost');
}

/** The server closed the connection before it was ready. */
export function disconnected(): Error {
  return failed('The server closed the connection');
}

/** There is no connection. A later attempt may succeed. */
export function failed(message: string, cause?: unknown): Error {
  return Object.assign(new Error(message, { cause }), { code: 'CONNECTION_FAILED' });
}

/** The server, or what it offers, does not meet what the connection settings demand: waiting does not help. */
export function rejected(message: string, cause?: unknown): Error {
  return Object.assign(new Error(message, { cause }), { code: REJECTED });
}

export const REJECTED = 'CONNECTION_REJECTED';
