/** The ways in which changes can be learned of, by the option LIVE. */

import type { TableName } from '../../postgres/changes/publication.js';
import type { Database } from '../../postgres/pools/database.js';
import type { ChangeSource } from './change-source.js';
import { LogSource } from './log-source.js';
import { TriggerSource } from './trigger-source.js';

export type LiveMode = 'auto' | 'logical' | 'triggers' | 'off';

/** Those to be tried, one after the other. `maxWal`: bytes of log that PostgreSQL may keep for a stream. */
export function waysOf(
  mode: LiveMode,
  database: Database,
  tables: () => readonly TableName[],
  maxWal: number,
): readonly ChangeSource[] {
  const ofTriggers = (installsFirst: boolean): ChangeSource => new TriggerSource({ database, tables, installsFirst });
  if (mode === 'off') return [];
  if (mode === 'triggers') return [ofTriggers(true)];
  const ofLog = new LogSource(database, tables, maxWal);
  return mode === 'logical' ? [ofLog] : [ofLog, ofTriggers(false)];
}
