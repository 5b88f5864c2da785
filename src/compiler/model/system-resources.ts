/**
 * The tables of the service that are items to their readers: REST serves each under its name, GraphQL as roots of the system schema. The
 * schema, logins and what the service notes for itself are not among them.
 */
export interface SystemResource {
  /** The name of the table without its prefix: the path, and the root of GraphQL. */
  readonly name: string;
  /** `read`: the service alone writes it. `single`: one item, without a key. */
  readonly kind: 'write' | 'read' | 'single';
  /** Whether it is known to the SDK of the family. */
  readonly sdk: boolean;
}

/** The tables that every service has. */
export const CORE_RESOURCES: readonly SystemResource[] = [
  { name: 'users', kind: 'write', sdk: true },
  { name: 'roles', kind: 'write', sdk: true },
  { name: 'policies', kind: 'write', sdk: true },
  { name: 'access', kind: 'write', sdk: true },
  { name: 'permissions', kind: 'write', sdk: true },
  { name: 'functions', kind: 'write', sdk: false },
  { name: 'presets', kind: 'write', sdk: true },
  { name: 'comments', kind: 'write', sdk: true },
  { name: 'notifications', kind: 'write', sdk: true },
  { name: 'translations', kind: 'write', sdk: true },
  { name: 'dashboards', kind: 'write', sdk: true },
  { name: 'panels', kind: 'write', sdk: true },
  { name: 'activity', kind: 'read', sdk: true },
  { name: 'revisions', kind: 'read', sdk: true },
  { name: 'settings', kind: 'single', sdk: true },
];

const known = new Map(CORE_RESOURCES.map((resource) => [resource.name, resource]));

/** Adds the tables of features. To be called before a database is opened. */
export function addResources(resources: readonly SystemResource[]): void {
  for (const resource of resources) known.set(resource.name, resource);
}

/** The resource of a table, or null. */
export function resourceOf(table: string): SystemResource | null {
  return (table.startsWith('service_') ? known.get(table.slice('service_'.length)) : null) ?? null;
}

/** The resource of the path of a route, or null. */
export function resourceAt(path: string): SystemResource | null {
  return known.get(/^\/(\w+)(?:\/:key)?$/.exec(path)?.[1] ?? '') ?? null;
}

export function systemResources(): readonly SystemResource[] {
  return [...known.values()];
}
