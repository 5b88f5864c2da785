/** A row of service_functions in a snapshot. */
import { invalidPayload } from '../../base/errors.js';
import { requireObject } from '../../request/write.js';
import { readEntries, readSnapshotName, readSnapshotText, refuseUnknown } from './snapshot-values.js';

/** That a function may be called; its definition is not part of a snapshot. */
export interface DeclaredFunction {
  readonly name: string;
  readonly schema: string | null;
  readonly function: string | null;
  readonly arguments: readonly string[] | null;
  readonly note: string | null;
}

const MAX_NAME_LENGTH = 255;

export function readFunction(value: unknown, position = 0): DeclaredFunction {
  const path = `functions[${position}]`;
  const { name, schema, function: called, arguments: names, note, ...rest } = requireObject(value, `"${path}"`);
  refuseUnknown(rest, `"${path}"`, 'name, schema, function, arguments, note');
  const exposed = readSnapshotText(name, `${path}.name`);
  if (!exposed || [...exposed].length > MAX_NAME_LENGTH)
    throw invalidPayload(`"${path}.name" must be a name of at most ${MAX_NAME_LENGTH} characters`);
  return {
    name: exposed,
    schema: schema == null ? null : readSnapshotName(schema, `${path}.schema`),
    function: called == null ? null : readSnapshotName(called, `${path}.function`),
    arguments:
      names == null
        ? null
        : readEntries(names, `${path}.arguments`).map((each) => readArgument(each, `${path}.arguments`)),
    note: readSnapshotText(note, `${path}.note`),
  };
}

/** A name, or a name with a type. */
function readArgument(value: unknown, path: string): string {
  const text = readSnapshotText(value, path);
  if (!text) throw invalidPayload(`"${path}" must list names of arguments`);
  return text;
}
