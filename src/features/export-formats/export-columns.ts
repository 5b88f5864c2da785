/** The columns of an exported file, and the fields that make a GeoJSON feature of an item. */
import type { Field } from '../../compiler/model/model.js';
import type { Level, Output, RowLevel } from '../../compiler/plan/plan.js';
import { factOf } from '../../server/execute/reads/compiled-read.js';

interface ExportedFields {
  readonly columns: readonly (readonly string[])[];
  /** The fields that hold a geometry, and the key field. */
  readonly geometryFields: readonly string[];
  readonly keyField: string | null;
}

export const exportedFields = factOf<ExportedFields>(({ plan }) =>
  plan.kind === 'operation'
    ? { columns: [], geometryFields: [], keyField: null }
    : { columns: columnsOf(plan.level), ...featureOf(plan.level) },
);

/** The columns of an exported file, as paths into the item: fields of nested items are separate columns, a list is one. */
function columnsOf(level: Level): string[][] {
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

/** The fields of an item that can be the geometry and the id of a GeoJSON feature. */
function featureOf(level: Level): { geometryFields: readonly string[]; keyField: string | null } {
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
