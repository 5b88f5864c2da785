/** The part of `lateral doctor` about snapshots: the things that they leave out, which another database would lack. */
import type { Omission } from '../schema/snapshot/snapshot.js';
import { count, type Finding, finding } from './findings.js';

const SECTION = 'Snapshots';

export function diagnoseSnapshots({ omissions }: { readonly omissions: readonly Omission[] }): Finding[] {
  if (omissions.length === 0) return [finding(SECTION, 'ok', 'snapshots contain every table, column and key')];
  const message = `snapshots leave out ${count(omissions.length, 'thing', 'things')}: lateral schema apply does not create them in another database`;
  const details = omissions.map(({ name, reason }) => ({ name, message: reason }));
  return [finding(SECTION, 'note', message, details)];
}
