/** Budgets of statements: the time that 99 of 100 of them should take at most. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { pretty } from '../../../src/compiler/sql/pretty';
import { call, messageOf } from '../api';
import { type Shape, summaries } from '../pulse/summary';
import { useShapes } from '../pulse/use-shapes';
import { SqlText } from '../query/sql-text';
import { TextField } from '../schema/form';
import { toast } from '../state';
import { Button, ErrorBox, FormDialog } from '../ui';
import { shownMs, Table } from './parts';

export function BudgetsTab(): JSX.Element {
  const [open, setOpen] = useState<Shape | null>(null);
  const [turn, setTurn] = useState(0);
  const [shapes, error] = useShapes(300, turn);
  const sorted = [...(shapes ?? [])].sort((one, other) => rank(other) - rank(one) || other.total - one.total);
  const names = summaries(sorted);
  const exceeded = sorted.filter((shape) => shape.exceeded).length;
  return (
    <section class="capacity-card" aria-label="Budgets">
      <header class="row">
        <h2>Budgets of statements</h2>
        <span class="grow" />
        {shapes && (
          <span class={exceeded > 0 ? 'bad' : 'good'} role="status">
            {exceeded === 0 ? 'No budget is exceeded' : `Exceeded: ${exceeded}`}
          </span>
        )}
      </header>
      <p class="quiet">
        A budget is the time that 99 of 100 statements of a shape should take at most. The statements of the last five
        minutes are listed. The metric lateral_shape_budget_exceeded_total counts slower ones.
      </p>
      {error && <ErrorBox text={error} />}
      {shapes?.length === 0 && <p class="quiet">No statements in the last five minutes.</p>}
      {sorted.length > 0 && (
        <Table
          label="Statements and their budgets"
          head={['Statement', 'Calls', 'Mean ms', 'p99 ms', 'Budget ms', 'State', 'Change']}
          rows={sorted.slice(0, 100).map((shape, at) => [
            <code key="name" title={shape.text.slice(0, 500)}>
              {names[at]}
            </code>,
            shownMs(shape.calls),
            shownMs(shape.mean),
            shownMs(shape.p99),
            shape.budget === null ? '–' : shownMs(shape.budget),
            <State key="state" shape={shape} />,
            <Button
              key="set"
              label={`${shape.budget === null ? 'Set' : 'Change'} the budget of ${names[at]}`}
              icon="edit"
              kind="quiet"
              compact
              onClick={() => setOpen(shape)}
            />,
          ])}
        />
      )}
      {open && (
        <BudgetForm
          shape={open}
          onClose={() => setOpen(null)}
          onSaved={() => {
            setOpen(null);
            setTurn(turn + 1);
          }}
        />
      )}
    </section>
  );
}

function rank({ budget, exceeded }: Shape): number {
  return exceeded ? 2 : budget === null ? 0 : 1;
}

function State({ shape }: { readonly shape: Shape }): JSX.Element {
  if (shape.budget === null) return <span class="quiet">no budget</span>;
  return <span class={`tag ${shape.exceeded ? 'warm' : 'live'}`}>{shape.exceeded ? 'exceeded' : 'kept'}</span>;
}

interface BudgetFormProps {
  readonly shape: Shape;
  readonly onClose: () => void;
  readonly onSaved: () => void;
}

const FIRST_BUDGET = '20';

function BudgetForm({ shape, onClose, onSaved }: BudgetFormProps): JSX.Element {
  const [text, setText] = useState(shape.budget === null ? FIRST_BUDGET : String(shape.budget));
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const save = async (): Promise<void> => {
    setBusy(true);
    const budget = text.trim() === '' ? null : Number(text);
    try {
      await call('PATCH', `/server/shapes/${shape.digest}`, { body: { budget } });
      toast(budget === null ? 'Budget removed' : 'Budget saved');
      onSaved();
    } catch (failure) {
      setError(messageOf(failure));
      setBusy(false);
    }
  };
  return (
    <FormDialog
      title="Budget of a statement"
      kind="side"
      submit="Save"
      disabled={busy || Number.isNaN(Number(text))}
      onClose={onClose}
      onSubmit={() => void save()}
    >
      {error && <ErrorBox text={error} />}
      <TextField
        label="p99 in milliseconds"
        value={text}
        note={`Currently ${shownMs(shape.p99)} ms. Leave it empty to remove the budget.`}
        onInput={setText}
      />
      <div class="capacity-sql">
        <SqlText text={pretty(shape.text)} />
      </div>
    </FormDialog>
  );
}
