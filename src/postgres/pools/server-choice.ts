/** Which server connections are opened to: where several are named, the one that is the primary at the time. */

import type { Observer } from '../../base/observe.js';
import { parseDatabaseUrl } from '../../config/database-url.js';
import { failOnHangUp, followTarget, openClient, type ServerOptions, targetOf } from '../wire/client.js';
import type { ConnectionOptions, DriverClient, Settings } from '../wire/connection-options.js';
import { PrimaryWatch } from './primary-watch.js';
import type { ServerIdentity } from './server-identity.js';

export interface WatchedServer extends Omit<ServerOptions, 'pooler'> {
  /** The database that is wanted, where another thread has found it. */
  readonly identity?: ServerIdentity | null;
}

/** Null where any server will do. `leave` ends all connections. */
export function watchPrimary(options: WatchedServer, leave: () => void, observe: Observer): PrimaryWatch | null {
  const { urls, target } = parseDatabaseUrl(options.url);
  if (target === 'any') return null;
  const open = (url: string): DriverClient => {
    // Without settings, which a pooler may refuse: it is asked for nothing that depends on them.
    const client = openClient({ ...options, url, pooler: 'session' }, { max: 1, max_pipeline: 0 }, 0);
    failOnHangUp(client);
    return client;
  };
  return new PrimaryWatch({ urls, target, identity: options.identity ?? null, open, leave, observe });
}

/** Past the pooler. A standby hears nothing: where several servers are named it is the primary too. */
export function directConnection(
  options: WatchedServer & { readonly statementTimeout: number },
  primary: PrimaryWatch | null,
  settings: Settings = {},
): Pick<ConnectionOptions, 'target' | 'open' | 'pooler' | 'choice'> {
  const direct = { ...options, pooler: 'none' } as const;
  const single = { max: 1, max_pipeline: 10, max_lifetime: null, ssl: false } as const;
  return {
    target: primary ? followTarget(direct, primary) : targetOf(openClient(direct, { max: 1, max_pipeline: 0 }, 0)),
    open: (socket) =>
      openClient(
        primary ? { ...direct, url: primary.url } : direct,
        { ...single, socket },
        options.statementTimeout,
        settings,
      ),
    pooler: 'none',
    choice: primary,
  };
}
