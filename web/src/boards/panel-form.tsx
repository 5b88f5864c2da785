/** The form of a chart: what it counts, how it is drawn, and on which board it is. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { messageOf } from '../api';
import { FilterDraft } from '../filter/editor';
import type { Model } from '../model';
import { Groups } from '../query/builder';
import '../query/query.css';
import { EMPTY, fromQueryJson, type Query, toQueryJson } from '../query/query';
import { Check, Choice, TextField } from '../schema/form';
import { model as modelSignal, toast } from '../state';
import { ErrorBox, FormDialog } from '../ui';
import { addPanel, type BoardEntry, changePanel, createBoard, type Drawn, HEIGHTS, listBoards, WIDTHS } from './boards';
import { type ChartKind, isChartable } from './chart-data';
import { PanelView } from './panel';

const KINDS: readonly (readonly [ChartKind, string])[] = [
  ['bar', 'bars'],
  ['line', 'line'],
  ['number', 'number'],
];

/** A new chart: the number of items. */
export function firstDrawn(collection: string): Drawn {
  return {
    title: '',
    kind: 'number',
    collection,
    query: { aggregate: { count: ['*'] } },
    live: false,
    width: 4,
    height: 6,
  };
}

/** The chart of a query. Values over time are a line, groups are bars, and one value is a number. */
export function drawnOf(query: Query): Drawn {
  const isTime = query.groupBy.some((group) => /^(year|month|week|day|hour)\(/.test(group));
  const kind = query.groupBy.length === 0 ? 'number' : isTime ? 'line' : 'bar';
  return { ...firstDrawn(query.collection), kind, query: toQueryJson(query), width: kind === 'number' ? 3 : 6 };
}

interface PanelFormProps {
  readonly drawn: Drawn;
  /** The chart to change, or null for a new one. */
  readonly panel: string | null;
  /** The board of a new chart, or null to choose one. */
  readonly board: string | null;
  readonly onClose: () => void;
  readonly onSaved: (board: string | null) => void;
}

const NEW_BOARD = '';

export function PanelForm({ drawn: given, panel, board, onClose, onSaved }: PanelFormProps): JSX.Element {
  const model = modelSignal.value as Model;
  const [drawn, setDrawn] = useState(given);
  const [boards, setBoards] = useState<readonly BoardEntry[]>([]);
  const [chosen, setChosen] = useState(board ?? NEW_BOARD);
  const [boardName, setBoardName] = useState('');
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const asksBoard = panel === null && board === null;
  useEffect(() => {
    if (!asksBoard) return;
    listBoards().then(
      (found) => {
        setBoards(found);
        setChosen(found[0]?.id ?? NEW_BOARD);
      },
      (failure: unknown) => setError(messageOf(failure)),
    );
  }, []);
  const save = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      const named = { ...drawn, title: drawn.title.trim() === '' ? titleOf(drawn) : drawn.title.trim() };
      const target = chosen === NEW_BOARD && asksBoard ? await createBoard(boardName.trim(), '') : chosen;
      await (panel === null ? addPanel(target, named) : changePanel(panel, named));
      toast(panel === null ? 'Chart added' : 'Chart saved');
      onSaved(target);
    } catch (failure) {
      setError(messageOf(failure));
      setBusy(false);
    }
  };
  const isReady = isChartable(drawn.query) && (!asksBoard || chosen !== NEW_BOARD || boardName.trim() !== '');
  return (
    <FormDialog
      title={panel === null ? 'Add a chart' : 'Edit the chart'}
      kind="side"
      submit={panel === null ? 'Add to board' : 'Save'}
      disabled={busy || !isReady}
      onClose={onClose}
      onSubmit={() => void save()}
    >
      {error && <ErrorBox text={error} />}
      {asksBoard && (
        <Choice
          label="Board"
          value={chosen}
          among={[...boards.map(({ id, name }) => [id, name] as const), [NEW_BOARD, 'a new board …']]}
          onInput={setChosen}
        />
      )}
      {asksBoard && chosen === NEW_BOARD && (
        <TextField label="Name of the new board" value={boardName} onInput={setBoardName} />
      )}
      <TextField
        label="Title"
        value={drawn.title}
        note={`Without a title: ${titleOf(drawn)}`}
        onInput={(title) => setDrawn({ ...drawn, title })}
      />
      <Question model={model} drawn={drawn} isFixed={asksBoard} onChange={setDrawn} />
      <Look drawn={drawn} onChange={setDrawn} />
      {isChartable(drawn.query) ? (
        <section class="board-panel preview" aria-label="Preview">
          <PanelView drawn={{ ...drawn, title: 'Preview', live: false }} turn={0} />
        </section>
      ) : (
        <p class="quiet">A chart needs an aggregate, such as the count of all items.</p>
      )}
    </FormDialog>
  );
}

function titleOf({ collection, query }: Drawn): string {
  const { aggregates, groupBy } = fromQueryJson(collection, query, new Map());
  const names = aggregates.map(({ name, field }) => (field === '*' ? name : `${name} of ${field}`));
  const by = groupBy.length === 0 ? '' : ` by ${groupBy.join(', ')}`;
  return `${collection}: ${names.join(', ')}${by}`;
}

interface PartProps {
  readonly drawn: Drawn;
  readonly onChange: (drawn: Drawn) => void;
}

/** The collection, the aggregates and the filter. A chart from Query has its question already. */
function Question(props: PartProps & { readonly model: Model; readonly isFixed: boolean }): JSX.Element {
  const { model, drawn, isFixed, onChange } = props;
  const query = fromQueryJson(drawn.collection, drawn.query, model);
  const set = (next: Query): void => onChange({ ...drawn, query: toQueryJson(next) });
  const names = [...model.values()].filter(({ system }) => !system).map(({ name }) => [name, name] as const);
  if (isFixed || !model.has(drawn.collection))
    return (
      <p class="quiet">
        From <code>{drawn.collection}</code>
      </p>
    );
  return (
    <>
      <Choice
        label="Collection"
        value={drawn.collection}
        among={names}
        onInput={(collection) => onChange({ ...drawn, collection, query: firstDrawn(collection).query })}
      />
      <fieldset class="board-fieldset builder">
        <legend>Groups and aggregates</legend>
        <Groups model={model} query={query} onChange={set} />
      </fieldset>
      <fieldset class="board-fieldset builder">
        <legend>Filter</legend>
        <FilterDraft
          key={drawn.collection}
          model={model}
          collection={drawn.collection}
          group={query.level.filter}
          onChange={(filter) => set({ ...query, level: { ...EMPTY, ...query.level, filter } })}
        />
      </fieldset>
    </>
  );
}

function Look({ drawn, onChange }: PartProps): JSX.Element {
  const numbers = (among: readonly (readonly [number, string])[], value: number) =>
    (among.some(([each]) => each === value) ? among : [[value, String(value)] as const, ...among]).map(
      ([each, label]) => [String(each), label] as const,
    );
  return (
    <>
      <div class="board-look">
        <Choice
          label="Chart"
          value={drawn.kind}
          among={KINDS}
          onInput={(kind) => onChange({ ...drawn, kind: kind as ChartKind })}
        />
        <Choice
          label="Width"
          value={String(drawn.width)}
          among={numbers(WIDTHS, drawn.width)}
          onInput={(width) => onChange({ ...drawn, width: Number(width) })}
        />
        <Choice
          label="Height"
          value={String(drawn.height)}
          among={numbers(HEIGHTS, drawn.height)}
          onInput={(height) => onChange({ ...drawn, height: Number(height) })}
        />
      </div>
      <Check
        label="Live: update with every change"
        checked={drawn.live}
        onChange={(live) => onChange({ ...drawn, live })}
      />
    </>
  );
}
