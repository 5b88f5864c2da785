/** Failures of a connection: what they mean for the statements on it. */
import { serviceUnavailable } from '../../base/errors.js';
import { codeOf } from '../../base/narrow.js';
import { isOfAnotherServer, isPlanOutdated } from '../../base/sqlstate.js';

/** The server does not know the statement any more, or planned it for what is no more. */
export function isOutdated(error: Error): boolean {
  return codeOf(error) === '26000' || isPlanOutdated(error);
}

/** A name is taken that this connection has not given: its backend serves others too. */
export function isTaken(error: Error): boolean {
  return codeOf(error) === '42P05';
}

/** The server may have become a standby. */
export function isReadOnly(error: Error): boolean {
  return codeOf(error) === '25006';
}

/** The connection ended before the answer, or the server did, also at once; 08 is what a pooler says of it. */
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

/** For who still asks a connection that is gone. */
export function connectionLost(): Error {
  return serviceUnavailable('database', 'The connection was lost');
}
