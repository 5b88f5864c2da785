/** The findings of `lateral doctor` about replicas. */
import { within } from '../../base/time-limit.js';
import { type CheckStatus, type DiagnosisContext, type Finding, finding } from '../../server/feature/finding.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { differenceOf, identityOf } from '../../server/postgres/pools/server-identity.js';
import { openReplicas } from './open-replicas.js';
import { SERVER } from './replica-server.js';
import type { Replica } from './replicas.js';

const ANSWER_TIMEOUT_MS = 3_000;

/** How many connections doctor opens at the same time to check that a URL leads to one server. */
const COMPARED_CONNECTIONS = 4;

/** The state of each replica, for `lateral doctor`. */
export async function diagnoseReplicas({ config, database }: DiagnosisContext): Promise<readonly Finding[]> {
  const replicas = openReplicas(config);
  if (!replicas) return [];
  try {
    return await Promise.all(replicas.all.map((replica) => examineReplica(replica, database)));
  } finally {
    await replicas.close();
  }
}

async function examineReplica(replica: Replica, database: Database): Promise<Finding> {
  const say = (status: CheckStatus, message: string): Finding =>
    finding('Replicas', status, `${replica.name} ${message}`);
  try {
    const { position } = await database.position();
    const report = await within(replica.ask(), ANSWER_TIMEOUT_MS);
    const difference = differenceOf(await identityOf(database), report);
    if (difference)
      return say('problem', `is another ${difference} than that of DATABASE_URL: it gets no reads. Correct the URL`);
    if (!report.standby && report.server === (await serverOf(database)))
      return say('note', 'is the primary: it gets no reads as a replica');
    if (!report.standby)
      return say('problem', 'was promoted, and is not the primary of DATABASE_URL: it gets no reads');
    if ((await within(countServers(replica), ANSWER_TIMEOUT_MS)) > 1)
      return say('problem', 'leads to more than one server, as a balancer does: name each standby by a URL of its own');
    const behind = Math.max(0, position - report.replayed);
    if (behind === 0) return say('ok', 'is a standby and has replayed everything');
    return say('note', `is a standby, ${behind} bytes of WAL behind`);
  } catch (error) {
    return say('problem', `does not answer: ${error instanceof Error ? error.message : error}`);
  }
}

async function countServers({ database }: Replica): Promise<number> {
  const servers = await Promise.all(Array.from({ length: COMPARED_CONNECTIONS }, () => serverOf(database)));
  return new Set(servers).size;
}

async function serverOf({ own }: Database): Promise<string> {
  return String(await own.use((session) => session.cell(`select ${SERVER}`, [])));
}
