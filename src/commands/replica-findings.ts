/** What `lateral doctor` says of the replicas: whether each answers, follows the primary, and how far it is behind. */
import type { Config } from '../config/config.js';
import type { Database } from '../postgres/pools/database.js';
import { differenceOf, identityOf } from '../postgres/pools/server-identity.js';
import { SERVER } from '../postgres/replicas/replica-server.js';
import type { Replica } from '../postgres/replicas/replicas.js';
import { within } from '../postgres/wire/time-limit.js';
import { openReplicas } from '../service/core.js';
import type { Finding } from './findings.js';

const ANSWER_TIMEOUT_MS = 3_000;

/** Connections at the same time that must all lead to one server. */
const COMPARED_CONNECTIONS = 4;

export async function examineReplicas(config: Config, database: Database): Promise<readonly Finding[]> {
  const replicas = openReplicas(config);
  if (!replicas) return [];
  try {
    return await Promise.all(replicas.all.map((replica) => examine(replica, database)));
  } finally {
    await replicas.close();
  }
}

/** Hosts of DATABASE_URL that a failover would not move to. */
export function examineHosts({ primary }: Database): readonly Finding[] {
  return (primary?.foreign ?? []).map((message) => ({
    section: 'Connection',
    status: 'problem',
    message: `host ${message}: it is not used. Correct DATABASE_URL`,
    details: [],
  }));
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
