/** `lateral relations suggest`: shows, or writes, the relations that the foreign keys of a database imply. */

import { StartError, UsageError } from '../base/errors.js';
import { createObserver } from '../base/observe.js';
import { candidateStatement, referenceCandidate } from '../compile/index-candidates.js';
import { readArguments, readConfig } from '../config/config.js';
import type { Model } from '../mirror/model.js';
import { type Hub, hubsOf, type Suggestion, suggestRelations } from '../schema/suggest/suggest.js';
import { applySuggestions, findUnindexed, type Unindexed } from '../schema/suggest/suggested-relations.js';
import { withCore } from '../service/start.js';

export const RELATIONS_HELP = `Usage: lateral relations suggest [COLLECTION ...] [--apply] [--option value ...]

A foreign key gives an item its parent. This command finds what it implies for the parent: the list of its children, and, for a
table that only links two others, the many-to-many list on both sides. Existing lists are not changed. It warns about
tables that would get very many lists (those are hidden in forms) and about foreign keys without an index.

  COLLECTION  only relations from or to these collections
  --apply     writes the relations to service_fields and service_relations, in one transaction; a running service uses them
              at once. Without --apply nothing is changed

All options of lateral --help are accepted; DATABASE_URL selects the database.`;

export async function relations(words: readonly string[]): Promise<void> {
  const [command, ...rest] = words;
  if (command !== 'suggest') throw new UsageError('relations expects suggest: see lateral relations --help');
  const { operands, switches, environment } = readArguments(rest, ['apply']);
  await withCore(
    readConfig({ ...process.env, ...environment }),
    createObserver('warn'),
    console.error,
    async ({ schemaChanges, mirror }) => {
      const { model } = mirror;
      for (const name of operands) {
        const reason = model.refused.get(name);
        if (reason !== undefined) throw new StartError(`"${name}" is not served: it ${reason}`);
        if (!model.collections.has(name)) throw new StartError(`there is no collection "${name}"`);
      }
      const isWanted = (each: Suggestion): boolean =>
        operands.length === 0 ||
        [each.collection, each.manyCollection, each.target].some((name) => operands.includes(name));
      const apply = switches.has('apply');
      const unindexed = (await findUnindexed(schemaChanges)).filter(
        ({ schema, table }) =>
          operands.length === 0 ||
          [...model.collections.values()].some(
            (each) => each.schema === schema && each.table === table && operands.includes(each.name),
          ),
      );
      const suggestions = apply
        ? await applySuggestions(schemaChanges, isWanted)
        : suggestRelations(model).filter(isWanted);
      const hubs = hubsOf(model, suggestions);
      console.log([report(suggestions, model, apply), ...warnings(suggestions, hubs, unindexed)].join('\n'));
    },
  );
}

function report(suggestions: readonly Suggestion[], model: Model, applied: boolean): string {
  const lines = [];
  if (suggestions.length === 0) lines.push('Nothing to suggest: every foreign key has its list.');
  else {
    lines.push(...table(suggestions), '');
    const count = `${suggestions.length} ${suggestions.length === 1 ? 'relation' : 'relations'}`;
    lines.push(applied ? `${count} written.` : `${count} suggested, nothing written. Write them with --apply.`);
  }
  if (model.refused.size > 0) lines.push('', 'Not served, so without relations:');
  for (const [name, reason] of model.refused) lines.push(`  ${name}: ${reason}`);
  return lines.join('\n');
}

function warnings(suggestions: readonly Suggestion[], hubs: readonly Hub[], unindexed: readonly Unindexed[]): string[] {
  const lines: string[] = [];
  if (hubs.length > 0) lines.push('', 'Referenced by very many tables: request only a few of their lists at a time.');
  for (const { collection, lists } of hubs) lines.push(`  ${collection}: ${lists} lists`);
  const hidden = suggestions.filter((each) => each.hidden);
  if (hidden.length > 0) lines.push('', 'Hidden in forms by default:');
  for (const { collection, field } of hidden) lines.push(`  ${collection}.${field}`);
  if (unindexed.length > 0)
    lines.push('', 'Foreign keys without an index, which slows down lists and deletions; these create them:');
  for (const each of unindexed) lines.push(`  ${candidateStatement(referenceCandidate(each))}`);
  return lines;
}

function table(suggestions: readonly Suggestion[]): string[] {
  const rows = suggestions.map((each) => [
    `${each.collection}.${each.field}`,
    each.kind,
    each.kind !== 'many-to-many'
      ? `${each.manyCollection}, by its ${each.manyField}${each.columns ? ` (${each.columns.join(', ')})` : ''}`
      : `${each.target}, through ${each.manyCollection} (${each.manyField}, ${each.junctionField})` +
        (each.sortField === null ? '' : `, ordered by ${each.sortField}`),
  ]);
  const all = [['FIELD', 'KIND', 'LEADS TO'], ...rows];
  const widths = [0, 1].map((column) => Math.max(...all.map((row) => (row[column] ?? '').length)));
  return all.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}
