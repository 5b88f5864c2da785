/** A form whose change is reviewed before it runs: "Review" executes it as a dry run and shows its SQL. */
import type { ComponentChildren, JSX } from 'preact';
import { useState } from 'preact/hooks';
import { call, messageOf } from '../api';
import { reloadModel, toast } from '../state';
import { Button, Dialog, ErrorBox } from '../ui';
import { type Executed, Statements } from './review';

interface ReviewedProps {
  readonly title: string;
  /** The request that makes the change. */
  readonly path: string;
  readonly body: unknown;
  readonly isIncomplete: boolean;
  readonly createLabel: string;
  readonly done: string;
  readonly onClose: () => void;
  /** Shown above the SQL. */
  readonly summary?: ComponentChildren;
  /** The inputs. */
  readonly children: ComponentChildren;
}

export function ReviewedForm(props: ReviewedProps): JSX.Element {
  const { path, body, isIncomplete, onClose } = props;
  const [statements, setStatements] = useState<readonly Executed[] | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const run = async (send: () => Promise<void>): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      await send();
    } catch (failure) {
      setError(messageOf(failure));
    }
    setBusy(false);
  };
  const review = (): Promise<void> =>
    run(async () => {
      const { data } = await call<{ statements: Executed[] }>('POST', `${path}?dry_run=true`, { body });
      setStatements(data.statements);
    });
  const create = (): Promise<void> =>
    run(async () => {
      await call('POST', path, { body });
      await reloadModel();
      toast(props.done);
      onClose();
    });
  return (
    <Dialog
      title={props.title}
      isForm
      onClose={onClose}
      footer={
        statements ? (
          <>
            <Button key="back" label="Back" disabled={busy} onClick={() => setStatements(null)} />
            <Button
              key="create"
              label={props.createLabel}
              kind="primary"
              disabled={busy}
              // The second click of a double click on "Review" creates nothing.
              onClick={({ detail }) => detail < 2 && void create()}
            />
          </>
        ) : (
          <>
            <Button key="cancel" label="Cancel" onClick={onClose} />
            <Button
              key="review"
              label="Review"
              kind="primary"
              disabled={busy || isIncomplete}
              onClick={() => void review()}
            />
          </>
        )
      }
    >
      {error && <ErrorBox text={error} />}
      {statements ? (
        <div class="review">
          {props.summary}
          <Statements statements={statements} />
        </div>
      ) : (
        <form
          class="form"
          onSubmit={(event) => {
            event.preventDefault();
            if (!busy && !isIncomplete) void review();
          }}
        >
          {props.children}
          <button type="submit" hidden />
        </form>
      )}
    </Dialog>
  );
}
