/** The statements around every schema change: one change runs at a time, and all instances are notified. */
import { withCatalog } from '../../../compiler/sql/catalog-names.js';

export const LOCK_SCHEMA = withCatalog(
  "select pg_advisory_xact_lock(hashtextextended('lateral structure ' || $1::text, 0))",
);

/** How long the transaction waits for a table that is in use. */
export const LIMIT_LOCK_WAIT = withCatalog("select set_config('lock_timeout', $1, true)");

/** Triggers notify of changed metadata and, where they are allowed, of DDL: this always notifies of both. */
export const ANNOUNCE_SCHEMA = withCatalog(`
  with bumped as (update service_schema set version = version + 1)
  select pg_notify('service_model', $1)`);
