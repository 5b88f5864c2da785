/** The result of a replay, as a table, as JSON and as JUnit's XML. */
import { counted, type LimitResult } from './limits.js';
import { AWAY, type Figures, type ReplayResult, type ShapeFigures } from './replay.js';

/** A replay with its verdict. */
export interface ReplayReport extends ReplayResult {
  /** By target. */
  readonly limits: readonly (readonly LimitResult[])[];
}

export function isWithinLimits({ limits }: Pick<ReplayReport, 'limits'>): boolean {
  return limits.flat().every(({ isKept }) => isKept);
}

const COLUMNS = ['requests', 'rate', 'p50', 'p90', 'p99', 'p99.9', 'p50 recorded', 'p99 recorded', 'errors', 'status'];

/** One row per shape and target, the most frequent shapes first. */
export function tableOf(report: ReplayReport): string {
  const { shapes, all, recorded, targets } = report;
  const rows = [
    ...all.flatMap((figures, target) => [
      ['all requests', '', ...cellsOf(figures, recorded), ...targetCell(report, target)],
    ]),
    ...shapes.flatMap(({ id, title, replayed, recorded: before }) =>
      replayed.map((figures, target) => [
        shortened(title),
        digestOf(id),
        ...cellsOf(figures, before),
        ...targetCell(report, target),
      ]),
    ),
  ];
  const header = ['', 'shape', ...COLUMNS, ...(targets.length > 1 ? ['target'] : [])];
  return [aligned([header, ...rows]), '', ...notesOf(report)].join('\n');
}

const DIGEST_LENGTH = 12;

/** The beginning of the digest of a statement, as the plan checks show it; '' for requests without a statement. */
export function digestOf(id: string): string {
  return id.includes(' ') ? '' : id.slice(0, DIGEST_LENGTH);
}

function targetCell({ targets }: ReplayReport, target: number): string[] {
  return targets.length > 1 ? [targets[target] ?? ''] : [];
}

function cellsOf(figures: Figures, recorded: Figures): string[] {
  const { requests, perSecond, latency, errors, different } = figures;
  return [
    String(requests),
    `${rounded(perSecond)}/s`,
    ...[latency.p50, latency.p90, latency.p99, latency['p99.9']].map(milliseconds),
    milliseconds(recorded.latency.p50),
    milliseconds(recorded.latency.p99),
    String(errors),
    different === 0 ? 'equal' : `${different} differ`,
  ];
}

function notesOf(report: ReplayReport): string[] {
  const { omitted, recorded, all, limits, targets, isInterrupted } = report;
  const left = Object.entries(omitted).map(([reason, count]) => `${count} (${OMISSIONS[reason] ?? reason})`);
  const of = (target: number): string => (targets.length > 1 ? `${targets[target]}: ` : '');
  return [
    ...(isInterrupted
      ? [`Interrupted after ${Math.round(report.milliseconds / 1_000)} s: the replay is not complete.`]
      : []),
    `Recorded: ${counted(recorded.requests, 'request')}, ${rounded(recorded.perSecond)}/s. Latency begins when a request was due. Recorded times are those of the service, without the network.`,
    ...(left.length === 0 ? [] : [`Left out: ${left.join(', ')}.`]),
    ...all.flatMap((figures, target) => (figures.errors === 0 ? [] : [`${of(target)}${causesOf(figures)}`])),
    ...all.flatMap(({ lateness, causes }, target) =>
      lateness.p99 > MAX_LATENESS_MS && !AWAY.some((cause) => cause in causes)
        ? [
            `${of(target)}this client was late: it sent 1 % of the requests more than ${milliseconds(lateness.p99)} too late. Use a faster machine or a lower rate.`,
          ]
        : [],
    ),
    ...limits.flatMap((results, target) =>
      results.map(
        ({ limit, value, isKept }) =>
          `${isKept ? 'ok     ' : 'MISSED '} ${of(target)}${limit.text} (${figure(limit.name, value)})`,
      ),
    ),
  ];
}

export function causesOf({ errors, causes }: Figures): string {
  const each = Object.entries(causes).map(([cause, count]) => `${count} ${cause}`);
  return `${counted(errors, 'error')}: ${each.join(', ')}.`;
}

/** Milliseconds: a client that is later than that measures itself. */
const MAX_LATENESS_MS = 10;

const OMISSIONS: Readonly<Record<string, string>> = {
  write: 'writes: --writes sends them',
  route: 'routes whose values are not recorded, such as logins',
  secret: 'requests that name secrets',
  large: 'large bodies',
  body: 'bodies that are not JSON',
  share: 'callers of shares',
  caller: 'callers that were not identified',
  cursor: 'cursors, which --redact leaves out',
  unreadable: 'requests that --redact cannot read',
  'unknown caller': 'callers that the target does not have',
};

function figure(name: LimitResult['limit']['name'], value: number): string {
  return name === 'errors' || name === 'status' ? `${rounded(value * 100)} %` : milliseconds(value);
}

export function milliseconds(ms: number): string {
  return `${ms < 10 ? ms.toFixed(2) : ms < 100 ? ms.toFixed(1) : Math.round(ms)} ms`;
}

function rounded(value: number): number {
  return Math.round(value * 100) / 100;
}

const LONGEST_TITLE = 60;

function shortened(title: string): string {
  return title.length > LONGEST_TITLE ? `${title.slice(0, LONGEST_TITLE - 1)}…` : title;
}

/** The first column to the left, the others to the right. */
function aligned(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map((row) =>
      row
        .map((cell, column) => (column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0)))
        .join('  '),
    )
    .join('\n');
}

/** Times in milliseconds, rates per second. */
export function jsonOf(report: ReplayReport): string {
  const { targets, rate, milliseconds: length, recorded, all, shapes, omitted, limits, isInterrupted } = report;
  return JSON.stringify(
    {
      ok: isWithinLimits(report) && !isInterrupted,
      interrupted: isInterrupted,
      targets,
      rate: rate.kind === 'factor' ? `${rate.factor}x` : `${rate.perSecond}/s`,
      milliseconds: Math.round(length),
      omitted,
      recorded: figuresJson(recorded),
      replayed: all.map((each) => ({ ...figuresJson(each), lateness: each.lateness })),
      limits: limits.map((results) =>
        results.map(({ limit, value, isKept }) => ({ limit: limit.text, value, most: limit.most, ok: isKept })),
      ),
      shapes: shapes.map(shapeJson),
    },
    null,
    2,
  );
}

function shapeJson({ id, title, recorded, replayed }: ShapeFigures) {
  return { shape: id, title, recorded: figuresJson(recorded), replayed: replayed.map(figuresJson) };
}

function figuresJson({ requests, perSecond, latency, errors, causes, different }: Figures) {
  return { requests, rate: rounded(perSecond), ...latency, errors, causes, different_status: different };
}

/** A test case for each limit, and one for each shape: it fails if it has a part in a missed limit of errors or statuses. */
export function junitOf(report: ReplayReport): string {
  const { shapes, limits, targets, isInterrupted } = report;
  const cases = targets.flatMap((target, index) => [
    ...(isInterrupted ? [testCase(`replay ${target}`, 'complete', 'the replay was interrupted')] : []),
    ...(limits[index] ?? []).map(({ limit, value, isKept }) =>
      testCase(
        `limits ${target}`,
        limit.text,
        isKept ? null : `${limit.text} was missed: ${figure(limit.name, value)}`,
      ),
    ),
    ...shapes.map(({ id, title, replayed }) => {
      const { errors = 0, different = 0 } = replayed[index] ?? {};
      const isMissed = (name: string): boolean =>
        (limits[index] ?? []).some(({ limit, isKept }) => limit.name === name && !isKept);
      const isFailed = (errors > 0 && isMissed('errors')) || (different > 0 && isMissed('status'));
      const failure = isFailed
        ? `${counted(errors, 'error')}, ${counted(different, 'response')} with another status`
        : null;
      return testCase(`shapes ${target}`, `${title} (${id})`, failure);
    }),
  ]);
  const failed = cases.filter((each) => each.includes('<failure')).length;
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuites><testsuite name="lateral replay" tests="${cases.length}" failures="${failed}">`,
    ...cases,
    '</testsuite></testsuites>',
    '',
  ].join('\n');
}

function testCase(suite: string, name: string, failure: string | null): string {
  const content = failure === null ? '/>' : `><failure message="${markup(failure)}"/></testcase>`;
  return `<testcase classname="${markup(suite)}" name="${markup(name)}"${content}`;
}

/** A text inside of XML or HTML, also in an attribute. Characters that XML does not allow are left out. */
export function markup(text: string): string {
  return text
    .replace(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, '')
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}
