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

export const SYSTEM_RESOURCES: readonly SystemResource[] = [
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
  { name: 'folders', kind: 'write', sdk: true },
  { name: 'files', kind: 'write', sdk: true },
  { name: 'dashboards', kind: 'write', sdk: true },
  { name: 'panels', kind: 'write', sdk: true },
  { name: 'versions', kind: 'write', sdk: true },
  { name: 'shares', kind: 'write', sdk: true },
  { name: 'webhooks', kind: 'write', sdk: false },
  { name: 'webhook_deliveries', kind: 'read', sdk: false },
  { name: 'activity', kind: 'read', sdk: true },
  { name: 'revisions', kind: 'read', sdk: true },
  { name: 'settings', kind: 'single', sdk: true },
];
