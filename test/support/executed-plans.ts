/** The plans that PostgreSQL has executed, with the rows that they read: told by auto_explain in the log of the server. */
import { open, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { connectSql, type Sql, type TestServer, waitFor } from './service.js';

/** Settings of a server whose plans are to be seen. */
export const EXPLAINING: Readonly<Record<string, string>> = {
  session_preload_libraries: 'auto_explain',
  'auto_explain.log_min_duration': '0',
  'auto_explain.log_analyze': 'on',
  'auto_explain.log_timing': 'off',
  'auto_explain.log_format': 'json',
  'auto_explain.log_parameter_max_length': '-1',
  autovacuum: 'off',
};

export interface ExecutedNode {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Index Name'?: string;
  readonly Filter?: string;
  readonly 'Actual Rows': number;
  readonly 'Actual Loops': number;
  readonly 'Rows Removed by Filter'?: number;
  readonly Plans?: readonly ExecutedNode[];
}

export class ExecutedPlan {
  readonly text: string;
  readonly parameters: string;
  readonly root: ExecutedNode;

  constructor(document: { 'Query Text': string; 'Query Parameters'?: string; Plan: ExecutedNode }) {
    this.text = document['Query Text'];
    this.parameters = document['Query Parameters'] ?? '';
    this.root = document.Plan;
  }

  /** The rows that all scans have looked at. */
  get rowsRead(): number {
    return rowsRead(this.root);
  }

  /** Whether its rows were found before they were put in order. */
  get isFenced(): boolean {
    return this.text.includes('offset 0');
  }

  /** Whether it was made for no values in particular: their places are seen in it. */
  get isGeneric(): boolean {
    return /"(Filter|Index Cond)":"[^"]*\$\d/.test(JSON.stringify(this.root));
  }

  get isBatch(): boolean {
    return this.text.includes('with ordinality');
  }
}

function rowsRead(node: ExecutedNode): number {
  const below = (node.Plans ?? []).reduce((sum, each) => sum + rowsRead(each), 0);
  const isScan = node['Node Type'].endsWith('Scan') && !node['Node Type'].startsWith('Subquery');
  return below + (isScan ? (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops'] : 0);
}

export class ExecutedPlans {
  readonly #file: string;
  readonly #sql: Sql;
  #marks = 0;

  private constructor(file: string, sql: Sql) {
    this.#file = file;
    this.#sql = sql;
  }

  static of(server: TestServer): ExecutedPlans {
    return new ExecutedPlans(join(server.directory, 'postgres.log'), connectSql(server.url));
  }

  close(): Promise<void> {
    return this.#sql.end();
  }

  /** Those of reads of the service while the work was done, of statements that mention the table. */
  async during(table: string, work: () => Promise<unknown>): Promise<ExecutedPlan[]> {
    const { size: start } = await stat(this.#file);
    await work();
    const mark = `mark ${++this.#marks} of the test`;
    await this.#sql.unsafe(`select '${mark}'`);
    let entries: readonly string[] = [];
    let end = -1;
    await waitFor(async () => {
      entries = (await this.#textFrom(start)).split(/\n(?!\t)/);
      end = entries.findIndex((entry) => entry.includes(mark));
      return end >= 0;
    }, 10_000);
    return (
      // Later ones may be half written: other connections go on.
      entries
        .slice(0, end)
        .filter((entry) => entry.includes('plan:'))
        .map((entry) => new ExecutedPlan(JSON.parse(entry.slice(entry.indexOf('{')))))
        // The service explains shapes in the background. auto_explain logs that too: `explain` has no actual rows, and the text
        // of the statement before it contains the read.
        .filter((plan) => 'Actual Rows' in plan.root && !/; prepare lateral_explained_/.test(plan.text))
        .filter((plan) => plan.text.includes(`"${table}"`) && plan.text.includes('"%j"'))
    );
  }

  /** The log is long: only its end is read. */
  async #textFrom(start: number): Promise<string> {
    const log = await open(this.#file);
    const pieces: Buffer[] = [];
    try {
      for await (const piece of log.createReadStream({ start })) pieces.push(piece);
    } finally {
      await log.close();
    }
    return Buffer.concat(pieces).toString();
  }
}
