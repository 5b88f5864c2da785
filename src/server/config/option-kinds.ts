/** The kinds of values that options have: how each is read from text, and the error for a text that cannot be read. */
import { UsageError } from '../../base/errors.js';
import { messageOf } from '../../base/narrow.js';
import { refuseReadOnly } from './connection-settings.js';
import { parseConnectionString } from './connection-string.js';

export interface Option<Value> {
  readonly initial: string | null;
  readonly about: string;
  readonly parse: Parse<Value>;
  /** Its former name. A start that ignored it would answer differently. */
  readonly formerly?: string;
  /** Its value names things with options of their own, which begin with this. */
  readonly prefix?: string;
  /** Whether threads share the number: each gets its part of it, at least one. */
  readonly isDivided?: boolean;
  /** Texts for other options that are not set. */
  implied?(value: Value): Environment;
}

/** The options of the service or of a feature, by their names. */
export type OptionTable = Readonly<Record<string, Option<unknown>>>;
export type NoOptions = Readonly<Record<never, never>>;
export type Values<Table extends OptionTable> = { readonly [Name in keyof Table]: ReturnType<Table[Name]['parse']> };
export type Environment = Readonly<Record<string, string | undefined>>;

type Parse<Value> = (text: string, environment?: Environment) => Value;

/** A `UsageError` names the option already. */
export function orUsageError<Value>(read: () => Value, prefix = ''): Value {
  try {
    return read();
  } catch (error) {
    throw error instanceof UsageError ? error : new UsageError(`${prefix}${messageOf(error)}`);
  }
}

export function text(initial: string, about: string): Option<string> {
  return { initial, about, parse: anyText };
}

export function anyText(value: string): string {
  return value;
}

export function optional<Value>(parse: Parse<Value>, about: string): Option<Value | null> {
  return { initial: null, about, parse };
}

/** A list of names, in their order. An empty text is an empty list. */
export function names(about: string): Option<readonly string[]> {
  const parse = (value: string): readonly string[] => {
    const entries = value.split(',').map((each) => each.trim());
    if (value.trim() === '') return [];
    if (entries.includes('') || new Set(entries).size < entries.length)
      throw new Error(`must be a comma separated list of names, each once, not "${value}"`);
    return entries;
  };
  return { initial: '', about, parse };
}

/** A list of names of things that have options of their own. `read` gets these, and its errors name them. */
export function named<Value, Prefix extends string>(
  prefix: Prefix,
  about: string,
  read: (names: readonly string[], environment: Environment) => Value,
): Option<Value> & { readonly prefix: Prefix } {
  const parse = (text: string, environment: Environment = {}): Value => {
    const list = names(about).parse(text, environment);
    return orUsageError(() => read(list, environment));
  };
  return { initial: '', about, prefix, parse };
}

export function token(value: string): string {
  if (!/^[\x21-\x7e]{16,255}$/.test(value)) throw new Error('must be 16 to 255 printable characters without spaces');
  return value;
}

export function url(value: string): string {
  if (!isUrl(value, /^https?:$/)) throw new Error('must look like https://api.example.com');
  return value.replace(/\/+$/, '');
}

function isUrl(value: string, protocol: RegExp): boolean {
  return URL.canParse(value) && protocol.test(new URL(value).protocol);
}

/** Allows every host, but only at public addresses: see features/files/file-form.ts. */
export const ANY_ORIGIN = '*';

export function origins(about: string): Option<readonly string[]> {
  const parse = (value: string): readonly string[] =>
    value.trim() === ''
      ? []
      : value.split(',').map((each) => {
          const entry = each.trim();
          if (entry === ANY_ORIGIN) return entry;
          if (!isUrl(entry, /^https?:$/) || new URL(entry).pathname !== '/')
            throw new Error(`must be a list of origins such as https://images.example.com, or *, not "${entry}"`);
          return new URL(entry).origin;
        });
  return { initial: '', about, parse };
}

export function redis(value: string): string {
  if (!isUrl(value, /^rediss?:$/)) throw new Error('must look like redis://user:password@host:port');
  return value;
}

export function cookieName(initial: string, about: string): Option<string> {
  return { initial, about, parse: (value) => matching(value, /^[\w.-]{1,100}$/, 'letters, digits, ".", "_" and "-"') };
}

export function headerName(value: string): string {
  return matching(value, /^[\w-]{1,100}$/, 'the name of a header');
}

export function domain(value: string): string {
  return matching(value, /^\.?[a-z0-9.-]{1,253}$/i, 'the name of a host');
}

function matching(value: string, pattern: RegExp, wanted: string): string {
  if (!pattern.test(value)) throw new Error(`must be ${wanted}, not "${value}"`);
  return value;
}

export function connection(value: string): string {
  refuseReadOnly(parseConnectionString(value).get('target_session_attrs') || 'any');
  return value;
}

function replica(value: string): string {
  parseConnectionString(value);
  return value;
}

/** Several of them, comma separated; none for an empty text. */
export function connections(about: string): Option<readonly string[]> {
  const parse = (value: string): readonly string[] =>
    value.trim() === '' ? [] : value.split(/,(?=\s*postgres(?:ql)?:)/).map((each) => replica(each.trim()));
  return { initial: '', about, parse };
}

/** `name=value,name=value` with percent-encoded values, as OpenTelemetry writes them. */
export function headers(about: string): Option<Readonly<Record<string, string>>> {
  const parse = (value: string): Record<string, string> => {
    const pairs = value === '' ? [] : value.split(',').map((pair) => /^\s*([\w-]+)=([^%]|%[0-9a-f]{2})*$/i.exec(pair));
    if (pairs.includes(null)) throw new Error('must look like name=value,name=value, with percent-encoded values');
    return Object.fromEntries(new URLSearchParams(value.replaceAll('+', '%2B').replaceAll(/\s*,\s*/g, '&')));
  };
  return { initial: '', about, parse };
}

export function ratio(initial: string, about: string): Option<number> {
  const parse = (value: string): number => {
    const share = /^\d+(\.\d+)?$/.test(value) ? Number(value) : Number.NaN;
    if (!(share <= 1)) throw new Error(`must be a number from 0 to 1, not "${value}"`);
    return share;
  };
  return { initial, about, parse };
}

export function integer(initial: string, least: number, most: number, about: string): Option<number> {
  return { initial, about, parse: wholeNumber(least, most) };
}

/** For the whole service, divided among its threads. */
export function divided(option: Option<number>): Option<number> {
  return { ...option, isDivided: true };
}

export function wholeNumber(least: number, most: number): Parse<number> {
  return (value) => {
    const number = Number(value);
    if (!/^\d+$/.test(value) || number < least || number > most)
      throw new Error(`must be a whole number from ${least} to ${most}, not "${value}"`);
    return number;
  };
}

/** Stands for a number that depends on the machine and on other options. */
export const AUTOMATIC = 0;

/**
 * Threads worth having: half of the processors, since the others are PostgreSQL's, but not two where there are two of them; and
 * only as many as get two connections for reads each (bench/profile.md has the figures).
 */
export function workersFor(processors: number, connections: number): number {
  return Math.max(1, Math.min(Math.floor(processors / 2), Math.floor(connections / 2)));
}

const MOST_WORKERS = 256;

export function workers(initial: string, about: string): Option<number> {
  const parse = (value: string): number => {
    if (value === 'auto') return AUTOMATIC;
    const workers = /^\d+$/.test(value) ? Number(value) : Number.NaN;
    if (!(workers >= 1 && workers <= MOST_WORKERS))
      throw new Error(`must be a whole number from 1 to ${MOST_WORKERS}, or auto, not "${value}"`);
    if (workers > 1 && process.platform !== 'linux') throw new Error('only Linux lets several threads share a port');
    return workers;
  };
  return { initial, about, parse };
}

export function boolean(initial: string, about: string): Option<boolean> {
  return {
    initial,
    about,
    parse: (value) => {
      if (/^(true|1|yes|on)$/i.test(value)) return true;
      if (/^(false|0|no|off)$/i.test(value)) return false;
      throw new Error(`must be true or false, not "${value}"`);
    },
  };
}

export function choice<Value extends string>(initial: Value, values: readonly Value[], about: string): Option<Value> {
  return {
    initial,
    about: `${about}: ${values.join(', ')}`,
    parse: (value) => {
      const choice = values.find((each) => each === value);
      if (!choice) throw new Error(`must be one of ${values.join(', ')}, not "${value}"`);
      return choice;
    },
  };
}

type Encoding = 'gzip' | 'brotli';
const ENCODINGS: readonly Encoding[] = ['gzip', 'brotli'];

/** In order of preference; none for off. */
export function encodings(initial: string, about: string): Option<readonly Encoding[]> {
  return {
    initial,
    about,
    parse: (value) => {
      if (/^(off|false|no|0)$/i.test(value)) return [];
      const names = value.split(',').map((each) => each.trim().toLowerCase());
      const encodings = ENCODINGS.filter((each) => names.includes(each));
      if (encodings.length !== names.length) throw new Error(`must be off, gzip, brotli or both, not "${value}"`);
      return encodings.sort((one, other) => names.indexOf(one) - names.indexOf(other));
    },
  };
}

const DURATIONS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** In milliseconds, `least` as well. */
export function duration(initial: string, about: string, least = 0): Option<number> {
  const parse = (value: string): number => {
    const ms = scaled(value, DURATIONS, 'ms', 'a duration such as 500ms, 30s or 15m');
    if (ms < least) throw new Error(`must be at least ${least}ms, not "${value}"`);
    return ms;
  };
  return { initial, about, parse };
}

/** Several of them, comma separated, in milliseconds. */
export function durations(initial: string, about: string): Option<readonly number[]> {
  const parse = (value: string): readonly number[] =>
    value.split(',').map((each) => scaled(each, DURATIONS, 'ms', 'a list of durations such as 5s,30s,2m'));
  return { initial, about, parse };
}

const SIZE_OF_MB = 1_048_576;
const SIZES: Readonly<Record<string, number>> = { b: 1, kb: 1_024, mb: SIZE_OF_MB, gb: 1_073_741_824 };

/** In bytes, `least` as well. An option that is 0 by default may be 0. */
export function size(initial: string, about: string, least = 0): Option<number> {
  const parse = (value: string): number => {
    const bytes = scaled(value, SIZES, 'b', 'a size such as 500kb or 1mb');
    if (bytes < least && !(initial === '0' && bytes === 0))
      throw new Error(`must be at least ${least / SIZE_OF_MB}mb, not "${value}"`);
    return bytes;
  };
  return { initial, about, parse };
}

function scaled(value: string, units: Readonly<Record<string, number>>, unit: string, wanted: string): number {
  const match = /^(\d{1,12}(?:\.\d{1,6})?)\s*([a-z]*)$/i.exec(value.trim());
  const factor = units[match?.[2]?.toLowerCase() || unit];
  if (!match || factor === undefined) throw new Error(`must be ${wanted}, not "${value}"`);
  return Math.round(Number(match[1]) * factor);
}
