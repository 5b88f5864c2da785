/** CSV as RFC 4180 describes it, also with semicolons or tabs, which spreadsheets write. */

export interface Table {
  readonly header: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

export function parseCsv(text: string): Table {
  const mark = separatorOf(text);
  const lines: string[][] = [];
  let line: string[] = [];
  let cell = '';
  let isQuoted = false;
  const end = (): void => {
    line.push(cell);
    cell = '';
  };
  const endLine = (): void => {
    end();
    if (line.length > 1 || line[0] !== '') lines.push(line);
    line = [];
  };
  const source = text.replace(/^\uFEFF/, '');
  for (let at = 0; at < source.length; at++) {
    const letter = source[at];
    if (isQuoted) {
      if (letter !== '"') cell += letter;
      else if (source[at + 1] === '"') {
        cell += '"';
        at++;
      } else isQuoted = false;
    } else if (letter === '"' && cell === '') isQuoted = true;
    else if (letter === mark) end();
    else if (letter === '\n' || letter === '\r') {
      if (letter === '\r' && source[at + 1] === '\n') at++;
      endLine();
    } else cell += letter;
  }
  if (cell !== '' || line.length > 0) endLine();
  const [header = [], ...rows] = lines;
  return { header, rows };
}

/** The most frequent one in the header. */
function separatorOf(text: string): string {
  const header = text.slice(0, 10_000).split(/[\r\n]/)[0] ?? '';
  const count = (mark: string): number => header.split(mark).length;
  return [',', ';', '\t'].reduce((best, mark) => (count(mark) > count(best) ? mark : best));
}

export function writeCsv({ header, rows }: Table): string {
  return [header, ...rows].map((line) => line.map(quoted).join(',')).join('\r\n');
}

function quoted(cell: string): string {
  return /[",\r\n]/.test(cell) || cell !== cell.trim() ? `"${cell.replaceAll('"', '""')}"` : cell;
}
