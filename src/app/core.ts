/** Everything behind HTTP: the database, the model and the policies, and the reads, writes and schema changes over them. */

import { getHeapStatistics } from 'node:v8';
import type { Observer } from '../base/observe.js';
import type { Synonyms } from '../compiler/model/synonyms.js';
import { DatabaseCaller } from '../server/access/database-caller.js';
import { ShapeStats } from '../server/batching/shape-stats.js';
import type { Config } from '../server/config/config.js';
import { parseLimits } from '../server/config/parse-limits.js';
import { CallerBudgets } from '../server/execute/caller-budget.js';
import { CORE_HOOKS } from '../server/execute/hooks/write-hooks.js';
import { Reads } from '../server/execute/reads/reads.js';
import { Writes } from '../server/execute/writes/writes.js';
import { openTables } from '../server/feature/tables.js';
import { SchemaChanges } from '../server/schema/change/change.js';
import type { Core, CoreSources } from '../server/threads/thread-parts.js';
import { featuresOf } from './chosen-features.js';
import { dialectOf, hooksOf, openChanges, openHooks, planFactsOf } from './open-features.js';

/** The names of the service's own collections that clients of another API use, or null. */
export async function synonymsOf(config: Config): Promise<Synonyms | null> {
  const features = featuresOf(config);
  openTables(features);
  return (await dialectOf(features, config))?.synonyms ?? null;
}

export async function createCore(
  config: Config,
  { database, mirror, policies, openExecutors, extensions = [] }: CoreSources,
  observe: Observer,
): Promise<Core> {
  const readLimits = {
    defaultLimit: config.QUERY_LIMIT_DEFAULT,
    maxNodes: config.MAX_QUERY_NODES,
    shapes: config.SHAPE_CACHE_SIZE,
    shapeMemory: config.SHAPE_CACHE_MEMORY,
    cost: config.MAX_QUERY_COST,
    batchTimeout: config.DATABASE_STATEMENT_TIMEOUT,
    raisedStatuses: config.POSTGREST_ERRORS,
  };
  const features = featuresOf(config);
  policies.allowApp(openTables(features).appPermissions);
  const hooks = await openHooks(features, { config, mirror, policies, observe, extensions });
  // A hook calls the API while its transaction has a connection.
  if (hooks !== null) database.sessions.turns.followPlaces();
  const callers = DatabaseCaller.of(config);
  if (callers?.mode === 'role') policies.limitByRole((identity) => callers.roleNameOf(identity));
  const shapeStats = new ShapeStats();
  const budgets = new CallerBudgets({ share: config.CALLER_LOOP_SHARE, burst: config.CALLER_LOOP_BURST });
  const changes = await openChanges(features, { config, database, mirror, observe });
  const executors = openExecutors({ database, mirror, policies, changes, shapeStats, budgets });
  const { consistency, writes: batcher } = executors;
  const services = { database, mirror, policies, callers, consistency };
  const readHooks = hooks?.reads ?? null;
  const reads = new Reads(
    { ...services, executor: executors.reads, budgets, shapeStats, readHooks, planFacts: await planFactsOf(features) },
    readLimits,
    observe,
  );
  const writeLimits = {
    maxRows: config.MAX_BATCH_MUTATION ?? rowsInHeap(),
    parse: parseLimits(config),
    shapes: config.SHAPE_CACHE_SIZE,
    shapeMemory: config.SHAPE_CACHE_MEMORY / 2,
    idempotencyLifetime: `${config.IDEMPOTENCY_TTL} milliseconds`,
  };
  const userHooks = hooks?.writes ?? null;
  const writeHooks = [...(userHooks ? [userHooks] : []), ...CORE_HOOKS, ...(await hooksOf(features, config))];
  const writes = Writes.open({ ...services, reads, batcher, userHooks, hooks: writeHooks }, writeLimits, observe);
  const schemaChanges = new SchemaChanges(database, mirror, {
    lockTimeout: config.SCHEMA_LOCK_TIMEOUT,
    patience: config.SCHEMA_CHANGE_TIMEOUT,
  });
  return { database, mirror, policies, reads, writes, changes, schemaChanges, executors, hooks };
}

/** Bytes of heap for each item that a request writes, with what the plan of the write needs. */
const BYTES_PER_ROW = 4_096;

/** How many items a request may write without a limit of its own: more of them would end the process. */
function rowsInHeap(): number {
  return Math.floor(getHeapStatistics().heap_size_limit / BYTES_PER_ROW);
}
