/** Around the statement of a write: secrets become hashes before it, errors get names after it. */
import { hashPassword } from '../access/passwords.js';
import type { Naming } from '../errors.js';
import type { Field, Model } from '../mirror/model.js';
import { Secret } from '../plan/cell.js';
import type { PlannedWrite } from '../plan/write.js';

/** Hashing takes its time by design, so it happens here and not while the payload is walked. */
export async function hashSecrets(nodes: PlannedWrite['input']['nodes']): Promise<PlannedWrite['input']['nodes']> {
  return Promise.all(nodes.map((rows) => Promise.all(rows.map((row) => hashRow(row)))));
}

async function hashRow(row: Readonly<Record<string, unknown>>): Promise<Readonly<Record<string, unknown>>> {
  const secrets = Object.entries(row).filter(([, value]) => value instanceof Secret) as [string, Secret][];
  if (secrets.length === 0) return row;
  const hashed = await Promise.all(secrets.map(async ([name, { text }]) => [name, await hashPassword(text)]));
  return { ...row, ...Object.fromEntries(hashed) };
}

/** Names that errors of the database leave out, where there is just one they can mean. */
export function namesOf(model: Model): Naming {
  const only = (fields: readonly Field[]): Field | null => (fields.length === 1 ? (fields[0] as Field) : null);
  return {
    referrer: (table, one) => {
      const fields = [...(model.collections.get(table)?.fields.values() ?? [])];
      const isReferrer = ({ relation }: Field): boolean =>
        relation?.kind === 'many-to-one' && relation.oneCollection === one;
      return only(fields.filter(isReferrer))?.name ?? null;
    },
    holder: (type) => {
      const fields = [...model.collections.values()].flatMap((collection) => [...collection.fields.values()]);
      return only(fields.filter((field) => field.column?.data_type === type));
    },
  };
}
