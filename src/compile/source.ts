/**
 * Where the values of a row come from: its table, and the rows that to-one relations lead to. Those are joined when they are
 * first needed, once per path; the joins keep rows without a counterpart and never multiply rows.
 */
import type { Collection, Field } from '../mirror/model.js';
import type { AnyStep, Hop, Step } from '../plan/plan.js';
import { alias, type Fragment, identifier, join, literal, nothing, sql } from '../sql/fragment.js';

/** Numbers the aliases of one statement. */
export class Scope {
  #last = 0;

  next(): number {
    return ++this.#last;
  }
}

export class Source {
  readonly alias: Fragment;
  readonly scope: Scope;
  readonly #joined = new Map<string, Fragment>();
  readonly #joins: Fragment[] = [];

  constructor(name: Fragment, scope: Scope) {
    this.alias = name;
    this.scope = scope;
  }

  column(through: readonly Step[], field: Field): Fragment {
    return sql`${this.at(through)}.${columnName(field)}`;
  }

  /** The alias of the row at the end of the steps. */
  at(through: readonly Step[]): Fragment {
    let key = '';
    let current = this.alias;
    for (const step of through) {
      key += `${JSON.stringify(step.field.name)}:${JSON.stringify(step.target.name)}/`;
      const known = this.#joined.get(key);
      const next = known ?? alias(`t${this.scope.next()}`);
      if (!known) {
        this.#joins.push(
          sql` left join ${tableName(step.target)} ${next} on ${next}.${columnName(step.target.primaryKey)} = ${reference(step, current)}`,
        );
        this.#joined.set(key, next);
      }
      current = next;
    }
    return current;
  }

  /** Joins something that is not a relation. */
  join(fragment: Fragment): void {
    this.#joins.push(fragment);
  }

  /** To be read after everything that may need a join was compiled. */
  joins(): Fragment {
    return join(this.#joins, nothing);
  }
}

/** The key that a row refers to. */
export function reference(step: Step, row: Fragment): Fragment {
  return step.kind === 'one' ? sql`${row}.${columnName(step.field)}` : anyReference(step, row);
}

/**
 * The key as text becomes a value of the target's type only where the row names the target and the text can be read:
 * a condition beside the cast would not do, since PostgreSQL may evaluate the cast first.
 */
function anyReference(step: AnyStep, row: Fragment): Fragment {
  const key = sql`${row}.${columnName(step.field)}::text`;
  const named = sql`${row}.${columnName(step.collectionField)} = ${literal(step.target.name)}`;
  switch (step.target.primaryKey.column?.base_type) {
    case 'int2':
    case 'int4':
    case 'int8':
      return sql`case when ${named} and ${key} ~ '^-?[0-9]{1,18}$' then ${key}::int8 end`;
    case 'uuid':
      return sql`case when ${named} and ${key} ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then ${key}::uuid end`;
    default:
      return sql`case when ${named} then ${key}::${typeName(step.target.primaryKey)} end`;
  }
}

/** What makes a row of the hop's collection refer to the row whose key is given. */
export function refersTo(hop: Hop, row: Fragment, key: Fragment): Fragment {
  const held = sql`${row}.${columnName(hop.field)}`;
  if (!hop.named) return sql`${held} = ${key}`;
  return sql`${held}::text = ${key}::text and ${row}.${columnName(hop.named.field)} = ${literal(hop.named.collection)}`;
}

export function tableName(collection: Collection): Fragment {
  return identifier(collection.schema, collection.name);
}

export function columnName(field: Field): Fragment {
  if (!field.column) throw new Error(`the field "${field.name}" of "${field.collection}" has no column`);
  return identifier(field.column.name);
}

/** The type below domains: what parameters are cast to, so that an index on the column can serve them. */
export function typeName(field: Field): Fragment {
  if (!field.column) throw new Error(`the field "${field.name}" of "${field.collection}" has no column`);
  return identifier(field.column.base_schema, field.column.base_type);
}
