/** Findings of `lateral doctor` about live queries: whether changes are reported, and what is missing. */

import {
  type CheckStatus,
  count,
  type Detail,
  type DiagnosisContext,
  type Finding,
  finding,
} from '../../server/feature/finding.js';
import { hasTriggers, inspectTriggers, type Missing, notificationObstacle } from './live-triggers.js';
import type { OPTIONS } from './options.js';
import { logObstacle } from './publication.js';

export async function diagnoseLive({
  config,
  database,
  model,
}: DiagnosisContext<typeof OPTIONS>): Promise<readonly Finding[]> {
  const { LIVE } = config;
  const say = (status: CheckStatus, message: string, details: Finding['details'] = []): Finding =>
    finding('Live queries', status, message, details);
  if (LIVE === 'off') return [say('ok', 'LIVE is off')];
  const ofLog = LIVE === 'triggers' ? 'LIVE is triggers' : await logObstacle(database);
  if (ofLog === null) return [say('ok', 'changes can be read from the log')];
  if (LIVE === 'logical') return [say('problem', `there are none: ${ofLog}`)];
  const deaf = await notificationObstacle(database);
  if (deaf !== null) return [say(LIVE === 'auto' ? 'note' : 'problem', `there are none: ${ofLog}; ${deaf}`)];
  const isInstalled = await hasTriggers(database);
  if (!isInstalled && LIVE === 'auto')
    return [say('note', `there are none: ${ofLog}; or run "lateral live install", which makes triggers`)];
  const tables = [...model.collections.values()].map(({ schema, table }) => ({ schema, name: table }));
  const { missing, installed: triggered } = await inspectTriggers(database, tables);
  // The service installs some by itself at the first subscription: these are not missing.
  const lacking = missing.filter(({ mayInstall }) => !mayInstall);
  const told = `triggers report changes: ${count(triggered, 'table has', 'tables have')} them (${ofLog})`;
  const [prepared] = await database.rows<{ most: string }>(
    "select current_setting('max_prepared_transactions') as most",
  );
  return [
    say('ok', told),
    ...(lacking.length === 0 ? [] : [say('problem', LACKING, lacking.map(detailOf))]),
    ...(prepared?.most === '0' ? [] : [say('note', PREPARED)]),
  ];
}

const LACKING =
  'tables have no triggers, and the role may not make them: live queries that read them are refused. Run "lateral live install" as their owner, or:';
const PREPARED =
  'max_prepared_transactions is not 0: PREPARE TRANSACTION fails after a write to a table with triggers, which notify';

function detailOf({ schema, name, statements }: Missing): Detail {
  return { name: `${schema}.${name}`, message: 'has no triggers', fix: `${statements.join('; ')};` };
}
