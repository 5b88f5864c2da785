/** Log lines for a person who reads them in a terminal; files and collectors get the JSON as it is. */
import { parseOwnJson, propertiesOf } from './narrow.js';

const LEVELS: Readonly<Record<number, string>> = {
  10: 'TRACE',
  20: 'DEBUG',
  30: 'INFO',
  40: 'WARN',
  50: 'ERROR',
  60: 'FATAL',
};

/** `2026-01-31 12:00:00.000 INFO  message name=value`, from a line of JSON; a stack trace follows in separate lines. */
export function readableLine(json: string): string {
  const { level, time, msg, ...fields } = parseOwnJson<Record<string, unknown>>(json);
  const at = new Date(Number(time)).toISOString().replace('T', ' ').replace('Z', '');
  const stack = stackOf(fields['error']);
  const pairs = Object.entries(stack === null ? fields : { ...fields, error: undefined }).flatMap(([name, value]) =>
    value === undefined ? [] : `${name}=${readableValue(value)}`,
  );
  const line = [at, (LEVELS[Number(level)] ?? String(level)).padEnd(5), printable(String(msg)), ...pairs].join(' ');
  return stack === null
    ? `${line}\n`
    : `${line}\n${stack
        .split('\n')
        .map((each) => `    ${printable(each)}`)
        .join('\n')}\n`;
}

function stackOf(error: unknown): string | null {
  const { stack } = propertiesOf(error);
  return typeof stack === 'string' ? stack : null;
}

function readableValue(value: unknown): string {
  return printable(typeof value === 'string' && /^[^\s"]+$/.test(value) ? value : JSON.stringify(value));
}

/** Control characters of a client, or of the database, would move the cursor of the terminal. */
function printable(text: string): string {
  return text.replace(/\p{Cc}/gu, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
