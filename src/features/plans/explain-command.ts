/** `lateral explain` prints the SQL of a read, its parameters and PostgreSQL's plan. */
import { UsageError } from '../../base/errors.js';
import { parseRead } from '../../compiler/request/rest.js';
import { pretty } from '../../compiler/sql/pretty.js';
import { CLI_IDENTITY } from '../../server/access/identity.js';
import { parseLimits } from '../../server/config/parse-limits.js';
import { read } from '../../server/execute/pipeline.js';
import type { Explanation } from '../../server/execute/reads/reads.js';
import { NO_CLIENT } from '../../server/execute/stages.js';
import type { Program } from '../../server/feature/command.js';
import type { ExplainedNode, ExplainedPlan } from '../../server/postgres/generic-plan.js';
import { describeNode } from './plan-tree.js';

const EXPLAIN_HELP = `Usage: lateral explain [--analyze] [--json] "GET /items/..." [--option value ...]

Prints the SQL of a read, its parameters and PostgreSQL's plan, as an administrator reads it.

  --analyze  also runs the statement, and shows times and rows
  --json     prints all of it as JSON, with the plan as PostgreSQL writes it and indexes that could serve the request

Exits with 1 if the request is invalid. All options of lateral --help are accepted; DATABASE_URL selects the database.`;

async function explain(
  words: readonly string[],
  { createObserver, readConfig, readWords, withCore }: Program,
): Promise<void> {
  const { operands, switches, environment } = readWords(words, ['analyze', 'json']);
  const [request = ''] = operands;
  const match = /^(?:GET\s+)?\/items\/([^/?]+)(?:\/([^/?]+))?(?:\?(.*))?$/s.exec(request.trim());
  if (!match) throw new UsageError('explain expects a request such as "GET /items/articles?fields=title,author.name"');
  const config = readConfig({ ...process.env, ...environment });
  const [, collection = '', key, queryString = ''] = match.map((part) => part ?? undefined);
  await withCore(config, createObserver('warn'), console.error, async ({ reads }) => {
    const item = key === undefined ? null : decodeURIComponent(key);
    const explanation = await read(
      {
        client: NO_CLIENT,
        identify: () => CLI_IDENTITY,
        parse: () => parseRead(decodeURIComponent(collection), item, queryString, parseLimits(config)),
        execute: (prepared) => reads.explain(prepared, switches.has('analyze')),
      },
      reads,
    );
    console.log(switches.has('json') ? JSON.stringify(explanation, null, 2) : readable(explanation));
  });
}

function readable({ sql, parameters, plan }: Explanation): string {
  const values = parameters.map((value, position) => `$${position + 1} = ${JSON.stringify(value)}`);
  return [
    pretty(sql).trimEnd(),
    ...(values.length > 0 ? ['', ...values] : []),
    '',
    ...(plan ? planText(plan[0]) : []),
  ].join('\n');
}

function planText({ Plan, 'Planning Time': planning, 'Execution Time': execution }: ExplainedPlan): string[] {
  const times = execution === undefined ? '' : `: planned in ${planning} ms, executed in ${execution} ms`;
  return [`Plan${times}`, ...nodeLines(Plan, 1)];
}

function nodeLines(node: ExplainedNode, depth: number): string[] {
  const indent = '  '.repeat(depth);
  return [
    `${indent}${describeNode(node)}  (${figures(node)})`,
    ...conditions(node).map((condition) => `${indent}    ${condition}`),
    ...(node.Plans ?? []).flatMap((child) => nodeLines(child, depth + 1)),
  ];
}

function figures(node: ExplainedNode): string {
  const { 'Actual Total Time': time, 'Actual Rows': rows, 'Actual Loops': loops = 1 } = node;
  const expected = `cost ${node['Total Cost']}, ${node['Plan Rows']} rows expected`;
  if (time === undefined) return expected;
  return `${expected}, ${rows} found in ${time} ms${loops === 1 ? '' : `, ${loops} times`}`;
}

function conditions(node: ExplainedNode): string[] {
  const { Filter: filter, 'Rows Removed by Filter': removed } = node;
  const named: readonly (readonly [string, string | undefined])[] = [
    ['index', node['Index Cond']],
    ['recheck', node['Recheck Cond']],
    ['hash', node['Hash Cond']],
    ['merge', node['Merge Cond']],
    ['join', node['Join Filter']],
    ['filter', filter && (removed ? `${filter} (${removed} rows removed)` : filter)],
    ['sort', node['Sort Key']?.join(', ')],
  ];
  return named.flatMap(([name, text]) => (text === undefined ? [] : [`${name}: ${text}`]));
}

export const COMMANDS = {
  explain: { help: EXPLAIN_HELP, run: explain },
};
