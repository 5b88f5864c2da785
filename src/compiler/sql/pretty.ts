/** Breaks a statement into readable lines for golden files and explanations; the text that runs stays on one line. */

/** Longer lines are wrapped. */
const WIDTH = 120;

const INDENT = '  ';

/** Words that begin a line of a query. */
const BREAK_BEFORE =
  /^(select|from|where|(left |inner |cross )?join|order by|group by|having|limit|offset|union all|with|and|or|case|when|else|end|on conflict|returning)$/;

/** Words that begin a line of a write. Elsewhere they are parts of clauses, such as "on delete set null". */
const BREAK_WRITE_BEFORE = /^(set|values|using)$/;

const QUERY = /^(select|with|insert into|update|delete from)$/;
const WRITE = /^(insert into|update|delete from)$/;

/** An open parenthesis, or the statement itself. */
interface Frame {
  /** Whether it holds a query, which is broken into lines. */
  isBroken: boolean;
  isWrite: boolean;
}

export function pretty(text: string): string {
  const lines: string[] = [];
  let line = '';
  let depth = 0;
  const frames: Frame[] = [{ isBroken: true, isWrite: /^(insert|update|delete)\b/.test(text) }];
  const flush = (): void => {
    if (line.trim() !== '') lines.push(...wrap(line.trim(), INDENT.repeat(depth)));
    line = '';
  };
  for (const token of tokens(text)) {
    const frame = frames.at(-1);
    if (token === '(') frames.push({ isBroken: false, isWrite: false });
    else if (token === ')') {
      if (frame?.isBroken) {
        flush();
        depth--;
      }
      frames.pop();
    } else if (frame && QUERY.test(token) && line.endsWith('(')) {
      flush();
      depth++;
      frame.isBroken = true;
      frame.isWrite = WRITE.test(token);
    } else if (frame?.isBroken && breaks(token, frame)) {
      // A "with" before an insert, update or delete makes the frame a write.
      frame.isWrite ||= WRITE.test(token);
      flush();
    }
    line += token;
  }
  flush();
  return `${lines.join('\n')}\n`;
}

function breaks(token: string, { isWrite }: Frame): boolean {
  return BREAK_BEFORE.test(token) || (isWrite && BREAK_WRITE_BEFORE.test(token));
}

/** Quoted names, quoted texts, parentheses, keywords that belong together, and everything between them. */
function* tokens(text: string): Generator<string> {
  const pattern =
    /"(?:[^"]|"")*"|'(?:[^']|'')*'|[()]|(?:(?:left|inner|cross) join|order by|group by|union all|on conflict|insert into|delete from|(?:for|do) update|distinct from|rows from|with ordinality)\b|[A-Za-z_]+|[^A-Za-z_"'()]+/g;
  for (const { 0: token } of text.matchAll(pattern)) yield /^["']/.test(token) ? token : token.replace(/\s+/g, ' ');
}

/** Splits a line that is too long at its outermost commas and operators; the parts that follow are indented. */
function wrap(line: string, indent: string): string[] {
  const outermost = splitOutermost(line);
  if (indent.length + line.length <= WIDTH || outermost.length === 1) return [indent + line];
  const lines: string[] = [];
  let current = '';
  const flush = (): void => {
    if (current === '') return;
    lines.push(...wrap(current.trim(), lines.length === 0 ? indent : indent + INDENT));
    current = '';
  };
  for (const part of outermost) {
    if (indent.length + INDENT.length + current.length + part.trimEnd().length > WIDTH) flush();
    current += part;
  }
  flush();
  return lines;
}

const LINE_TOKENS =
  /"(?:[^"]|"")*"|'(?:[^']|'')*'|[()]|, | (?:\|\||and|or|when|then|else|on|references|with ordinality) /g;

/** The parts of a line between its commas and operators, of those inside the fewest parentheses. */
function splitOutermost(line: string): string[] {
  let depth = 0;
  let least = Number.POSITIVE_INFINITY;
  let points: number[] = [];
  const add = (point: number, at: number): void => {
    if (at < least) points = [];
    least = Math.min(least, at);
    if (at === least) points.push(point);
  };
  for (const { 0: found, index } of line.matchAll(LINE_TOKENS)) {
    if (found === '(') depth++;
    else if (found === ')') depth--;
    else if (found === ', ') add(index + found.length, depth);
    else if (found.startsWith(' ')) add(index + 1, depth);
    // The only long texts are statements that PostgreSQL estimates: to it a line break is a space.
    else if (found.startsWith("'select "))
      for (const inner of found.matchAll(/ (?:left join|where|and|or) /g))
        add(index + inner.index + 1, Number.MAX_SAFE_INTEGER);
  }
  return [0, ...points].map((from, position) => line.slice(from, points[position]));
}
