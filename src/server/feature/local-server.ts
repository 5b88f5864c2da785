/** The server of the main thread, for the program that it runs in. */
import type { ChangeEvent } from '../changes/changes.js';
import type { FeatureContext } from './feature.js';

/** The services for calls of a program or an extension. */
export type CalledService = Pick<FeatureContext, 'items' | 'fetch'>;

export interface LocalServer extends CalledService {
  /** Reports each committed change from now on. Rejects if PostgreSQL does not report changes. */
  watchChanges(listener: (event: ChangeEvent) => void): Promise<void>;
}
