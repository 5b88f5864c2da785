/** Formats numbers and texts for readers. */

export function figure(value: number): string {
  return value >= 100 ? Math.round(value).toLocaleString('en') : value.toFixed(value >= 10 ? 1 : 2);
}

/** At most three digits, for the ticks of a scale. */
export function short(value: number): string {
  if (value >= 1_000_000) return `${trim(value / 1_000_000)}M`;
  if (value >= 1_000) return `${trim(value / 1_000)}k`;
  return trim(value);
}

/** Cut, not rounded: 0.996 must not appear as 1.00 if the target is 1. */
export function times(value: number): string {
  return `${(Math.floor(value * 100 + 1e-9) / 100).toFixed(2)} ×`;
}

/** Rounds up, so that a value that must not be exceeded never appears smaller than it is. */
export function timesAtMost(value: number): string {
  return `${(Math.ceil(value * 100 - 1e-9) / 100).toFixed(2)} ×`;
}

/** A factor as a change: 0.9 is -10.0 %. */
export function percent(factor: number): string {
  return `${factor < 1 ? '' : '+'}${((factor - 1) * 100).toFixed(1)} %`;
}

export function milliseconds(value: number): string {
  return `${value >= 100 ? Math.round(value).toLocaleString('en') : value.toFixed(value >= 10 ? 1 : 2)} ms`;
}

export function gibibytes(bytes: number): string {
  return `${Math.round(bytes / 2 ** 30)} GiB`;
}

export function escapeText(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}

function trim(value: number): string {
  return String(Number(value.toPrecision(3)));
}
