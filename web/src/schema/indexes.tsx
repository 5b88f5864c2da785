/** The indexes of a collection: their size and use, a form for a new one, and a way to drop one. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Confirm } from '../forms';
import type { Collection } from '../model';
import { Button, countOf, ErrorBox } from '../ui';
import { Check } from './form';
import { useParts } from './parts';
import { ReviewedForm } from './reviewed-form';

interface Index {
  readonly name: string;
  readonly fields: readonly (string | null)[];
  readonly method: string;
  readonly definition: string;
  readonly is_unique: boolean;
  readonly is_primary_key: boolean;
  readonly is_valid: boolean;
  readonly size: number | null;
  readonly scans: number;
}

export function IndexList({ collection }: { readonly collection: Collection }): JSX.Element {
  const path = `/indexes/${encodeURIComponent(collection.name)}`;
  const { parts: indexes, error, drop } = useParts<Index>(path);
  const [isNew, setIsNew] = useState(false);
  const [doomed, setDoomed] = useState<Index | null>(null);
  return (
    <section class="indexes" aria-label="Indexes">
      <header class="row">
        <h3>Indexes</h3>
        <span class="grow" />
        {!collection.system && <Button label="Add index" icon="plus" onClick={() => setIsNew(true)} />}
      </header>
      {error && <ErrorBox text={error} />}
      {indexes?.length === 0 && <p class="quiet">No indexes. Every filter reads the whole table.</p>}
      <ul class="field-list">
        {indexes?.map((index) => (
          <li key={index.name} title={index.definition}>
            <div>
              <strong>{columnsOf(index)}</strong>
              <small>{index.name}</small>
              <small>{useOf(index)}</small>
            </div>
            <span class="flags">
              {flagsOf(index).map((flag) => (
                <span class="tag plain" key={flag}>
                  {flag}
                </span>
              ))}
            </span>
            {!index.is_primary_key && !collection.system && (
              <Button label={`Drop ${index.name}`} icon="trash" kind="quiet" compact onClick={() => setDoomed(index)} />
            )}
          </li>
        ))}
      </ul>
      {isNew && <CreateIndex collection={collection} path={path} onClose={() => setIsNew(false)} />}
      {doomed && (
        <Confirm
          title={`Drop ${doomed.name}?`}
          submit="Drop"
          onClose={() => setDoomed(null)}
          onConfirm={() => drop(doomed)}
        >
          <p>
            {doomed.is_unique ? 'Duplicate values will be possible. ' : ''}
            Reads that use the index can become slow. PostgreSQL has scanned it {countOf(doomed.scans, 'time')} since
            its statistics were reset.
          </p>
        </Confirm>
      )}
    </section>
  );
}

/** An expression has no column. */
function columnsOf({ fields, definition }: Index): string {
  if (fields.every((field) => field !== null)) return fields.join(', ');
  return /\((.*)\)/.exec(definition)?.[1] ?? definition;
}

function useOf({ size, scans }: Index): string {
  const used = scans === 0 ? 'never used' : countOf(scans, 'scan');
  return size === null ? used : `${sizeOf(size)}, ${used}`;
}

function sizeOf(bytes: number): string {
  if (bytes < 1_048_576) return `${Math.ceil(bytes / 1_024)} kB`;
  return `${(bytes / 1_048_576).toFixed(1)} MB`;
}

function flagsOf(index: Index): string[] {
  return [
    ...(index.is_primary_key ? ['key'] : index.is_unique ? ['unique'] : []),
    ...(index.method === 'btree' ? [] : [index.method]),
    ...(index.is_valid ? [] : ['invalid']),
  ];
}

interface CreateProps {
  readonly collection: Collection;
  readonly path: string;
  readonly onClose: () => void;
}

function CreateIndex({ collection, path, onClose }: CreateProps): JSX.Element {
  const [fields, setFields] = useState<readonly string[]>([]);
  const [isUnique, setIsUnique] = useState(false);
  const columns = [...collection.fields.values()].filter(({ column }) => column !== null);
  return (
    <ReviewedForm
      title={`New index of ${collection.name}`}
      path={path}
      body={{ fields, is_unique: isUnique }}
      isIncomplete={fields.length === 0}
      createLabel="Create index"
      done={`An index on ${fields.join(', ')} was created`}
      onClose={onClose}
    >
      <fieldset class="field targets">
        <legend>Fields</legend>
        <div>
          {columns.map(({ name }) => (
            <Check
              key={name}
              label={name}
              checked={fields.includes(name)}
              onChange={(checked) => setFields(checked ? [...fields, name] : fields.filter((other) => other !== name))}
            />
          ))}
        </div>
        <small>
          {fields.length > 1
            ? `In this order: ${fields.join(', ')}`
            : 'Several fields are indexed in the order in which you choose them'}
        </small>
      </fieldset>
      <Check label="unique: no two items have the same values" checked={isUnique} onChange={setIsUnique} />
      <p class="quiet small">Writes to the table wait while PostgreSQL builds the index.</p>
    </ReviewedForm>
  );
}
