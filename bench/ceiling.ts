/**
 * How often PostgreSQL itself can run the statement that the service compiled: the ceiling of a case. pgbench is the fairest measure,
 * because its overhead is very small. Without it the driver runs the statement, and the figure is the limit of Node and driver together.
 */
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import postgres from 'postgres';

export interface CeilingOptions {
  databaseUrl: string;
  /** One statement with $1 to $n. */
  text: string;
  /** Lists of n values, one per run, used in turn. */
  parameters: readonly (readonly (string | null)[])[];
  /** A statement that is sent before it in the same pipeline, with its lists of values. */
  before?: { readonly text: string; readonly parameters: readonly (readonly string[])[] };
  /** A statement without values that is sent after it in the same pipeline, if each connection takes its own lists. */
  after?: string;
  /** Each connection takes its own lists: two that change the same rows would wait for each other. */
  exclusive?: boolean;
  /** Each run is planned for its values; otherwise it is planned as by the service's connections. */
  plansEachTime?: boolean;
  connections: number;
  seconds: number;
  /** Ends the run early. */
  signal?: AbortSignal;
}

export interface Ceiling {
  statementsPerSecond: number;
  /** All that pgbench has run. */
  statements?: number;
  tool: 'pgbench' | 'driver';
}

export async function ceiling(options: CeilingOptions): Promise<Ceiling> {
  const scripts = options.exclusive ? writeExclusiveScript(options) : writeScripts(options);
  const measured = scripts === null ? null : await runPgbench(options, scripts);
  if (measured !== null) return { ...measured, tool: 'pgbench' };
  return { statementsPerSecond: await runDriver(options), tool: 'driver' };
}

/** The settings of the service's own connections. */
const SETTINGS = { jit: 'off', timezone: 'UTC', search_path: 'public' };

/** Uses the generic plan from the first run on. The service's connections use it after five runs, but there are many statements here. */
const EXCLUSIVE_SETTINGS = { ...SETTINGS, plan_cache_mode: 'force_generic_plan' };
const PLANNING_SETTINGS = { ...SETTINGS, plan_cache_mode: 'force_custom_plan' };

/**
 * pgbench plans each script again on every connection, five times before it keeps a plan. With many scripts it would measure planning.
 */
const MOST_SCRIPTS = 8;

/** The number of clients that pgbench can connect within a second, even on a busy machine. */
const CONNECTED_PER_SECOND = 32;

/** Values are passed on the command line, and Linux allows 128 KB for one argument. */
const LONGEST_VALUE = 100_000;

interface Script {
  readonly content: string;
  /** The texts that the server gets when pgbench has replaced the variables. */
  readonly sent: readonly string[];
  /** A variable without a value is sent as null. */
  readonly variables: ReadonlyMap<string, string>;
  readonly weight: number;
}

/**
 * Variables that a pgbench script sets hold only numbers. So the script chooses varying whole numbers in turn. Varying texts get a script
 * per combination, or a sample if there are many. All other values come from the command line. Returns null if pgbench cannot run the
 * statement as it is.
 */
function writeScripts({ text, before, parameters, connections }: CeilingOptions): readonly Script[] | null {
  const first = before?.parameters[0]?.length ?? 0;
  const sets = (parameters.length > 0 ? parameters : [[]]).map((set, index) => [
    ...(before?.parameters[index] ?? []),
    ...set,
  ]);
  if (sets.some((set) => set.some((value) => Buffer.byteLength(value ?? '') > LONGEST_VALUE))) return null;
  const counted = (sets[0] ?? []).map(
    (first, index) =>
      sets.some((set) => set[index] !== first) && sets.every((set) => WHOLE_NUMBER.test(set[index] ?? '')),
  );
  const groups = new Map<string, (readonly (string | null)[])[]>();
  for (const set of sets) {
    const key = JSON.stringify(set.filter((_, index) => !counted[index]));
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [set]);
    else group.push(set);
  }
  const scripts: Script[] = [];
  for (const members of sampleEvenly([...groups.values()], MOST_SCRIPTS)) {
    const suffix = `_${scripts.length}`;
    const statement = writeStatement(text, suffix, first);
    const leading = before && writeStatement(before.text, suffix);
    if (statement === null || leading === null) return null;
    const variables = new Map([[`turn${suffix}`, '0']]);
    // The variable outlives the transaction. Clients start at different values, so that they do not read the same rows at once.
    const stride = Math.max(1, Math.floor(members.length / connections));
    const lines = counted.includes(true)
      ? [
          `\\set turn${suffix} (:turn${suffix} + 1) % ${members.length}`,
          `\\set place (:turn${suffix} + :client_id * ${stride}) % ${members.length}`,
        ]
      : [];
    for (const [index, value] of (members[0] ?? []).entries()) {
      const name = `p${index + 1}${suffix}`;
      const values = members.map((set) => set[index] ?? '');
      if (counted[index]) lines.push(`\\set ${name} ${chooseByPlace(values, 0, values.length)}`);
      else if (value !== null) variables.set(name, value);
    }
    if (leading) variables.set(`prepared${suffix}`, '0');
    const run = leading ? writePipeline([leading.text, statement.text], suffix) : `${statement.text}\n;`;
    const sent = [statement.sent, ...(leading ? [leading.sent, PREPARE] : [])];
    scripts.push({ content: `${[...lines, run].join('\n')}\n`, sent, variables, weight: members.length });
  }
  return scripts;
}

/** pgbench prepares all statements of a script before its first one, but not inside of a pipeline. */
const PREPARE = 'select 1';

function writePipeline(statements: readonly string[], suffix: string): string {
  const prepare = [`\\if :prepared${suffix}`, '\\else', `${PREPARE}\n;`, '\\endif', `\\set prepared${suffix} 1`];
  return [...prepare, '\\startpipeline', ...statements.map((text) => `${text}\n;`), '\\endpipeline'].join('\n');
}

/** Lists per connection, in turn: pgbench treats each as a separate statement. */
const MOST_LISTS = 16;

/**
 * One script for all clients. Each client first asks the server for its own values, because a text can reach a pgbench variable only in
 * this way.
 */
function writeExclusiveScript({ text, after, parameters, connections }: CeilingOptions): readonly Script[] | null {
  const lists = Array.from({ length: connections }, (_, client) => {
    const own = parameters.filter((_set, index) => index % connections === client);
    return sampleEvenly(own.length > 0 ? own : parameters, MOST_LISTS);
  });
  const count = Math.min(...lists.map((list) => list.length));
  const statements = Array.from({ length: count }, (_, place) => writeStatement(text, `_${place}`));
  const [first] = statements;
  const following = after === undefined ? undefined : writeStatement(after, '');
  if (!first || following === null) return null;
  const loads = lists.map((list, client) => {
    const columns = list
      .slice(0, count)
      .flatMap((set, place) => set.map((value, index) => `${writeText(value)} as p${index + 1}_${place}`));
    return `\\elif :client_id = ${client}\nselect ${columns.join(', ')}\n\\gset`;
  });
  // The selection of the values comes first: pgbench prepares all statements with it.
  const runs = statements.map((statement, place) => {
    const run = `${statement?.text}\n;`;
    const both = following && ['\\startpipeline', run, `${following.text}\n;`, '\\endpipeline'].join('\n');
    return `${place === 0 ? '\\if' : '\\elif'} :turn = ${place}\n${both ?? run}`;
  });
  const content = ['\\if :loaded', ...loads, '\\endif', '\\set loaded 1', ...runs, '\\endif'].join('\n');
  const next = `\\set turn (:turn + 1) % ${count}\n`;
  const variables = new Map(Object.entries({ loaded: '0', turn: '0' }));
  const sent = [first.sent, ...(following ? [following.sent] : [])];
  return [{ content: `${content}\n${next}`, sent, variables, weight: 1 }];
}

/** Without characters that have a meaning for pgbench or in a literal. */
function writeText(value: string | null): string {
  if (value === null) return 'null';
  return `convert_from(decode('${Buffer.from(value).toString('base64')}', 'base64'), 'UTF8')`;
}

const WHOLE_NUMBER = /^(?:0|-?[1-9]\d{0,17})$/;

/** A tree of comparisons instead of a list: for a thousand values pgbench makes ten comparisons. */
function chooseByPlace(values: readonly string[], from: number, to: number): string {
  if (to - from === 1) return values[from] ?? '';
  const middle = (from + to) >> 1;
  const lower = chooseByPlace(values, from, middle);
  return `case when :place < ${middle} then ${lower} else ${chooseByPlace(values, middle, to)} end`;
}

/**
 * pgbench turns every :name into a new parameter, numbered in order of appearance, also in literals, quoted names and comments. `::type`
 * and $n stay unchanged. So only the first use of each $n becomes a variable, and later uses take its number. A colon inside quotes is
 * written in another form with the same meaning. The first variable is the one after `first`.
 */
function writeStatement(text: string, suffix: string, first = 0): { text: string; sent: string } | null {
  const order: string[] = [];
  const parts = Array.from(text.trim().matchAll(TOKEN), ([token, number]) => {
    if (number !== undefined) {
      const seen = order.indexOf(number);
      if (seen >= 0) return { text: `$${seen + 1}`, sent: `$${seen + 1}` };
      order.push(number);
      return { text: `:p${Number(number) + first}${suffix}`, sent: `$${order.length}` };
    }
    const spelled = spellColons(token);
    return { text: spelled, sent: spelled };
  });
  const sent = parts.map((part) => part.sent).join('');
  return NAMED_COLON.test(sent) ? null : { text: parts.map((part) => part.text).join(''), sent };
}

/** Escape strings, comments, plain strings, quoted names, parameters, and the text in between. */
const TOKEN =
  /\b[eE]'(?:[^'\\]|\\[\s\S]|'')*'|--.*|\/\*[\s\S]*?\*\/|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\d+)|\w+|[^\w'"$/-]+|[\s\S]/g;

const NAMED_COLON = /(?<!:):(?=[A-Za-z_\u0080-\uffff])/;

function spellColons(token: string): string {
  if (!NAMED_COLON.test(token)) return token;
  if (token.startsWith("'")) return token.split(NAMED_COLON).join(":'\n'");
  if (!token.startsWith('"')) return token;
  return `U&${token.replaceAll('\\', '\\\\').split(NAMED_COLON).join('\\003a')}`;
}

function sampleEvenly<T>(list: readonly T[], most: number): readonly T[] {
  if (list.length <= most) return list;
  const share = (index: number) => Math.floor((index * most) / list.length);
  return list.filter((_, index) => share(index) !== share(index - 1));
}

/** Returns null if pgbench is not installed. */
async function runPgbench(options: CeilingOptions, scripts: readonly Script[]): Promise<Omit<Ceiling, 'tool'> | null> {
  const folder = await mkdtemp(join(tmpdir(), 'bench-ceiling-'));
  try {
    // Its clock starts before the first connection is opened, although the reported rate excludes that time.
    const length = Math.max(1, Math.round(options.seconds)) + Math.floor(options.connections / CONNECTED_PER_SECOND);
    const args = ['-n', '-M', 'prepared', '-T', String(length)];
    args.push('-c', String(options.connections), '-j', String(Math.min(options.connections, availableParallelism())));
    for (const [index, script] of scripts.entries()) {
      const file = join(folder, `${index}.sql`);
      await writeFile(file, script.content);
      args.push('-f', `${file}@${script.weight}`);
      for (const [name, value] of script.variables) args.push('-D', `${name}=${value}`);
    }
    const application = `bench ceiling ${process.pid}`;
    const stopWatching = await watchStatements(options.databaseUrl, application);
    const result = await runTool('pgbench', args, pgbenchEnvironment(options, application), options.signal).catch(
      async (error: unknown) => {
        await stopWatching();
        throw error;
      },
    );
    const seen = await stopWatching();
    if (result === null) return null;
    const perSecond = Number(/^tps = ([\d.]+)/m.exec(result.output)?.[1]);
    const failed = Number(/failed transactions: (\d+)/.exec(result.output)?.[1] ?? 0);
    if (result.code !== 0 || failed > 0 || !Number.isFinite(perSecond) || perSecond <= 0) {
      const lines = new Set((result.errors || result.output).trim().split('\n'));
      throw new Error(`pgbench failed (exit code ${result.code}): ${[...lines].slice(0, 4).join('\n')}`);
    }
    const known = (statement: string) =>
      scripts.some(({ sent }) => sent.some((text) => `${text}\n;`.startsWith(statement)));
    if (seen.length === 0 || !seen.every(known)) {
      throw new Error(`pgbench did not run the statement asked for but: ${seen.join('\n') || 'none'}`);
    }
    const statements = Number(/actually processed: (\d+)/.exec(result.output)?.[1]);
    return { statementsPerSecond: perSecond, statements };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const WATCH_INTERVAL_MS = 250;

/**
 * Asks the server which statement runs: a text that was changed on the way would make the comparison worthless. The server keeps the
 * first kilobyte of each. The connection is opened before the run, because a busy server accepts none in time. The returned function ends
 * the watch and returns the last statements.
 */
async function watchStatements(databaseUrl: string, application: string): Promise<() => Promise<readonly string[]>> {
  const sql = postgres(databaseUrl, { max: 1, fetch_types: false });
  let statements: readonly string[] = [];
  let stopped = false;
  const ask = async () => {
    const rows = await sql<{ query: string }[]>`
      select query from pg_stat_activity where application_name = ${application} and query <> ''`;
    if (rows.length > 0) statements = rows.map((row) => row.query);
  };
  await ask();
  const watching = (async () => {
    while (!stopped) {
      await ask();
      await wait(WATCH_INTERVAL_MS);
    }
  })();
  return async () => {
    stopped = true;
    await watching.finally(() => sql.end());
    return statements;
  };
}

function pgbenchEnvironment(
  { databaseUrl, exclusive, plansEachTime }: CeilingOptions,
  application: string,
): NodeJS.ProcessEnv {
  const url = new URL(databaseUrl);
  const settings = plansEachTime ? PLANNING_SETTINGS : exclusive ? EXCLUSIVE_SETTINGS : SETTINGS;
  const options = Object.entries(settings).map(([name, value]) => `-c ${name}=${value}`);
  const sslMode = url.searchParams.get('sslmode');
  return {
    ...process.env,
    PGHOST: url.searchParams.get('host') ?? url.hostname.replace(/^\[|\]$/g, ''),
    PGPORT: url.port || '5432',
    PGUSER: decodeURIComponent(url.username),
    PGPASSWORD: decodeURIComponent(url.password),
    PGDATABASE: decodeURIComponent(url.pathname.slice(1)),
    ...(sslMode === null ? {} : { PGSSLMODE: sslMode }),
    PGOPTIONS: options.join(' '),
    PGAPPNAME: application,
    LC_ALL: 'C',
  };
}

interface ToolResult {
  readonly code: number | null;
  readonly output: string;
  readonly errors: string;
}

/** Returns null if the tool is not on the PATH. */
function runTool(
  tool: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  signal: AbortSignal | undefined,
): Promise<ToolResult | null> {
  return new Promise((resolve, reject) => {
    const child = spawn(tool, args, { env, stdio: ['ignore', 'pipe', 'pipe'], signal });
    let output = '';
    let errors = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      errors += text;
    });
    child.once('error', (error: NodeJS.ErrnoException) => (error.code === 'ENOENT' ? resolve(null) : reject(error)));
    child.once('close', (code) => resolve({ code, output, errors }));
  });
}

/** The driver would treat a document as a string and quote it. */
const JSON_AS_WRITTEN = {
  to: 114,
  from: [114],
  serialize: (value: string) => value,
  parse: (value: string) => value,
};

async function runDriver(options: CeilingOptions): Promise<number> {
  const { databaseUrl, text, parameters, connections, seconds, signal } = options;
  // The driver's types do not know max_pipeline; without it a statement may be queued behind a slow one.
  const settings = {
    max: connections,
    prepare: true,
    fetch_types: false,
    max_pipeline: 0,
    types: { json: JSON_AS_WRITTEN },
    connection: SETTINGS,
  };
  const sql = postgres(databaseUrl, settings);
  try {
    const sets = parameters.length > 0 ? parameters : [[]];
    let next = 0;
    const runOne = async () => {
      const set = sets[next++ % sets.length] ?? [];
      await sql.unsafe(text, [...set], { prepare: true }).raw();
    };
    await Promise.all(Array.from({ length: connections }, runOne));
    let finished = 0;
    const begun = performance.now();
    const end = begun + seconds * 1000;
    const runMany = async () => {
      while (performance.now() < end && !signal?.aborted) {
        await runOne();
        finished += 1;
      }
    };
    await Promise.all(Array.from({ length: connections }, runMany));
    return (finished * 1000) / (performance.now() - begun);
  } finally {
    await sql.end();
  }
}
