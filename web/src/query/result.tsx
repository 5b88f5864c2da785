/** The result of a query: rows or JSON, and its cost. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Answer } from '../api';
import { Chart } from '../boards/chart';
import { chartData, isChartable } from '../boards/chart-data';
import { drawnOf } from '../boards/panel-form';
import type { Row } from '../data/edits';
import { countOf } from '../ui';
import { type Query, toQueryJson } from './query';

const MOST_ROWS = 200;
const MOST_TEXT = 200_000;

/** For a live result: the number of changes, and the time of the last one. */
export interface Updates {
  readonly count: number;
  readonly at: Date;
}

interface ResultProps {
  readonly query: Query;
  readonly answer: Answer<unknown>;
  readonly rows: readonly Row[];
  /** The live updates, or null if the result is not live. */
  readonly updates: Updates | null;
}

const WAYS = { rows: 'Rows', json: 'JSON', chart: 'Chart' } as const;

type Way = keyof typeof WAYS;

export function ResultView({ query, answer, rows, updates }: ResultProps): JSX.Element {
  const [chosen, setWay] = useState<Way>('rows');
  const json = toQueryJson(query);
  const ways: readonly Way[] = isChartable(json) ? ['rows', 'json', 'chart'] : ['rows', 'json'];
  const way = ways.includes(chosen) ? chosen : 'rows';
  const server = answer.timing.reduce((sum, stage) => sum + stage.milliseconds, 0);
  return (
    <section class="result" aria-label="Result">
      <header>
        <div class="tabs" role="tablist">
          {ways.map((each) => (
            <button key={each} type="button" role="tab" aria-selected={way === each} onClick={() => setWay(each)}>
              {WAYS[each]}
            </button>
          ))}
        </div>
        <dl class="facts">
          <Fact name="rows" value={String(rows.length)} />
          {updates && (
            <Fact name="live" value={`changed ${countOf(updates.count, 'time')}, read at ${clock(updates.at)}`} />
          )}
          {!updates && <Fact name="statements" value="1" />}
          {!updates && <Fact name="sent" value={answer.batch > 1 ? `in a batch of ${answer.batch}` : 'alone'} />}
          <Fact name="bytes" value={new TextEncoder().encode(answer.text).length.toLocaleString('en')} />
          {!updates && <Fact name="in all" value={`${answer.milliseconds.toFixed(1)} ms`} />}
          {answer.timing.length > 0 && <Fact name="in the service" value={`${server.toFixed(1)} ms`} />}
        </dl>
      </header>
      {answer.timing.length > 0 && (
        <div
          class="stages"
          role="img"
          aria-label={answer.timing.map((each) => `${each.name} ${each.milliseconds} ms`).join(', ')}
        >
          <div class="stages-bar">
            {answer.timing.map(({ name, milliseconds }) => (
              <span key={name} class={`stage ${name}`} style={{ flexGrow: milliseconds / Math.max(server, 0.001) }} />
            ))}
          </div>
          <div class="stages-names">
            {answer.timing.map(({ name, milliseconds }) => (
              <small key={name}>
                <span class={`stage ${name}`} /> {name} {milliseconds.toFixed(milliseconds < 10 ? 2 : 0)}
              </small>
            ))}
          </div>
        </div>
      )}
      {way === 'rows' && <Rows rows={rows} />}
      {way === 'json' && <Json text={answer.text} />}
      {way === 'chart' && (
        <div class="result-chart">
          <Chart title={query.collection} kind={drawnOf(query).kind} data={chartData(rows, json)} />
        </div>
      )}
    </section>
  );
}

function clock(at: Date): string {
  return at.toLocaleTimeString('en-GB');
}

function Fact({ name, value }: { readonly name: string; readonly value: string }): JSX.Element {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function Rows({ rows }: { readonly rows: readonly Row[] }): JSX.Element {
  const columns = [...new Set(rows.slice(0, 50).flatMap((row) => Object.keys(row)))];
  if (rows.length === 0) return <p class="quiet result-none">No rows.</p>;
  return (
    <div class="result-table" tabIndex={0} role="region" aria-label="Rows">
      <table>
        <thead>
          <tr>
            {columns.map((name) => (
              <th key={name} scope="col" class={typeof rows[0]?.[name] === 'number' ? 'number' : ''}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, MOST_ROWS).map((row, at) => (
            <tr key={at}>
              {columns.map((name) => (
                <td key={name} class={typeof row[name] === 'number' ? 'number' : ''}>
                  {cellText(row[name])}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > MOST_ROWS && (
        <p class="quiet">
          The first {MOST_ROWS} of {rows.length} rows are shown.
        </p>
      )}
    </div>
  );
}

function cellText(value: unknown): JSX.Element | string {
  if (value === null || value === undefined) return <span class="null">null</span>;
  if (typeof value !== 'object') return String(value);
  const inner = Object.values(value);
  // A related item shows the few fields that were read.
  if (!Array.isArray(value) && inner.length < 4 && inner.every((each) => typeof each !== 'object'))
    return inner.join(' · ');
  return <code>{JSON.stringify(value)}</code>;
}

function Json({ text }: { readonly text: string }): JSX.Element {
  const isLong = text.length > MOST_TEXT;
  const shown = isLong ? text.slice(0, MOST_TEXT) : JSON.stringify(JSON.parse(text), null, 2);
  return (
    <>
      <pre tabIndex={0} role="region" aria-label="JSON" class="result-json">
        {shown}
      </pre>
      {isLong && (
        <p class="quiet">
          The first {MOST_TEXT} of {text.length} characters are shown.
        </p>
      )}
    </>
  );
}
