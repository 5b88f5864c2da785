/** The parts that the page and the Markdown file share: the targets and whether they were met, and the most important numbers. */
import { delayOf } from '../beside.js';
import type { CaseResult } from '../measure.js';
import { spreadOf } from '../noise.js';
import { PEERS, type PeerId } from '../peers/peer.js';
import type { Documents, Origin } from '../results.js';
import { MOST_CLASS_LATENCY, shareOf } from '../value-classes.js';
import { judgeMemory, judgeRatio, judgeTail, MOST_DELAY, MOST_MEMORY, TAIL } from '../verdict.js';
import { figure, gibibytes, milliseconds, times, timesAtMost } from './format.js';

export interface Target {
  readonly title: string;
  readonly found: string;
  readonly wanted: string;
  readonly note: string;
  readonly isMet: boolean;
}

/** In order of importance. */
export function listTargets({ cases: { cases, bulk, classes }, beside, soak }: Documents): readonly Target[] {
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
  for (const each of classes) {
    targets.push({
      title: `skewed column: ${each.title}`,
      found: timesAtMost(shareOf(each)),
      wanted: `≤ ${MOST_CLASS_LATENCY} × of a plan for the value`,
      note: `${milliseconds(each.latency)}, planned ${milliseconds(each.planned)}`,
      isMet: shareOf(each) <= MOST_CLASS_LATENCY,
    });
  }
  for (const each of bulk) {
    if (each.target === null) continue;
    targets.push({
      title: `${each.title}, ${each.rows.toLocaleString('en')} rows`,
      found: times(each.ratio),
      wanted: `≥ ${each.target} × ${each.as}`,
      note: `${figure(each.service)} rows/s, at most ${figure(each.memory)} MiB`,
      isMet: each.ratio >= each.target,
    });
  }
  if (beside !== null) {
    for (const mode of ['waiting', 'computing'] as const) {
      const delay = delayOf(beside, mode);
      targets.push({
        title: `p99 by key during a ${mode} query`,
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
  const base = tools.pgbench === null ? 'the driver instead of pgbench' : `pgbench ${tools.pgbench}`;
  return `${cores} × ${processor}, ${gibibytes(memory)}; Node ${node.replace('v', '')}, PostgreSQL ${postgresql}, ${load}, ${base}`;
}

/** Compares the beginning with the end. */
export function describeNoise({ cases: { noise } }: Documents): string {
  if (noise === null) return 'not measured';
  const of = (name: string, key: 'requestsPerSecond' | 'statementsPerSecond'): string =>
    `${name} ${figure(noise.begin[key])}/s at the beginning and ${figure(noise.end[key])}/s at the end (${timesAtMost(spreadOf(noise, key))} apart)`;
  return `${of('by key', 'requestsPerSecond')}; ${of('pgbench', 'statementsPerSecond')}`;
}

export function describeStart({ cases: { start } }: Documents): string {
  if (start === null) return '';
  const { times: count, ready, firstAnswer, memory } = start;
  return `From the start of the process it takes ${milliseconds(ready)} until it is ready and ${milliseconds(firstAnswer)} until the first response (the median of ${count}); ${figure(memory)} MiB then.`;
}

export const CLASSES_HEAD = ['', 'connections', 'requests/s', 'p50 ms', 'p99 ms', 'mean ms', 'planned ms', 'ratio'];

export function classRows({ cases: { classes } }: Documents): readonly (readonly string[])[] {
  return classes.map((each) => [
    each.title,
    String(each.connections),
    figure(each.requestsPerSecond),
    each.p50.toFixed(2),
    each.p99.toFixed(2),
    each.latency.toFixed(2),
    each.planned.toFixed(2),
    timesAtMost(shareOf(each)),
  ]);
}

export const CLASSES_WORDS =
  'Pages of a million rows, of which half have one value and ten another, requested at the same time. The mean latency of each value is compared with pgbench with as many clients, which plans every statement for its value.';

export const BULK_HEAD = ['', 'rows', 'rows/s', 'compared with', 'rows/s', 'ratio', 'required', 'memory MiB'];

export function bulkRows({ cases: { bulk } }: Documents): readonly (readonly string[])[] {
  return bulk.map(({ title, rows, service, as, statement, ratio, target, memory }) => [
    title,
    rows.toLocaleString('en'),
    figure(service),
    as,
    figure(statement),
    times(ratio),
    target === null ? '' : String(target),
    figure(memory),
  ]);
}

/** Per request and per object of its response. */
export function describeCount(statements: CaseResult['statements'] | undefined): readonly [string, string] {
  if (!statements) return ['', ''];
  return [statements.perRequest.toFixed(2), Number(statements.perNode.toPrecision(2)).toString()];
}

/** By the number of pgbench's clients. */
export function describeClients({ ceiling }: CaseResult): string {
  if (ceiling === null) return '';
  const counts = ceiling.tried.map(({ connections }) => connections).join(' / ');
  const rates = ceiling.tried.map(({ statementsPerSecond }) => figure(statementsPerSecond)).join(' / ');
  return `${rates} with ${counts} clients`;
}

export function describeSettings({ cases: { measuring, settings } }: Documents): string {
  const { connections, seconds, rounds, poolSize } = measuring;
  const named = Object.entries(settings).map(([name, value]) => `${name}=${value}`);
  const parts = [
    `${connections} connections, unless a case names another number`,
    `${poolSize} from the service to PostgreSQL`,
    `${seconds} s per round, the best of ${rounds}`,
    ...named,
  ];
  return parts.join('; ');
}

export function describeRate({ service }: CaseResult): string {
  if (service === null) return '';
  return `${figure(service.requestsPerSecond)}/s, p50 ${milliseconds(service.p50)}, p99 ${milliseconds(service.p99)}`;
}

/** The requests per second of the service as a multiple of each peer's, over all cases in which the peer was measured. */
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
      `Compared with ${name}: ${range} as many requests per second, with a median of ${times(middle)} in ${shares.length} cases.`,
    ];
  });
}
