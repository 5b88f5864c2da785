/**
 * Imports that point upward between the parts, with their path and goal. Each of them keeps a feature from being deleted, or the
 * server from running without `speed`. The list may only become shorter: a test fails if an import of the list no longer exists.
 */
export const UPWARD_IMPORTS: ReadonlySet<string> = new Set([]);
