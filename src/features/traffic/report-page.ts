/** The result of a replay as a page that needs no other file. */
import type { Figures, ShapeFigures } from './replay.js';
import { causesOf, digestOf, isWithinLimits, markup, milliseconds, type ReplayReport } from './report.js';

const STYLE = `
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; color: #1c2430; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid #dde3ea; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; }
th { background: #f3f6f9; position: sticky; top: 0; }
.bad { color: #b3261e; font-weight: 600; }
.good { color: #1a7f37; font-weight: 600; }
.bar { display: inline-block; height: .6rem; background: #4a7dbd; vertical-align: middle; }
.note { color: #556270; }
@media (prefers-color-scheme: dark) {
  body { background: #14181d; color: #dfe6ee; } th { background: #1d242c; } th, td { border-color: #2b343e; }
}`;

export function pageOf(report: ReplayReport): string {
  const isGood = isWithinLimits(report);
  const hasLimits = report.limits.flat().length > 0;
  const verdict = hasLimits
    ? `<p class="${isGood ? 'good' : 'bad'}">${isGood ? 'Within the limits' : 'A limit was missed'}</p>`
    : '';
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Replay of ${markup(report.targets.join(' and '))}</title><style>${STYLE}</style></head>
<body>
<h1>Replay</h1>
<p>${markup(report.targets.join(' compared with '))}</p>
${report.isInterrupted ? '<p class="bad">The replay was interrupted</p>' : ''}
${verdict}
${report.all.map((figures) => (figures.errors === 0 ? '' : `<p>${markup(causesOf(figures))}</p>`)).join('')}
${limitsOf(report)}
${shapesOf(report)}
<p class="note">Times are milliseconds from the time at which a request was due. Recorded times are those of the service, without the network.</p>
</body>
</html>
`;
}

function limitsOf({ limits, targets }: ReplayReport): string {
  const items = limits.flatMap((results, target) =>
    results.map(
      ({ limit, isKept }) =>
        `<li class="${isKept ? 'good' : 'bad'}">${markup(limit.text)}: ${isKept ? 'kept' : 'missed'} (${markup(targets[target] ?? '')})</li>`,
    ),
  );
  return items.length === 0 ? '' : `<ul>${items.join('')}</ul>`;
}

const HEADS = [
  'requests',
  'per second',
  'p50',
  'p90',
  'p99',
  'p99.9',
  '',
  'recorded p50',
  'recorded p99',
  'errors',
  'other status',
];

function shapesOf(report: ReplayReport): string {
  const { all, recorded, shapes, targets } = report;
  const slowest = Math.max(1, ...shapes.flatMap(({ replayed }) => replayed.map(({ latency }) => latency.p99)));
  const total: ShapeFigures = { id: '', title: 'all requests', recorded, replayed: all };
  const rows = [total, ...shapes].flatMap(({ id, title, recorded: before, replayed }) =>
    replayed.map((figures, target) => {
      const parts = [title, digestOf(id), targets.length > 1 ? (targets[target] ?? '') : ''];
      return rowOf(parts.filter((part) => part !== '').join(' · '), figures, before, slowest);
    }),
  );
  const heads = ['shape', ...HEADS].map((head) => `<th>${head}</th>`).join('');
  return `<table><thead><tr>${heads}</tr></thead><tbody>${rows.join('\n')}</tbody></table>`;
}

function rowOf(
  title: string,
  { requests, perSecond, latency, errors, different }: Figures,
  recorded: Figures,
  slowest: number,
): string {
  const width = Math.min(100, (latency.p99 / slowest) * 100).toFixed(0);
  const cells = [
    String(requests),
    perSecond.toFixed(1),
    ...[latency.p50, latency.p90, latency.p99, latency['p99.9']].map(milliseconds),
    `<span class="bar" style="width:${width}px"></span>`,
    milliseconds(recorded.latency.p50),
    milliseconds(recorded.latency.p99),
    bad(errors),
    bad(different),
  ];
  return `<tr><td>${markup(title)}</td>${cells.map((cell) => `<td>${cell}</td>`).join('')}</tr>`;
}

function bad(count: number): string {
  return count === 0 ? '0' : `<span class="bad">${count}</span>`;
}
