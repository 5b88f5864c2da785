/** Relations that foreign keys imply and that are not declared yet. One click adds one of them, or all. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { call, messageOf } from '../api';
import { model, reloadModel, toast } from '../state';
import { Button, copyText, Dialog, Empty, ErrorBox } from '../ui';

interface Suggestion {
  readonly kind: string;
  readonly collection: string;
  readonly field: string;
  readonly related_collection: string;
  readonly many_collection: string;
  readonly many_field: string;
  readonly junction_field: string | null;
}

interface Suggestions {
  readonly relations: readonly Suggestion[];
  readonly indexes: readonly { readonly statement: string }[];
}

/** The button with their number, and the list. */
export function SuggestedRelations(): JSX.Element | null {
  const [found, setFound] = useState<Suggestions | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [open, setOpen] = useState(false);
  const [busy, setBusy] = useState(false);
  const known = model.value;
  useEffect(() => {
    call<Suggestions>('GET', '/schema/suggestions').then(
      ({ data }) => setFound(data),
      (failure: unknown) => setError(messageOf(failure)),
    );
  }, [known]);
  const add = async (relations: readonly Suggestion[]): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      const names = relations.map(({ collection, field }) => ({ collection, field }));
      await call('POST', '/schema/suggestions', { body: { relations: names } });
      await reloadModel();
      toast(relations.length === 1 ? 'One relation was added' : `${relations.length} relations were added`);
    } catch (failure) {
      setError(messageOf(failure));
    }
    setBusy(false);
  };
  const relations = found?.relations ?? [];
  if (!open && relations.length === 0 && !error) return null;
  return (
    <>
      <Button label="Suggested relations" icon="link" count={relations.length} onClick={() => setOpen(true)} />
      {open && (
        <Dialog
          title="Suggested relations"
          kind="side"
          onClose={() => setOpen(false)}
          footer={
            <>
              <Button label="Close" onClick={() => setOpen(false)} />
              {relations.length > 0 && (
                <Button
                  label={`Add all ${relations.length}`}
                  kind="primary"
                  disabled={busy}
                  onClick={() => void add(relations)}
                />
              )}
            </>
          }
        >
          {error && <ErrorBox text={error} />}
          {relations.length === 0 ? (
            <Empty title="Every foreign key has a list" icon="check" />
          ) : (
            <p class="quiet">
              A foreign key leads from an item to its parent. These fields lead in the other direction. Tables stay
              unchanged.
            </p>
          )}
          <ul class="suggestions">
            {relations.map((each) => (
              <li key={JSON.stringify([each.collection, each.field])}>
                <div>
                  <strong>
                    {each.collection}.{each.field}
                  </strong>
                  <small>{inWords(each)}</small>
                </div>
                <Button
                  label={`Add ${each.collection}.${each.field}`}
                  icon="plus"
                  compact
                  disabled={busy}
                  onClick={() => void add([each])}
                />
              </li>
            ))}
          </ul>
          {found && found.indexes.length > 0 && (
            <section class="missing-indexes" aria-label="Foreign keys without an index">
              <header>
                <h3>Foreign keys without an index</h3>
                <Button
                  label="Copy"
                  icon="copy"
                  kind="quiet"
                  onClick={() => void copyText(found.indexes.map(({ statement }) => statement).join('\n'))}
                />
              </header>
              <p class="quiet">
                They slow down lists and deletions. Run these statements in the database to create the indexes:
              </p>
              <pre class="output" tabIndex={0} role="region" aria-label="Statements">
                {found.indexes.map(({ statement }) => statement).join('\n')}
              </pre>
            </section>
          )}
        </Dialog>
      )}
    </>
  );
}

function inWords(each: Suggestion): string {
  const { kind, related_collection: to, many_collection: many, many_field: by } = each;
  if (kind === 'many-to-many') return `many-to-many: ${to}, through ${many}`;
  return kind === 'one-to-one' ? `one-to-one: ${many}, by its ${by}` : `list of ${many}, by their ${by}`;
}
