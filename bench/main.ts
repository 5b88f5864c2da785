/**
 * `npm run bench`: starts the environment, puts the service under load case by case, and compares each figure with its ceiling: how often
 * PostgreSQL itself runs the statement that the service compiled, measured in the same minute.
 */
import { relative } from 'node:path';
import { checkOut, measureAgainst } from './against.js';
import { measureBeside, reportBeside } from './beside.js';
import { boardTable } from './boards/board.js';
import { runChinook } from './boards/chinook.js';
import { runFunctions } from './boards/functions.js';
import { measureCache } from './cache.js';
import { measureCallers } from './callers.js';
import { prepareData, type Report, serverVersion, startDatabase } from './environment.js';
import { measureHits } from './hit.js';
import { measureLive } from './live.js';
import type { Measuring } from './measure.js';
import { measureAll } from './measure-all.js';
import { measureMirror } from './mirror.js';
import { type Options, readOptions, USAGE, UsageError } from './options.js';
import { startPeers, stopPeers } from './peers/all.js';
import { makeReader } from './reader.js';
import { measureRecording } from './recording.js';
import { serversText } from './report/markdown.js';
import { renewLive, renewServers, writeReport } from './report/write.js';
import {
  type CasesDocument,
  type Documents,
  describeOrigin,
  loadDocuments,
  loadLive,
  type Origin,
  saveDocument,
} from './results.js';
import { measureServers } from './servers.js';
import { reportSoak, soak } from './soak.js';
import { caseTable, comparisonTable } from './table.js';

async function main(words: readonly string[]): Promise<void> {
  const options = readOptions(words);
  if (options.help) return console.log(USAGE);
  if (options.command === 'report') return rewriteReport(options);
  const signal = stopOnSignal();
  const other = options.against === undefined ? null : await checkOut(options.against, signal, report);
  try {
    const database = await startDatabase(options.data, report);
    try {
      if (options.command === 'mirror') return await measureMirror(database.url, report, signal);
      if (options.command === 'live') return await runLive(options, database.url, signal);
      if (options.command === 'callers') {
        const before = other?.root ?? null;
        return await measureCallers(database.url, { ...options, before }, report);
      }
      if (options.command === 'boards') return await runBoards(options, database.url, signal);
      const version = await prepareData(database.url, report);
      await makeReader(database.url);
      signal.throwIfAborted();
      if (options.command === 'hit') return await measureHits(database.url);
      if (options.command === 'record') return await runRecording(options, database.url, signal);
      if (options.command === 'cache') return await measureCache(database.url, options, report);
      const origin = describeOrigin(version, options.settings);
      if (options.command === 'servers') return await runServers(options, database.url, origin);
      const run = { ...options, databaseUrl: database.url, signal };
      if (options.command === 'soak') return await runSoak(run, origin);
      if (options.command === 'long-query') return await runBeside(run, origin);
      if (other !== null) return await runAgainst(run, other.root, `${options.against} (${other.commit})`, origin);
      return await runCases(run, origin);
    } finally {
      await database.stop();
    }
  } finally {
    await other?.remove();
  }
}

type Run = Options & Omit<Measuring, 'url'>;

async function runCases(run: Run, origin: Origin): Promise<void> {
  const peers = await startPeers({ ...run.peers, ...run }, report);
  try {
    const measured = await measureAll(run, peers, report);
    console.log(
      `\n${caseTable(
        measured.cases,
        peers.map((peer) => peer.id),
      )}\n`,
    );
    const { seconds, warmUp, rounds, connections, poolSize } = run;
    const document: CasesDocument = {
      ...origin,
      measuring: { seconds, warmUp, rounds, connections, poolSize },
      peers: Object.fromEntries(peers.map((peer) => [peer.id, peer.version])),
      ...measured,
    };
    const isWhole = run.report !== undefined;
    report(`written: ${await saveDocument(isWhole ? 'cases' : 'some', document)}`);
    if (measured.cases.some((result) => result.failure !== null)) process.exitCode = 1;
    if (run.growth) await runBeside(run, origin);
    else if (isWhole) await rewriteReport(run);
  } finally {
    await stopPeers(peers);
  }
}

async function runLive(options: Options, databaseUrl: string, signal: AbortSignal): Promise<void> {
  const measured = await measureLive(databaseUrl, { ...options, subscribers: options.connections }, report, signal);
  const origin = describeOrigin(await serverVersion(databaseUrl), options.settings);
  report(`written: ${await saveDocument('live', { ...origin, ...measured })}`);
  await rewriteReport(options);
}

async function runBoards(options: Options, serverUrl: string, signal: AbortSignal): Promise<void> {
  const run = { ...options, serverUrl, signal };
  const boards = [];
  for (const board of [runFunctions, runChinook]) {
    const result = await board(run, report);
    if (result === null) continue;
    boards.push(result);
    console.log(`\n${result.source}, with ${result.tool}\n\n${boardTable(result)}\n`);
  }
  if (boards.length === 0) throw new UsageError('boards needs --functions or --graphql-bench: see bench/boards.md');
  const origin = describeOrigin(await serverVersion(serverUrl), options.settings);
  report(`written: ${await saveDocument('boards', { ...origin, boards })}`);
}

async function runRecording(options: Options, databaseUrl: string, signal: AbortSignal): Promise<void> {
  const cost = await measureRecording({ ...options, databaseUrl, signal }, report);
  const origin = describeOrigin(await serverVersion(databaseUrl), options.settings);
  report(`written: ${await saveDocument('record', { ...origin, ...cost })}`);
  if (!cost.isMet) process.exitCode = 1;
}

async function runServers(options: Options, databaseUrl: string, origin: Origin): Promise<void> {
  const measured = { ...origin, ...(await measureServers(databaseUrl, options, report)) };
  console.log(`\n${serversText(measured)}\n`);
  report(`written: ${await saveDocument('servers', measured)}`);
  if (options.report !== undefined) await renewServers(measured, options.report);
}

async function runSoak(run: Run, origin: Origin): Promise<void> {
  const measured = await soak(run, report);
  report(`written: ${await saveDocument('soak', { ...origin, ...measured })}`);
  if (!reportSoak(measured, report)) process.exitCode = 1;
  await rewriteReport(run);
}

async function runBeside(run: Run, origin: Origin): Promise<void> {
  const measured = await measureBeside(run, report);
  report(`written: ${await saveDocument('beside', { ...origin, ...measured })}`);
  const isMet = reportBeside(measured, report);
  if (!isMet && run.command === 'long-query') process.exitCode = 1;
  await rewriteReport(run);
}

async function runAgainst(run: Run, root: string, name: string, origin: Origin): Promise<void> {
  // A case with a separate service would need two of them here.
  const cases = run.cases.filter((each) => !each.tls);
  const comparisons = await measureAgainst(cases, root, run, report);
  report(`\nnow: the working copy (${origin.revision}); before: ${name}; the best of at least ${run.rounds} rounds,`);
  report('by turns on one database; CPU: processor time of service and PostgreSQL per request, the median\n');
  console.log(`${comparisonTable(comparisons)}\n`);
  const fallen = comparisons.filter((each) => each.hasFallen);
  const isCompared = comparisons.some((each) => each.change !== null);
  if (fallen.length > 0) report(`FAILED: slower: ${fallen.map((each) => each.title).join(', ')}`);
  else report(isCompared ? 'no case became slower' : 'FAILED: there was nothing to compare');
  if (fallen.length > 0 || !isCompared) process.exitCode = 1;
}

/** From the newest document of each kind; without the cases there is no report. */
async function rewriteReport({ report: folder, command }: Options): Promise<void> {
  const documents: Documents | null = await loadDocuments();
  if (folder === undefined) return;
  const live = await loadLive();
  if (documents !== null) await writeReport(documents, folder);
  else if (live !== null && (command === 'live' || command === 'report')) await renewLive(live, folder);
  else if (command === 'report') throw new UsageError('nothing was measured yet: npm run bench');
  else return;
  report(`written: ${['report.html', 'report.md'].map((name) => relative('.', `${folder}/${name}`)).join(', ')}`);
}

/** The first signal stops everything that was started; a second one exits at once. */
function stopOnSignal(): AbortSignal {
  const controller = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      if (controller.signal.aborted) process.exit(130);
      report(`${signal}: stopping`);
      controller.abort(new Stopped());
    });
  }
  return controller.signal;
}

const report: Report = (message) => console.log(message);

class Stopped extends Error {}

try {
  await main(process.argv.slice(2));
} catch (error) {
  const isStopped = error instanceof Stopped || (error instanceof Error && error.name === 'AbortError');
  if (!isStopped) console.error('bench:', error instanceof UsageError ? error.message : error);
  process.exitCode = isStopped ? 130 : 1;
}
