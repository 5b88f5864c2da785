/** The report as one page that loads nothing: the most important figures first, then plots, all numbers, and the SQL. */
import { TITLES } from '../beside.js';
import type { Live } from '../live.js';
import type { CaseResult } from '../measure.js';
import type { Open } from '../open.js';
import { PEERS, type PeerId } from '../peers/peer.js';
import type { Documents, Origin } from '../results.js';
import { judgeRatio, judgeTail } from '../verdict.js';
import { escapeText, figure, milliseconds, times, timesAtMost } from './format.js';
import { writeGrowth, writeMemory } from './growth.js';
import { describeLive, LIVE_HEAD, liveRows, writeLive } from './live.js';
import { describePeers } from './markdown.js';
import { OPEN_HEAD, openRows, writeOpen } from './open.js';
import { barRows, dotRows, type Mark } from './plot.js';
import { STYLE } from './style.js';
import {
  BULK_HEAD,
  bulkRows,
  CLASSES_HEAD,
  CLASSES_WORDS,
  classRows,
  comparePeers,
  describeCount,
  describeMachine,
  describeNoise,
  describeRate,
  describeSettings,
  describeStart,
  listTargets,
  type Target,
} from './summary.js';

export function writeHtml(documents: Documents): string {
  const { cases, beside, soak, live } = documents;
  const measured = cases.cases.filter((each) => each.service !== null);
  const parts = [
    writeHead(documents),
    section(
      'How close to PostgreSQL',
      'The ceiling is pgbench with the very SQL that the service compiled, with 8 and with 32 clients in the same rounds: the better of the two. Upright marks show what is asked for, orange bars what misses it.',
      panel(writeBars(measured)),
    ),
    section(
      'Throughput',
      'Requests per second of each case, on a scale of tens. A filled mark right of the ring is faster than PostgreSQL alone, because several waiting reads travel as one statement. ' +
        comparePeers(documents).join(' '),
      panel(
        writeLegend(documents, true) + dotRows(measured.map((each) => ({ label: each.title, marks: rateMarks(each) }))),
      ),
    ),
    section(
      'Latency',
      'From p50 (filled) to p99 (ring) in milliseconds, on a scale of tens, under full load: all connections ask again at once.',
      panel(
        writeLegend(documents, false) +
          dotRows(measured.map((each) => ({ label: each.title, marks: tailMarks(each) }))),
      ),
    ),
    cases.open === null ? '' : openSection(cases.open),
    cases.classes.length === 0
      ? ''
      : section(
          'Skewed values',
          CLASSES_WORDS,
          panel(`<div class="wide">${plainTable(CLASSES_HEAD, classRows(documents))}</div>`),
        ),
    cases.bulk.length === 0 && cases.start === null
      ? ''
      : section(
          'Many rows in one request, and cold start',
          describeStart(documents),
          cases.bulk.length === 0 ? '' : panel(`<div class="wide">${plainTable(BULK_HEAD, bulkRows(documents))}</div>`),
        ),
    cases.growth === null ? '' : section('How cost grows', 'One size varies at a time.', writeGrowth(cases.growth)),
    beside === null && soak === null
      ? ''
      : section('During a long query, and memory over minutes', '', `${writeBeside(beside)}${writeMemory(soak)}`),
    live === null ? '' : liveSection(live),
    section(
      'All numbers',
      'Requests per second, latencies in milliseconds. A ratio without a note is that to the ceiling. Below the ceiling are the figures of pgbench with each number of clients. PostgreSQL counts the statements: per request (below 1 if waiting reads share one), and per node. A node is an object of the response at any level.',
      panel(`<div class="wide">${writeCases(documents)}</div>`),
    ),
    `<p class="soft small" style="margin-top:10px">${escapeText(describePeers(documents))}</p>`,
    section('Requests and their statements', '', panel(cases.cases.map(writeDetails).join('\n'))),
  ];
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Lateral: bench report</title>
<style>${STYLE}</style>
</head>
<body><main>
${parts.filter(Boolean).join('\n')}
</main></body>
</html>
`;
}

function writeHead(documents: Documents): string {
  const { cases } = documents;
  const targets = listTargets(documents);
  const met = targets.filter((target) => target.isMet).length;
  const facts = [
    ['Revision', `${cases.version}, ${cases.revision}`],
    ['Machine', `${describeMachine(cases)}; load, service and database share it`],
    ['Settings', describeSettings(documents)],
    ['Noise', describeNoise(documents)],
    [
      'Data',
      '100,000 articles with 500,000 comments, 300,000 tags and 200,000 blocks; requests are spread over all of them',
    ],
  ].map(([name = '', value = '']) => `<dt>${name}</dt><dd>${escapeText(value)}</dd>`);
  const verdict = targets.length === 0 ? '' : `<p class="verdict">${met} of ${targets.length} targets met</p>`;
  return `<h1>How fast is Lateral?</h1>
<p class="soft">Every case compared with PostgreSQL alone, which runs the same statement on the same machine.</p>
<dl class="facts">${facts.join('')}</dl>
${verdict}
<div class="cards">${targets.map(writeCard).join('\n')}</div>`;
}

function writeCard({ title, found, wanted, note, isMet }: Target): string {
  return `<div class="card"><div class="title">${escapeText(title)}</div><div class="found">${escapeText(found)} ${badge(isMet)}</div>
<div class="wanted">${escapeText(wanted)}</div><div class="note">${escapeText(note)}</div></div>`;
}

function badge(isMet: boolean): string {
  return `<span class="badge ${isMet ? 'met">met' : 'missed">missed'}</span>`;
}

function writeBars(cases: readonly CaseResult[]): string {
  const bars = cases.flatMap((each) => {
    const value = each.beside?.ratio ?? each.ratio;
    if (value === null) return [];
    const judged = judgeRatio(each);
    const text = each.beside === null ? times(value) : `${times(value)} of ${each.beside.as}`;
    return [{ label: each.title, value, text, target: judged?.wanted ?? null, isMet: judged?.isMet ?? null }];
  });
  return barRows(bars);
}

function rateMarks({ service, ceiling, peers }: CaseResult): readonly Mark[] {
  const marks: Mark[] = [];
  const add = (name: string, color: string, value: number, unit: string): void => {
    marks.push({ name, color, value, title: `${figure(value)} ${unit}/s` });
  };
  if (ceiling !== null) add('ceiling', 'ceiling', ceiling.statementsPerSecond, 'statements');
  for (const [id, title] of Object.entries(PEERS) as [PeerId, string][]) {
    const rate = peers[id]?.load?.requestsPerSecond;
    if (rate !== undefined) add(title, id, rate, 'requests');
  }
  if (service !== null) add('Lateral', 'service', service.requestsPerSecond, 'requests');
  return marks;
}

function tailMarks({ service, peers }: CaseResult): readonly Mark[] {
  const loads = [
    ['Lateral', 'service', service] as const,
    ...(Object.entries(PEERS) as [PeerId, string][]).map(([id, title]) => [title, id, peers[id]?.load] as const),
  ];
  return loads.flatMap(([name, color, load]) => {
    if (!load) return [];
    const title = `p50 ${milliseconds(load.p50)}, p99 ${milliseconds(load.p99)}`;
    return [{ name, color, value: load.p50, until: load.p99, title }];
  });
}

function writeLegend({ cases: { peers } }: Documents, withCeiling: boolean): string {
  const names = [
    ['service', 'Lateral'],
    ...(withCeiling ? [['ceiling', 'ceiling (ring): PostgreSQL alone']] : []),
    ...(Object.entries(PEERS) as [PeerId, string][])
      .filter(([id]) => peers[id] !== undefined)
      .map(([id, title]) => [id, `${title} ${peers[id]}`]),
  ];
  const spans = names.map(([color, name = '']) => `<span style="--color:var(--${color})">${escapeText(name)}</span>`);
  return `<div class="legend">${spans.join('')}</div>`;
}

function writeBeside(beside: Documents['beside']): string {
  if (beside === null) return '';
  const { alone } = beside.results;
  const rows = (['alone', 'waiting', 'computing'] as const).map((mode) => {
    const { requestsPerSecond, p50, p99 } = beside.results[mode];
    const delay = mode === 'alone' ? '' : timesAtMost(p99 / alone.p99);
    return `<tr><td>${TITLES[mode]}</td><td>${figure(requestsPerSecond)}</td><td>${p50.toFixed(2)}</td><td>${p99.toFixed(2)}</td><td>${delay}</td></tr>`;
  });
  return panel(`<h3>Small reads while one long query always runs through the same service</h3>
<div class="wide"><table><tr><th></th><th>requests/s</th><th>p50 ms</th><th>p99 ms</th><th>p99 of alone</th></tr>${rows.join('')}</table></div>`);
}

const HEAD = ['case', 'conn.', 'service', 'ceiling', 'ratio', 'target', 'p50', 'p99', 'p99/p50', 'MB/s'];
const COUNTS = ['statements<br>/request', '/node'];

function writeCases({ cases: { cases, peers: there } }: Documents): string {
  const peers = (Object.entries(PEERS) as [PeerId, string][]).filter(([id]) => there[id] !== undefined);
  const head = [...HEAD, ...COUNTS, ...peers.map(([, title]) => title)].map((name) => `<th>${name}</th>`);
  const rows = cases.map((each) => {
    const { title, connections, service, ceiling, ratio, beside, failure } = each;
    if (service === null) {
      return `<tr><td>${escapeText(title)}</td><td>${connections}</td><td class="missed" colspan="${head.length - 2}" style="text-align:left;white-space:normal">failed: ${escapeText(failure ?? '')}</td></tr>`;
    }
    const judged = judgeRatio(each);
    const tail = judgeTail(each);
    const own = ratio === null ? '' : times(ratio);
    const share =
      beside === null ? own : `${times(beside.ratio)}<br><small class="soft">of ${escapeText(beside.as)}</small>`;
    const wanted = judged === null ? '' : `${judged.isMet ? '✓' : '✗'} ${judged.wanted}`;
    const cells = [
      [String(connections)],
      [figure(service.requestsPerSecond)],
      [
        ceiling === null
          ? ''
          : `${figure(ceiling.statementsPerSecond)}<br><small class="soft">${writeTried(each)}</small>`,
      ],
      [share],
      [wanted, judged?.isMet],
      [service.p50.toFixed(2)],
      [service.p99.toFixed(2)],
      [timesAtMost(service.p99 / service.p50), tail?.isMet],
      [(service.bytesPerSecond / 1e6).toFixed(1)],
      ...describeCount(each.statements).map((text) => [text] as const),
      ...peers.map(([id]) => {
        const peer = each.peers[id];
        const rate = peer?.load?.requestsPerSecond;
        const [count] = describeCount(peer?.statements);
        if (rate === undefined) return [''] as const;
        return [`${figure(rate)}${count && `<br><small class="soft">${count} st.</small>`}`] as const;
      }),
    ] as readonly (readonly [string, (boolean | undefined)?])[];
    const written = cells.map(([text, isMet]) =>
      isMet === undefined ? `<td>${text}</td>` : `<td class="${isMet ? 'met' : 'missed'}">${text}</td>`,
    );
    return `<tr><td>${escapeText(title)}</td>${written.join('')}</tr>`;
  });
  return `<table><tr>${head.join('')}</tr>${rows.join('\n')}</table>`;
}

function writeDetails(each: CaseResult): string {
  const { title, request, sql, ceiling, peers, failure } = each;
  const notes = [
    failure === null ? '' : `Failed: ${failure}`,
    ...(ceiling?.tried ?? []).map(
      ({ connections, statementsPerSecond }) =>
        `pgbench with ${connections} clients: ${figure(statementsPerSecond)} statements/s.`,
    ),
    ...Object.entries(peers).map(([id, peer]) =>
      peer.reason === null ? '' : `${PEERS[id as PeerId]}: ${peer.reason}.`,
    ),
  ].filter(Boolean);
  const blocks = [request && `<pre>${escapeText(request)}</pre>`, sql && `<pre>${escapeText(sql)}</pre>`].filter(
    Boolean,
  );
  return `<details><summary>${escapeText(title)} <span class="small soft">${escapeText(describeRate(each))}</span></summary>
${notes.map((note) => `<p class="small soft" style="margin:8px 0 0">${escapeText(note)}</p>`).join('')}${blocks.join('')}</details>`;
}

/** By the number of pgbench's clients. */
function writeTried({ ceiling }: CaseResult): string {
  const tried = ceiling?.tried ?? [];
  return tried.map((each) => `${each.connections}: ${figure(each.statementsPerSecond)}`).join('<br>');
}

function openSection(open: Open): string {
  const table = plainTable(OPEN_HEAD, openRows(open));
  return section(
    'Latency at constant rates',
    `The client sends requests by a schedule, independent of the responses, and latency begins at the scheduled time: waiting requests are not left out. The highest rate is that of the same client with ${open.connections} connections that send the next request at once; ${open.seconds} s at each rate.`,
    writeOpen(open) + panel(`<details><summary>All rates</summary><div class="wide">${table}</div></details>`),
  );
}

export function liveSection(live: Origin & Live): string {
  const table = plainTable(LIVE_HEAD, liveRows(live));
  const details = `<details><summary>All rates</summary><div class="wide">${table}</div></details>`;
  return section('Live queries', describeLive(live), writeLive(live) + panel(details));
}

function plainTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[], tag: 'th' | 'td'): string =>
    `<tr>${cells.map((cell) => `<${tag}>${escapeText(cell)}</${tag}>`).join('')}</tr>`;
  return `<table>${line(head, 'th')}${rows.map((row) => line(row, 'td')).join('\n')}</table>`;
}

function section(title: string, words: string, body: string): string {
  return `<h2>${escapeText(title)}</h2>${words && `<p class="soft small">${escapeText(words)}</p>`}${body}`;
}

function panel(body: string): string {
  return `<div class="panel">${body}</div>`;
}
