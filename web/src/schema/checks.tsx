/** The check constraints of a collection: a form for a new one, and a way to drop one. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Confirm, TextInput } from '../forms';
import type { Collection } from '../model';
import { Button, ErrorBox } from '../ui';
import { useParts } from './parts';
import { ReviewedForm } from './reviewed-form';

interface Check {
  readonly name: string;
  readonly fields: readonly string[];
  readonly expression: string;
  readonly is_valid: boolean;
}

export function CheckList({ collection }: { readonly collection: Collection }): JSX.Element {
  const path = `/checks/${encodeURIComponent(collection.name)}`;
  const { parts: checks, error, load, drop } = useParts<Check>(path);
  const [isNew, setIsNew] = useState(false);
  const [doomed, setDoomed] = useState<Check | null>(null);
  return (
    <section class="indexes" aria-label="Checks">
      <header class="row">
        <h3>Checks</h3>
        <span class="grow" />
        {!collection.system && <Button label="Add check" icon="plus" onClick={() => setIsNew(true)} />}
      </header>
      {error && <ErrorBox text={error} />}
      {checks?.length === 0 && <p class="quiet">No checks. A check is a condition that every item must meet.</p>}
      <ul class="field-list">
        {checks?.map((check) => (
          <li key={check.name}>
            <div>
              <code>{check.expression}</code>
              <small>{check.name}</small>
            </div>
            <span class="flags">{!check.is_valid && <span class="tag plain">not valid</span>}</span>
            {!collection.system && (
              <Button label={`Drop ${check.name}`} icon="trash" kind="quiet" compact onClick={() => setDoomed(check)} />
            )}
          </li>
        ))}
      </ul>
      {isNew && (
        <CreateCheck
          collection={collection}
          path={path}
          onClose={() => {
            setIsNew(false);
            void load();
          }}
        />
      )}
      {doomed && (
        <Confirm
          title={`Drop ${doomed.name}?`}
          submit="Drop"
          onClose={() => setDoomed(null)}
          onConfirm={() => drop(doomed)}
        >
          <p>
            Items may then violate <code>{doomed.expression}</code>. Existing items stay as they are.
          </p>
        </Confirm>
      )}
    </section>
  );
}

interface CreateProps {
  readonly collection: Collection;
  readonly path: string;
  readonly onClose: () => void;
}

function CreateCheck({ collection, path, onClose }: CreateProps): JSX.Element {
  const [expression, setExpression] = useState('');
  const [name, setName] = useState('');
  const columns = [...collection.fields.values()].filter(({ column }) => column !== null);
  return (
    <ReviewedForm
      title={`New check of ${collection.name}`}
      path={path}
      body={{ expression, ...(name.trim() === '' ? {} : { name: name.trim() }) }}
      isIncomplete={expression.trim() === ''}
      createLabel="Create check"
      done={`A check of ${collection.name} was created`}
      onClose={onClose}
    >
      <div class="field">
        <label for="check-expression">Condition</label>
        <textarea
          id="check-expression"
          class="mono"
          rows={3}
          spellcheck={false}
          aria-describedby="check-columns"
          value={expression}
          onInput={(event) => setExpression(event.currentTarget.value)}
        />
        <small id="check-columns">
          SQL that is true for every item, such as <code>price &gt;= 0</code>. Columns:{' '}
          {columns.map(({ name: column }) => column).join(', ')}
        </small>
      </div>
      <TextInput id="check-name" label="Name (optional)" value={name} onInput={setName} />
      <p class="quiet small">PostgreSQL checks the existing items first. Other requests wait meanwhile.</p>
    </ReviewedForm>
  );
}
