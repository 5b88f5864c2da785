/** Positions in PostgreSQL's log. */

/** As PostgreSQL writes a position. */
export function positionText(position: number): string {
  return `${Math.floor(position / 2 ** 32).toString(16)}/${(position % 2 ** 32).toString(16)}`.toUpperCase();
}

/** A position in the log, in bytes. */
export function positionOf(text: string): number {
  const [high = '0', low = '0'] = text.split('/');
  return Number.parseInt(high, 16) * 2 ** 32 + Number.parseInt(low, 16);
}
