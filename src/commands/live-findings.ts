/** What `lateral doctor` says of live queries: whether changes can be read from the log, and what is missing. */
import type { Config } from '../config.js';
import type { Database } from '../postgres/database.js';
import { logObstacle } from '../postgres/publication.js';
import { type Finding, finding } from './findings.js';

const SECTION = 'Live queries';

export async function examineLive({ LIVE }: Config, database: Database): Promise<readonly Finding[]> {
  if (LIVE === 'off') return [finding(SECTION, 'ok', 'LIVE is off')];
  const obstacle = await logObstacle(database);
  if (obstacle === null) return [finding(SECTION, 'ok', 'changes can be read from the log')];
  return [finding(SECTION, LIVE === 'logical' ? 'problem' : 'note', `there are none: ${obstacle}`)];
}
