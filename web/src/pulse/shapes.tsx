/** The statements with the largest total time in the last five minutes; each opens with its SQL and its plan. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { pretty } from '../../../src/compiler/sql/pretty';
import { call, messageOf } from '../api';
import { type PlanJson, readPlan, slowest } from '../plan/plan';
import { PlanTree } from '../plan/tree';
import '../query/query.css';
import { SqlText } from '../query/sql-text';
import { Button, copyText, countOf, Dialog, ErrorBox } from '../ui';
import { type Shape, summaries } from './summary';
import { useShapes } from './use-shapes';

const COLUMNS = [
  ['calls', 'Calls'],
  ['statements', 'Statements'],
  ['hits', 'From memory'],
  ['total', 'Total ms'],
  ['mean', 'Mean ms'],
  ['p99', 'p99 ms'],
  ['rows', 'Rows'],
] as const;

type Column = (typeof COLUMNS)[number][0];

export function Shapes(): JSX.Element {
  const [shapes, error] = useShapes(100);
  const [by, setBy] = useState<Column>('total');
  const [open, setOpen] = useState<Shape | null>(null);
  if (error) return <ErrorBox text={error} />;
  if (!shapes) return <p class="quiet">Reading…</p>;
  if (shapes.length === 0) return <p class="quiet">No statements in the last five minutes.</p>;
  const sorted = [...shapes].sort((one, other) => (other[by] ?? 0) - (one[by] ?? 0)).slice(0, 20);
  const names = summaries(sorted);
  return (
    <div class="pulse-table" tabIndex={0} role="region" aria-label="Slowest statements">
      <table>
        <thead>
          <tr>
            <th scope="col">Statement</th>
            {COLUMNS.map(([name, title]) => (
              <th key={name} scope="col" aria-sort={by === name ? 'descending' : undefined}>
                <button type="button" class="sort" onClick={() => setBy(name)}>
                  {title}
                  {by === name && ' ↓'}
                </button>
              </th>
            ))}
            <th scope="col">Plan</th>
          </tr>
        </thead>
        <tbody>
          {sorted.map((shape, at) => (
            <tr key={shape.id}>
              <td>
                <button type="button" class="statement" onClick={() => setOpen(shape)}>
                  <code>{names[at]}</code>
                </button>
              </td>
              {COLUMNS.map(([name]) => (
                <td key={name}>{shown(shape[name])}</td>
              ))}
              <td>{shape.plan}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {open && <ShapeDialog shape={open} onClose={() => setOpen(null)} />}
    </div>
  );
}

function ShapeDialog({ shape, onClose }: { readonly shape: Shape; readonly onClose: () => void }): JSX.Element {
  const [plan, setPlan] = useState<PlanJson | null>(null);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    call<{ explain: { Plan: PlanJson }[] }>('GET', `/server/shapes/${encodeURIComponent(shape.id)}`).then(
      ({ data }) => setPlan(data.explain[0]?.Plan ?? null),
      (failure: unknown) => setError(messageOf(failure)),
    );
  }, [shape.id]);
  const sql = pretty(shape.text);
  const root = plan && readPlan(plan);
  return (
    <Dialog
      title="Statement"
      kind="side"
      onClose={onClose}
      footer={<Button label="Copy SQL" icon="copy" onClick={() => void copyText(sql)} />}
    >
      <p class="quiet">
        {countOf(shape.calls, 'call')} in {countOf(shape.statements, 'statement')}
        {shape.failed > 0 && `, ${shown(shape.failed)} of them failed`}; the plan is {shape.plan}.
      </p>
      <SqlText text={sql} />
      <h3>Generic plan</h3>
      {error && <ErrorBox text={error} />}
      {root ? (
        <div tabIndex={0} role="group" aria-label="Plan">
          <PlanTree node={root} worst={slowest(root)} whole={root.cost} />
        </div>
      ) : (
        !error && <p class="quiet">Asking…</p>
      )}
    </Dialog>
  );
}

function shown(value: number | null): string {
  if (value === null) return '–';
  return value.toLocaleString('en', { maximumFractionDigits: value < 10 ? 2 : value < 100 ? 1 : 0 });
}
