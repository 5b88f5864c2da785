/** Breaks a statement into readable lines for golden files and explanations; the text that runs stays on one line. */
const BREAK_BEFORE =
  /^(select|from|where|left join|inner join|order by|group by|having|limit|offset|union all|with|and|or|case|when|else|end)\b/;

export function pretty(text: string): string {
  const lines: string[] = [];
  let line = '';
  let depth = 0;
  /** For each open parenthesis: whether its content was broken into lines. */
  const broken: boolean[] = [];
  const indent = (): string => '  '.repeat(depth);
  const flush = (): void => {
    if (line.trim() !== '') lines.push(indent() + line.trim());
    line = '';
  };
  for (const token of tokens(text)) {
    if (token === '(') {
      line += token;
      broken.push(false);
      continue;
    }
    if (token === ')') {
      if (broken.pop()) {
        flush();
        depth--;
      }
      line += token;
      continue;
    }
    const opensQuery = /^(select|with)\b/.test(token) && line.endsWith('(');
    if (opensQuery) {
      flush();
      depth++;
      broken[broken.length - 1] = true;
    } else if (BREAK_BEFORE.test(token) && (broken.length === 0 || broken.at(-1))) {
      flush();
    }
    line += token;
  }
  flush();
  return `${lines.join('\n')}\n`;
}

/** Quoted names, quoted texts, parentheses, keywords that start a line, and everything between them. */
function* tokens(text: string): Generator<string> {
  const pattern =
    /"(?:[^"]|"")*"|'(?:[^']|'')*'|[()]|(?:left join|inner join|order by|group by|union all)\b|[A-Za-z_]+|[^A-Za-z_"'()]+/g;
  for (const match of text.matchAll(pattern)) yield match[0];
}
