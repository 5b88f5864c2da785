/** Query: one query as REST, GraphQL, SQL and plan, and its result. */
import type { JSX, RefObject } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { pretty } from '../../../src/compiler/sql/pretty';
import { type Answer, call, itemsPath, messageOf } from '../api';
import { isChartable } from '../boards/chart-data';
import { drawnOf, PanelForm } from '../boards/panel-form';
import type { Row } from '../data/edits';
import { subscribe } from '../live';
import type { Model } from '../model';
import { type Explanation, type PlanJson, readPlan, slowest } from '../plan/plan';
import { PlanTree } from '../plan/tree';
import { go, href, me, model as modelSignal, viewAs, writeAddress } from '../state';
import { Button, copyText, Empty, ErrorBox, Menu } from '../ui';
import { Builder } from './builder';
import { fromGraphql, toGraphql } from './graphql';
import './query.css';
import { firstQuery, type Query, toQueryJson } from './query';
import { fromSearch, fromUrl, toCurl, toSdk, toSearch, toUrl } from './rest';
import { ResultView, type Updates } from './result';
import { SavedQueries } from './saved';
import { addPast, addressOf, currentQuery, explain, past } from './session';
import { SqlText } from './sql-text';

export function QueryPage(): JSX.Element {
  const model = modelSignal.value as Model;
  const query = currentQuery(model);
  if (!query)
    return <Empty title="There is nothing to query yet">The database has no collection that you may see.</Empty>;
  return <QueryView model={model} query={query} />;
}

type Explained = { readonly explanation: Explanation } | { readonly error: string } | null;

function QueryView({ model, query }: { readonly model: Model; readonly query: Query }): JSX.Element {
  const [opened, setOpened] = useState<'saved' | 'board' | null>(null);
  const outcome = useRef<HTMLDivElement>(null);
  const explained = useExplanation(query);
  const { answer, error, busy, run, updates, live, setLive } = useAnswer(query, outcome);
  const show = (next: Query): void => go(addressOf(next), true);
  const rows = Array.isArray(answer?.data) ? (answer.data as Row[]) : answer?.data ? [answer.data as Row] : [];
  return (
    <div class="query">
      <aside class="query-side" aria-label="Builder">
        <select
          aria-label="Collection"
          value={query.collection}
          onChange={(event) => show(firstQuery(event.currentTarget.value, model))}
        >
          {[...model.values()]
            .filter(({ system }) => !system)
            .map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
        </select>
        <Builder model={model} query={query} onChange={show} />
      </aside>
      <section class="query-main">
        <header class="toolbar query-bar">
          <Heading query={query} explained={explained} />
          <Commands {...{ query, live, busy, onOpen: setOpened, onLive: setLive }} onRun={() => void run()} />
        </header>
        <div class="panels">
          <RestPanel model={model} query={query} onChange={show} />
          <EditPanel
            title="GraphQL"
            text={toGraphql(query)}
            onEdit={(text) => show(fromGraphql(text, model))}
            key={`graphql ${query.collection}`}
          />
          <SqlPanel explained={explained} />
          <PlanPanel query={query} explained={explained} />
        </div>
        <div ref={outcome} class="query-outcome" />
        {error && <ErrorBox text={error} />}
        {answer && <ResultView query={query} answer={answer} rows={rows} updates={updates} />}
        {!answer && !error && (
          <Empty title="Not run yet">
            <span>
              Press <kbd>Ctrl Enter</kbd> or Run. Every query is one statement.
            </span>
          </Empty>
        )}
      </section>
      {opened === 'saved' && <SavedQueries model={model} query={query} onClose={() => setOpened(null)} />}
      {opened === 'board' && (
        <PanelForm
          drawn={drawnOf(query)}
          panel={null}
          board={null}
          onClose={() => setOpened(null)}
          onSaved={(board) => go(href('boards', board === null ? [] : [board]))}
        />
      )}
    </div>
  );
}

/** The statement and plan of the query, for administrators. Null until they are known. */
function useExplanation(query: Query): Explained {
  const [explained, setExplained] = useState<Explained>(null);
  useEffect(() => {
    if (!isAdministrator()) return;
    const request = new AbortController();
    const wait = setTimeout(() => {
      explain(query, false, request.signal).then(
        (explanation) => setExplained({ explanation }),
        (failure: unknown) => {
          if (!request.signal.aborted) setExplained({ error: messageOf(failure) });
        },
      );
    }, 250);
    return () => {
      clearTimeout(wait);
      request.abort();
    };
  }, [addressOf(query)]);
  return explained;
}

function isAdministrator(): boolean {
  return me.value?.administrator === true;
}

interface Answered {
  readonly answer: Answer<unknown> | null;
  readonly error: string | null;
  readonly busy: boolean;
  readonly run: () => Promise<void>;
  readonly updates: Updates | null;
  readonly live: boolean;
  readonly setLive: (live: boolean) => void;
}

/** The result of the query: of the last run, or of the live query. */
function useAnswer(query: Query, outcome: RefObject<HTMLElement | null>): Answered {
  const [answer, setAnswer] = useState<Answer<unknown> | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const [live, setLive] = useState(false);
  const [updates, setUpdates] = useState<Updates | null>(null);
  /** The keys start another run while one is waiting: only the result of the last is shown. */
  const running = useRef<AbortController | null>(null);
  const run = async (): Promise<void> => {
    running.current?.abort();
    const request = new AbortController();
    const { signal } = request;
    running.current = request;
    setBusy(true);
    setError(null);
    try {
      const got = await ask(query, signal);
      if (signal.aborted) return;
      setAnswer(got);
      setUpdates(null);
    } catch (failure) {
      if (signal.aborted) return;
      setError(messageOf(failure));
      setAnswer(null);
    }
    setBusy(false);
    // On a narrow screen the result is far below the button.
    if (matchMedia('(max-width: 719px)').matches)
      requestAnimationFrame(() => outcome.current?.scrollIntoView({ block: 'start' }));
  };
  // Rows of another collection would pass for rows of this one.
  useEffect(
    () => () => {
      running.current?.abort();
      setBusy(false);
      setError(null);
      setAnswer(null);
    },
    [query.collection],
  );
  useEffect(() => {
    if (!live) return;
    let count = 0;
    const onAnswer = (text: string): void => {
      setError(null);
      setAnswer(liveAnswer(text));
      setUpdates({ count: count++, at: new Date() });
    };
    const onFailed = (message: string): void => {
      setLive(false);
      setError(message);
    };
    return subscribe(itemsPath(query.collection), { query: toQueryJson(query) }, { onAnswer, onFailed });
  }, [addressOf(query), live]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      void run();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  });
  return { answer, error, busy, run, updates, live, setLive };
}

/** Adds the query to the history. */
async function ask(query: Query, signal: AbortSignal): Promise<Answer<unknown>> {
  const asked = { body: { query: toQueryJson(query) }, headers: { Prefer: 'timing' }, signal };
  const got = await call<unknown>('SEARCH', itemsPath(query.collection), asked);
  addPast({ query, milliseconds: got.milliseconds, rows: Array.isArray(got.data) ? got.data.length : 1 });
  return got;
}

interface ExplainedProps {
  readonly explained: Explained;
}

function planOf(explained: Explained): PlanJson | null {
  return explained && 'explanation' in explained ? explained.explanation.plan[0].Plan : null;
}

function Heading({ query, explained }: ExplainedProps & { readonly query: Query }): JSX.Element {
  const plan = planOf(explained);
  return (
    <>
      <h1>{query.collection}</h1>
      {plan && (
        <span class="quiet cost" title="The planner's estimate before the run">
          cost {readPlan(plan).cost.toLocaleString('en')}
        </span>
      )}
      <span class="grow" />
    </>
  );
}

interface CommandsProps {
  readonly query: Query;
  readonly live: boolean;
  readonly busy: boolean;
  readonly onOpen: (dialog: 'saved' | 'board') => void;
  readonly onLive: (live: boolean) => void;
  readonly onRun: () => void;
}

function Commands({ query, live, busy, onOpen, onLive, onRun }: CommandsProps): JSX.Element {
  const copyLink = (): void => {
    writeAddress();
    void copyText(location.href, 'Link copied');
  };
  return (
    <>
      <Menu
        label="History"
        icon="clock"
        disabled={past.value.length === 0}
        entries={past.value.map((each) => ({
          label: `${toUrl(each.query).slice(0, 60)} · ${each.rows} rows`,
          onClick: () => go(addressOf(each.query)),
        }))}
      />
      <Button label="Saved" icon="bookmark" onClick={() => onOpen('saved')} />
      <Button label="Copy link" icon="link" onClick={copyLink} />
      {!viewAs.value && isChartable(toQueryJson(query)) && (
        <Button label="Add to board" icon="plus" onClick={() => onOpen('board')} />
      )}
      {!viewAs.value && (
        <Button
          label="Live"
          icon="pulse"
          pressed={live}
          hint="Update the result whenever it changes"
          onClick={() => onLive(!live)}
        />
      )}
      <Button
        label={busy ? 'Running…' : 'Run'}
        icon="play"
        kind="primary"
        hint="Ctrl Enter"
        disabled={busy}
        onClick={onRun}
      />
    </>
  );
}

function SqlPanel({ explained }: ExplainedProps): JSX.Element {
  return (
    <Panel title="SQL" text={explained && 'explanation' in explained ? sqlText(explained.explanation) : ''}>
      {!isAdministrator() ? (
        <p class="quiet">Only administrators see the statement and its plan.</p>
      ) : explained && 'error' in explained ? (
        <ErrorBox text={explained.error} />
      ) : explained ? (
        <SqlText text={sqlText(explained.explanation)} />
      ) : (
        <p class="quiet">Asking…</p>
      )}
    </Panel>
  );
}

function PlanPanel({ query, explained }: ExplainedProps & { readonly query: Query }): JSX.Element {
  const plan = planOf(explained);
  const root = plan && readPlan(plan);
  return (
    <Panel
      title="Plan"
      scrolls
      text={plan ? JSON.stringify(plan, null, 2) : ''}
      more={isAdministrator() && <Button label="Analyze" onClick={() => go(addressOf(query, 'plan'))} />}
    >
      {root ? (
        <PlanTree node={root} worst={slowest(root)} whole={root.cost} short />
      ) : (
        <p class="quiet">{isAdministrator() ? 'The plan of the statement.' : 'Only administrators see it.'}</p>
      )}
    </Panel>
  );
}

function liveAnswer(text: string): Answer<unknown> {
  const { data } = JSON.parse(text) as { readonly data: unknown };
  return { data, meta: {}, status: 200, text, milliseconds: 0, timing: [], batch: 1 };
}

function sqlText({ sql, parameters }: Explanation): string {
  // One line each: text after a line break would be read as a statement.
  const values = parameters.map(
    (value, at) => `-- $${at + 1} = ${value === null ? 'null' : `'${value.replaceAll('\n', '\\n')}'`}`,
  );
  return `${pretty(sql)}${values.length > 0 ? `\n${values.join('\n')}\n` : ''}`;
}

function Panel(props: {
  readonly title: string;
  readonly text: string;
  readonly more?: JSX.Element | false;
  /** Whether it contains nothing focusable, so that the keys scroll it. */
  readonly scrolls?: boolean;
  readonly children: JSX.Element;
}): JSX.Element {
  return (
    <section class="panel" aria-label={props.title}>
      <header>
        <h2>{props.title}</h2>
        <span class="grow" />
        {props.more}
        <Button
          label={`Copy ${props.title}`}
          icon="copy"
          kind="quiet"
          compact
          disabled={props.text === ''}
          onClick={() => void copyText(props.text)}
        />
      </header>
      <div class="panel-body" {...(props.scrolls ? { tabIndex: 0, role: 'group', 'aria-label': props.title } : {})}>
        {props.children}
      </div>
    </section>
  );
}

interface EditProps {
  readonly title: string;
  readonly text: string;
  /** Throws the error; null if the text cannot be edited. */
  readonly onEdit: ((text: string) => void) | null;
  readonly more?: JSX.Element;
}

/** An editable text: valid changes update the tree at once. */
function EditPanel({ title, text, onEdit, more }: EditProps): JSX.Element {
  const [typed, setTyped] = useState<string | null>(null);
  const [error, setError] = useState<string | null>(null);
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    // Another part of the page has changed the query.
    if (document.activeElement === area.current) return;
    setTyped(null);
    setError(null);
  }, [text]);
  const edit = (next: string): void => {
    setTyped(next);
    try {
      onEdit?.(next);
      setError(null);
    } catch (failure) {
      setError(messageOf(failure));
    }
  };
  return (
    <Panel title={title} text={typed ?? text} more={more ?? false}>
      <>
        <textarea
          ref={area}
          class="code"
          aria-label={title}
          aria-invalid={error !== null}
          spellcheck={false}
          readOnly={onEdit === null}
          value={typed ?? text}
          onInput={(event) => edit(event.currentTarget.value)}
          onBlur={() => {
            // Keep incomplete text.
            if (error === null) setTyped(null);
          }}
        />
        {error && <p class="bad panel-error">{error}</p>}
      </>
    </Panel>
  );
}

const FORMS = {
  url: { label: 'URL', write: toUrl, read: fromUrl },
  search: { label: 'SEARCH body', write: toSearch, read: fromSearch },
  curl: { label: 'curl', write: toCurl, read: null },
  sdk: { label: 'SDK', write: toSdk, read: null },
} as const;

function RestPanel(props: {
  readonly model: Model;
  readonly query: Query;
  readonly onChange: (query: Query) => void;
}): JSX.Element {
  const [form, setForm] = useState<keyof typeof FORMS>('url');
  const { write, read } = FORMS[form];
  return (
    <EditPanel
      title="REST"
      key={form}
      text={write(props.query)}
      onEdit={read && ((text) => props.onChange(read(text, props.model)))}
      more={
        <select
          aria-label="Form of the request"
          value={form}
          onChange={(event) => setForm(event.currentTarget.value as keyof typeof FORMS)}
        >
          {Object.entries(FORMS).map(([name, { label }]) => (
            <option key={name} value={name}>
              {label}
            </option>
          ))}
        </select>
      }
    />
  );
}
