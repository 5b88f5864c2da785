/** The columns of a flat file: nested items become columns of their own, lists stay one column each. */
import type { Level, Output, RowLevel } from './plan.js';

/** Paths into the item. */
export function columnsOf(level: Level): string[][] {
  if (level.kind === 'rows') return level.outputs.flatMap((output) => outputColumns(output));
  const groups = level.groups.map(({ name }) => [name]);
  return [
    ...groups,
    ...level.aggregates.map(({ function: name, name: field }) => (field === null ? [name] : [name, field])),
  ];
}

function outputColumns(output: Output): string[][] {
  if (output.kind !== 'one') return [[output.name]];
  return nested(output.level).map((path) => [output.name, ...path]);
}

function nested(level: RowLevel): string[][] {
  return level.outputs.flatMap((output) => outputColumns(output));
}
