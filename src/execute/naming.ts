/** Which field an error of the database speaks of, where it does not say so itself. */
import type { Naming } from '../errors.js';
import type { Field, Model } from '../mirror/model.js';

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
