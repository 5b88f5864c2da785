/** /schema/suggestions: the relations that foreign keys imply and that are not declared yet, and the way to add them. */
import { invalidPayload } from '../../base/errors.js';
import { requireObject } from '../../request/write.js';
import type { SchemaChanges } from '../../schema/change/change.js';
import { type Suggestion, suggestRelations } from '../../schema/suggest/suggest.js';
import { applySuggestions, findUnindexed, indexStatement } from '../../schema/suggest/suggested-relations.js';
import type { ActionRequest, ActionRoute } from '../action.js';
import { list, object, ref, STRING } from '../openapi/json-schema.js';
import { type SchemaChangeServices, schemaResource } from './definitions.js';

const SUGGESTIONS = list(ref('Suggestion'));
const UNINDEXED = object({ schema: STRING, table: STRING, columns: list(STRING), statement: STRING });

export function suggestionsRoutes(services: SchemaChangeServices): ActionRoute[] {
  const { change } = schemaResource(services, 'service_relations');
  return [
    change('GET /schema/suggestions', read, {
      summary: 'Relations that foreign keys imply and that do not exist yet, and foreign keys without an index',
      data: object({ relations: SUGGESTIONS, indexes: list(UNINDEXED) }),
    }),
    change('POST /schema/suggestions', apply, {
      summary: 'Add suggested relations; all if none are named',
      body: object({ relations: list(object({ collection: STRING, field: STRING }, ['collection', 'field'])) }),
      optional: true,
      data: object({ relations: SUGGESTIONS }),
    }),
  ];
}

async function read(_: ActionRequest, schemaChanges: SchemaChanges): Promise<unknown> {
  const unindexed = await findUnindexed(schemaChanges);
  return {
    relations: suggestRelations(schemaChanges.model).map(describe),
    indexes: unindexed.map((each) => ({
      schema: each.schema,
      table: each.table,
      columns: each.columns,
      statement: indexStatement(each),
    })),
  };
}

async function apply(request: ActionRequest, schemaChanges: SchemaChanges): Promise<unknown> {
  const { relations, ...rest } = requireObject((await request.json()) ?? {}, 'The body');
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw invalidPayload(`"${unknown}" is not allowed`);
  const requested = relations === undefined ? null : parseNames(relations);
  const written = await applySuggestions(
    schemaChanges,
    (each) =>
      requested?.some(({ collection, field }) => each.collection === collection && each.field === field) ?? true,
    (available) => {
      for (const { collection, field } of requested ?? [])
        if (!available.some((each) => each.collection === collection && each.field === field))
          throw invalidPayload(`"${collection}.${field}" is not suggested: see GET /schema/suggestions`);
    },
  );
  return { relations: written.map(describe) };
}

function parseNames(relations: unknown): readonly { readonly collection: string; readonly field: string }[] {
  if (!Array.isArray(relations)) throw invalidPayload('"relations" must be a list');
  return relations.map((entry: unknown) => {
    const { collection, field } = requireObject(entry, 'Each entry of "relations"');
    if (typeof collection !== 'string') throw invalidPayload('"collection" must be a string');
    if (typeof field !== 'string') throw invalidPayload('"field" must be a string');
    return { collection, field };
  });
}

function describe(each: Suggestion): unknown {
  return {
    kind: each.kind,
    collection: each.collection,
    field: each.field,
    related_collection: each.target,
    many_collection: each.manyCollection,
    many_field: each.manyField,
    columns: each.columns,
    junction_field: each.junctionField,
    sort_field: each.sortField,
    hidden: each.hidden,
  };
}
