/**
 * Writes YAML that all parsers read alike. Parsers of version 1.1 (PyYAML, Ruby, Go) read more words as dates, booleans and numbers
 * than version 1.2. They also break lines at more characters, and allow fewer characters without quotes. Such texts are quoted.
 */
import { Document, Scalar, type ScalarTag, visit } from 'yaml';
import { Digits } from './exact-json.js';
import { runInSlices, type Steps } from './time-slices.js';

/** Texts that need quotes: they contain tabs, control characters or rare line breaks, begin like a number or date, or are `=` or `<<`. */
const UNCLEAR = /[\t\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]|^[-+.]*\d|^(?:=|<<)$/;
const ESCAPED = /[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g;

const EXPONENT = /^(-?\d+)(\.\d+)?e([+-])?(\d+)$/i;

/** Numbers with more digits than JavaScript keeps, and numbers with an exponent: YAML 1.1 requires a point and a sign in these. */
const DIGITS: ScalarTag = {
  tag: 'tag:yaml.org,2002:float',
  default: true,
  test: EXPONENT,
  identify: (value) => value instanceof Digits || (typeof value === 'number' && EXPONENT.test(String(value))),
  resolve: (text) => new Digits(text),
  stringify: ({ value }) => {
    const [all, whole, fraction = '.0', sign = '+', power] = EXPONENT.exec(String(value)) ?? [];
    return all === undefined ? String(value) : `${whole}${fraction}e${sign}${power}`;
  },
};

export function writeYaml(data: unknown): string {
  const document = new Document(data, { compat: 'yaml-1.1', customTags: (tags) => [DIGITS, ...tags] });
  visit(document, {
    Scalar: (_, scalar) => {
      if (typeof scalar.value === 'string' && UNCLEAR.test(scalar.value)) scalar.type = Scalar.QUOTE_DOUBLE;
    },
  });
  // Texts that hold one are in double quotes, where an escape stands for it.
  return document
    .toString({ lineWidth: 0 })
    .replace(ESCAPED, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** The same text of an object with long lists, whose names need no quotes. */
export async function writeYamlInSlices(data: object): Promise<string> {
  const pieces: string[] = [];
  await runInSlices(piecesOf(data, pieces));
  return pieces.join('');
}

/** So few that each call is short, so many that the calls themselves cost little. */
const ENTRIES_PER_CALL = 20;

function* piecesOf(data: object, pieces: string[]): Steps<void> {
  for (const [name, value] of Object.entries(data)) {
    if (!Array.isArray(value) || value.length === 0) {
      pieces.push(writeYaml({ [name]: value }));
      continue;
    }
    pieces.push(`${name}:\n`);
    for (let start = 0; start < value.length; start += ENTRIES_PER_CALL) {
      // Empty lines inside texts stay empty.
      pieces.push(writeYaml(value.slice(start, start + ENTRIES_PER_CALL)).replace(/^(?=.)/gm, '  '));
      yield;
    }
  }
}
