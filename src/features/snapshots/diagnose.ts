/** Findings of `lateral doctor`: relations that can be added, and what snapshots leave out. */
import type { Model } from '../../compiler/model/model.js';
import { count, type DiagnosisContext, type Finding, finding } from '../../server/feature/finding.js';
import type { Omission } from './snapshot.js';
import { readOmissions } from './snapshots.js';
import { suggestRelations } from './suggest.js';

export async function diagnoseSnapshots({ database, model, declared }: DiagnosisContext): Promise<readonly Finding[]> {
  const omissions = await database.catalog.use((session) =>
    readOmissions((text, parameters) => session.cell(text, parameters), model, declared),
  );
  return [...lists(model), omitted(omissions)];
}

/** A database that was made without the service has references, and nothing that says what their lists are called. */
function lists(model: Model): Finding[] {
  const { length } = suggestRelations(model);
  if (length === 0) return [];
  const message = `${count(length, 'list or object', 'lists and objects')} of related items can be added; lateral relations suggest shows them, --apply adds them`;
  return [finding('Relations', 'note', message)];
}

/** Things that snapshots leave out, so that another database would lack them. */
function omitted(omissions: readonly Omission[]): Finding {
  if (omissions.length === 0) return finding('Snapshots', 'ok', 'snapshots contain the whole schema');
  const message = `snapshots leave out ${count(omissions.length, 'thing', 'things')}: lateral schema apply does not create them in another database`;
  const details = omissions.map(({ name, reason }) => ({ name, message: reason }));
  return finding('Snapshots', 'note', message, details);
}
