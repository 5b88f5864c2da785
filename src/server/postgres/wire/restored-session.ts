/**
 * Statements that restore a session after a function of the database ran in it. Such a function may set a role, a parameter or a temporary
 * table for its session, and the pool gives the session to other callers afterwards.
 */
import { startParameters } from './client.js';
import type { ConnectionOptions, Settings } from './connection-options.js';
import type { BoundStatement } from './wire-query.js';

/** Without those, triggers that are deferred would run at the commit, with the role and the settings of the service. */
const RUN_DEFERRED = 'set constraints all immediate';

const RESET = [
  'reset session authorization',
  'reset role',
  'reset all',
  'discard temp',
  'select pg_catalog.pg_advisory_unlock_all()',
];

/** `reset all` returns to the start-up parameters, so the others are set again. With a session per transaction, they end the transaction. */
export function restoringStatements(
  options: Pick<ConnectionOptions, 'pooler' | 'settings' | 'target'>,
): readonly BoundStatement[] {
  const settings = settingsOf(options);
  const calls = Object.keys(settings).map(
    (name, position) => `pg_catalog.set_config('${name}', $${position + 1}, false)`,
  );
  const texts = options.pooler === 'transaction' ? [RUN_DEFERRED, ...RESET] : RESET;
  return [
    ...texts.map((text) => ({ text, parameters: [], prepare: true })),
    { text: `select ${calls.join(', ')}`, parameters: Object.values(settings), prepare: true },
  ];
}

/** Behind a pooler, `reset all` returns to the parameters of the pooler. */
function settingsOf({ pooler, settings, target }: Pick<ConnectionOptions, 'pooler' | 'settings' | 'target'>): Settings {
  const { idle_in_transaction_session_timeout: idle = '0' } = settings;
  if (pooler === 'none') return { idle_in_transaction_session_timeout: idle };
  const { options: _, ...parameters } = startParameters(target());
  const started = { ...parameters, client_encoding: 'UTF8' };
  return pooler === 'session' ? { ...started, ...settings } : started;
}
