/** The style of the report's page: one column, light or dark by the reader's preference, readable on a phone. */
export const STYLE = `
:root {
  color-scheme: light dark;
  --page: #fafaf8; --card: #ffffff; --ink: #1c1f24; --soft: #646b75; --line: #e4e5e1; --grid: #ecece8;
  --service: #1f6feb; --ceiling: #8a929e; --postgraphile: #d9730d; --postgrest: #0f9d6b; --directus: #9b4ddb; --tail: #0e7490; --extreme: #be123c;
  --met: #15803d; --missed: #c2410c; --met-back: #e8f5ec; --missed-back: #fdf0e7;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #131519; --card: #1b1e24; --ink: #e8eaed; --soft: #9aa2ad; --line: #2c3038; --grid: #282c33;
    --service: #6aa5ff; --ceiling: #8d96a3; --postgraphile: #f0a04b; --postgrest: #3ecf98; --directus: #c08cf5; --tail: #4fd1e0; --extreme: #ff7b93;
    --met: #5fd08a; --missed: #ff9a5c; --met-back: #17291e; --missed-back: #33221a;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 1140px; margin: 0 auto; padding: 40px 24px 80px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -0.02em; }
h2 { font-size: 20px; margin: 48px 0 4px; letter-spacing: -0.01em; }
h3 { font-size: 15px; margin: 0 0 2px; }
p { margin: 0 0 14px; max-width: 76ch; }
.soft { color: var(--soft); }
small, .small { font-size: 13px; }
td small { font-size: 11.5px; }
a { color: var(--service); }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: 2px 14px; margin: 14px 0 0; font-size: 13px; }
dl.facts dt { color: var(--soft); }
dl.facts dd { margin: 0; overflow-wrap: anywhere; }
.verdict { font-size: 18px; font-weight: 600; margin: 28px 0 10px; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(186px, 1fr)); gap: 10px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px 11px; }
.card .title { font-size: 13px; font-weight: 600; line-height: 1.3; min-height: 2.6em; }
.card .found { font-size: 26px; font-weight: 650; line-height: 1.25; letter-spacing: -0.02em; font-variant-numeric: tabular-nums; }
.card .wanted { font-size: 12.5px; }
.card .note { font-size: 12.5px; color: var(--soft); }
.badge { display: inline-block; font-size: 11.5px; font-weight: 600; border-radius: 20px; padding: 1px 8px; letter-spacing: 0; line-height: 1.5; vertical-align: 5px; }
.badge.met { color: var(--met); background: var(--met-back); }
.badge.missed { color: var(--missed); background: var(--missed-back); }
.panel { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px; margin-top: 14px; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); gap: 14px; margin-top: 14px; }
.panels .panel { margin: 0; }
.legend { display: flex; flex-wrap: wrap; gap: 3px 16px; font-size: 13px; color: var(--soft); margin: 0 0 8px; }
.legend span::before { content: ""; display: inline-block; width: 10px; height: 10px; border-radius: 50%; background: var(--color); margin-right: 6px; }
.rows { display: grid; grid-template-columns: minmax(150px, 260px) 1fr; column-gap: 16px; align-items: center; }
.rows .label { font-size: 13.5px; text-align: right; line-height: 1.25; padding: 2px 0; }
svg { overflow: visible; display: block; width: 100%; }
svg text { font: 12.5px system-ui, sans-serif; fill: var(--ink); }
.grid { stroke: var(--grid); stroke-width: 1; }
.one { stroke: var(--ceiling); stroke-width: 1; stroke-dasharray: 3 3; }
.bar.met, .bar.free { fill: var(--service); } .bar.free { opacity: 0.45; } .bar.missed { fill: var(--missed); }
.target { stroke: var(--ink); stroke-width: 2; }
.value { font-variant-numeric: tabular-nums; paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round; }
.mark { fill: var(--color); stroke: var(--card); stroke-width: 1.5; }
.mark.ceiling { fill: var(--card); stroke: var(--ceiling); stroke-width: 2.5; }
.range line { stroke: var(--color); stroke-width: 3; opacity: 0.45; }
.range circle { fill: var(--color); } .range .end { fill: var(--card); stroke: var(--color); stroke-width: 2; }
.series line { stroke: var(--color); stroke-width: 2; stroke-linecap: round; }
.series circle { fill: var(--color); stroke: var(--card); stroke-width: 1.5; }
line.limit { stroke: var(--missed); stroke-width: 1.5; stroke-dasharray: 5 4; }
text.limit { fill: var(--missed); text-anchor: end; }
.plot { display: grid; grid-template-columns: 44px 1fr; margin-right: 10px; }
.plot .unit { grid-column: 1 / 3; font-size: 12px; color: var(--soft); margin-bottom: 12px; }
.plot .y { position: relative; }
.plot .y span { position: absolute; right: 12px; transform: translateY(-50%); font-size: 12px; color: var(--soft); font-variant-numeric: tabular-nums; }
.x { position: relative; height: 22px; grid-column: 2; }
.x span { position: absolute; top: 6px; transform: translateX(-50%); font-size: 12px; color: var(--soft); white-space: nowrap; }
.plot .x-label { grid-column: 2; font-size: 12px; color: var(--soft); text-align: center; margin-top: 4px; }
.wide { overflow-x: auto; -webkit-overflow-scrolling: touch; }
table { border-collapse: collapse; font-size: 13px; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 7px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--soft); vertical-align: bottom; line-height: 1.25; }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 175px; padding-left: 0; }
tr:last-child td { border-bottom: 0; }
td.met { color: var(--met); } td.missed { color: var(--missed); font-weight: 600; }
details { border-bottom: 1px solid var(--line); padding: 8px 0; }
details:last-child { border-bottom: 0; }
summary { cursor: pointer; }
summary .small { margin-left: 8px; }
pre { background: var(--page); border: 1px solid var(--line); border-radius: 6px; padding: 10px 12px; margin: 8px 0; font: 12px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere; max-height: 420px; overflow-y: auto; }
@media (max-width: 640px) {
  main { padding: 24px 14px 60px; }
  h1 { font-size: 25px; }
  h2 { margin-top: 36px; }
  .panel { padding: 14px 12px; }
  .cards { grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 8px; }
  .card { padding: 10px 11px; }
  .card .found { font-size: 23px; }
  .rows { grid-template-columns: 1fr; }
  .rows .label { text-align: left; padding: 6px 0 0; }
  .rows .label:empty { display: none; }
  .rows .x { grid-column: 1; }
  dl.facts { grid-template-columns: 1fr; }
  dl.facts dt { margin-top: 6px; }
}
@media print { .panel, .card, details { break-inside: avoid; } }
`;
