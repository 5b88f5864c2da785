/** The tables of the service and of its features. */
import { join } from 'node:path';
import { packagePath } from '../../base/package-files.js';
import type { PermissionRow } from '../../compiler/access/permissions.js';
import { addResources, CORE_RESOURCES, type SystemResource } from '../../compiler/model/system-resources.js';
import { addMigrations, readMigrations, type SystemFile } from '../postgres/catalog/system-tables.js';
import type { Feature } from './feature.js';

interface ServiceTables {
  readonly migrations: readonly SystemFile[];
  readonly resources: readonly SystemResource[];
  readonly appPermissions: readonly PermissionRow[];
}

const opened = new WeakMap<readonly Feature[], ServiceTables>();

/** Reads the migrations, and makes the names of the tables known to this thread. To be called before a database is opened. */
export function openTables(features: readonly Feature[]): ServiceTables {
  const known = opened.get(features);
  if (known) return known;
  const paths = features.flatMap(
    ({ name, tables: { folder = packagePath('sql', 'features', name), migrations = [] } = {} }) =>
      migrations.map((file) => join(folder, file)),
  );
  const tables = {
    migrations: readMigrations(paths),
    resources: [...CORE_RESOURCES, ...features.flatMap(({ tables }) => tables?.resources ?? [])],
    appPermissions: features.flatMap(({ tables }) => tables?.appPermissions ?? []),
  };
  addMigrations(tables.migrations);
  addResources(tables.resources);
  opened.set(features, tables);
  return tables;
}
