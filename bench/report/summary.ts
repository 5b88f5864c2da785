/** What the page and the Markdown file both say: the targets and whether they were met, and the few numbers that matter. */
import { delayOf } from '../beside.js';
import type { CaseResult } from '../measure.js';
import { PEERS, type PeerId } from '../peers/peer.js';
import type { Documents, Origin } from '../results.js';
import { judgeMemory, judgeRatio, judgeTail, MOST_DELAY, MOST_MEMORY, TAIL } from '../verdict.js';
import { figure, gibibytes, milliseconds, times, timesAtMost } from './format.js';

export interface Target {
  readonly title: string;
  readonly found: string;
  readonly wanted: string;
  readonly note: string;
  readonly isMet: boolean;
}

/** In the order in which they matter. */
export function listTargets({ cases: { cases }, beside, soak }: Documents): readonly Target[] {
  const targets: Target[] = cases.flatMap((each) => {
    const judged = judgeRatio(each);
    if (judged === null) return [];
    const wanted = `≥ ${judged.wanted} × ${each.beside === null ? 'ceiling' : `of ${each.beside.as}`}`;
    const found = each.service === null ? 'failed' : times(judged.found);
    return [{ title: each.title, found, wanted, note: describeShortly(each), isMet: judged.isMet }];
  });
  const tails = cases.flatMap((each) => {
    const judged = judgeTail(each);
    return judged === null ? [] : [{ title: each.title, ...judged }];
  });
  const [worst] = tails.toSorted((one, other) => other.found - one.found);
  if (worst !== undefined) {
    const kept = tails.filter((tail) => tail.isMet).length;
    targets.push({
      title: 'p99 to p50 in the worst case',
      found: timesAtMost(worst.found),
      wanted: `≤ ${TAIL.most} × at ${TAIL.connections} connections`,
      note: `${kept} of ${tails.length} cases; worst: ${worst.title}`,
      isMet: worst.isMet,
    });
  }
  if (beside !== null) {
    for (const mode of ['waiting', 'computing'] as const) {
      const delay = delayOf(beside, mode);
      targets.push({
        title: `p99 by key beside a ${mode} query`,
        found: timesAtMost(delay),
        wanted: `≤ ${MOST_DELAY} × of alone`,
        note: `${milliseconds(beside.results[mode].p99)}, alone ${milliseconds(beside.results.alone.p99)}`,
        isMet: delay <= MOST_DELAY,
      });
    }
  }
  if (soak !== null) {
    const memory = judgeMemory(soak.samples);
    targets.push({
      title: `memory, ${soak.minutes} min of mixed load`,
      found: `${memory.end.toFixed(0)} MiB`,
      wanted: `≤ ${MOST_MEMORY} MiB and flat`,
      note: `${memory.isFlat ? 'flat' : 'not flat'}: mean ${memory.early.toFixed(0)}, later ${memory.late.toFixed(0)} MiB; ${soak.connections} connections`,
      isMet: memory.isMet,
    });
  }
  return targets;
}

function describeShortly({ service }: CaseResult): string {
  return service === null ? '' : `${figure(service.requestsPerSecond)}/s, p99 ${milliseconds(service.p99)}`;
}

export function describeMachine({ machine, tools }: Origin): string {
  const { cores, processor, memory, node, postgresql } = machine;
  const load = tools.wrk === null ? "the bench's own load generator" : `wrk ${tools.wrk}`.trim();
  const base = tools.pgbench === null ? 'the driver in place of pgbench' : `pgbench ${tools.pgbench}`;
  return `${cores} × ${processor}, ${gibibytes(memory)}; Node ${node.replace('v', '')}, PostgreSQL ${postgresql}, ${load}, ${base}`;
}

export function describeSettings({ cases: { measuring, settings } }: Documents): string {
  const { connections, seconds, rounds, poolSize } = measuring;
  const named = Object.entries(settings).map(([name, value]) => `${name}=${value}`);
  const parts = [
    `${connections} connections where no other number stands`,
    `${poolSize} from the service to PostgreSQL`,
    `${seconds} s a time, the best of ${rounds}`,
    ...named,
  ];
  return parts.join('; ');
}

export function describeRate({ service }: CaseResult): string {
  if (service === null) return '';
  return `${figure(service.requestsPerSecond)}/s, p50 ${milliseconds(service.p50)}, p99 ${milliseconds(service.p99)}`;
}

/** How many times the requests of each peer, over all cases that it was measured in. */
export function comparePeers({ cases: { cases, peers } }: Documents): readonly string[] {
  return (Object.entries(PEERS) as [PeerId, string][]).flatMap(([id, title]) => {
    const shares = cases
      .flatMap(({ service, peers: measured }) => {
        const rate = measured[id]?.load?.requestsPerSecond;
        return service === null || rate === undefined ? [] : [service.requestsPerSecond / rate];
      })
      .sort((one, other) => one - other);
    const [least] = shares;
    const most = shares.at(-1);
    const middle = shares[shares.length >> 1];
    if (least === undefined || most === undefined || middle === undefined) return [];
    const name = `${title} ${peers[id] ?? ''}`.trim();
    const range = `${times(least)} to ${times(most)}`;
    return [
      `Beside ${name}: ${range} as many requests per second, ${times(middle)} in the middle of ${shares.length} cases.`,
    ];
  });
}
