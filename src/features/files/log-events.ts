/** Events of files in the log. */
import { describeError, type Failure, logError } from '../../base/log-line.js';
import type { EventOf } from '../../base/observe.js';

export const LOG_EVENTS = {
  'files-not-removed': ({ error }: Failure) =>
    logError('could not remove the bytes of deleted files: will try again', { error: describeError(error) }),
};

export type FileLogEvent = EventOf<typeof LOG_EVENTS>;
