/**
 * JSON whose numbers keep their digits. A JavaScript number holds about 15 of them; PostgreSQL's numeric and JSON types hold all.
 * Numbers that would lose some are read as `Digits`, which hold their text until it becomes part of a parameter; all others are
 * plain numbers. Most texts have none: whether to look closer is decided by one search.
 */
import { invalidPayload } from './errors.js';
import { runSteps, type Steps } from './time-slices.js';

export class Digits {
  constructor(readonly text: string) {}

  toString(): string {
    return this.text;
  }

  /** The mark is for `writtenJson` alone: other callers, such as the error texts of GraphQL, get the digits. */
  toJSON(): string {
    if (!writing) return this.text;
    writing.marked++;
    writing.hasLongExponent ||= LONG_EXPONENT.test(this.text);
    return writing.mark + this.text;
  }
}

/** Neither null, nor a list, nor a number that is held as its digits. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return value !== null && typeof value === 'object' && !Array.isArray(value) && !(value instanceof Digits);
}

interface Writing {
  readonly mark: string;
  /** How many numbers with digits were met. */
  marked: number;
  hasLongExponent: boolean;
}

/** The text that is being written, which takes one call of `JSON.stringify`. */
let writing: Writing | null = null;

/**
 * Before the text of a number that stands in quotes on its way through JSON. A string of the sender that begins with the mark would become
 * JSON of the sender's choice: a text that has more marks than numbers is written again, with another one.
 */
function makeMark(): string {
  return `digits ${Math.random()} `;
}

/** The first mark that is tried. */
const PLAIN_MARK = 'digits ';

const LONG_EXPONENT = /[eE][+-]?0*[1-9]\d{3}/;

/** Throws where `JSON.parse` does. */
export function parseJson(text: string): unknown {
  return mayLoseDigits(text) ? runSteps(new JsonReader(text).read()) : JSON.parse(text);
}

/** To look through an object with more names keeps others waiting for a second. Tables have 1,600 columns at most. */
const MOST_NAMES = 100_000;

/** As `JSON.parse`, or `parseJson` if it is exact, for a text that is too long to be parsed at once. */
export function parseJsonSteps(text: string, isExact: boolean): Steps<unknown> {
  return new JsonReader(text, { isExact, mostNames: MOST_NAMES }).read();
}

function tooManyNames(most: number): Error {
  return invalidPayload(`An object in the body has more than ${most} names`);
}

/** The items of a response that the service wrote itself. */
export function rowsOfAnswer(text: string): readonly Readonly<Record<string, unknown>>[] {
  return (parseJson(text) as { readonly data: readonly Readonly<Record<string, unknown>>[] }).data;
}

/**
 * Whether there is a number of 16 characters or more, with an exponent, with a fraction that ends with a zero, or a negative zero;
 * one inside of a string counts too. A loop, because V8 interprets a regular expression that was not used for a while: that takes
 * 30 ms for 60,000 numbers.
 */
function mayLoseDigits(text: string): boolean {
  for (let at = 0; at < text.length; at++) {
    const first = text.charCodeAt(at);
    if (first < ZERO || first > NINE) continue;
    const start = at;
    let hasPoint = false;
    let code = first;
    let last = first;
    for (; (code >= ZERO && code <= NINE) || code === POINT; code = text.charCodeAt(++at)) {
      hasPoint ||= code === POINT;
      last = code;
    }
    const isNegative = text.charCodeAt(start - 1) === MINUS;
    if (!beginsValue(text, isNegative ? start - 2 : start - 1)) continue;
    if (at - start > MAX_EXACT_DIGITS || code === LOWER_E || code === UPPER_E) return true;
    if (last === ZERO && (hasPoint || (isNegative && at - start === 1))) return true;
  }
  return false;
}

/** Whether a number may follow this character. */
function beginsValue(text: string, before: number): boolean {
  if (before < 0) return true;
  const code = text.charCodeAt(before);
  return code === COMMA || code === COLON || code === BRACKET || code <= SPACE;
}

const [POINT, MINUS, COMMA, COLON, BRACKET, SPACE] = [0x2e, 0x2d, 0x2c, 0x3a, 0x5b, 0x20] as const;
const [ZERO, NINE, LOWER_E, UPPER_E] = [0x30, 0x39, 0x65, 0x45] as const;

/** Writes as `JSON.stringify` does, with the exact digits of numbers. */
export function writeJson(value: unknown): string {
  return writtenJson(value).text;
}

interface WrittenJson {
  readonly text: string;
  /** Whether a number has an exponent of more than three digits: PostgreSQL would write all of its zeros. */
  readonly hasLongExponent: boolean;
}

export function writtenJson(value: unknown): WrittenJson {
  for (let mark = PLAIN_MARK; ; mark = makeMark()) {
    const state: Writing = { mark, marked: 0, hasLongExponent: false };
    writing = state;
    try {
      const text = JSON.stringify(value);
      const { marked, hasLongExponent } = state;
      if (marked === 0) return { text, hasLongExponent };
      const [first = '', ...marks] = text.split(`"${mark}`);
      if (marks.length > marked) continue;
      return { text: first + marks.map((rest) => rest.replace('"', '')).join(''), hasLongExponent };
    } finally {
      writing = null;
    }
  }
}

/** A number if it equals the text, else its digits. */
export function readNumber(text: string): number | Digits {
  return isExact(text) ? Number(text) : new Digits(text);
}

/** The digits of a whole number, however JSON wrote it (`5.0`, `1.0e5`); null if it is not whole. */
export function wholeDigits(text: string): string | null {
  const [, sign = '', whole, fraction = '', exponent = '0'] = (text.length <= LONGEST_WHOLE && PARTS.exec(text)) || [];
  if (whole === undefined) return null;
  const shift = Number(exponent) - fraction.length;
  const digits = whole + fraction;
  if (shift >= 0) return String(BigInt(sign + digits + '0'.repeat(shift)));
  return /^0*$/.test(digits.slice(shift)) ? String(BigInt(`${sign}${digits.slice(0, shift) || '0'}`)) : null;
}

const LONGEST_WHOLE = 400;
const PARTS = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d{1,3}))?$/i;

function isExact(token: string): boolean {
  const isPlain = token.length <= MAX_EXACT_DIGITS && !token.includes('e') && !token.includes('E');
  if (isPlain && !token.includes('.')) return token !== '-0';
  const [mantissa = ''] = isPlain ? [token] : token.split(/[eE]/);
  if (mantissa === '-0' || (mantissa.includes('.') && mantissa.endsWith('0'))) return false;
  const significant = mantissa.replace(/^-|\./g, '').replace(/^0+/, '');
  const number = Number(token);
  if (Math.abs(number) > Number.MAX_SAFE_INTEGER) return false;
  return significant.length > MAX_EXACT_DIGITS ? String(number) === token : number !== 0 || significant === '';
}

/** A JavaScript number holds so many of any number. */
const MAX_EXACT_DIGITS = 15;

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
const SPACES = ' \t\n\r';
const NUMBER_CHARACTERS: ReadonlySet<number> = new Set([...'0123456789+-.eE'].map((each) => each.charCodeAt(0)));
const BEGUN = Symbol('begun');
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const FIRST_PRINTABLE = 0x20;
const LITERALS: Readonly<Record<string, boolean | null>> = { true: true, false: false, null: null };

/** A list or an object whose end was not read yet. */
interface OpenPart {
  readonly content: unknown[] | Record<string, unknown>;
  /** The name of the value that comes next in an object. */
  name: string;
  /** Values in it so far. */
  values: number;
}

interface ReadOptions {
  /** Whether numbers that would lose digits keep them. */
  readonly isExact: boolean;
  /** Names that an object may have. */
  readonly mostNames: number;
}

const VALUES_PER_STEP = 512;

/** `JSON.parse` with a function that sees each value takes ten times as long, and does not pass on how a number was written. */
class JsonReader {
  #at = 0;

  constructor(
    private readonly text: string,
    private readonly options: ReadOptions = { isExact: true, mostNames: Number.POSITIVE_INFINITY },
  ) {}

  /** Parts in parts are no calls in calls: the work can pause anywhere. */
  *read(): Steps<unknown> {
    const open: OpenPart[] = [];
    for (let values = 1; ; values++) {
      if (values % VALUES_PER_STEP === 0) yield;
      let value = this.#begun(open);
      if (value === BEGUN) continue;
      for (;;) {
        const part = open.at(-1);
        if (!part) return this.#ended(value);
        if (this.#add(part, value)) break;
        open.pop();
        value = part.content;
      }
    }
  }

  /** The next value, unless it is a part that has values. */
  #begun(open: OpenPart[]): unknown {
    this.#skipSpace();
    const first = this.text[this.#at];
    if (first !== '{' && first !== '[') return this.#scalar(first);
    const isList = first === '[';
    const content = isList ? [] : {};
    if (!this.#opens(isList ? ']' : '}')) return content;
    open.push({ content, name: isList ? '' : this.#name(), values: 0 });
    return BEGUN;
  }

  /** Returns whether another value follows in the part. */
  #add(part: OpenPart, value: unknown): boolean {
    const { content, name } = part;
    if (Array.isArray(content)) {
      content.push(value);
      return this.#continues(']');
    }
    if (++part.values > this.options.mostNames) throw tooManyNames(this.options.mostNames);
    // Assigned to, this name would change what the object inherits from.
    if (name === '__proto__')
      Object.defineProperty(content, name, { value, configurable: true, enumerable: true, writable: true });
    else content[name] = value;
    if (!this.#continues('}')) return false;
    part.name = this.#name();
    return true;
  }

  #ended(value: unknown): unknown {
    this.#skipSpace();
    if (this.#at < this.text.length) throw this.#unexpected();
    return value;
  }

  #name(): string {
    this.#skipSpace();
    const name = this.#string();
    this.#skipSpace();
    this.#take(':');
    return name;
  }

  #scalar(first: string | undefined): unknown {
    switch (first) {
      case '"':
        return this.#string();
      case 't':
        return this.#literal('true');
      case 'f':
        return this.#literal('false');
      case 'n':
        return this.#literal('null');
      default:
        return this.#number();
    }
  }

  /** Whether something stands between the brackets. */
  #opens(end: string): boolean {
    this.#at++;
    this.#skipSpace();
    if (this.text[this.#at] !== end) return true;
    this.#at++;
    return false;
  }

  /** Whether something follows behind a comma. */
  #continues(end: string): boolean {
    this.#skipSpace();
    if (this.text[this.#at] === ',') {
      this.#at++;
      return true;
    }
    this.#take(end);
    return false;
  }

  #string(): string {
    this.#take('"');
    const start = this.#at;
    let isEscaped = false;
    for (; this.#at < this.text.length; this.#at++) {
      const code = this.text.charCodeAt(this.#at);
      if (code === QUOTE) {
        const between = this.text.slice(start, this.#at++);
        return isEscaped ? String(JSON.parse(`"${between}"`)) : between;
      }
      if (code < FIRST_PRINTABLE) break;
      if (code !== BACKSLASH) continue;
      isEscaped = true;
      this.#at++;
    }
    throw this.#unexpected();
  }

  #number(): number | Digits {
    const start = this.#at;
    while (NUMBER_CHARACTERS.has(this.text.charCodeAt(this.#at))) this.#at++;
    const token = this.text.slice(start, this.#at);
    if (!NUMBER.test(token)) throw this.#unexpected();
    return this.options.isExact ? readNumber(token) : Number(token);
  }

  #literal(word: string): boolean | null {
    if (!this.text.startsWith(word, this.#at)) throw this.#unexpected();
    this.#at += word.length;
    return LITERALS[word] ?? null;
  }

  #take(character: string): void {
    if (this.text[this.#at] !== character) throw this.#unexpected();
    this.#at++;
  }

  #skipSpace(): void {
    while (SPACES.includes(this.text[this.#at] ?? '-')) this.#at++;
  }

  #unexpected(): SyntaxError {
    return new SyntaxError(`Unexpected character at position ${this.#at} of the JSON`);
  }
}
