/** The GraphQL IDE: a document with variables, its response, and the types of the caller's schema. */
import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { ApiError, call, messageOf } from '../../api';
import { highlighted, JSON_TEXT } from '../../highlight';
import { go, href, route, whenForgotten } from '../../state';
import { Button, ErrorBox } from '../../ui';
import { Editor } from './editor';
import './graphql.css';
import { TypeBrowser } from './type-browser';
import { Types } from './types';

const ENDPOINTS = ['/graphql', '/graphql/system'] as const;

/** Whether the user has cleared the document: otherwise an address without one shows the example. */
const emptied = signal(false);
/** Kept while the user visits other pages. */
const variables = signal('');
const answer = signal<{ readonly text: string; readonly isError: boolean; readonly milliseconds: number } | null>(null);
whenForgotten(() => {
  emptied.value = false;
  variables.value = '';
  answer.value = null;
});

export function GraphqlIde({ first }: { readonly first: string }): JSX.Element {
  const given = route.value.parameters;
  const endpoint = ENDPOINTS.find((each) => each === given.get('endpoint')) ?? ENDPOINTS[0];
  const example = endpoint === ENDPOINTS[0] ? first : '{\n  users {\n    email\n  }\n}\n';
  const text = given.get('document') ?? (emptied.value ? '' : example);
  const [chosen, setChosen] = useState('');
  const types = useMemo(() => new Types(endpoint), [endpoint]);
  useEffect(() => {
    answer.value = null;
  }, [endpoint]);
  const operations = [...text.matchAll(/\b(?:query|mutation)\s+(\w+)\s*[({@]/g)].map(([, name]) => String(name));
  const operationName = operations.includes(chosen) ? chosen : operations[0];
  const { problem, busy, run } = useRun(endpoint, text, operations.length > 1 ? operationName : undefined);
  return (
    <div class="graphql">
      <section class="graphql-main">
        <header class="toolbar">
          <h1>GraphQL</h1>
          <Choice
            label="Endpoint"
            value={endpoint}
            options={ENDPOINTS}
            onChange={(next) => go(href('docs', [], { view: 'graphql', endpoint: next }))}
          />
          {operations.length > 1 && (
            <Choice label="Operation" value={operationName ?? ''} options={operations} onChange={setChosen} />
          )}
          <span class="grow" />
          <span class="quiet graphql-keys">Ctrl Space completes, Ctrl Enter runs</span>
          <Button
            label={busy ? 'Running…' : 'Run'}
            icon="play"
            kind="primary"
            disabled={busy}
            onClick={() => void run()}
          />
        </header>
        <div class="graphql-panes">
          <div class="graphql-question">
            <Editor
              value={text}
              types={types}
              onInput={(document) => {
                emptied.value = document === '';
                go(href('docs', [], { view: 'graphql', endpoint, document }), true);
              }}
              onRun={() => void run()}
            />
            <Variables />
            {problem && <ErrorBox text={problem} />}
          </div>
          <Answer />
        </div>
      </section>
      <TypeBrowser types={types} />
    </div>
  );
}

interface Run {
  readonly problem: string | null;
  readonly busy: boolean;
  readonly run: () => Promise<void>;
}

function useRun(endpoint: string, query: string, operationName: string | undefined): Run {
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const run = async (): Promise<void> => {
    setProblem(null);
    setBusy(true);
    const begun = performance.now();
    const show = (value: unknown, isError: boolean): void => {
      answer.value = { text: JSON.stringify(value, null, 2), isError, milliseconds: performance.now() - begun };
    };
    try {
      const given: unknown = variables.value.trim() === '' ? {} : JSON.parse(variables.value);
      const { text } = await call('POST', endpoint, { body: { query, variables: given, operationName } });
      const parsed = JSON.parse(text) as { errors?: unknown };
      show(parsed, parsed.errors !== undefined);
    } catch (error) {
      if (error instanceof ApiError && error.status > 0) show({ errors: error.failures }, true);
      else setProblem(error instanceof SyntaxError ? `Variables must be JSON: ${error.message}` : messageOf(error));
    }
    setBusy(false);
  };
  return { problem, busy, run };
}

interface ChoiceProps {
  readonly label: string;
  readonly value: string;
  readonly options: readonly string[];
  readonly onChange: (value: string) => void;
}

function Choice({ label, value, options, onChange }: ChoiceProps): JSX.Element {
  return (
    <select aria-label={label} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
      {options.map((each) => (
        <option key={each}>{each}</option>
      ))}
    </select>
  );
}

function Variables(): JSX.Element {
  return (
    <>
      <label for="graphql-variables">
        Variables <small>JSON</small>
      </label>
      <textarea
        id="graphql-variables"
        class="mono"
        rows={4}
        spellcheck={false}
        value={variables.value}
        placeholder='{ "key": 1 }'
        onInput={(event) => (variables.value = event.currentTarget.value)}
      />
    </>
  );
}

const MOST_TEXT = 200_000;

function Answer(): JSX.Element {
  const shown = answer.value;
  return (
    <section class="graphql-answer" aria-label="Answer">
      {shown ? (
        <>
          <p class={shown.isError ? 'bad' : 'good'}>
            {shown.isError ? 'With errors' : 'Done'}, {Math.round(shown.milliseconds)} ms
          </p>
          <pre class="output" tabIndex={0} role="region" aria-label="Body of the response">
            {highlighted(shown.text.length > MOST_TEXT ? `${shown.text.slice(0, MOST_TEXT)}…` : shown.text, JSON_TEXT)}
          </pre>
        </>
      ) : (
        <p class="quiet">The response appears here.</p>
      )}
    </section>
  );
}
