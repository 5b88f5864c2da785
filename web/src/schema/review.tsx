/** The tables and fields of a change, and its SQL, before it runs. */
import type { JSX } from 'preact';
import { Button, copyText, countOf } from '../ui';
import type { NewField, SchemaChanges } from './relation-plan';

/** A statement of a dry run. */
export interface Executed {
  readonly sql: string;
  readonly parameters: readonly unknown[];
}

/** The new tables of a change, and the new fields of existing ones. */
export function NewTables({ body }: { readonly body: SchemaChanges }): JSX.Element {
  const changed = new Map<string, NewField[]>();
  for (const field of body.fields) {
    const { collection = '' } = field;
    changed.set(collection, [...(changed.get(collection) ?? []), field]);
  }
  return (
    <ul class="new-tables" aria-label="Tables and fields">
      {body.collections.map(({ collection, fields }) => (
        <TableChange key={collection} name={collection} about="new table" fields={fields} body={body} />
      ))}
      {[...changed].map(([name, fields]) => (
        <TableChange key={name} name={name} about={countOf(fields.length, 'new field')} fields={fields} body={body} />
      ))}
    </ul>
  );
}

interface TableProps {
  readonly name: string;
  readonly about: string;
  readonly fields: readonly NewField[];
  readonly body: SchemaChanges;
}

function TableChange({ name, about, fields, body }: TableProps): JSX.Element {
  return (
    <li>
      <h3>
        {name} <span class="tag plain">{about}</span>
      </h3>
      <ul>
        {fields.map((field) => (
          <li key={field.field}>
            <strong>{field.field}</strong> <span class="quiet">{describe(field, name, body)}</span>
          </li>
        ))}
      </ul>
    </li>
  );
}

/** The type of a column and its target, or the relation that a list shows. */
function describe({ field, type, schema }: NewField, collection: string, { relations }: SchemaChanges): string {
  if (type === 'alias') {
    const shown = relations.find((each) => each.related_collection === collection && each.meta['one_field'] === field);
    if (!shown) return 'no column';
    const far = relations.find(
      (each) => each.collection === shown.collection && each.field === shown.meta['junction_field'],
    );
    return far
      ? `no column: ${targetOf(far)}, through ${shown.collection}`
      : `no column: the items of ${shown.collection} that refer to it`;
  }
  const relation = relations.find((each) => each.collection === collection && each.field === field);
  return [
    type,
    ...(schema?.['is_primary_key'] ? ['key'] : []),
    ...(schema?.['is_unique'] ? ['unique'] : []),
    ...(relation ? [`→ ${targetOf(relation)}`] : []),
  ].join(', ');
}

function targetOf({ related_collection: related, meta }: SchemaChanges['relations'][number]): string {
  const allowed = meta['one_allowed_collections'];
  return Array.isArray(allowed) ? allowed.join(', ') : (related ?? '');
}

/** The definitions first. Statements that write metadata are folded. */
export function Statements({ statements }: { readonly statements: readonly Executed[] }): JSX.Element {
  const definitions = statements.filter(({ parameters }) => parameters.length === 0);
  const metadata = statements.filter(({ parameters }) => parameters.length > 0);
  const text = definitions.map(({ sql }) => `${readable(sql)};`).join('\n\n');
  return (
    <section class="statements" aria-label="SQL">
      <header class="row">
        <h3>SQL</h3>
        <span class="grow" />
        {definitions.length > 0 && (
          <Button label="Copy" icon="copy" kind="quiet" onClick={() => void copyText(text, 'The SQL was copied')} />
        )}
      </header>
      {definitions.length === 0 ? <p class="quiet">The tables stay as they are.</p> : <pre tabindex={0}>{text}</pre>}
      {metadata.length > 0 && (
        <details>
          <summary>{countOf(metadata.length, 'statement')} for the metadata</summary>
          <pre tabindex={0}>
            {metadata.map(({ sql, parameters }) => `${sql};\n-- ${parameters.map(String).join(', ')}`).join('\n\n')}
          </pre>
        </details>
      )}
    </section>
  );
}

/** A line for each column of a new table. */
function readable(sql: string): string {
  const match = /^(create table \S+ )\((.*)\)$/s.exec(sql);
  if (!match) return sql.replaceAll(/\s+/g, ' ');
  const [, head = '', columns = ''] = match;
  return `${head}(\n  ${splitColumns(columns).join(',\n  ')}\n)`;
}

/** At the commas outside of parentheses and quotes. */
function splitColumns(text: string): string[] {
  const parts: string[] = [];
  let [part, depth, quote] = ['', 0, ''];
  for (const sign of text) {
    if (quote !== '') quote = sign === quote ? '' : quote;
    else if (sign === '"' || sign === "'") quote = sign;
    else if (sign === '(') depth++;
    else if (sign === ')') depth--;
    if (sign === ',' && depth === 0 && quote === '') {
      parts.push(part.trim());
      part = '';
    } else part += sign;
  }
  return [...parts, part.trim()];
}
