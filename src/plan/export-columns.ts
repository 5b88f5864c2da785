/** The columns of exported files, where fields of nested items are separate columns and lists are one each; the parts of a GeoJSON feature. */
import type { Field } from '../mirror/model.js';
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

/** What of an item can be the geometry of a GeoJSON feature, and what its id. */
export function featureOf(level: Level): { geometryFields: readonly string[]; keyField: string | null } {
  if (level.kind !== 'rows') return { geometryFields: [], keyField: null };
  const values = level.outputs.flatMap((output) =>
    output.kind === 'value' && output.operand.kind === 'field'
      ? [{ name: output.name, field: output.operand.field }]
      : [],
  );
  const isKey = (field: Field): boolean => level.collection.key.length === 1 && field === level.collection.key[0];
  return {
    geometryFields: values.filter(({ field }) => field.type.startsWith('geometry')).map(({ name }) => name),
    keyField: values.find(({ field }) => isKey(field))?.name ?? null,
  };
}
