/** The functions of the database that an administrator can make callable, whether they are callable already or not. */
import { parseOwnJson } from '../../base/narrow.js';
import type { Model } from '../../compiler/model/model.js';
import { readSql } from '../../server/postgres/read-sql.js';
import type { Draft } from '../../server/schema/change/change.js';

const FUNCTIONS = readSql('features', 'database-objects', 'functions.sql');

interface DatabaseFunction {
  readonly name: string;
  /** As in service_functions: null for the first schema that is served. */
  readonly schema: string | null;
  /** With their types and defaults, as PostgreSQL writes them. */
  readonly arguments: string;
  readonly returns: string;
  readonly writes: boolean;
  readonly note: string | null;
}

export async function describeFunctions(
  draft: Draft,
  { schemas, system }: Model,
): Promise<readonly DatabaseFunction[]> {
  return parseOwnJson<DatabaseFunction[]>(String(await draft.cell(FUNCTIONS, [JSON.stringify(schemas), system])));
}
