/** One chart of a board: it reads with the permissions of the viewer, once or live. */
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { call, itemsPath, messageOf } from '../api';
import { subscribe } from '../live';
import { viewAs } from '../state';
import { Button, ErrorBox } from '../ui';
import type { Drawn } from './boards';
import { Chart, ValuesTable } from './chart';
import { type ChartData, chartData } from './chart-data';

type Rows = readonly Readonly<Record<string, unknown>>[];

interface Read {
  readonly data: ChartData | null;
  readonly error: string | null;
  /** Whether it is updated with every change. */
  readonly isLive: boolean;
}

const NOTHING: Read = { data: null, error: null, isLive: false };

/** The values of a chart. Another `turn` reads them again. */
function useValues({ collection, query, live }: Drawn, turn: number): Read {
  const [read, setRead] = useState<Read>(NOTHING);
  const json = JSON.stringify(query);
  // Live queries have no View as.
  const isLive = live && !viewAs.value;
  useEffect(() => {
    const path = itemsPath(collection);
    const request = new AbortController();
    const show = (rows: Rows): void => setRead({ data: chartData(rows, query), error: null, isLive });
    const fail = (message: string): void => {
      if (!request.signal.aborted) setRead((before) => ({ data: before.data, error: message, isLive: false }));
    };
    if (isLive)
      return subscribe(
        path,
        { query },
        { onAnswer: (text) => show((JSON.parse(text) as { data: Rows }).data), onFailed: fail },
      );
    call<Rows>('SEARCH', path, { body: { query }, signal: request.signal }).then(
      ({ data }) => show(data),
      (failure: unknown) => fail(messageOf(failure)),
    );
    return () => request.abort();
  }, [collection, json, isLive, turn]);
  return read;
}

interface PanelViewProps {
  readonly drawn: Drawn;
  readonly turn: number;
  /** Buttons next to the title. */
  readonly more?: ComponentChildren;
}

export function PanelView({ drawn, turn, more }: PanelViewProps): JSX.Element {
  const { data, error, isLive } = useValues(drawn, turn);
  const [isTable, setTable] = useState(false);
  return (
    <>
      <header>
        <h2 title={drawn.title}>{drawn.title}</h2>
        {isLive && data && <span class="tag live">live</span>}
        <Button
          label={isTable ? `Chart of ${drawn.title}` : `Values of ${drawn.title}`}
          icon={isTable ? 'pulse' : 'table'}
          kind="quiet"
          compact
          onClick={() => setTable(!isTable)}
        />
        {more}
      </header>
      {error && <ErrorBox text={error} />}
      {!data && !error && <p class="quiet board-wait">Reading…</p>}
      {data &&
        (isTable ? (
          <ValuesTable title={drawn.title} data={data} />
        ) : (
          <Chart title={drawn.title} kind={drawn.kind} data={data} />
        ))}
    </>
  );
}
