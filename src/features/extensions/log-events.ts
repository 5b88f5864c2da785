/** Events of extensions in the log. */
import { describeError, type Failure, info, logError, warn } from '../../base/log-line.js';
import type { EventOf } from '../../base/observe.js';

interface UnmatchedExtension {
  readonly extension: string;
  readonly collection: string;
  /** The nearest name, as a sentence, or ''. */
  readonly hint: string;
}

interface FailedExtension extends Failure {
  readonly extension: string;
  /** The hook, or the route. */
  readonly hook: string;
  readonly collection: string | null;
}

export const LOG_EVENTS = {
  'extension-failed': ({ extension, hook, collection, error }: FailedExtension) =>
    logError(`the extension "${extension}" failed in ${hook}`, {
      extension,
      hook,
      collection,
      error: describeError(error),
    }),
  'extension-unmatched': ({ extension, collection, hint }: UnmatchedExtension) =>
    warn(`the extension "${extension}" has hooks for "${collection}", which is not served.${hint}`),
  'extensions-loaded': ({ names }: { readonly names: readonly string[] }) =>
    info(`loaded extensions: ${names.join(', ')}`),
};

export type ExtensionLogEvent = EventOf<typeof LOG_EVENTS>;
