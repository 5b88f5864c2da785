/** The name and the note of a board, and the confirmation of deletions. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { messageOf } from '../api';
import { TextField } from '../schema/form';
import { toast } from '../state';
import { ErrorBox, FormDialog } from '../ui';
import { createBoard, renameBoard } from './boards';

interface BoardFormProps {
  /** The board, or null if it is new. */
  readonly board: { readonly id: string; readonly name: string; readonly note: string | null } | null;
  readonly onClose: () => void;
  readonly onSaved: (id: string) => void;
}

export function BoardForm({ board, onClose, onSaved }: BoardFormProps): JSX.Element {
  const [name, setName] = useState(board?.name ?? '');
  const [note, setNote] = useState(board?.note ?? '');
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const save = async (): Promise<void> => {
    setBusy(true);
    try {
      if (board) await renameBoard(board.id, name.trim(), note.trim());
      onSaved(board ? board.id : await createBoard(name.trim(), note.trim()));
    } catch (failure) {
      setError(messageOf(failure));
      setBusy(false);
    }
  };
  return (
    <FormDialog
      title={board ? 'Rename the board' : 'New board'}
      submit={board ? 'Save' : 'Create'}
      disabled={busy || name.trim() === ''}
      onClose={onClose}
      onSubmit={() => void save()}
    >
      {error && <ErrorBox text={error} />}
      <TextField label="Name" value={name} onInput={setName} />
      <TextField label="Note" value={note} onInput={setNote} note="Shown next to the name" />
    </FormDialog>
  );
}

interface DeleteDialogProps {
  readonly title: string;
  readonly text: string;
  readonly onClose: () => void;
  readonly onDelete: () => Promise<void>;
}

export function DeleteDialog({ title, text, onClose, onDelete }: DeleteDialogProps): JSX.Element {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const run = async (): Promise<void> => {
    setBusy(true);
    try {
      await onDelete();
      toast('Deleted');
    } catch (failure) {
      setError(messageOf(failure));
      setBusy(false);
    }
  };
  return (
    <FormDialog
      title={title}
      submit="Delete"
      icon="trash"
      danger
      disabled={busy}
      onClose={onClose}
      onSubmit={() => void run()}
    >
      {error && <ErrorBox text={error} />}
      <p>{text}</p>
    </FormDialog>
  );
}
