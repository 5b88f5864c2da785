/** What `lateral doctor` has found, and the words for it. */

export type CheckStatus = 'ok' | 'note' | 'problem';

export interface Finding {
  readonly section: string;
  readonly status: CheckStatus;
  readonly message: string;
  readonly details: readonly Detail[];
}

export interface Detail {
  readonly name: string;
  readonly message: string;
  /** SQL that solves it, or an example of it. */
  readonly fix?: string;
}

export function finding(
  section: string,
  status: CheckStatus,
  message: string,
  details: readonly Detail[] = [],
): Finding {
  return { section, status, message, details };
}

export function count(number: number, one: string, many: string): string {
  return `${number} ${number === 1 ? one : many}`;
}

export function literalText(value: string): string {
  return `'${value.replaceAll("'", "''")}'`;
}
