/** The bar above unsaved changes, and the keys that save, undo and redo. */
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { Button } from '../ui';
import type { Edits } from './edits';

/** Ctrl-S saves. Ctrl-Z undoes, Ctrl-Shift-Z and Ctrl-Y redo; inside a text they belong to the browser. */
export function useEditKeys(edits: Edits | null, save: () => void): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
      const key = event.key.toLowerCase();
      const isTyping = event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement;
      if (key === 's') {
        event.preventDefault();
        applyTyped(save);
      } else if ((key === 'z' || key === 'y') && !isTyping) {
        event.preventDefault();
        if (key === 'y' || event.shiftKey) edits?.redo();
        else edits?.undo();
      }
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  });
}

/** A typed text applies when its input loses the focus. The focus stays, so that the keys continue to work after saving. */
function applyTyped(then: () => void): void {
  const focused = document.activeElement as HTMLElement | null;
  focused?.blur();
  setTimeout(() => {
    if (document.activeElement === document.body && focused?.isConnected) focused.focus();
    then();
  });
}

interface PendingProps {
  readonly edits: Edits | null;
  readonly saving: boolean;
  /** Values that must be corrected before the changes can be saved. */
  readonly wrong?: number;
  /** The label of the button that saves. */
  readonly submit?: string;
  readonly onSave: () => void;
  readonly onDiscard?: () => void;
}

export function PendingBar(props: PendingProps): JSX.Element | null {
  const { edits, saving, wrong = 0, submit = 'Save', onSave, onDiscard } = props;
  const changed = edits?.count ?? 0;
  const refused = [...(edits?.errors.value.values() ?? [])];
  if (changed === 0 && wrong === 0 && !edits?.mayRedo) return null;
  return (
    <div class="pending" role="region" aria-label="Pending">
      {changed > 0 && <strong>{changed === 1 ? 'One change' : `${changed} changes`} not saved</strong>}
      {wrong > 0 && <strong class="bad">{wrong === 1 ? 'One value is' : `${wrong} values are`} wrong</strong>}
      {refused.length > 0 && (
        <span class="bad pending-refused" role="alert" title={refused.join('\n')}>
          {refused[0]}
          {refused.length > 1 && ` (and ${refused.length - 1} more)`}
        </span>
      )}
      <Button label="Undo" icon="undo" hint="Ctrl Z" disabled={!edits?.mayUndo} onClick={() => edits?.undo()} />
      <Button label="Redo" icon="redo" hint="Ctrl Shift Z" disabled={!edits?.mayRedo} onClick={() => edits?.redo()} />
      {(changed > 0 || wrong > 0) && (
        <>
          <Button
            label="Discard"
            onClick={() => {
              edits?.clear();
              onDiscard?.();
            }}
          />
          <Button
            label={saving ? 'Saving…' : submit}
            icon="check"
            kind="primary"
            hint="Ctrl S"
            disabled={saving || wrong > 0}
            onClick={onSave}
          />
        </>
      )}
    </div>
  );
}
