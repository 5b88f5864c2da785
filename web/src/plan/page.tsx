/** Plan: how PostgreSQL executed the query, and hints about it. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { messageOf } from '../api';
import type { Model } from '../model';
import '../query/query.css';
import { toUrl } from '../query/rest';
import { addressOf, currentQuery, explain } from '../query/session';
import { go, model as modelSignal } from '../state';
import { Button, copyText, Empty, ErrorBox } from '../ui';
import { type Explanation, goodNews, hintsFor, planningNote, readPlan, slowest } from './plan';
import { PlanTree } from './tree';

export function PlanPage(): JSX.Element {
  const model = modelSignal.value as Model;
  const query = currentQuery(model);
  const [explanation, setExplanation] = useState<Explanation | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [turn, setTurn] = useState(0);
  const address = query ? addressOf(query, 'plan') : '';
  useEffect(() => {
    if (!query) return;
    const request = new AbortController();
    setError(null);
    explain(query, true, request.signal).then(setExplanation, (failure: unknown) => {
      if (!request.signal.aborted) setError(messageOf(failure));
    });
    return () => request.abort();
  }, [address, turn]);
  if (!query) return <Empty title="There is no query yet" />;
  const root = explanation && readPlan(explanation.plan[0].Plan);
  const hints = root ? hintsFor(root, model, explanation.indexes) : [];
  return (
    <div class="plan-page">
      <header class="toolbar">
        <h1>Plan</h1>
        <code class="plan-question" title={toUrl(query)}>
          {toUrl(query)}
        </code>
        <span class="grow" />
        <Button label="Edit the query" icon="edit" onClick={() => go(addressOf(query))} />
        <Button label="Run again" icon="play" kind="primary" onClick={() => setTurn(turn + 1)} />
      </header>
      {error && <ErrorBox text={error} />}
      {!root && !error && <p class="boot">Running…</p>}
      {root && explanation && (
        <div class="plan-body">
          <dl class="facts">
            <div>
              <dt>execution</dt>
              <dd>{explanation.plan[0]['Execution Time']?.toFixed(2)} ms</dd>
            </div>
            <div>
              <dt>planning</dt>
              <dd>{explanation.plan[0]['Planning Time']?.toFixed(2)} ms</dd>
            </div>
            <div>
              <dt>cost</dt>
              <dd>{root.cost.toLocaleString('en')}</dd>
            </div>
          </dl>
          <section aria-label="Hints" class="hints">
            <h2>{hints.length === 0 ? 'No problems found' : 'Findings'}</h2>
            {hints.length === 0 && <p class="quiet">{goodNews(root)}</p>}
            {hints.map((hint) => (
              <div class="hint" key={hint.text}>
                <p>{hint.text}</p>
                {hint.sql && (
                  <div class="row">
                    <code>{hint.sql}</code>
                    <Button
                      label="Copy the statement"
                      icon="copy"
                      kind="quiet"
                      compact
                      onClick={() => void copyText(hint.sql ?? '')}
                    />
                  </div>
                )}
              </div>
            ))}
            {planningNote(explanation) && <p class="quiet">{planningNote(explanation)}</p>}
          </section>
          <PlanTree node={root} worst={slowest(root)} whole={root.total ?? root.cost} />
        </div>
      )}
    </div>
  );
}
