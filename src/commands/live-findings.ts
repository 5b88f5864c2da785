/** What `lateral doctor` says of live queries: whether changes can be read from the log or are told by triggers, and what is missing. */
import type { Config } from '../config/config.js';
import { hasTriggers, inspectTriggers, type Missing, notificationObstacle } from '../postgres/changes/live-triggers.js';
import { logObstacle } from '../postgres/changes/publication.js';
import type { Database } from '../postgres/pools/database.js';
import type { Examined } from './diagnosis.js';
import { count, type Finding, finding } from './findings.js';
import { tablesIn } from './served-tables.js';

const SECTION = 'Live queries';

export async function examineLive(
  { LIVE }: Config,
  database: Database,
  { model }: Examined,
): Promise<readonly Finding[]> {
  if (LIVE === 'off') return [finding(SECTION, 'ok', 'LIVE is off')];
  const ofLog = LIVE === 'triggers' ? 'LIVE is triggers' : await logObstacle(database);
  if (ofLog === null) return [finding(SECTION, 'ok', 'changes can be read from the log')];
  if (LIVE === 'logical') return [finding(SECTION, 'problem', `there are none: ${ofLog}`)];
  const deaf = await notificationObstacle(database);
  if (deaf !== null)
    return [finding(SECTION, LIVE === 'auto' ? 'note' : 'problem', `there are none: ${ofLog}; ${deaf}`)];
  const isInstalled = await hasTriggers(database);
  if (!isInstalled && LIVE === 'auto')
    return [finding(SECTION, 'note', `there are none: ${ofLog}; or run "lateral live install", which makes triggers`)];
  const { missing, installed: triggered } = await inspectTriggers(database, tablesIn(model));
  // What the service installs by itself at the first subscription is not missing.
  const lacking = missing.filter(({ mayInstall }) => !mayInstall);
  const told = `changes are told by triggers, which ${count(triggered, 'table has', 'tables have')} (${ofLog})`;
  const findings = [finding(SECTION, 'ok', told)];
  if (lacking.length > 0) findings.push(finding(SECTION, 'problem', LACKING, lacking.map(detailOf)));
  const [prepared] = await database.rows<{ most: string }>(
    "select current_setting('max_prepared_transactions') as most",
  );
  if (prepared?.most !== '0') findings.push(finding(SECTION, 'note', PREPARED));
  return findings;
}

const LACKING =
  'tables have no triggers, and the role may not make them: live queries that read them are refused. Run "lateral live install" as their owner, or:';
const PREPARED =
  'max_prepared_transactions is not 0: PREPARE TRANSACTION fails after a write to a table with triggers, which notify';

function detailOf({ schema, name, statements }: Missing): Finding['details'][number] {
  return { name: `${schema}.${name}`, message: 'has no triggers', fix: `${statements.join('; ')};` };
}
