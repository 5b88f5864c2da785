/** The reader of CSV by itself: what is written by the rules is read back, wherever its pieces end; what is not is refused by its line. */
import t from 'tap';
import { CsvReader } from '../../../src/features/import-export/import-file.js';

type Row = Readonly<Record<string, string>>;

const NAMES = ['first', 'sec"ond', 'third, or not', 'täglich'];
const CELLS = [
  '',
  'plain',
  'a,b',
  '"',
  '""',
  'two\nlines',
  'two\r\nlines',
  ' spaces ',
  "it's",
  '漢字 ✓',
  ',',
  '\r',
  'x"y',
];

function quoted(cell: string, always: boolean): string {
  return always || /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}

function readPieces(text: string, size: number, most = Number.POSITIVE_INFINITY): Row[] {
  const reader = new CsvReader((length) => {
    if (length > most) throw new Error(`${length} characters`);
  });
  const rows: Row[] = [];
  for (let start = 0; start < text.length; start += size) rows.push(...reader.read(text.slice(start, start + size)));
  return [...rows, ...reader.end()];
}

t.test('written rows are read, in pieces of any size', async (t) => {
  const cellsOf = (row: number): string[] => NAMES.map((_, n) => CELLS[(row * 7 + n * 5) % CELLS.length] ?? '');
  const rows = Array.from({ length: CELLS.length }, (_, row) => cellsOf(row));
  const expected = rows.map((cells) =>
    Object.fromEntries(cells.map((cell, n) => [NAMES[n] ?? '', cell]).filter(([, cell]) => cell !== '')),
  );
  for (const end of ['\n', '\r\n', '\r'])
    for (const always of [false, true])
      for (const last of ['', end, end + end]) {
        const lines = [NAMES, ...rows].map((cells) => cells.map((cell) => quoted(cell, always)).join(','));
        const text = lines.join(end) + last;
        for (const size of [1, 2, 3, 7, 64, text.length])
          t.strictSame(readPieces(text, size), expected, `${JSON.stringify(end)} ${always} ${size}`);
      }
});

t.test('empty lines and empty cells', async (t) => {
  t.strictSame(readPieces('\n\na,b\n\n1,\n\r\n,2\n,\n', 3), [{ a: '1' }, { b: '2' }, {}]);
  t.strictSame(readPieces('a\n""\n1\n\n', 1), [{}, { a: '1' }], 'a cell in quotes is a row');
  for (const text of ['', '\n', 'a,b', 'a,b\r\n']) t.strictSame(readPieces(text, 1), [], JSON.stringify(text));
  t.strictSame(readPieces('a,b\n1,', 1), [{ a: '1' }], 'without an end of the last line');
});

t.test('text that is not CSV is refused by its line', async (t) => {
  const broken: readonly (readonly [string, RegExp])[] = [
    ['a,b\n1\n', /1 cells instead of the 2 of the header in line 2/],
    ['a,b\n"x\ny",2\n1,2,3\n', /more cells than the 2 of the header in line 4/],
    ['a\nx"y\n', /a quote inside an unquoted cell in line 2/],
    ['a\n"x"y\n', /after a closing quote in line 2/],
    ['a\n\n"x', /a quote is not closed in line 3/],
    ['a,b,a\n', /names the column "a" twice/],
    ['__proto__\nx\n', /"__proto__"/],
    [','.repeat(1_600), /more than 1600 columns/],
  ];
  for (const [text, complaint] of broken)
    for (const size of [1, 1_000]) t.throws(() => readPieces(text, size), complaint, JSON.stringify(text.slice(0, 20)));
  const row = `${'x'.repeat(30)}\n`;
  t.throws(() => readPieces(`a\n${'x'.repeat(200)}`, 10, 100), /108 characters/, 'a row that is too long');
  t.equal(readPieces(`a\n${row.repeat(50)}`, 10, 100).length, 50, 'rows are measured one by one');
});
