/** The plot that the README shows, as one SVG file, drawn from the table of cases in report.md. */
import { escapeText, times } from './format.js';

interface CaseRow {
  readonly name: string;
  readonly service: number;
  readonly ceiling: number;
  /** The peer's figure, or null if it has no equivalent request. */
  readonly peer: number | null;
}

interface Report {
  readonly cases: readonly CaseRow[];
  readonly machine: string;
  /** The figures of a peer, or null if no peer was measured. */
  readonly peer: string | null;
}

const WIDTH = 760;
const LEFT = 205;
const RIGHT = 110;
const TOP = 58;
const ROW = 34;
const BAR = 11;

export function drawFigure(markdown: string): string {
  const { cases, machine, peer } = readReport(markdown);
  const most = Math.max(...cases.map((row) => row.service / row.ceiling), 1);
  const bottom = TOP + cases.length * ROW;
  const place = (ratio: number): number => round(LEFT + (ratio / most) * (WIDTH - LEFT - RIGHT));
  const rows = cases.flatMap((row, index) => drawCase(row, TOP + index * ROW, place));
  const legend = [
    `<rect class="service" x="${LEFT}" y="34" width="11" height="11"/><text x="${LEFT + 17}" y="44">Lateral</text>`,
    ...(peer === null
      ? []
      : [
          `<rect class="peer" x="${LEFT + 90}" y="34" width="11" height="11"/><text x="${LEFT + 107}" y="44">${peer}</text>`,
        ]),
  ];
  const one = place(1);
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${bottom + 46}" viewBox="0 0 ${WIDTH} ${bottom + 46}" role="img" aria-label="Requests per second as a multiple of pgbench">
<style>
text { font: 12.5px system-ui, sans-serif; fill: #1c1f24; }
.title { font-weight: 600; font-size: 14px; }
.soft { fill: #646b75; font-size: 11.5px; }
.rate { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }
.name { text-anchor: end; }
.back { fill: #ffffff; }
.service { fill: #1f6feb; }
.peer { fill: #d9730d; }
line { stroke: #8a929e; stroke-dasharray: 3 3; }
@media (prefers-color-scheme: dark) {
  text { fill: #e8eaed; }
  .soft { fill: #9aa2ad; }
  .rate { stroke: #131519; }
  .back { fill: #131519; }
  .service { fill: #6aa5ff; }
  .peer { fill: #f0a04b; }
}
</style>
<rect class="back" width="100%" height="100%" rx="8"/>
<text class="title" x="16" y="22">Requests per second; 1 × is pgbench running the same SQL on the same machine</text>
<line x1="${one}" x2="${one}" y1="${TOP - 6}" y2="${bottom + 2}"/>
${[...legend, ...rows].join('\n')}
<text class="soft" x="${one}" y="${bottom + 16}" text-anchor="middle">1 × pgbench</text>
<text class="soft" x="16" y="${bottom + 36}">${machine}</text>
</svg>
`;
}

function drawCase(row: CaseRow, top: number, place: (ratio: number) => number): string[] {
  const bars = [
    { kind: 'service', rate: row.service },
    { kind: 'peer', rate: row.peer },
  ];
  return [
    `<text class="name" x="${LEFT - 12}" y="${top + 16}">${escapeText(row.name)}</text>`,
    ...bars.flatMap(({ kind, rate }, index) => {
      if (rate === null) return [];
      const y = top + index * (BAR + 2);
      const ratio = rate / row.ceiling;
      return [
        `<rect class="${kind}" x="${LEFT}" y="${y}" width="${round(place(ratio) - LEFT)}" height="${BAR}"/>`,
        `<text class="soft rate" x="${place(ratio) + 6}" y="${y + 9.5}">${times(ratio)} (${rate.toLocaleString('en-US')}/s)</text>`,
      ];
    }),
  ];
}

function readReport(markdown: string): Report {
  const [header, , ...rows] = (/^## Cases\n\n((?:\|.*\n)+)/m.exec(markdown)?.[1] ?? '')
    .trimEnd()
    .split('\n')
    .map(cells);
  const column = (name: string): number => header?.indexOf(name) ?? -1;
  const peerName = /PostGraphile \d[\d.]*\d/.exec(markdown)?.[0] ?? null;
  const at = (row: readonly string[], name: string): number | null => {
    const text = row[column(name)] ?? '';
    return text === '' ? null : Number(text.replaceAll(',', ''));
  };
  // Only cases with a target: all of them would be too many for one plot.
  const chosen = rows.filter((row) => (row[column('required')] ?? '') !== '' && (at(row, 'ceiling/s') ?? 0) > 0);
  const cases = chosen.map((row) => ({
    name: row[column('case')] ?? '',
    service: at(row, 'requests/s') ?? 0,
    ceiling: at(row, 'ceiling/s') ?? 0,
    peer: at(row, 'PostGraphile/s'),
  }));
  if (cases.length === 0 || cases.some((row) => !(row.service > 0 && row.ceiling > 0))) {
    throw new Error('the report has no table of cases: run npm run bench');
  }
  const machine = /^- Machine: (.*)$/m.exec(markdown)?.[1] ?? '';
  return { cases, machine: escapeText(machine), peer: peerName };
}

function cells(line: string): string[] {
  return line
    .slice(1, -1)
    .split('|')
    .map((cell) => cell.trim());
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
