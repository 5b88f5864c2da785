/** Lines of the log, from which the tables of events describe each kind. */
import { messageOf } from './narrow.js';
import { isUnavailable } from './sqlstate.js';

/** `repeated` is a warning that is logged once and then counted for a while. */
type Level = 'debug' | 'info' | 'warn' | 'error' | 'repeated';

export interface Line {
  readonly level: Level;
  readonly text: string;
  readonly fields: object;
}

const at =
  (level: Level) =>
  (text: string, fields: object = {}): Line => ({ level, text, fields });
export const [debug, info, warn, logError, repeated] = [
  at('debug'),
  at('info'),
  at('warn'),
  at('error'),
  at('repeated'),
] as const;

export interface Failure {
  readonly error: unknown;
}

export function failure(error: unknown, text: string): Line {
  return isUnavailable(error)
    ? repeated(`${text}: ${messageOf(error)}`)
    : logError(text, { error: describeError(error) });
}

/** The stack of a broken invariant belongs in the log; the driver's query text and parameters do not. */
export function describeError(error: unknown): unknown {
  return error instanceof Error ? { message: error.message, stack: error.stack } : error;
}
