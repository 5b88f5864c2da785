/**
 * Imports that point upward between the parts, with their path and goal. Each of them keeps a feature from being deleted, or the
 * server from running without `speed`. The list may only become shorter: a test fails if an import of the list no longer exists.
 */
export const UPWARD_IMPORTS: ReadonlySet<string> = new Set([
  'server/execute/reads/reads.ts features/extensions/extensions',
  'server/execute/reads/reads.ts features/extensions/read-conditions',
  'server/execute/writes/compiled-write.ts features/extensions/extensions',
  'server/execute/writes/write-execution.ts features/extensions/after-write',
  'server/execute/writes/write-execution.ts features/extensions/before-write',
  'server/execute/writes/write-execution.ts features/extensions/transaction-items',
  'server/execute/writes/writes.ts features/extensions/transaction-items',
  'speed/threads/channel.ts app/app',
  'speed/threads/local-server.ts app/app',
  'speed/threads/local-server.ts app/core',
  'speed/threads/threads.ts app/app',
  'speed/threads/threads.ts app/core',
  'speed/threads/threads.ts features/extensions/load-extensions',
  'speed/threads/threads.ts features/extensions/program-api',
  'speed/threads/worker.ts app/app',
  'speed/threads/worker.ts app/core',
  'speed/threads/worker.ts features/extensions/load-extensions',
]);
