/** A new item with the inputs of the record page. The items of its lists are created by the same request. */
import type { JSX } from 'preact';
import { useMemo, useRef, useState } from 'preact/hooks';
import { call, itemsPath, messageOf } from '../../api';
import type { Collection, Model } from '../../model';
import { go, toast } from '../../state';
import { Button, ErrorBox } from '../../ui';
import { forgetCounts } from '../collections';
import { type Edits, editsOf, type Row } from '../edits';
import { isRequired, placeError } from '../form';
import { useEditKeys } from '../pending';
import { attemptOf, forgetAttempt } from '../save';
import { addressOfList, BackLink } from './address';
import { RecordFields } from './fields';
import './record.css';

const NEW_ITEM = 'new';
const NOTHING: Row = {};

interface NewProps {
  readonly collection: Collection;
  readonly model: Model;
  readonly onList: () => void;
}

export function NewRecord({ collection, model, onList }: NewProps): JSX.Element {
  // The entered values stay while the user visits other pages.
  const edits = useMemo(() => editsOf(`${collection.name} new`, []), [collection]);
  const [wrong, setWrong] = useState<Readonly<Record<string, string>>>({});
  const [errors, setErrors] = useState<Readonly<Record<string, string>>>({});
  const [failure, setFailure] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  // A second click may arrive before the button is disabled.
  const isSent = useRef(false);
  const create = async (): Promise<void> => {
    if (isSent.current || Object.keys(wrong).length > 0) return;
    isSent.current = true;
    setBusy(true);
    setFailure(null);
    const body = edits.payload()[0] ?? {};
    try {
      await call('POST', itemsPath(collection.name), { body, headers: attemptOf(edits, body) });
      toast('Item created');
      forgetAttempt(edits);
      forgetCounts(collection.name);
      leave(edits, collection);
    } catch (error) {
      const found = placeError(error, [...collection.fields.values()], collection, body);
      setErrors(found ?? {});
      if (!found) setFailure(messageOf(error));
      setBusy(false);
      isSent.current = false;
    }
  };
  useEditKeys(edits, () => void create());
  const needed = [...collection.fields.values()].filter((field) => isRequired(field, collection));
  return (
    <>
      <header class="toolbar record-bar">
        <Button label="Collections" icon="menu" kind="quiet" compact onClick={onList} />
        <BackLink collection={collection.name} />
        <h1>New item</h1>
        <span class="grow" />
        <Button label="Cancel" onClick={() => leave(edits, collection)} />
        <Button
          label={busy ? 'Creating…' : 'Create'}
          icon="check"
          kind="primary"
          hint="Ctrl S"
          disabled={busy || Object.keys(wrong).length > 0}
          onClick={() => void create()}
        />
      </header>
      <form
        class="record-body"
        aria-label={`New item in ${collection.name}`}
        onSubmit={(event) => {
          event.preventDefault();
          // The form of a nested item is inside this one.
          if (event.target === event.currentTarget) void create();
        }}
      >
        {failure && <ErrorBox text={failure} />}
        {needed.length > 0 && <p class="quiet">Fields with a star are required. The database fills empty fields.</p>}
        <RecordFields
          collection={collection}
          model={model}
          row={NOTHING}
          path={[NEW_ITEM]}
          edits={edits}
          isNew
          wrong={{ ...remaining(errors, edits), ...wrong }}
          onWrong={(next) => {
            // Errors of the service stay until their field changes.
            setWrong(Object.fromEntries(Object.entries(next).filter(([name, text]) => errors[name] !== text)));
            setErrors(Object.fromEntries(Object.entries(errors).filter(([name]) => name in next)));
          }}
          reloads={0}
        />
        <button type="submit" hidden />
      </form>
    </>
  );
}

function leave(edits: Edits, { name }: Collection): void {
  edits.clear();
  go(addressOfList(name));
}

/** A missing value that was entered since is no longer missing. */
function remaining(errors: Readonly<Record<string, string>>, edits: Edits): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(errors).filter(([name, text]) => text !== 'is required' || !edits.find([NEW_ITEM], name)),
  );
}
