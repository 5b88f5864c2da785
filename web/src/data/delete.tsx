/** Asks before items are deleted. */
import type { JSX } from 'preact';
import type { Collection } from '../model';
import { Button, Dialog } from '../ui';
import { type Key, keyColumns } from './edits';

const MOST_SHOWN = 10;

interface DeleteProps {
  readonly collection: Collection;
  readonly keys: readonly Key[];
  readonly onClose: () => void;
  readonly onDelete: () => void;
}

export function DeleteDialog({ collection, keys, onClose, onDelete }: DeleteProps): JSX.Element {
  const isOne = keys.length === 1;
  const shown = keys.slice(0, MOST_SHOWN).map((key) => Object.values(keyColumns(key, collection.keys)).join('~'));
  return (
    <Dialog
      title={isOne ? 'Delete this item?' : `Delete ${keys.length} items?`}
      onClose={onClose}
      footer={
        <>
          <Button label="Cancel" onClick={onClose} />
          <Button label="Delete" kind="danger" onClick={onDelete} />
        </>
      }
    >
      <p>
        {isOne ? 'The item' : 'The items'} with the key {shown.join(', ')}
        {keys.length > MOST_SHOWN && ` and ${keys.length - MOST_SHOWN} more`} of <strong>{collection.name}</strong>{' '}
        cannot be restored.
      </p>
    </Dialog>
  );
}
