/** What `lateral doctor` says of the replicas: whether each answers, follows the primary, and how far it is behind. */
import type { Config } from '../config.js';
import type { Database } from '../postgres/database.js';
import { isSameCluster, type Replica } from '../postgres/replicas.js';
import { within } from '../postgres/time-limit.js';
import { openReplicas } from '../worker-app.js';
import type { Finding } from './findings.js';

const ANSWER_TIMEOUT_MS = 3_000;

export async function examineReplicas(config: Config, database: Database): Promise<readonly Finding[]> {
  const replicas = openReplicas(config);
  if (!replicas) return [];
  try {
    return await Promise.all(replicas.all.map((replica) => examine(replica, database)));
  } finally {
    await replicas.close();
  }
}

async function examine(replica: Replica, database: Database): Promise<Finding> {
  const say = (status: Finding['status'], message: string): Finding => ({
    section: 'Replicas',
    status,
    message: `${replica.name} ${message}`,
    details: [],
  });
  try {
    const { position } = await database.position();
    const report = await within(replica.ask(), ANSWER_TIMEOUT_MS);
    if (!report.standby) return say('problem', 'is not a standby: it gets no reads');
    if (!(await isSameCluster(database, report))) return say('problem', 'follows another primary: it gets no reads');
    const behind = Math.max(0, position - report.replayed);
    if (behind === 0) return say('ok', 'is a standby and has replayed everything');
    return say('note', `is a standby, ${behind} bytes of WAL behind`);
  } catch (error) {
    return say('problem', `does not answer: ${error instanceof Error ? error.message : error}`);
  }
}
