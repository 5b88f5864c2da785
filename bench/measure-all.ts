/** Measures everything of a whole run with one service, one after the other: reads first, then writes. */
import { type BulkResult, measureBulk } from './bulk.js';
import { isWrite } from './case.js';
import { type Report, type RunningService, startService } from './environment.js';
import { measureGrowth } from './growth.js';
import { type CaseResult, type Measuring, measureCase } from './measure.js';
import { type Noise, takeSample } from './noise.js';
import { measureOpen } from './open.js';
import type { Options } from './options.js';
import type { Peer } from './peers/peer.js';
import type { CasesDocument } from './results.js';
import { measureStart } from './start.js';
import { addSubjects, removeAdded } from './subjects.js';
import { enableTls } from './tls.js';
import { measureValueClasses } from './value-classes.js';

type Run = Options & Omit<Measuring, 'url'>;

type Measured = Pick<CasesDocument, 'cases' | 'growth' | 'noise' | 'open' | 'start' | 'classes' | 'bulk'>;

export async function measureAll(run: Run, peers: readonly Peer[], report: Report): Promise<Measured> {
  const { databaseUrl, extras, signal } = run;
  const stops: (() => Promise<void>)[] = [];
  try {
    const service = await startService(run);
    stops.push(service.stop);
    const measuring = { ...run, url: service.url };
    const secure = await startSecure(run, report);
    if (secure !== undefined) stops.push(secure.stop);
    const measureCases = async (isChosen: (write: boolean) => boolean): Promise<readonly CaseResult[]> => {
      const results: CaseResult[] = [];
      for (const each of run.cases.filter((one) => isChosen(isWrite(one)))) {
        signal.throwIfAborted();
        results.push(await measureCase(each, peers, { ...measuring, secure }, report));
      }
      return results;
    };
    const begin = extras.has('noise') ? await takeSample(measuring, 'beginning', report) : null;
    const reads = await measureCases((write) => !write);
    const open = extras.has('open') ? await measureOpen(measuring, peers, report) : null;
    const growth = run.growth ? await measureGrowth(service.url, run, report) : null;
    if (run.cases.some(isWrite)) await addSubjects(databaseUrl);
    const writes = await measureCases((write) => write);
    const bulk = await measureBulk(
      BULK.filter((id) => extras.has(id)),
      run,
      report,
    );
    const classes = extras.has('classes') ? await measureValueClasses(run, report) : [];
    const start = extras.has('start') ? await measureStart(measuring, report) : null;
    // Writes leave pages half empty. These measurements run before them, so that the end is comparable.
    if (begin !== null && run.cases.some(isWrite)) await removeAdded(databaseUrl, report);
    const noise: Noise | null = begin && { begin, end: await takeSample(measuring, 'end', report) };
    signal.throwIfAborted();
    return { cases: [...reads, ...writes], growth, noise, open, start, classes, bulk };
  } finally {
    for (const stop of stops) await stop();
    if (run.cases.some(isWrite)) await removeAdded(databaseUrl, report);
  }
}

const BULK: readonly BulkResult['id'][] = ['import', 'import-flat', 'patch', 'patch-flat'];

interface Secure extends RunningService {
  readonly databaseUrl: string;
}

/** Undefined if no case needs it, or if it cannot be started. */
async function startSecure(run: Run, report: Report): Promise<Secure | undefined> {
  if (!run.cases.some((each) => each.tls)) return undefined;
  try {
    const databaseUrl = await enableTls(run.databaseUrl);
    return { ...(await startService({ ...run, databaseUrl })), databaseUrl };
  } catch (error) {
    run.signal.throwIfAborted();
    report(`TLS: ${error instanceof Error ? error.message : error}`);
    return undefined;
  }
}
