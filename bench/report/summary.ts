/** What the page and the Markdown file both say: the targets and whether they were met, and the few numbers that matter. */
import { delayOf } from '../beside.js';
import type { CaseResult } from '../measure.js';
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
    const wanted = `at least ${judged.wanted} × ${each.beside === null ? 'the ceiling' : `of “${each.beside.title}”`}`;
    const found = each.service === null ? 'failed' : times(judged.found);
    return [{ title: each.title, found, wanted, note: describeRate(each), isMet: judged.isMet }];
  });
  const tails = cases.flatMap((each) => {
    const judged = judgeTail(each);
    return judged === null ? [] : [{ title: each.title, ...judged }];
  });
  const [worst] = tails.toSorted((one, other) => other.found - one.found);
  if (worst !== undefined) {
    const kept = tails.filter((tail) => tail.isMet).length;
    targets.push({
      title: 'p99 to p50, the worst case',
      found: timesAtMost(worst.found),
      wanted: `at most ${TAIL.most} × in every case at ${TAIL.connections} connections`,
      note: `${kept} of ${tails.length} cases keep it; the worst is “${worst.title}”`,
      isMet: worst.isMet,
    });
  }
  if (beside !== null) {
    for (const mode of ['waiting', 'computing'] as const) {
      const delay = delayOf(beside, mode);
      targets.push({
        title: `p99 by key beside a query ${mode} for 2 s`,
        found: timesAtMost(delay),
        wanted: `at most ${MOST_DELAY} × of alone`,
        note: `${milliseconds(beside.results[mode].p99)}, alone ${milliseconds(beside.results.alone.p99)}`,
        isMet: delay <= MOST_DELAY,
      });
    }
  }
  if (soak !== null) {
    const memory = judgeMemory(soak.samples);
    targets.push({
      title: `memory after ${soak.minutes} min of mixed load`,
      found: `${memory.end.toFixed(0)} MiB`,
      wanted: `at most ${MOST_MEMORY} MiB, and flat`,
      note: `${soak.connections} connections; ${memory.isFlat ? 'flat' : 'not flat'}: ${memory.early.toFixed(0)} MiB in the second fifth, ${memory.late.toFixed(0)} in the last`,
      isMet: memory.isMet,
    });
  }
  return targets;
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

export function describeRate({ service, connections }: CaseResult): string {
  if (service === null) return '';
  return `${figure(service.requestsPerSecond)}/s × ${connections}, p50 ${milliseconds(service.p50)}, p99 ${milliseconds(service.p99)}`;
}
